//! P1: the counters hold what every record must have given, no more and no less.

use crate::sim::evidence::Evidence;
use crate::sim::program::{COUNTS, declaration};

pub(super) fn check(evidence: &Evidence) -> Result<(), String> {
    let trained = evidence.trained.as_ref().map_err(Clone::clone)?;
    // 4^0 + 4^1 + ... over the epochs.
    let expected = (0..evidence.job.epochs).map(|epoch| (1u32 << (2 * epoch)) as f32).sum::<f32>();
    let declaration = declaration(evidence.job.records, evidence.scenario.block_elements);
    for (parameter, trained) in declaration.parameters.iter().zip(trained) {
        if !COUNTS.contains(&parameter.name.as_str()) {
            continue;
        }
        if let Some((record, count)) =
            trained.values.iter().enumerate().find(|(_, count)| **count != expected)
        {
            return Err(format!("record {record} gave {count} to {:?}, not {expected}", parameter.name));
        }
    }
    Ok(())
}
