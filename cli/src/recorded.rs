//! What a job says of steps whose hashes are recorded, to people and to programs. Pure.

use serde_json::{Value, json};
use shoal_runtime::wire::proto::StatusReply;

/// How many there are; nothing in a job that records none.
pub(crate) fn line(status: &StatusReply) -> Option<String> {
    let StatusReply { record_hashes, steps_recorded, steps_unrecorded, .. } = status;
    let lost = match steps_unrecorded {
        0 => String::new(),
        lost => format!("; of {lost} more they are lost"),
    };
    let words = format!("recorded  one step in {record_hashes}: hashes of {steps_recorded} steps{lost}");
    (*record_hashes > 0).then_some(words)
}

/// The same for programs.
pub(crate) fn json(status: &StatusReply) -> Value {
    json!({
        "record_hashes": status.record_hashes, "steps_recorded": status.steps_recorded,
        "steps_unrecorded": status.steps_unrecorded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_records_says_how_many_steps_and_others_say_nothing_of_it() {
        let status =
            StatusReply { record_hashes: 10, steps_recorded: 7, steps_unrecorded: 1, ..Default::default() };
        let said = "recorded  one step in 10: hashes of 7 steps; of 1 more they are lost";
        assert_eq!(line(&status).as_deref(), Some(said));
        assert_eq!(line(&StatusReply::default()), None);
    }
}
