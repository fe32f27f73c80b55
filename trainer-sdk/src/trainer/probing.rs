//! Which records of a microbatch are to blame for an error of the program: they are tried alone. Pushes nothing.

use super::attempt::{Attempt, StepError};
use super::blame::{self, Fails};
use super::compute::Outcome;
use crate::complaint::Complaint;
use crate::model::Record;
use std::ops::Range;

impl Attempt {
    /// The outcome of records on which the program has failed: which of them cannot be used; `tried` is what comes of some of them.
    pub(super) fn complained<T>(
        &self,
        fault: StepError,
        records: &[Record<'_>],
        mut tried: impl FnMut(&[Record<'_>]) -> Option<StepError>,
    ) -> Outcome<T> {
        let (why, is_panic) = match fault.of_records() {
            Ok(of_records) => of_records,
            Err(ends) => return ends,
        };
        let mut ends = None;
        let said_alike = |at: usize| match tried(&records[at..=at]).map(StepError::of_records) {
            None => Fails::Not,
            Some(Ok((words, false))) if words == why => Fails::Alike,
            Some(Ok(_)) => Fails::Otherwise,
            Some(Err(outcome)) => {
                ends = Some(outcome);
                Fails::Otherwise
            }
        };
        let probed = self.probe(records, is_panic, said_alike);
        if let Some(ends) = ends {
            // What ends the trainer while records are tried is none of theirs.
            return ends;
        }
        let (poison, why) = match probed {
            None => {
                let so = "its first and its last record fail in the same words, each alone, so it is not the records";
                (Vec::new(), format!("{so}: {why}"))
            }
            Some(none) if none.is_empty() && is_panic => {
                (none, format!("{why}; no record of it was found that fails alone"))
            }
            Some(all) if all.len() > 1 && all.len() == records.len() => {
                // It is not the records.
                (Vec::new(), format!("every record of it fails, each alone: {why}"))
            }
            Some(some) => (some, why),
        };
        let complaint = Complaint { at: self.at, records: poison, why };
        if is_panic { Outcome::Panicked(complaint) } else { Outcome::Refused(complaint) }
    }

    /// The records that fail alone; after a panic those of them that are to blame for it. None where it is none of the records.
    fn probe(
        &self,
        records: &[Record<'_>],
        is_panic: bool,
        mut fails: impl FnMut(usize) -> Fails,
    ) -> Option<Vec<Range<u64>>> {
        let poison = match is_panic {
            true => blame::after_panic(records.len(), |at| fails(at) != Fails::Not),
            false => blame::after_error(records.len(), fails)?,
        };
        let range = |at: usize| {
            let index = records[at].index + self.first_record;
            index..index + 1
        };
        Some(poison.into_iter().map(range).collect())
    }
}
