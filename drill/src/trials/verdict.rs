//! Whether a job under faults ended as it would have undisturbed. Pure.

use shoal_runner::programs::Tally;

/// How a job ended.
#[derive(Clone, Debug)]
pub(super) struct EndState {
    pub(super) is_synchronous: bool,
    pub(super) sha256: String,
    /// Where the program counts its records.
    pub(super) tally: Option<Tally>,
    pub(super) records_trained: u64,
    /// None where records were left out, or training stopped early.
    pub(super) records_planned: Option<u64>,
    pub(super) rewinds: u64,
}

/// The promises that a job broke.
pub(super) fn violations(end: &EndState, undisturbed: &EndState) -> Vec<String> {
    let mut broken = Vec::new();
    if let Some(Tally { wrong, counted, expected, .. }) = &end.tally
        && (*wrong > 0 || counted != expected)
    {
        broken.push(format!("{counted}/{expected} records counted, {wrong} of them wrongly"));
    }
    if undisturbed.tally.is_some() && end.tally.is_none() {
        broken.push("the program's counts are missing".to_owned());
    }
    if let Some(planned) = end.records_planned
        && end.records_trained != planned
    {
        broken.push(format!("{} of {planned} records trained", end.records_trained));
    }
    if end.is_synchronous && end.sha256 != undisturbed.sha256 {
        broken.push(format!("parameters sha256 {}, undisturbed {}", end.sha256, undisturbed.sha256));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(is_synchronous: bool) -> EndState {
        let tally = Some(Tally { expected: 20, counted: 20, wrong: 0 });
        let sha256 = "abc".to_owned();
        EndState { is_synchronous, sha256, tally, records_trained: 20, records_planned: Some(20), rewinds: 0 }
    }

    #[test]
    fn a_job_holds_with_exact_counts_and_synchronous_ones_with_the_same_bits() {
        let other_bits = |is_synchronous| EndState { sha256: "abd".to_owned(), ..end(is_synchronous) };
        assert!(violations(&end(true), &end(true)).is_empty());
        assert!(violations(&other_bits(false), &end(false)).is_empty(), "asynchronous bits are not promised");
        assert_eq!(violations(&other_bits(true), &end(true)).len(), 1);
        for (counted, wrong) in [(19, 1), (20, 2), (21, 0)] {
            let tally = Some(Tally { expected: 20, counted, wrong });
            assert_eq!(violations(&EndState { tally, ..end(false) }, &end(false)).len(), 1);
        }
        assert_eq!(violations(&EndState { tally: None, ..end(false) }, &end(false)).len(), 1);
        assert_eq!(violations(&EndState { records_trained: 19, ..end(false) }, &end(false)).len(), 1);
        let early = EndState { records_trained: 19, records_planned: None, tally: None, ..end(true) };
        assert!(violations(&early, &early).is_empty());
    }
}
