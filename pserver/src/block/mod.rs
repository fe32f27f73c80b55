//! One pserver's copy of one block: its state, and its part as primary or follower.
//!
//! A pure state machine: version `v + 1` is a function of version `v` and one update, whatever order, repetition or cover the
//! update's gradients came in. It must never know of time, messages or other blocks, and nothing in it changes when it refuses. A
//! reader finds what a copy does in the file of that name:
//! `primary` takes gradients in, makes versions and publishes them; `follower` takes in what a primary gives;
//! `reduce` adds gradients up over a step's tree; `positions` is that of asynchronous jobs; `state` and `dense` are what a version is;
//! `reading` is what trainers read; `piece` is what checkpoints are made of, and restores begin at; `decide` and `evaluate` are
//! what a step has to wait for; `effects` is what all of them change for others, and the invariants. Of these:
//! - `published <= version`; nothing is published that some required copy lacks;
//! - a term is entered once: by a restore or by a promotion; words of other terms change nothing;
//! - a state is replaced only by one that it is the past of, or under a new fill.

pub mod decide;
mod dense;
pub mod effects;
pub mod evaluate;
mod follower;
pub mod memory;
pub mod piece;
mod positions;
pub mod primary;
pub mod reading;
pub mod recorder;
pub mod reduce;
mod settings;
pub mod shape;
pub mod state;

use crate::bucket::arena::Slot;
pub use decide::PartialsOutcome;
pub use effects::RowCounts;
use evaluate::Verdicts;
use memory::Hold;
pub use piece::{GivenPiece, NamedCheckpoint};
pub use positions::PositionGradient;
pub use primary::{NodeGradient, PushOutcome};
use primary::{PlacedCopy, Primary};
pub use reading::Reading;
pub use settings::BlockSettings;
use shape::BlockShape;
use shoal_runtime::cluster::{
    BlockCopy, Fill, Incarnation, Ledger, ManifestRecord, Node, Rewind, StateName, Step, Term, Version,
};
use state::{State, Update};
use std::sync::{Arc, Weak};

/// One copy of one block.
#[derive(Debug)]
pub struct Block {
    shape: Arc<BlockShape>,
    job: Arc<BlockSettings>,
    placement: Placement,
    verdicts: Verdicts,
    state: Option<State>,
    published: Version,
    role: Role,
    /// Bytes copied because an update met buffers that somebody still had.
    copied: u64,
    /// Of updates made here as a primary, since the last effects.
    row_counts: RowCounts,
    piece: Option<piece::Piece>,
    /// Times that a device has said that something is there.
    landed: u64,
    /// Whether it was kept waiting for memory since the last effects.
    is_starved: bool,
    /// Versions whose hashes are to be recorded, and whose values a device has yet to bring.
    unrecorded: Vec<Version>,
    /// Of pieces that may not be written yet.
    holds: Vec<Weak<Hold>>,
}

#[derive(Debug)]
enum Role {
    Primary(Primary),
    /// A copy that follows. `is_broken`: nothing can follow its state, by the primary's word or because an entry or a state did not fit.
    Follower {
        is_broken: bool,
    },
    /// Dropped: whoever still has it in hand finds nothing.
    Retired,
}

impl Block {
    /// A copy that holds nothing yet. `me` is the pserver that it is on.
    pub fn new(
        shape: Arc<BlockShape>,
        job: Arc<BlockSettings>,
        placement: Placement,
        me: Incarnation,
    ) -> Block {
        let mut block = Block {
            shape,
            job,
            state: None,
            published: Version(0),
            role: Role::Follower { is_broken: false },
            placement,
            verdicts: Verdicts::default(),
            copied: 0,
            row_counts: RowCounts::default(),
            piece: None,
            landed: 0,
            is_starved: false,
            unrecorded: Vec::new(),
            holds: Vec::new(),
        };
        if block.placement.primary == me {
            block.role = block.lead(None);
        }
        block
    }

    /// The master has placed this copy anew, under the same fill. A lower term changes nothing.
    pub fn place(&mut self, placement: Placement, me: Incarnation) {
        if placement.fill != self.placement.fill || placement.term < self.placement.term {
            return;
        }
        let is_new_term = placement.term > self.placement.term;
        if placement.rewind != self.placement.rewind {
            (self.state, self.published, self.piece) = (None, Version(0), None);
            self.unrecorded.clear();
            // What is still being written shares nothing with the state to come.
            self.holds.clear();
        }
        self.placement = placement;
        match (&mut self.role, self.placement.primary == me) {
            (Role::Retired, _) => {}
            (Role::Primary(primary), true) if !is_new_term => primary.place(&self.placement.copies),
            // Promoted or restored, once per term: nothing is acknowledged, nothing held.
            (_, true) => self.role = self.lead(self.state.as_ref().map(State::name)),
            (Role::Follower { .. }, false) => {}
            (Role::Primary(_), false) => self.role = Role::Follower { is_broken: false },
        }
        self.publish();
        self.go_on();
    }

    /// Whether this copy is its block's primary.
    pub fn is_primary(&self) -> bool {
        matches!(self.role, Role::Primary(_))
    }

    /// Nothing more is done with this copy.
    pub fn retire(&mut self) {
        (self.role, self.state, self.piece) = (Role::Retired, None, None);
    }

    fn lead(&self, inherited: Option<StateName>) -> Role {
        let version = inherited.map_or(Version(0), |name| name.version);
        Role::Primary(Primary::new(self.job.nothing_held(version), inherited, &self.placement.copies))
    }

    /// How it is placed.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }
    /// Rows that the block has as a primary, and the bytes of their memory; of a dense block none.
    pub fn rows(&self) -> (u64, u64) {
        match (&self.role, &self.state) {
            (Role::Primary(_), Some(state)) => state.rows(),
            _ => (0, 0),
        }
    }

    /// Updates made; none without a state.
    pub fn version(&self) -> Option<Version> {
        self.state.as_ref().map(State::version)
    }

    /// What is published.
    pub fn published(&self) -> Version {
        self.published
    }

    /// Where this pserver keeps a state that has come: on its device if it has one that has memory for it. To the protocol the
    /// device is one more copy that is waited for.
    fn place_on_device(&self, mut state: State) -> State {
        if let Some(device) = &self.job.device {
            state.place_on_device(&self.shape, device);
        }
        state
    }
}

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
    /// There is something, but the answer is full.
    Later,
    /// Not for this caller: one of the two has yet to learn how the block is placed.
    NotHere,
    /// The follower's state cannot be continued.
    Broken,
    /// A state to start from, or its next segment.
    Copy(Box<BlockCopy>),
    /// What follows the follower's state.
    Entry(Arc<Update>),
}

impl News {
    /// Bytes of its buffers.
    pub fn bytes(&self) -> usize {
        match self {
            News::Copy(copy) => copy.bytes(),
            News::Entry(entry) => entry.bytes(),
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

#[cfg(test)]
pub(crate) mod tests;
