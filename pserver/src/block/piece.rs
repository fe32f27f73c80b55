//! Pieces of checkpoints: what is written of a block, and what it is restored from.
//!
//! A piece is of a checkpoint that was named ahead: the state a follower would start from, taken at exactly the
//! version named. Pure; a dense block's piece shares its buffers, so that taking it costs nothing until the next update; a
//! bucket's is given out segment by segment, and costs the rows that change before they are given.

use super::dense::ComingCopy;
use super::memory::Hold;
use super::shape::BlockShape;
use super::state::{State, wrong_shape};
use super::{Block, Placement, Role};
use crate::bucket::arena::Slot;
use crate::bucket::segment::row_bytes;
use shoal_runtime::cluster::block_copy::{Segment, Settled};
use shoal_runtime::cluster::{BlockCopy, CheckpointId, ManifestRecord, Refusal, Rewind, Term, Version};
use std::sync::Arc;

/// A checkpoint under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedCheckpoint {
    /// Which.
    pub checkpoint: CheckpointId,
    /// The version at which every block is written; none in asynchronous jobs, where each is written as it is.
    pub version: Option<Version>,
    /// The durable checkpoint since which buckets may write what changed; without one they write everything.
    pub since: Option<CheckpointId>,
    /// Routing version since which it is under way.
    pub named_at: u64,
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
    /// Some of it is still on a device. The hold is charged once it is here.
    Coming(CheckpointId, Box<ComingCopy>, Arc<Hold>),
    /// It is there to be written.
    Taken(CheckpointId, Box<GivenPiece>),
    /// Of a bucket: it is given segment by segment; what they have in common is here.
    Open(CheckpointId, Box<GivenPiece>),
    /// It was given to whoever writes it.
    Given(CheckpointId),
    /// The block was past the version when it heard of it.
    Passed(CheckpointId),
}

impl Piece {
    fn checkpoint(&self) -> CheckpointId {
        match self {
            Piece::Wanted(named) => named.checkpoint,
            Piece::Taken(checkpoint, _) | Piece::Open(checkpoint, _) => *checkpoint,
            Piece::Coming(checkpoint, ..) => *checkpoint,
            Piece::Given(checkpoint) | Piece::Passed(checkpoint) => *checkpoint,
        }
    }
}

impl Block {
    /// A checkpoint is under way, or none is. The same again changes nothing.
    pub fn name_checkpoint(&mut self, named: Option<NamedCheckpoint>) {
        match named {
            None => self.drop_piece(),
            Some(named)
                if self.piece.as_ref().is_some_and(|piece| piece.checkpoint() == named.checkpoint) => {}
            Some(named) => {
                self.drop_piece();
                self.piece = Some(Piece::Wanted(named));
            }
        }
        self.take_piece_if_due();
    }

    fn drop_piece(&mut self) {
        if let (Some(Piece::Open(..)), Some(state)) = (self.piece.take(), &mut self.state) {
            state.end_giving();
        }
    }

    /// Takes the piece when the block is at rest at the version named.
    pub(super) fn take_piece_if_due(&mut self) {
        // Steps that restart from it take their gradients at most so far back.
        let of = self.copy_of(self.job.mode.delay(), 0);
        let (Role::Primary(_), Some(state), Some(Piece::Wanted(named))) =
            (&self.role, &mut self.state, &self.piece)
        else {
            return;
        };
        let is_at_rest = state.version() == self.published;
        let NamedCheckpoint { checkpoint, version, since, named_at } = *named;
        if version.is_some_and(|version| self.published > version) {
            self.piece = Some(Piece::Passed(checkpoint));
        } else if is_at_rest && version.is_none_or(|version| self.published == version) {
            // The primary before may have written one as well, of another state: whichever counts, nothing may rest on this one.
            let is_the_only_one = self.placement.term.0 <= named_at;
            let base = is_the_only_one.then_some(checkpoint);
            if let Some(copy) = state.begin_giving(&self.shape, of, base, since) {
                let hold = self.job.budget.hold(0);
                self.piece = Some(Piece::Open(checkpoint, Box::new(GivenPiece { copy, hold })));
                return;
            }
            if state.is_on_device() {
                // One that is there no more is so for its device has failed, and with it this process.
                let Some(coming) = state.ask_for_copy(&self.shape, of) else { return };
                let hold = self.hold(coming.bytes(self.shape.elements));
                self.piece = Some(Piece::Coming(checkpoint, Box::new(coming), hold));
                self.take_piece_if_here();
                return;
            }
            let Some(copy) = state.copy(&self.shape, of) else { return };
            let hold = self.hold(copy.bytes());
            self.piece = Some(Piece::Taken(checkpoint, Box::new(GivenPiece { copy, hold })));
        }
    }

    /// Memory for a piece of so many bytes. From the next update on it is charged.
    fn hold(&mut self, bytes: usize) -> Arc<Hold> {
        let hold = self.job.budget.hold(bytes as u64);
        self.holds.push(Arc::downgrade(&hold));
        hold
    }

    /// Takes the piece that a device has brought. Whatever became of the block since, it is of the version that was named.
    pub(super) fn take_piece_if_here(&mut self) {
        if let Some(Piece::Coming(checkpoint, coming, hold)) = &self.piece
            && let Some(copy) = coming.here()
        {
            let piece = GivenPiece { copy, hold: Arc::clone(hold) };
            self.piece = Some(Piece::Taken(*checkpoint, Box::new(piece)));
        }
    }

    /// Gives the piece of that checkpoint away, to be written; a bucket's segment by segment. A piece of another one stays: whoever writes
    /// that asks for it.
    pub fn give_piece(&mut self, wanted: CheckpointId) -> Option<GivenPiece> {
        match self.piece.take_if(|piece| piece.checkpoint() == wanted)? {
            Piece::Taken(checkpoint, piece) => {
                self.piece = Some(Piece::Given(checkpoint));
                Some(*piece)
            }
            Piece::Open(checkpoint, piece) => {
                let segment = self
                    .state
                    .as_mut()
                    .and_then(|state| state.give_segment(&self.shape, &piece.copy, self.job.segment_bytes));
                self.settle_saved(&piece.hold);
                let Some(copy) = segment else {
                    // The state that it was of is gone.
                    self.piece = Some(Piece::Passed(checkpoint));
                    return None;
                };
                let is_last = copy.segment.as_ref().is_none_or(|segment| segment.slots.end == Slot::MAX);
                // The segment shares nothing with the bucket.
                let given = GivenPiece { copy, hold: self.job.budget.hold(0) };
                self.piece =
                    Some(if is_last { Piece::Given(checkpoint) } else { Piece::Open(checkpoint, piece) });
                Some(given)
            }
            other => {
                self.piece = Some(other);
                None
            }
        }
    }

    /// What is saved of a bucket for its piece is so much now.
    pub(super) fn settle_saved(&self, hold: &Hold) {
        hold.settle(self.state.as_ref().map_or(0, State::saved_bytes) as u64);
    }

    /// Whether the block cannot supply its piece of a checkpoint any more.
    pub fn has_passed(&self, checkpoint: CheckpointId) -> bool {
        matches!(self.piece, Some(Piece::Passed(passed)) if passed == checkpoint)
    }
}

impl Piece {
    /// Whether the update of that number may change so many rows of a bucket, and evict others: those that its piece still needs
    /// are saved first.
    pub(super) fn may_save(&self, shape: &BlockShape, state: &State, update: u64, rows: usize) -> bool {
        let (Piece::Open(_, piece), Some(bucket)) = (self, &shape.bucket) else { return true };
        let rows = rows + state.evicts_at_most(shape, update, rows);
        piece.hold.charge_up_to((state.saved_bytes() + rows * row_bytes(bucket)) as u64)
    }
}

// How a primary without a state begins its term: at a checkpoint's pieces, at its initial values, or at given ones. So it does once
// in a term; what comes for another term changes nothing.
impl Block {
    /// The term under which it has to be restored, if it is a primary without a state.
    pub fn wants_state(&self) -> Option<(Term, Rewind)> {
        let Placement { term, rewind, .. } = self.placement;
        let is_wanted = matches!(self.role, Role::Primary(_)) && self.state.is_none() && term.0 == rewind.0;
        is_wanted.then_some((term, rewind))
    }

    /// What it has to be restored from, if that is not its initial values.
    pub fn origin(&self) -> Option<ManifestRecord> {
        self.placement.origin
    }

    /// Begins its term at a whole state: that of a checkpoint, or one before the first update.
    pub fn restore(&mut self, term: Term, state: State) {
        let is_wanted = self.wants_state().is_some_and(|(wanted, _)| wanted == term);
        if is_wanted && state.filled().is_none() {
            self.begin(state.under(term));
        }
    }

    /// Begins its term at the block's initial values.
    pub fn restore_initial(&mut self, term: Term) {
        let initial = self.shape.initial(self.job.seed);
        self.restore(term, State::beginning(&self.shape, initial, term));
    }

    fn begin(&mut self, state: State) {
        let version = state.version();
        if let Role::Primary(primary) = &mut self.role {
            (primary.held, primary.inherited) = (self.job.nothing_held(version), None);
        }
        (self.published, self.state) = (version, Some(self.place_on_device(state)));
        self.record();
        self.publish();
    }
}

/// A block's state in the making, from the pieces that a checkpoint has of it: whole, or of a bucket newest first.
#[derive(Debug, Default)]
pub struct Restoring {
    state: Option<State>,
    settled: Settled,
}

impl Restoring {
    /// Takes in the next piece. Those of the newest state come first, in slot order; then, newest first, what that rests on.
    ///
    /// # Errors
    /// It is not of this block's shape, or says of a slot what cannot be.
    pub fn take(&mut self, shape: &BlockShape, copy: &BlockCopy) -> Result<(), Refusal> {
        let (Some(bucket), Some(segment)) = (&shape.bucket, &copy.segment) else {
            self.state = Some(State::from_copy(shape, copy)?);
            return Ok(());
        };
        let rows = self.settled.take(copy, bucket.width).map_err(|what| wrong_shape(shape, what))?;
        match &mut self.state {
            None => self.state = Some(State::from_copy(shape, &whole(copy, segment))?),
            Some(state) if state.filled().is_some() => state.fill(shape, &whole(copy, segment))?,
            Some(state) => state.fill_beneath(shape, &segment.slots, &rows)?,
        }
        Ok(())
    }

    /// The state, once all pieces are taken in.
    pub fn finish(self) -> Option<State> {
        self.state
    }
}

/// What changed, as if it were all that there is: what it rests on comes later.
fn whole(copy: &BlockCopy, segment: &Segment) -> BlockCopy {
    BlockCopy { segment: Some(Segment { freed: None, ..segment.clone() }), ..copy.clone() }
}
