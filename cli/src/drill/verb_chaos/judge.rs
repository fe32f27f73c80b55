//! Whether a job under fire ended as it would have undisturbed. Pure.

use shoal_runner::programs::Tally;

/// How a job ended.
#[derive(Clone, Debug)]
pub(super) struct Ending {
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
pub(super) fn broken(ending: &Ending, undisturbed: &Ending) -> Vec<String> {
    let mut broken = Vec::new();
    if let Some(Tally { wrong, counted, expected, .. }) = &ending.tally
        && (*wrong > 0 || counted != expected)
    {
        broken.push(format!("{counted}/{expected} records counted, {wrong} of them wrongly"));
    }
    if undisturbed.tally.is_some() && ending.tally.is_none() {
        broken.push("the program's counts are missing".to_owned());
    }
    if let Some(planned) = ending.records_planned
        && ending.records_trained != planned
    {
        broken.push(format!("{} of {planned} records trained", ending.records_trained));
    }
    if ending.is_synchronous && ending.sha256 != undisturbed.sha256 {
        broken.push(format!("parameters sha256 {}, undisturbed {}", ending.sha256, undisturbed.sha256));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(is_synchronous: bool) -> Ending {
        let tally = Some(Tally { expected: 20, counted: 20, wrong: 0 });
        let sha256 = "abc".to_owned();
        Ending { is_synchronous, sha256, tally, records_trained: 20, records_planned: Some(20), rewinds: 0 }
    }

    #[test]
    fn a_job_holds_with_exact_counts_and_synchronous_ones_with_the_same_bits() {
        let other_bits = |is_synchronous| Ending { sha256: "abd".to_owned(), ..ending(is_synchronous) };
        assert!(broken(&ending(true), &ending(true)).is_empty());
        assert!(broken(&other_bits(false), &ending(false)).is_empty(), "asynchronous bits are not promised");
        assert_eq!(broken(&other_bits(true), &ending(true)).len(), 1);
        for (counted, wrong) in [(19, 1), (20, 2), (21, 0)] {
            let tally = Some(Tally { expected: 20, counted, wrong });
            assert_eq!(broken(&Ending { tally, ..ending(false) }, &ending(false)).len(), 1);
        }
        assert_eq!(broken(&Ending { tally: None, ..ending(false) }, &ending(false)).len(), 1);
        assert_eq!(broken(&Ending { records_trained: 19, ..ending(false) }, &ending(false)).len(), 1);
        let early = Ending { records_trained: 19, records_planned: None, tally: None, ..ending(true) };
        assert!(broken(&early, &early).is_empty());
    }
}
