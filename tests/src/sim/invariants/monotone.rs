//! The master's step never goes back.

use crate::sim::evidence::Evidence;

pub(super) fn check(evidence: &Evidence) -> Result<(), String> {
    match evidence.steps.windows(2).find(|pair| pair[0] > pair[1]) {
        Some(pair) => Err(format!("after step {} the master told of step {}", pair[0], pair[1])),
        None => Ok(()),
    }
}
