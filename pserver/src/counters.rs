//! What a pserver has counted since it started, for people. No decision may rest on it.

use crate::block::PushOutcome;
use shoal_runtime::cluster::{BlockId, Staleness};

/// Counts of one pserver, cumulative over its life. Refused messages are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Push messages answered.
    pub pushes: u64,
    /// Push messages of which some block held the node already, by itself or by an ancestor.
    pub duplicates_refused: u64,
    /// Push messages of which some block had applied the step already.
    pub late_pushes: u64,
    /// Weight of nodes that did not count because they were held or applied already. Counted on the job's block 0
    /// alone, so that it is counted once however many blocks and pservers the node went to.
    pub records_refused: u64,
    /// Held nodes that an ancestor took the place of: the most over the blocks of each push message.
    pub replaced_by_ancestor: u64,
    /// Push messages that some block gave no credit.
    pub busy: u64,
    /// Short steps applied, counted on the lowest block here.
    pub short_steps: u64,
    /// Bytes of gradients taken in.
    pub bytes_in: u64,
    /// Bytes of parameters and state given out.
    pub bytes_out: u64,
    /// Bit `l` is set once a node of level `l` has arrived.
    pub levels: u64,
    /// Copies taken whole, as a follower.
    pub fills: u64,
    /// Log entries taken, as a follower.
    pub entries: u64,
    /// Bytes of both.
    pub bytes_followed: u64,
    /// Push messages of which some block was elsewhere.
    pub moved: u64,
    /// Push messages of which some block had gone back.
    pub rewound: u64,
    /// Pieces of checkpoints written.
    pub pieces_written: u64,
    /// Bytes of their files.
    pub bytes_written: u64,
    /// Bytes copied because an update met buffers that a piece or a follower still had.
    pub bytes_copied_on_write: u64,
    /// Pushes and questions for credit of which some block waited for its piece to be written.
    pub throttled: u64,
    /// Rows of tables that updates of blocks led here let go of.
    pub rows_evicted: u64,
    /// Keys that updates of blocks led here left unborn because their bucket was full, each time.
    pub keys_refused: u64,
    /// Asynchronous jobs: updates by staleness, counted for each block led here.
    pub staleness: Staleness,
}

impl Counters {
    /// Counts one push message. `lowest` is the lowest block here.
    pub fn count_push(
        &mut self,
        level: u8,
        weight: u64,
        bytes: u64,
        lowest: Option<BlockId>,
        outcomes: &[(BlockId, PushOutcome)],
    ) {
        let any = |wanted: PushOutcome| u64::from(outcomes.iter().any(|(_, outcome)| *outcome == wanted));
        self.pushes += 1;
        self.bytes_in += bytes;
        self.levels |= 1 << level;
        self.duplicates_refused += any(PushOutcome::Covered);
        self.late_pushes += any(PushOutcome::Late);
        self.busy += any(PushOutcome::Busy);
        self.throttled += any(PushOutcome::Throttled);
        self.moved += any(PushOutcome::Moved);
        self.rewound += any(PushOutcome::Rewound);
        let mut replaced_most = 0;
        for (block, outcome) in outcomes {
            match *outcome {
                PushOutcome::Covered | PushOutcome::Late if *block == BlockId(0) => {
                    self.records_refused += weight;
                }
                PushOutcome::Held { replaced } | PushOutcome::Whole { replaced } => {
                    replaced_most = replaced_most.max(replaced);
                }
                PushOutcome::Applied { replaced, is_short, .. } => {
                    replaced_most = replaced_most.max(replaced);
                    self.short_steps += u64::from(is_short && Some(*block) == lowest);
                }
                PushOutcome::Covered
                | PushOutcome::Late
                | PushOutcome::Busy
                | PushOutcome::Throttled
                | PushOutcome::NoArea
                | PushOutcome::Moved
                | PushOutcome::Rewound => {}
            }
        }
        self.replaced_by_ancestor += replaced_most as u64;
    }
}
