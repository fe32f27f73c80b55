//! P6: a job that stands still names its cause, and the cause is true.

use crate::sim::evidence::Evidence;

pub(super) fn check(evidence: &Evidence) -> Result<(), String> {
    match evidence.standstills.first() {
        Some(first) => Err(format!("{first} ({} in all)", evidence.standstills.len())),
        None => Ok(()),
    }
}
