//! What a state says it has applied is what it has applied: of every state that a follower was given, the counters are
//! those of its ledger.

use crate::sim::evidence::Evidence;
use crate::sim::observer::values;
use crate::sim::program::COUNTS;
use crate::sim::units::counted;
use shoal_runtime::cluster::{BlockId, Layout, Ledger};
use shoal_runtime::wire::proto;

pub(super) fn check(evidence: &Evidence) -> Result<(), String> {
    // Steps may be skipped, counters included.
    if evidence.scenario.decisions.is_some_and(|decisions| decisions.takes_non_finite()) {
        return Ok(());
    }
    if !evidence.exclusions().list.is_empty() {
        return Ok(());
    }
    let copies = evidence.seen.copies();
    if copies.is_empty() {
        return Ok(());
    }
    let units = counted(&evidence.job, &evidence.data, evidence.job.course().units());
    let declaration = evidence.scenario.program().declaration(evidence.job.records);
    let layout = Layout::new(&declaration);
    for (name, copy) in copies {
        let counts = counts(evidence, &units, &copy)?;
        // What is no counter is not looked at.
        let column =
            |parameter: &shoal_runtime::cluster::Parameter| match COUNTS.contains(&parameter.name.as_str()) {
                true => counts.clone(),
                false => vec![f32::NAN; parameter.elements() as usize],
            };
        let columns: Vec<Vec<f32>> = declaration.parameters.iter().map(column).collect();
        let mut expected = Vec::new();
        let Some(block) = layout.block(BlockId(copy.block)) else { continue };
        block.gather(&columns, &mut expected);
        let found = values(&copy.parameters);
        let differs = |(found, expected): &(&f32, &f32)| !expected.is_nan() && found != expected;
        if let Some((found, expected)) = found.iter().zip(&expected).find(differs) {
            return Err(format!(
                "the state (block, term, version) {name:?} counts {found}, its ledger {expected}"
            ));
        }
    }
    Ok(())
}

/// What every record has given by the ledger of a state.
fn counts(
    evidence: &Evidence,
    units: &[Vec<(usize, f32)>],
    copy: &proto::BlockCopy,
) -> Result<Vec<f32>, String> {
    let mut counts = vec![0.0; evidence.job.records as usize];
    let version = copy.name.unwrap_or_default().version;
    let ledger =
        Ledger::try_from(copy.ledger.clone().unwrap_or_default()).map_err(|refusal| refusal.to_string())?;
    let is_in = |unit: u64| if evidence.job.is_sync() { unit < version } else { ledger.contains(unit) };
    for (_, given) in units.iter().enumerate().filter(|(unit, _)| is_in(*unit as u64)) {
        given.iter().for_each(|(record, count)| counts[*record] += count);
    }
    Ok(counts)
}
