//! What trainers read of a block: a version that is published, in a message or put into an area of its device.

use super::Block;
use super::answer::{PushOutcome, Reading};
use super::state::{Kept, State};
use crate::device::{Area, Given};
use shoal_runtime::cluster::{Rewind, Step, Version};

impl Block {
    /// The parameters that step `step` reads, of a bucket the rows of these keys, for a caller whose history is `rewind`.
    pub fn read(&self, rewind: Rewind, step: Step, keys: &[u64]) -> Reading {
        let (state, version) = match self.readable(rewind, step) {
            Ok(readable) => readable,
            Err(reading) => return reading,
        };
        match state.read(&self.shape, version, keys) {
            Kept::Here(kept) => Reading::Parameters(kept, version),
            Kept::Coming => Reading::NotYet,
            Kept::Gone => Reading::Gone(self.published),
        }
    }

    /// The same of a block on a device, copied to an area of that from byte `to` on; none if they do not go there.
    pub fn give(
        &self,
        rewind: Rewind,
        step: Step,
        area: &Area,
        to: u64,
        given: &mut Given,
    ) -> Option<Version> {
        let (state, version) = self.readable(rewind, step).ok()?;
        state.give(version, area, to, given).then_some(version)
    }

    /// Whether [`give`](Self::give) would, as far as can be said before.
    pub fn may_give(&self, rewind: Rewind, step: Step) -> Option<Version> {
        let (state, version) = self.readable(rewind, step).ok()?;
        state.parameters(version)?.outcome().map(|_| version)
    }

    /// The state, and the version that step `step` reads, which is published; or what the caller is told instead.
    fn readable(&self, rewind: Rewind, step: Step) -> Result<(&State, Version), Reading> {
        let version = self.job.reads(step);
        match (self.led(rewind), &self.state) {
            (Err(PushOutcome::Busy), _) => Err(Reading::NotYet),
            (Ok(_), Some(state)) if version <= self.published => Ok((state, version)),
            (Ok(_), _) => Err(Reading::NotYet),
            (Err(_), _) => Err(Reading::Elsewhere),
        }
    }
}
