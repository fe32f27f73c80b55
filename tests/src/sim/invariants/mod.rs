//! What must hold after every run, one file for each promise.

mod applied_is_kept;
mod ends;
mod exactly_once;
mod ledger;
mod monotone;
mod one_writer;
mod recorded;
mod routing;
mod same_bits;
mod standstill;

use super::evidence::Evidence;

type Invariant = fn(&Evidence) -> Result<(), String>;

const ALL: [(&str, Invariant); 10] = [
    ("every job ends", ends::check),
    ("a job that stands still names its cause", standstill::check),
    ("the front never goes back", monotone::check),
    ("every record counts exactly once", exactly_once::check),
    ("the bits are those of the definition", same_bits::check),
    ("what is recorded has the hashes of the definition", recorded::check),
    ("what is applied is kept", applied_is_kept::check),
    ("one writer for each term", one_writer::check),
    ("every document places every block once", routing::check),
    ("ledgers say what states hold", ledger::check),
];

/// The promises that are broken, each with what was found.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let broken =
        |(promise, check): (&str, Invariant)| check(evidence).err().map(|what| format!("{promise}: {what}"));
    ALL.into_iter().filter_map(broken).collect()
}
