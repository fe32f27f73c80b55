//! What is in flight between the model's roles. Any message may be lost, come late, or come twice.

use super::state::{Decision, Entry, Name, Root, State, Update};
use super::words::{Block, Document, Incarnation, Number, Piece, Place, Unit, Version};
use std::collections::BTreeSet;
use std::rc::Rc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Master(ToMaster),
    Pserver(Place, ToPserver),
    Trainer(usize, ToTrainer),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToMaster {
    /// A pserver lives.
    Hello(Incarnation),
    /// The copy at `copy` is level: mark it in-sync.
    Admit { block: Block, copy: Incarnation, fill: Number, term: Number, primary: Incarnation },
    /// The primary is drained: promote `fill`.
    HandOver { block: Block, fill: Number, term: Number, primary: Incarnation },
    /// The copy cannot be continued: fill it afresh.
    Diverged { block: Block, fill: Number, term: Number },
    /// A piece of the named checkpoint is in the storage.
    Supplied { number: Number, piece: Piece },
    /// The named checkpoint cannot be supplied any more.
    Passed { number: Number, block: Block, rewind: Number },
    /// Async: what is applied and published.
    Ledger { block: Block, term: Number, units: BTreeSet<Unit> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToPserver {
    /// The master's document; a pserver reads its own copies in it.
    Slice { to: Incarnation, document: Rc<Document> },
    /// Async: the master asks for the ledger.
    AskLedger { block: Block },
    /// A follower asks for what follows `name`, which it thereby acknowledges.
    Have { block: Block, from: Incarnation, fill: Number, term: Number, name: Option<Name> },
    /// The primary's state.
    Fill { to: Incarnation, block: Block, fill: Number, term: Number, state: Rc<State>, published: Version },
    /// The next entry.
    Append { to: Incarnation, block: Block, fill: Number, term: Number, entry: Entry, published: Version },
    /// `name` is not on the primary's history.
    Broken { to: Incarnation, block: Block, fill: Number, term: Number, name: Name },
    /// A trainer asks whether `version` is published, and for its parameters.
    Ask { block: Block, trainer: usize, rewind: Number, version: Version },
    /// A trainer asks whether all that this pserver leads has published `version`: what no protocol should ask.
    AskAll { trainer: usize, version: Version },
    /// A gradient, and the number of the exclusion list it was computed with.
    Push { block: Block, trainer: usize, root: Root, slots: u8, list: Number },
    /// A block's partial, of this root, for the scalar block.
    Partial { from: Place, block: Block, root: Root },
    /// The partial is there; the decision is not published.
    Waits { block: Block, root: Root },
    /// What is decided for a step.
    Decided { block: Block, rewind: Number, unit: Unit, decision: Decision },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToTrainer {
    Routes(Rc<Document>),
    /// Async: a task.
    Lease(Unit),
    /// A version's parameters.
    Published {
        block: Block,
        rewind: Number,
        version: Version,
        history: Vec<Update>,
    },
    AllPublished {
        place: Place,
        version: Version,
    },
    /// The gradient is held, or applied and not published; both may be lost with the primary of `term`.
    Held {
        block: Block,
        rewind: Number,
        unit: Unit,
        slots: u8,
        term: Number,
    },
    /// The update stands in the published version.
    Applied {
        block: Block,
        rewind: Number,
        unit: Unit,
    },
}
