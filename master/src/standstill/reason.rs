//! The reasons for which a front does not advance, each with its word. Pure.

/// The reason for which a front does not advance. `docs/waits.md` has a row for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// No trainer has joined, or none is left.
    NoTrainer,
    /// Trainers are refused as they join.
    ProgramRefused,
    /// Blocks are placed once more pservers are there.
    TooFewPservers,
    /// No live pserver has a copy of some block.
    NoCopyLeft,
    /// A pserver says nothing.
    PserverSilent,
    /// A pserver does not answer others, and speaks with the master.
    PserverUnreachable,
    /// A pserver has all that an update needs and does not make it.
    PserverStuck,
    /// A primary has yet to begin, from a checkpoint or from nothing.
    Restoring,
    /// A copy has not taken in an update that its primary may not publish without it.
    CopyBehind,
    /// A decision over all blocks is not made.
    Undecided,
    /// Updates wait for memory that pieces of a checkpoint have.
    CheckpointMemory,
    /// A device has not finished its work.
    Device,
    /// A place of checkpoints, hashes or predictions does not answer, or fails.
    Storage,
    /// The store does not take the job's document.
    Store,
    /// A trainer says nothing.
    TrainerSilent,
    /// A trainer computes.
    Computing,
    /// A trainer waits for chunks of the data set.
    Data,
    /// A trainer has a sum for which a pserver has no room.
    NoRoom,
    /// A trainer has a task and has not said that it gets on with it.
    TrainerStuck,
    /// A task is free, and no live trainer asks for it.
    NobodyAsks,
    /// An evaluation is not judged.
    Evaluation,
    /// The last checkpoint is not durable.
    Checkpoint,
    /// Recorded hashes are not durable.
    Hashes,
    /// The next decision is not in the document yet.
    Deciding,
}

impl Reason {
    /// Every reason.
    #[cfg(test)]
    pub(crate) const ALL: [Reason; 24] = [
        Reason::NoTrainer,
        Reason::ProgramRefused,
        Reason::TooFewPservers,
        Reason::NoCopyLeft,
        Reason::PserverSilent,
        Reason::PserverUnreachable,
        Reason::PserverStuck,
        Reason::Restoring,
        Reason::CopyBehind,
        Reason::Undecided,
        Reason::CheckpointMemory,
        Reason::Device,
        Reason::Storage,
        Reason::Store,
        Reason::TrainerSilent,
        Reason::Computing,
        Reason::Data,
        Reason::NoRoom,
        Reason::TrainerStuck,
        Reason::NobodyAsks,
        Reason::Evaluation,
        Reason::Checkpoint,
        Reason::Hashes,
        Reason::Deciding,
    ];

    /// Returns its word, for programs and for conditions.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Reason::NoTrainer => "NoTrainer",
            Reason::ProgramRefused => "ProgramRefused",
            Reason::TooFewPservers => "TooFewPservers",
            Reason::NoCopyLeft => "NoCopyLeft",
            Reason::PserverSilent => "PserverSilent",
            Reason::PserverUnreachable => "PserverUnreachable",
            Reason::PserverStuck => "PserverStuck",
            Reason::Restoring => "Restoring",
            Reason::CopyBehind => "CopyBehind",
            Reason::Undecided => "Undecided",
            Reason::CheckpointMemory => "CheckpointMemory",
            Reason::Device => "Device",
            Reason::Storage => "Storage",
            Reason::Store => "Store",
            Reason::TrainerSilent => "TrainerSilent",
            Reason::Computing => "Computing",
            Reason::Data => "Data",
            Reason::NoRoom => "NoRoom",
            Reason::TrainerStuck => "TrainerStuck",
            Reason::NobodyAsks => "NobodyAsks",
            Reason::Evaluation => "Evaluation",
            Reason::Checkpoint => "Checkpoint",
            Reason::Hashes => "Hashes",
            Reason::Deciding => "Deciding",
        }
    }
}
