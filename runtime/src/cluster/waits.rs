//! Waits of a process that are in progress, as the process reports them to its master: the kind, the subject, the age and the last
//! error. The master's watch ([`docs/waits.md`](../../../../docs/waits.md)) names the one that holds up a job. Pure.

use std::time::Duration;

/// The kind of a wait. `docs/waits.md` has a row for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitKind {
    /// A call to the place of checkpoints, of hashes or of predictions. The subject is the object.
    Storage,
    /// A write of the job's document. The subject is the store.
    Store,
    /// Chunks of the data set. The subject is the file or object.
    Data,
    /// A pserver that does not answer a trainer. The subject is its address.
    Pserver,
    /// A primary that does not answer a follower. The subject is its address.
    Primary,
    /// The primary of the scalar block, which decides over all blocks. The subject is its address.
    Decision,
    /// Memory for pieces of a checkpoint: updates wait until pieces are written. The subject is the number of blocks.
    CheckpointMemory,
    /// Work that a device was given. The subject is the number of blocks.
    Device,
    /// The training program's own function. The subject is the call.
    Program,
}

/// A wait that is in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The kind.
    pub kind: WaitKind,
    /// The process, place or object that is waited for.
    pub subject: String,
    /// The time since the wait began.
    pub age: Duration,
    /// The last error; empty if there was none.
    pub error: String,
}

impl WaitKind {
    /// Every kind, in wire order.
    pub const ALL: [WaitKind; 9] = [
        WaitKind::Storage,
        WaitKind::Store,
        WaitKind::Data,
        WaitKind::Pserver,
        WaitKind::Primary,
        WaitKind::Decision,
        WaitKind::CheckpointMemory,
        WaitKind::Device,
        WaitKind::Program,
    ];

    /// Returns the word for the kind in documents and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            WaitKind::Storage => "storage",
            WaitKind::Store => "store",
            WaitKind::Data => "data",
            WaitKind::Pserver => "pserver",
            WaitKind::Primary => "primary",
            WaitKind::Decision => "decision",
            WaitKind::CheckpointMemory => "checkpoint-memory",
            WaitKind::Device => "device",
            WaitKind::Program => "program",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_place_and_a_word_of_its_own() {
        for (place, kind) in WaitKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
            assert_eq!(WaitKind::ALL.iter().filter(|other| other.word() == kind.word()).count(), 1);
        }
    }
}
