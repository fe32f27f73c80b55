//! A block's piece of a checkpoint that was named ahead: the state a follower would start from, taken at exactly the
//! version named. Pure; a piece shares the block's buffers, so that taking it costs nothing until the next update.

use super::memory::Hold;
use super::state::State;
use super::{Block, Role};
use shoal_runtime::cluster::{BlockCopy, CheckpointId, Version};
use std::sync::Arc;

/// A checkpoint under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedCheckpoint {
    /// Which.
    pub checkpoint: CheckpointId,
    /// The version at which every block is written; none in asynchronous jobs, where each is written as it is.
    pub version: Option<Version>,
}

/// A piece to be written. Whoever has it holds memory, and lets go of it once it is written.
#[derive(Clone, Debug)]
pub struct GivenPiece {
    /// The block's state.
    pub copy: BlockCopy,
    /// The memory.
    pub hold: Arc<Hold>,
}

/// How far a block is with the checkpoint under way.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    /// The version is still to come.
    Wanted(NamedCheckpoint),
    /// It is there to be written.
    Taken(CheckpointId, Box<GivenPiece>),
    /// It was given to whoever writes it.
    Given(CheckpointId),
    /// The block was past the version when it heard of it.
    Passed(CheckpointId),
}

impl Piece {
    fn checkpoint(&self) -> CheckpointId {
        match self {
            Piece::Wanted(named) => named.checkpoint,
            Piece::Taken(checkpoint, _) | Piece::Given(checkpoint) | Piece::Passed(checkpoint) => *checkpoint,
        }
    }
}

impl Block {
    /// A checkpoint is under way, or none is. The same again changes nothing.
    pub fn name_checkpoint(&mut self, named: Option<NamedCheckpoint>) {
        match named {
            None => self.piece = None,
            Some(named)
                if self.piece.as_ref().is_some_and(|piece| piece.checkpoint() == named.checkpoint) => {}
            Some(named) => self.piece = Some(Piece::Wanted(named)),
        }
        self.take_piece_if_due();
    }

    /// Takes the piece when the block is at rest at the version named.
    pub(super) fn take_piece_if_due(&mut self) {
        let (Role::Primary(_), Some(state), Some(Piece::Wanted(named))) =
            (&self.role, &self.state, &self.piece)
        else {
            return;
        };
        let is_at_rest = state.version() == self.published;
        let NamedCheckpoint { checkpoint, version } = *named;
        if version.is_some_and(|version| self.published > version) {
            self.piece = Some(Piece::Passed(checkpoint));
        } else if is_at_rest && version.is_none_or(|version| self.published == version) {
            let copy = self.piece_of(state);
            let hold = self.job.budget.hold(bytes_of(&copy) as u64);
            self.holds.push(Arc::downgrade(&hold));
            self.piece = Some(Piece::Taken(checkpoint, Box::new(GivenPiece { copy, hold })));
        }
    }

    fn piece_of(&self, state: &State) -> BlockCopy {
        // Steps that restart from it take their gradients at most so far back.
        state.copy(&self.shape, self.placement.rewind, self.published, self.job.mode.delay())
    }

    /// Gives the piece away, to be written.
    pub fn give_piece(&mut self) -> Option<(CheckpointId, GivenPiece)> {
        let taken = self.piece.take_if(|piece| matches!(piece, Piece::Taken(..)))?;
        let Piece::Taken(checkpoint, piece) = taken else { return None };
        self.piece = Some(Piece::Given(checkpoint));
        Some((checkpoint, *piece))
    }

    /// Bytes of a piece that waits to be written.
    pub fn waiting_bytes(&self) -> usize {
        match &self.piece {
            Some(Piece::Taken(_, piece)) => bytes_of(&piece.copy),
            _ => 0,
        }
    }

    /// Whether the block cannot supply its piece of a checkpoint any more.
    pub fn has_passed(&self, checkpoint: CheckpointId) -> bool {
        matches!(self.piece, Some(Piece::Passed(passed)) if passed == checkpoint)
    }
}

/// Bytes of parameters, earlier ones and slots.
fn bytes_of(copy: &BlockCopy) -> usize {
    copy.parameters.len() * (1 + copy.earlier.len() + copy.slots.len())
}
