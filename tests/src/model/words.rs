//! What the model's roles speak of: names, the job's shape, the master's document. No behaviour of a role belongs here.

use super::rules::{Rule, Rules};

pub(crate) type Block = usize;
/// A pserver's address: its processes come and go, the place stays.
pub(crate) type Place = usize;
/// A routing version, or what is named after one: a term, a fill, a rewind number.
pub(crate) type Number = u64;
/// Updates applied.
pub(crate) type Version = usize;
/// Sync: a step. Async: a microbatch's position, counted from the job's beginning.
pub(crate) type Unit = usize;

/// One life of the process at a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Incarnation {
    pub(crate) place: Place,
    pub(crate) life: u32,
}

/// How a block's updates are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All blocks step together.
    Sync,
    /// Each block applies microbatches in the order of their arrival.
    Async,
}

/// How large the modelled job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sync or async.
    pub mode: Mode,
    /// Blocks, a metric and the scalar block among them.
    pub blocks: usize,
    /// Whether the last block, but for the scalar block, is a metric: written by steps, not read.
    pub metric: bool,
    /// Sync: whether the last block is the scalar block.
    pub scalars: bool,
    /// Pservers.
    pub pservers: usize,
    /// Trainers.
    pub trainers: usize,
    /// Masters, at most one of which leads.
    pub masters: usize,
    /// Followers wanted for every block.
    pub followers: usize,
    /// Steps (sync) or microbatches (async) of the job.
    pub units: usize,
    /// Tree nodes that make a step, 1 or 2.
    pub slots: u8,
    /// Sync: a step that has the first node alone, as an epoch's last may.
    pub short: Option<usize>,
    /// Sync: gradients of a step are computed from the version so many steps before it.
    pub delay: usize,
}

/// Microbatches of an epoch (async).
pub(crate) const EPOCH: usize = 2;
/// Blocks that have partials.
pub(crate) const PARTIALS_MAX: usize = 3;
/// Updates that may wait to be published (async).
pub(crate) const WAITING: usize = 2;

/// The model's constants, for whoever acts.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) shape: Shape,
    pub(crate) rules: Rules,
}

impl Setting {
    pub(crate) fn is_sync(&self) -> bool {
        self.shape.mode == Mode::Sync
    }
    /// The mask of a step's root: which nodes there are is a function of the plan.
    pub(crate) fn root(&self, unit: Unit) -> u8 {
        if self.shape.short == Some(unit) { 1 } else { self.all_slots() }
    }
    /// The mask of a step that lacks none.
    pub(crate) fn all_slots(&self) -> u8 {
        (1 << self.shape.slots) - 1
    }
    /// The version that a step's gradients are computed from.
    pub(crate) fn read_by(&self, step: Unit) -> Version {
        step.saturating_sub(self.shape.delay)
    }
    /// Versions before the current one that a copy keeps: as far as one block may be ahead of a step that another has to
    /// have computed again.
    pub(crate) fn earlier(&self) -> usize {
        let is_enough = self.rules.on(Rule::EarlierStatesKept);
        if is_enough { 2 * self.shape.delay + 1 } else { self.shape.delay + 1 }
    }
    /// The oldest version of a checkpoint at `version`.
    pub(crate) fn oldest_saved(&self, version: Version) -> Version {
        let is_carried = self.rules.on(Rule::PiecesCarryEarlier);
        if is_carried { version.saturating_sub(self.shape.delay) } else { version }
    }
    pub(crate) fn is_metric(&self, block: Block) -> bool {
        self.shape.metric && block + 1 + usize::from(self.shape.scalars) == self.shape.blocks
    }
    pub(crate) fn scalar_block(&self) -> Option<Block> {
        self.shape.scalars.then_some(self.shape.blocks - 1)
    }
    /// The blocks that gradients are pushed to, all but the scalar block.
    pub(crate) fn pushed_blocks(&self) -> usize {
        self.shape.blocks - usize::from(self.shape.scalars)
    }
}

/// A copy as the master's document has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) at: Incarnation,
    pub(crate) fill: Number,
    pub(crate) in_sync: bool,
}

/// A block's line in the document.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Routing {
    pub(crate) rewind: Number,
    pub(crate) term: Number,
    /// What the block was last restored from; none is the initial state.
    pub(crate) origin: Option<Piece>,
    pub(crate) primary: Incarnation,
    /// The fill that the primary is to hand over to.
    pub(crate) heir: Option<Number>,
    /// The primary's copy among them.
    pub(crate) copies: Vec<Mark>,
}

impl Routing {
    pub(crate) fn copy_at(&self, at: Incarnation) -> Option<&Mark> {
        self.copies.iter().find(|mark| mark.at == at)
    }
    pub(crate) fn copy_filled(&self, fill: Number) -> Option<&Mark> {
        self.copies.iter().find(|mark| mark.fill == fill)
    }
    pub(crate) fn follower_in_sync(&self, place: Place) -> Option<Mark> {
        let is_it = |mark: &&Mark| mark.at.place == place && mark.at != self.primary && mark.in_sync;
        self.copies.iter().find(is_it).copied()
    }
    /// Removes copies; an heir among them is no heir any more.
    pub(crate) fn remove(&mut self, is_it: impl Fn(&Mark) -> bool) -> Vec<Mark> {
        let (gone, kept) = self.copies.iter().partition(|mark| is_it(mark));
        self.copies = kept;
        self.heir = self.heir.filter(|heir| self.copy_filled(*heir).is_some());
        gone
    }
    /// A change of primary. Copies stay as they are, that of a living old primary too.
    pub(crate) fn promote(&mut self, mark: Mark, number: Number) {
        self.primary = mark.at;
        self.term = number;
        self.heir = None;
    }
    /// Begins the block anew at `at`, alone.
    pub(crate) fn restore(&mut self, number: Number, at: Incarnation, origin: Option<Piece>) {
        let primary = Mark { at, fill: number, in_sync: true };
        *self =
            Routing { rewind: number, term: number, origin, primary: at, heir: None, copies: vec![primary] };
    }
}

/// One block's part of a checkpoint, as the storage names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Piece {
    pub(crate) block: Block,
    pub(crate) rewind: Number,
    pub(crate) term: Number,
    pub(crate) version: Version,
}

/// A checkpoint that is wanted. Sync: at `version`. Async: at any published version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) number: Number,
    pub(crate) version: Version,
}

/// The record that is excluded, if one is; every unit has it. Async: from whatever lacks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exclusion {
    /// The list's number.
    pub(crate) number: Number,
    /// Sync: the first step without it.
    pub(crate) first: Unit,
}

/// The master's truth, changed by compare-and-swap only.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) version: Number,
    pub(crate) master_term: Number,
    pub(crate) blocks: Vec<Routing>,
    pub(crate) named: Option<Named>,
    /// The newest durable checkpoint: a piece of every block.
    pub(crate) durable: Option<Vec<Piece>>,
    pub(crate) excluded: Option<Exclusion>,
    pub(crate) done: bool,
}

impl Document {
    /// A job's first document: blocks spread over the places' first lives.
    pub(crate) fn first(shape: &Shape) -> Document {
        let block = |block| {
            let at = Incarnation { place: block % shape.pservers, life: 1 };
            let copies = vec![Mark { at, fill: 1, in_sync: true }];
            Routing { rewind: 1, term: 1, origin: None, primary: at, heir: None, copies }
        };
        let blocks = (0..shape.blocks).map(block).collect();
        let (named, durable, excluded) = (None, None, None);
        Document { version: 1, master_term: 0, blocks, named, durable, excluded, done: false }
    }
    /// Sync: the version of the newest durable checkpoint.
    pub(crate) fn durable_version(&self) -> Version {
        self.durable.as_ref().map_or(0, |pieces| pieces[0].version)
    }
    /// Whether `unit` is to be computed without the record.
    pub(crate) fn leaves_out(&self, unit: Unit) -> bool {
        self.excluded.is_some_and(|exclusion| unit >= exclusion.first)
    }
    /// Whether the newest durable checkpoint is the job's last.
    pub(crate) fn is_final(&self, units: usize) -> bool {
        self.durable.as_ref().is_some_and(|pieces| pieces.iter().all(|piece| piece.version >= units))
    }
}
