//! Whether a gradient would be taken in, before it is sent.

use super::held::Room;
use super::memory::may_update;
use super::{Block, PushOutcome};
use shoal_runtime::cluster::{Node, Rewind, Step, Version};

impl Block {
    /// What room there is for a node whose gradient was computed under `rewind`; or what a push of it would be answered,
    /// whatever it brings. Pieces that an update would have to copy are charged for, as a push does.
    pub fn room(&mut self, rewind: Rewind, step: Step, node: Node) -> Result<Room, PushOutcome> {
        let (_, version) = self.led(rewind)?;
        self.before_taking(step, version)?;
        if !self.has_memory(0) {
            return Err(PushOutcome::Throttled);
        }
        let (primary, _) = self.led(rewind)?;
        primary.held.of(step).map(|held| held.room(node)).ok_or(PushOutcome::Busy)
    }

    /// Whether a change of so many rows may cost what pieces under way still need.
    pub(super) fn has_memory(&mut self, rows: usize) -> bool {
        let saved = self.piece.as_ref().zip(self.state.as_ref());
        let may_save = saved.is_none_or(|(piece, state)| {
            piece.may_save(&self.shape, state, self.job.updates(state.version()), rows)
        });
        let has_memory = may_save && may_update(&mut self.holds);
        self.is_starved |= !has_memory;
        has_memory
    }

    /// What a push for `step` is answered whatever it brings, the block being at `version`.
    pub(super) fn before_taking(&self, step: Step, version: Version) -> Result<(), PushOutcome> {
        if step.replaces() < self.published {
            return Err(PushOutcome::Late);
        }
        if step.replaces() < version {
            // Applied, but some copy has yet to say that it has it: it may be lost.
            return Err(PushOutcome::Held { replaced: 0 });
        }
        let is_closed = self.placement.heir.is_some() || !self.is_open(step.0);
        if self.job.reads(step) > self.published || is_closed {
            return Err(PushOutcome::Busy);
        }
        Ok(())
    }
}
