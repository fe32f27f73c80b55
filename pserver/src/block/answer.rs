//! What a copy is told and what it answers: placements in, outcomes out. Data only.

use super::entry::Entry;
use super::primary::PlacedCopy;
use crate::bucket::arena::Slot;
use bytes::Bytes;
use shoal_runtime::cluster::{
    BlockCopy, Fill, Incarnation, Ledger, ManifestRecord, Node, Rewind, StateName, Step, Term, Version,
};

/// How the master has placed one copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Which copy it is.
    pub fill: Fill,
    /// The block's term.
    pub term: Term,
    /// The block's rewind number.
    pub rewind: Rewind,
    /// Who its primary is.
    pub primary: Incarnation,
    /// The other copies, for the primary.
    pub copies: Vec<PlacedCopy>,
    /// Who is to take over from the primary, if anybody: it takes nothing more, and hands over once all is published.
    pub heir: Option<Incarnation>,
    /// What the block was restored from at its last restore; none for its initial values.
    pub origin: Option<ManifestRecord>,
}

/// What became of a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// Held, and lost if this pserver is; it took the place of `replaced` descendants.
    Held {
        /// How many held nodes it covered.
        replaced: usize,
    },
    /// The same, and it made the root, whose turn has yet to come.
    Whole {
        /// How many held nodes it covered.
        replaced: usize,
    },
    /// It made the root: the step is applied, and published if no copy is waited for.
    Applied {
        /// How many held nodes it covered.
        replaced: usize,
        /// Whether some slots of the step were absent.
        is_short: bool,
        /// Whether it is part of a published version.
        is_published: bool,
    },
    /// A held node covers it; dropped.
    Covered,
    /// Its step was published before; dropped.
    Late,
    /// No room, or the step's version is not published yet; send it again after a pause.
    Busy,
    /// The block's piece of a checkpoint waits to be written, and an update would hold more memory than pieces may;
    /// send it again after a pause.
    Throttled,
    /// The area that the gradient is said to be in is not here: its values are to be sent.
    NoArea,
    /// This copy is not the block's primary.
    Moved,
    /// The block has gone back since the gradient was computed, or records have been excluded.
    Rewound,
}

/// What a follower has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// Which state.
    pub name: StateName,
    /// Of a bucket that is being filled: the first slot whose row it lacks.
    pub filled: Option<Slot>,
}

/// What a primary has for a follower.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// Nothing: the follower is level.
    Nothing,
    /// There is something, but no room for it.
    Later,
    /// Not for this caller: one of the two has yet to learn how the block is placed.
    NotHere,
    /// The follower's state cannot be continued.
    Broken,
    /// A state to start from, or its next segment.
    Copy(Box<BlockCopy>),
    /// What follows the follower's state.
    Entry(Entry),
}

impl News {
    /// Bytes of its buffers.
    pub fn bytes(&self) -> usize {
        match self {
            News::Copy(copy) => copy.bytes(),
            News::Entry(entry) => entry.gradient.len(),
            News::Nothing | News::Later | News::NotHere | News::Broken => 0,
        }
    }
}

/// How a copy stands, for the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The primary's.
    Primary {
        /// Under which term.
        term: Term,
        /// What is published.
        published: Version,
        /// What is held, by step and in slot order. The steps that published versions came from are not among them.
        held: Vec<(Step, Vec<Node>)>,
        /// Asynchronous jobs: the positions that are published.
        ledger: Ledger,
    },
    /// A follower's.
    Follower {
        /// Which copy.
        fill: Fill,
        /// What it holds, if anything.
        name: Option<StateName>,
        /// Whether it needs a new fill.
        is_broken: bool,
    },
    /// A primary that is still to be restored, or a dropped copy.
    Nothing,
}

/// What a block has of a step's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The parameters, and which version they are.
    Parameters(Bytes, Version),
    /// They are on a device, and are or may be put into an area of it; which version they are.
    InArea(Version),
    /// They are not published yet.
    NotYet,
    /// The step is done everywhere, and they are no longer kept; the block is at this version.
    Gone(Version),
    /// This copy is not the block's primary, or the block has gone back: the caller's routing is old.
    Elsewhere,
}
