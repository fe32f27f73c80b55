//! Everything that can happen, as data: a run is a list of these. It must never say what comes of one.

use super::decide::Decision;
use super::message::Message;
use super::words::{Block, Place, Unit};

/// Masters and trainers are named by their index, pservers by their place. What cannot be done now does nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// A message arrives, at `master` if it is for one; it may arrive `again` later.
    Deliver {
        message: Message,
        master: usize,
        again: bool,
    },
    /// A message is lost.
    Forget(Message),
    Crash(Place),
    Restart(Place),
    CrashTrainer(usize),
    StartTrainer(usize),
    CrashMaster(usize),
    Elect(usize),
    /// From now on a record cannot be read.
    Rot,
    OfMaster(usize, MasterAct),
    OfPserver(Place, PserverAct),
    OfTrainer(usize, TrainerAct),
}

/// What a master does by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MasterAct {
    Decide(Decision),
    /// Tells a pserver its slice.
    Tell(Place),
    /// Tells a trainer the routes.
    Inform(usize),
    /// Async: asks a block's primary for its ledger.
    AskLedger(Block),
    /// Async: leases a microbatch.
    Lease {
        trainer: usize,
        unit: Unit,
    },
}

/// What a pserver does by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PserverAct {
    /// Tells the master that it lives.
    Greet,
    /// Asks for what follows its copy.
    Pull { block: Block, of: Place },
    /// Asks the master to admit whoever is level.
    AskAdmission(Block),
    /// Asks the master to promote the heir.
    AskHandOver(Block),
    /// Supplies a piece of the named checkpoint.
    Supply(Block),
    /// Sends the partial of the next step to the scalar block.
    SendPartial(Block),
}

/// What a trainer does by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TrainerAct {
    /// Sync: sets out for a step.
    Want(Unit),
    /// Sync: asks one block for the step.
    Ask(Block),
    /// Sync: asks one pserver about all its blocks: only a protocol without the rule does.
    AskAll(Place),
    /// Sync: computes tree nodes of the step, once it has all answers.
    Begin { slots: u8 },
    /// Async: computes a microbatch.
    Compute(Unit),
    /// Pushes one block's part of a gradient, by the gradient's index.
    Push { gradient: usize, block: Block },
}
