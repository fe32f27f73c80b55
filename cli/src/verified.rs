//! What a job says of microbatches that were computed twice, to people and to programs. Pure.

use serde_json::{Value, json};
use shoal_runtime::wire::proto::StatusReply;

fn share(status: &StatusReply) -> f64 {
    f64::from(status.verify_millionths) / 1e6
}

/// How many there were; nothing in a job that verifies none.
pub(crate) fn line(status: &StatusReply) -> Option<String> {
    let StatusReply { verify_millionths, microbatches_verified, microbatches_unverified, .. } = status;
    let words = format!(
        "verified  {microbatches_verified} microbatches computed twice, {microbatches_unverified} not in time (a share of {})",
        share(status)
    );
    (*verify_millionths > 0).then_some(words)
}

/// The same for programs.
pub(crate) fn json(status: &StatusReply) -> Value {
    json!({
        "verify": share(status), "microbatches_verified": status.microbatches_verified,
        "microbatches_unverified": status.microbatches_unverified,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_verifies_says_how_many_and_others_say_nothing_of_it() {
        let status = StatusReply {
            verify_millionths: 50_000,
            microbatches_verified: 7,
            microbatches_unverified: 1,
            ..Default::default()
        };
        let said = "verified  7 microbatches computed twice, 1 not in time (a share of 0.05)";
        assert_eq!(line(&status).as_deref(), Some(said));
        assert_eq!(line(&StatusReply::default()), None);
    }
}
