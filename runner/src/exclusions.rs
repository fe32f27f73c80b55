//! Records that were left out, and those that some trainers could not use: in words and as JSON, wherever a job is told of. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shoal_runtime::wire::proto::{RecordRange, StatusReply, TroubleStatus};

/// So many are named; of the others it is said how many there are.
pub const NAMED_MAX: usize = 20;

/// Records that are left out by one decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excluded {
    /// File, chunk and record.
    pub what: String,
    /// What a trainer said of them.
    pub why: String,
    /// From this step on; in asynchronous jobs 0.
    pub from: u64,
}

impl Excluded {
    /// In one line.
    pub fn line(&self) -> String {
        format!("left out from step {}: {}: {}", self.from, self.what, self.why)
    }
}

/// What is left out, in the order of the decisions.
pub fn of(status: &StatusReply) -> Vec<Excluded> {
    let excluded = |trouble: &TroubleStatus| {
        let (what, why) = (trouble.what.clone(), trouble.why.clone());
        Some(Excluded { what, why, from: trouble.excluded_from? })
    };
    status.troubles.iter().filter_map(excluded).collect()
}

/// Whether a record of the data set is left out.
pub fn excludes(status: &StatusReply, record: u64) -> bool {
    let has = |records: &RecordRange| (records.first..records.end).contains(&record);
    let excluded = status.troubles.iter().filter(|trouble| trouble.excluded_from.is_some());
    excluded.filter_map(|trouble| trouble.records.as_ref()).any(has)
}

/// The first of some lines, and how many there are beside these.
pub fn bounded(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(NAMED_MAX);
    lines.truncate(NAMED_MAX);
    lines.extend((more > 0).then(|| format!("and {more} more")));
    lines
}

/// What a job that is over has left out, for people: nothing where it has all.
pub fn lines(status: &StatusReply) -> Vec<String> {
    if status.records_excluded == 0 {
        return Vec::new();
    }
    let head =
        format!("DEGRADED: {} left out, at most {} may be", status.records_excluded, status.exclude_max);
    let each = bounded(of(status).iter().map(Excluded::line).collect());
    std::iter::once(head).chain(each.into_iter().map(|line| format!("  {line}"))).collect()
}

/// Records that trainers could not use, for people: those left out, and those that are still tried.
pub fn troubles(status: &StatusReply) -> Vec<String> {
    let tried = |trouble: &TroubleStatus| {
        let TroubleStatus { what, why, attempts, trainers, .. } = trouble;
        format!("tried {attempts} times, by {}: {what}: {why}", trainers.join(", "))
    };
    let open = status.troubles.iter().filter(|trouble| trouble.excluded_from.is_none());
    let open = bounded(open.map(tried).collect()).into_iter().map(|line| format!("  {line}"));
    let mut lines = lines(status);
    if lines.is_empty() && !status.troubles.is_empty() {
        lines.push(format!("0 left out, at most {} may be", status.exclude_max));
    }
    lines.extend(open);
    lines
}

/// All that is left out.
pub fn json(status: &StatusReply) -> Value {
    let excluded = status.troubles.iter().filter(|trouble| trouble.excluded_from.is_some());
    let each = excluded.map(|trouble| {
        json!({
            "what": trouble.what, "why": trouble.why, "from_step": trouble.excluded_from,
            "records": trouble.records.map(|records| [records.first, records.end]),
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(excluded: u64, open: usize) -> StatusReply {
        let trouble = |record: u64, excluded_from| TroubleStatus {
            records: Some(RecordRange { first: record, end: record + 1 }),
            what: format!("f.recordio, chunk 0 at offset 0, record {record} of 90"),
            why: "no number".to_owned(),
            excluded_from,
            attempts: 2,
            trainers: vec!["a".to_owned(), "b".to_owned()],
        };
        let troubles = (0..excluded).map(|record| trouble(record, Some(7)));
        let troubles = troubles.chain((0..open).map(|at| trouble(100 + at as u64, None))).collect();
        StatusReply { troubles, records_excluded: excluded, exclude_max: 50, ..Default::default() }
    }

    #[test]
    fn who_is_left_out_is_named_by_file_chunk_and_record_up_to_a_bound() {
        let two = lines(&status(2, 1));
        assert_eq!(two[0], "DEGRADED: 2 left out, at most 50 may be");
        assert_eq!(
            two[1],
            "  left out from step 7: f.recordio, chunk 0 at offset 0, record 0 of 90: no number"
        );
        assert_eq!((two.len(), lines(&status(20, 0)).len()), (3, 21));
        let many = lines(&status(45, 0));
        assert_eq!((many.len(), many.last().unwrap().as_str()), (22, "  and 25 more"));
        assert_eq!(lines(&status(0, 3)), Vec::<String>::new());
        assert_eq!(json(&status(45, 1)).as_array().map(Vec::len), Some(45), "whoever reads JSON gets all");
    }

    #[test]
    fn those_that_are_still_tried_are_told_from_those_that_are_left_out() {
        let told = troubles(&status(1, 22));
        assert_eq!(told.len(), 1 + 1 + 21);
        assert!(told[2].starts_with("  tried 2 times, by a, b: f.recordio"), "{told:?}");
        assert_eq!(troubles(&status(0, 1))[0], "0 left out, at most 50 may be");
        assert_eq!(troubles(&StatusReply::default()), Vec::<String>::new());
        let one = status(1, 1);
        assert_eq!([0, 1, 100].map(|record| excludes(&one, record)), [true, false, false]);
    }
}
