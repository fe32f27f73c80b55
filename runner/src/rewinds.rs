//! How often a job went back, and why, in words and as JSON: of a status, or of what a journal kept of one. Pure.

use serde_json::{Map, Value};
use shoal_runtime::cluster::RewindCauses;
use shoal_runtime::cluster::rewind_cause::from_counts;
use shoal_runtime::wire::proto::StatusReply;

/// How often for which cause.
pub fn causes(status: &StatusReply) -> RewindCauses {
    from_counts(&status.rewinds_by_cause)
}

/// `once: WHY`, or `3 times: WHY (2), WHY (1)`.
pub fn text(times: u64, causes: &RewindCauses) -> String {
    let known: u64 = causes.values().sum();
    let mut whys: Vec<(u64, &str)> = causes.iter().map(|(cause, times)| (*times, cause.text())).collect();
    if known < times {
        whys.push((times - known, "why is not known"));
    }
    match (times, &whys[..]) {
        (0, _) => "never".to_owned(),
        (1, [(_, why)]) => format!("once: {why}"),
        (_, [(_, why)]) => format!("{times} times: {why}"),
        (_, whys) => {
            let each: Vec<String> = whys.iter().map(|(times, why)| format!("{why} ({times})")).collect();
            format!("{times} times: {}", each.join(", "))
        }
    }
}

/// The words of the causes, each with its number.
pub fn json(status: &StatusReply) -> Value {
    let causes = causes(status);
    let pairs = causes.iter().map(|(cause, times)| (cause.word().to_owned(), Value::from(*times)));
    Value::Object(pairs.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use shoal_runtime::cluster::RewindCause;

    #[test]
    fn each_cause_is_said_with_its_number_and_nobody_is_blamed_for_what_was_not_kept() {
        let causes = |of: &[(RewindCause, u64)]| of.iter().copied().collect::<RewindCauses>();
        assert_eq!(text(0, &causes(&[])), "never");
        let excluded = causes(&[(RewindCause::RecordsExcluded, 1)]);
        assert_eq!(text(1, &excluded), "once: records were left out");
        let lost = causes(&[(RewindCause::PserverLost, 2)]);
        assert_eq!(text(2, &lost), "2 times: a pserver was lost, and no copy of its blocks was left");
        let both = causes(&[(RewindCause::CheckpointDamaged, 1), (RewindCause::RecordsExcluded, 2)]);
        assert_eq!(text(3, &both), "3 times: a checkpoint was damaged (1), records were left out (2)");
        assert_eq!(text(2, &excluded), "2 times: records were left out (1), why is not known (1)");
    }

    #[test]
    fn json_has_one_word_for_each_cause() {
        let status = StatusReply { rewind: 4, rewinds_by_cause: vec![1, 0, 3], ..Default::default() };
        assert_eq!(json(&status), json!({ "pserver-lost": 1, "records-excluded": 3 }));
    }
}
