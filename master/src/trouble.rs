//! What trainers could not do: counted until it is certain that nobody can. Pure, and part of the document, so that
//! neither a new master nor a rewind forgets it.
//!
//! Only a trainer's own word counts, or that several were lost with it ([`crate::suspects`]): preemption, hand-back, expiry and
//! outages never do.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Range;

/// Attempts after which records are given up, if enough trainers have tried.
pub const ATTEMPTS: u32 = 3;
/// Troubles that are remembered: of those that nobody waits for any more the oldest go first.
pub const TROUBLES_MAX: usize = 64;

/// A trainer's word about one microbatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Its name.
    pub trainer: String,
    /// The step, or the position in asynchronous jobs.
    pub unit: u64,
    /// Records that cannot be used; none if no single one was found.
    pub records: Option<Range<u64>>,
    /// Those records, or the microbatch, in words.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What several attempts have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The records that cannot be used; none where it is the microbatch as a whole.
    pub records: Option<Range<u64>>,
    /// The step, or the position, that was tried last.
    pub unit: u64,
    /// Those records, or the microbatch, in words.
    pub what: String,
    /// Attempts that failed.
    pub attempts: u32,
    /// The trainers that made them, by name.
    pub trainers: BTreeSet<String>,
    /// What the last of them said.
    pub why: String,
}

impl Trouble {
    /// Counts a complaint.
    pub fn count(troubles: &mut Vec<Trouble>, complaint: &Complaint) {
        let Complaint { trainer, unit, records, what, why } = complaint.clone();
        let is_same =
            |known: &&mut Trouble| known.records == records && (records.is_some() || known.unit == unit);
        match troubles.iter_mut().find(is_same) {
            Some(known) => {
                known.attempts += 1;
                known.trainers.insert(trainer);
                (known.unit, known.what, known.why) = (unit, what, why);
            }
            None => {
                let trainers = BTreeSet::from([trainer]);
                troubles.push(Trouble { records, unit, what, attempts: 1, trainers, why });
            }
        }
        let surplus = troubles.len().saturating_sub(TROUBLES_MAX);
        troubles.drain(..surplus);
    }

    /// Whether nobody can do it: enough attempts of enough trainers, or of all that may be asked.
    pub fn is_certain(&self, able: usize) -> bool {
        self.attempts >= ATTEMPTS && self.trainers.len() >= able.clamp(1, ATTEMPTS as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(trainer: &str, unit: u64, record: Option<u64>) -> Complaint {
        let records = record.map(|record| record..record + 1);
        Complaint { trainer: trainer.into(), unit, records, what: format!("step {unit}"), why: "bad".into() }
    }

    fn counted(complaints: &[Complaint]) -> Vec<Trouble> {
        let mut troubles = Vec::new();
        complaints.iter().for_each(|complaint| Trouble::count(&mut troubles, complaint));
        troubles
    }

    #[test]
    fn three_attempts_of_three_trainers_make_it_certain_or_of_all_that_there_are() {
        let tries = ["a", "a", "b", "a", "c"].map(|trainer| complaint(trainer, 4, Some(7)));
        let certain = |count: usize, live| counted(&tries[..count])[0].is_certain(live);
        assert_eq!([certain(3, 3), certain(4, 3), certain(5, 3), certain(5, 10)], [false, false, true, true]);
        assert_eq!([certain(3, 2), certain(2, 1), certain(3, 1), certain(3, 0)], [true, false, true, true]);
    }

    #[test]
    fn a_record_is_the_same_in_every_step_and_a_microbatch_is_not() {
        let records =
            counted(&[complaint("a", 4, Some(7)), complaint("b", 9, Some(7)), complaint("b", 9, Some(8))]);
        assert_eq!(records.iter().map(|trouble| trouble.attempts).collect::<Vec<_>>(), [2, 1]);
        assert_eq!((records[0].unit, records[0].records.clone()), (9, Some(7..8)));
        let microbatches =
            counted(&[complaint("a", 4, None), complaint("b", 9, None), complaint("b", 4, None)]);
        assert_eq!(microbatches.iter().map(|trouble| trouble.attempts).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn the_oldest_are_forgotten_when_there_are_too_many() {
        let many: Vec<Complaint> = (0..100).map(|record| complaint("a", 1, Some(record))).collect();
        let troubles = counted(&many);
        assert_eq!((troubles.len(), troubles[0].records.clone()), (TROUBLES_MAX, Some(36..37)));
    }
}
