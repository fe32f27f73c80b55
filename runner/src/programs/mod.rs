//! What programs of ours leave in their models, so that it can be told whether every record counted once: the counting examples',
//! compiled in as they are.

#[path = "../../../trainer-sdk/examples/count/oracle.rs"]
#[allow(dead_code, reason = "the example counts; what is here reads the counts")]
pub(crate) mod oracle;
#[path = "../../../trainer-sdk/examples/count_rows/rows.rs"]
#[allow(dead_code, reason = "the example counts; what is here reads the counts")]
pub(crate) mod rows;

/// How many effects records had, counted by the program itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Effects that should have been: records times epochs.
    pub expected: u64,
    /// Effects that were.
    pub counted: u64,
    /// Counts that are not exactly what they should be.
    pub wrong: u64,
}

impl From<oracle::Tally> for Tally {
    fn from(oracle::Tally { expected, counted, wrong }: oracle::Tally) -> Tally {
        Tally { expected, counted, wrong }
    }
}
