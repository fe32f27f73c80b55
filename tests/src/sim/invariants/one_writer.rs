//! The fence: under one term one primary writes, and one name has one content. The same of documents and their revisions.

use crate::sim::evidence::Evidence;
use std::collections::BTreeMap;

pub(super) fn check(evidence: &Evidence) -> Result<(), String> {
    if let Some(fault) = evidence.seen.faults().into_iter().chain(evidence.history.faults()).next() {
        return Err(fault);
    }
    let mut writers: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for ((block, term, _), entry) in evidence.seen.entries() {
        let writer = *writers.entry((block, term)).or_insert(entry.primary);
        if writer != entry.primary {
            return Err(format!(
                "both {writer} and {} wrote to block {block} under term {term}",
                entry.primary
            ));
        }
    }
    Ok(())
}
