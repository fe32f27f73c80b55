//! P1: the counters hold what every record must have given, no more and no less.

use crate::sim::evidence::Evidence;
use crate::sim::program::COUNTS;
use shoal_runtime::cluster::Step;

pub(super) fn check(evidence: &Evidence) -> Result<(), String> {
    let trained = evidence.trained.as_ref().map_err(Clone::clone)?;
    if evidence.scenario.decisions.is_some_and(|decisions| decisions.takes_non_finite()) {
        // Steps may be skipped, metrics included: the definition says which.
        return Ok(());
    }
    // 4^0 + 4^1 + ... over the epochs.
    let expected = (0..evidence.job.epochs).map(|epoch| (1u32 << (2 * epoch)) as f32).sum::<f32>();
    let program = evidence.scenario.program();
    let declaration = program.declaration(evidence.job.records);
    // Of what was left out at some time the definition says how often it counted before.
    let exclusions = evidence.exclusions();
    let is_left_out = |record: usize| exclusions.excludes(record as u64, Step(u64::MAX));
    for (parameter, trained) in declaration.parameters.iter().zip(trained) {
        if !COUNTS.contains(&parameter.name.as_str()) {
            continue;
        }
        if let Some((record, count)) =
            trained.values.iter().enumerate().find(|(at, count)| **count != expected && !is_left_out(*at))
        {
            return Err(format!("record {record} gave {count} to {:?}, not {expected}", parameter.name));
        }
    }
    Ok(())
}
