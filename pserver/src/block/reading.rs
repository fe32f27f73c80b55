//! What trainers read of a block: a version that is published, in a message or put into an area of its device.

use super::primary::PushOutcome;
use super::state::{Kept, State};
use super::{Block, Role};
use crate::device::{Area, Given};
use bytes::Bytes;
use shoal_runtime::cluster::{Rewind, Step, Version};

/// What a block has of a step's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The parameters, and which version they are.
    Parameters(Bytes, Version),
    /// They are on a device, and are or may be put into an area of it; which version they are.
    InArea(Version),
    /// They are not published yet.
    NotYet,
    /// The step is done everywhere, and they are no longer kept; the block is at this version.
    Gone(Version),
    /// This copy is not the block's primary, or the block has gone back: the caller's routing is old.
    Elsewhere,
}

/// Whether what a caller waits for may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It may, or never will: whoever reads it is told.
    Ready,
    /// Not yet.
    NotYet,
    /// This copy is not the block's primary, or the block has gone back: the caller's routing is old.
    Elsewhere,
}

impl Block {
    /// Whether the parameters that a step reads may be read by a caller of that history; without a step the newest. Of a block on
    /// a device `is_in_area` says whether they stay there.
    pub fn readiness(&self, of: Option<(Rewind, Step)>, is_in_area: bool) -> Readiness {
        let Some((rewind, step)) = of else {
            return match (&self.role, &self.state) {
                (Role::Primary(_), Some(state)) if state.is_here(self.published) => Readiness::Ready,
                (Role::Primary(_), _) => Readiness::NotYet,
                (Role::Follower { .. } | Role::Retired, _) => Readiness::Elsewhere,
            };
        };
        match self.readable(rewind, step) {
            Ok((state, version)) if is_in_area && state.may_give(version) => Readiness::Ready,
            Ok((state, version)) if state.is_here(version) => Readiness::Ready,
            Ok(_) | Err(Reading::NotYet) => Readiness::NotYet,
            Err(Reading::Elsewhere) => Readiness::Elsewhere,
            Err(Reading::Parameters(..) | Reading::InArea(_) | Reading::Gone(_)) => Readiness::Ready,
        }
    }

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

    /// The newest published parameters, of a bucket the rows of these keys, with the rewind number they belong to.
    pub fn read_newest(&self, keys: &[u64]) -> (Reading, Rewind) {
        let rewind = self.placement.rewind;
        let reading = match (&self.role, &self.state) {
            (Role::Primary(_), Some(state)) => match state.read(&self.shape, self.published, keys) {
                Kept::Here(kept) => Reading::Parameters(kept, self.published),
                Kept::Coming | Kept::Gone => Reading::NotYet,
            },
            (Role::Primary(_), None) => Reading::NotYet,
            (Role::Follower { .. } | Role::Retired, _) => Reading::Elsewhere,
        };
        (reading, rewind)
    }

    /// The same as [`read`](Self::read) of a block on a device, copied to an area of that from byte `to` on; none if they do not go there.
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
        state.may_give(version).then_some(version)
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
