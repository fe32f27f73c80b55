//! What becomes of records that no trainer can use: left out by one swap, or the end of the job.
//!
//! In synchronous jobs the swap takes all blocks back to before the first step that leaves them out, so that the rewind
//! number refuses whatever was computed with them; a step that every block has applied stays as it is. In asynchronous
//! jobs whoever still lacks them does without, by the number of the list.

use super::{Seen, Wishes, failover};
use crate::document::{Document, End};
use crate::trouble::Trouble;
use shoal_runtime::cluster::exclusions::EXCLUSIONS_MAX;
use shoal_runtime::cluster::{Exclusion, Exclusions, RewindCause, Step, Version};
use std::collections::BTreeSet;
use std::ops::Range;

/// Counts complaints, and judges whatever is certain.
pub(super) fn judge(next: &mut Document, wishes: &Wishes, seen: &Seen<'_>, version: u64) {
    next.failures = wishes.failures;
    let Some(front) = seen.front else { return };
    // What a durable checkpoint has was applied by every block.
    let front = front.max(next.newest().map_or(Version(0), |kept| kept.version));
    let is_sync = next.job.is_sync();
    for complaint in seen.complaints.iter().filter(|complaint| !is_sync || complaint.unit >= front.0) {
        // Who does not know yet of what was left out since says nothing new.
        let step = Step(complaint.unit);
        if !complaint.records.as_ref().is_some_and(|records| next.exclusions.excludes_all(records, step)) {
            Trouble::count(&mut next.troubles, complaint);
        }
    }
    if seen.hosts.is_empty() {
        return;
    }
    let from = if is_sync { Step(front.0) } else { Step(0) };
    let is_open = |trouble: &Trouble| !is_sync || trouble.unit >= front.0;
    let is_certain = |trouble: &mut Trouble| trouble.is_certain(seen.able_trainers) && is_open(trouble);
    let certain: Vec<Trouble> = next.troubles.extract_if(.., is_certain).collect();
    let mut is_excluded = false;
    for trouble in certain {
        match excluded(&next.exclusions, &trouble, from, wishes.wanted.exclude_max) {
            Ok(exclusion) => {
                next.exclusions.list.push(exclusion);
                is_excluded = true;
            }
            Err(why) => next.end = next.end.take().or(Some(End::Failed(why))),
        }
    }
    if is_excluded {
        next.exclusions.number = version;
        if is_sync {
            next.named = None;
            // What was found of later versions is of a history that is no more.
            next.evaluations.truncate(next.job.course().evaluated(from.0) as usize);
            failover::restore(next, &BTreeSet::new(), seen, version, RewindCause::RecordsExcluded);
        }
    }
}

/// The exclusion that a trouble calls for, or why the job fails.
fn excluded(present: &Exclusions, trouble: &Trouble, from: Step, most: u64) -> Result<Exclusion, String> {
    let Trouble { records, what, attempts, trainers, why, .. } = trouble;
    let trainers = trainers.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let tried = format!("{why} ({attempts} attempts, by {trainers})");
    let Some(records) = records.clone() else {
        return Err(format!(
            "no trainer can do {what}: {tried}; no single record is to blame, and leaving some out does not help"
        ));
    };
    let exclusion = Exclusion { records: records.clone(), from, why: tried.clone() };
    let mut list = present.list.clone();
    list.push(exclusion.clone());
    let count = Exclusions { number: 0, list }.count();
    if count > most || present.list.len() >= EXCLUSIONS_MAX {
        return Err(format!(
            "no trainer can use {what}: {tried}; mend the data, or leave out up to {} by --exclude-max {}",
            plural(&records),
            count
        ));
    }
    Ok(exclusion)
}

fn plural(records: &Range<u64>) -> String {
    match records.end - records.start {
        1 => String::from("one record"),
        count => format!("{count} records"),
    }
}
