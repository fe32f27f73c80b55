//! Exclusions: records that no trainer can use, left out by the master's decision and by nobody else's. Pure.
//!
//! The list only grows. Its number is the routing version that changed it last: what was computed with an older list is
//! refused where a newer one is known.

use super::Step;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The most entries a list may have.
pub const EXCLUSIONS_MAX: usize = 1000;

/// Records that are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exclusion {
    /// Their indexes in the data set: one record, or all of a chunk.
    pub records: Range<u64>,
    /// The first step that leaves them out. In asynchronous jobs 0: every block that still lacks them.
    pub from: Step,
    /// What trainers said of them.
    pub why: String,
}

/// All exclusions of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exclusions {
    /// The routing version that changed the list last; 0 while it is empty.
    pub number: u64,
    /// In the order of their decision.
    pub list: Vec<Exclusion>,
}

impl Exclusions {
    /// Whether a step leaves a record out.
    pub fn excludes(&self, record: u64, step: Step) -> bool {
        self.list.iter().any(|exclusion| exclusion.from <= step && exclusion.records.contains(&record))
    }

    /// Whether a step leaves all of these records out, by one decision: so that they need not be read.
    pub fn excludes_all(&self, records: &Range<u64>, step: Step) -> bool {
        let covers = |exclusion: &Exclusion| {
            exclusion.records.start <= records.start && records.end <= exclusion.records.end
        };
        self.list.iter().any(|exclusion| exclusion.from <= step && covers(exclusion))
    }

    /// How many records are left out at the end of the job.
    pub fn count(&self) -> u64 {
        let mut ranges: Vec<&Range<u64>> = self.list.iter().map(|exclusion| &exclusion.records).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let (mut count, mut until) = (0, 0);
        for range in ranges {
            count += range.end.saturating_sub(range.start.max(until));
            until = until.max(range.end);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(Range<u64>, u64)]) -> Exclusions {
        let exclusion = |(records, from): &(Range<u64>, u64)| Exclusion {
            records: records.clone(),
            from: Step(*from),
            why: String::new(),
        };
        Exclusions { number: 1, list: entries.iter().map(exclusion).collect() }
    }

    #[test]
    fn a_record_is_left_out_from_the_first_step_that_any_entry_names() {
        let exclusions = list(&[(5..6, 9), (0..10, 12), (5..6, 4)]);
        let left_out = |record| (0..20).filter(|step| exclusions.excludes(record, Step(*step))).count();
        assert_eq!([left_out(5), left_out(4), left_out(10)], [16, 8, 0]);
    }

    #[test]
    fn a_chunk_need_not_be_read_only_when_one_entry_covers_it() {
        let exclusions = list(&[(0..10, 3), (10..20, 3)]);
        assert!(exclusions.excludes_all(&(2..10), Step(3)));
        assert!(!exclusions.excludes_all(&(2..10), Step(2)));
        assert!(!exclusions.excludes_all(&(5..15), Step(3)));
    }

    #[test]
    fn records_that_several_entries_name_are_counted_once() {
        assert_eq!(list(&[(5..6, 9), (0..10, 12), (8..14, 0), (20..21, 0)]).count(), 15);
        assert_eq!(list(&[]).count(), 0);
    }
}
