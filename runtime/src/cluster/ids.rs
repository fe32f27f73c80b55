//! Identities. Each is its own type, so that a step is never passed for a version or a block.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A job: a name and a suffix that tells it from an earlier job of the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub String);

/// One life of one process, as the master counted it: the master's term in the upper 24 bits, a counter below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// One update of the whole model, counted from the job's beginning across epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Step(pub u64);

/// The number of updates that a block has applied. Step `t` replaces version `t` and makes version `t + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u64);

/// The unit of placement, update and movement; the index into the [layout](super::Layout).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockId(pub u32);

/// One lease, counted by the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

/// A block's term: the routing version of its last restore or change of primary. At most one copy writes under a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Term(pub u64);

/// A block's rewind number: the routing version of its last restore. What was computed under another is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rewind(pub u64);

/// Names a copy of a block for its whole life: the routing version that added it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fill(pub u64);

/// The name of a block's state: who wrote it last, and how many updates it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StateName {
    /// The term under which the last update was made, or the state restored.
    pub term: Term,
    /// Updates applied.
    pub version: Version,
}

const COUNTER_BITS: u32 = 40;

impl Incarnation {
    /// The incarnation of the `counter`-th process that joined under master term `term`.
    pub fn new(term: u32, counter: u64) -> Incarnation {
        debug_assert!(counter < 1 << COUNTER_BITS);
        Incarnation(u64::from(term) << COUNTER_BITS | counter)
    }
    /// The term of the master that counted it.
    pub fn term(self) -> u32 {
        (self.0 >> COUNTER_BITS) as u32
    }
}

impl Step {
    /// The version that its update replaces.
    pub fn replaces(self) -> Version {
        Version(self.0)
    }
    /// The version that its gradients are taken at in a job of this delay.
    pub fn reads(self, delay: u64) -> Version {
        Version(self.0.saturating_sub(delay))
    }
    /// The step after this one.
    pub fn next(self) -> Step {
        Step(self.0 + 1)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 >> COUNTER_BITS, self.0 & ((1 << COUNTER_BITS) - 1))
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.term, self.version)
    }
}

macro_rules! display_as_inner {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_as_inner!(JobId, Step, Version, BlockId, LeaseId, Term, Rewind, Fill);
