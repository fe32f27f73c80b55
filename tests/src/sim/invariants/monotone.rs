//! The step that a master tells of never goes back, but with a rewind.

use crate::sim::evidence::Evidence;

pub(super) fn check(evidence: &Evidence) -> Result<(), String> {
    match evidence.steps.windows(2).find(|pair| pair[0] > pair[1]) {
        Some(pair) => {
            Err(format!("after (term, rewind, step) {:?} the master told of {:?}", pair[0], pair[1]))
        }
        None => Ok(()),
    }
}
