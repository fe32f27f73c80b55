//! Asynchronous jobs: an update for each position (a microbatch's place in the job), applied at once if the block's ledger
//! lacks it. A ledger answer speaks of what is published only.

use super::piece::Piece;
use super::primary::{LOG_MAX, Primary, PushOutcome};
use super::reduce::Gradient;
use super::state::{State, Update};
use super::{Block, Role};
use shoal_runtime::cluster::{Rewind, Version};

/// Updates that may wait for copies at a time: followers are given each as an entry.
const IN_FLIGHT_MAX: u64 = LOG_MAX as u64;

/// One microbatch's gradient for one block, as it came.
#[derive(Clone, Debug)]
pub struct PositionGradient {
    /// The microbatch's place in the job.
    pub position: u64,
    /// The version that it was computed from.
    pub version: Version,
    /// Records (or tokens) in it.
    pub weight: u64,
    /// Of the block.
    pub gradient: Gradient,
}

impl Block {
    /// Takes in a gradient, computed under `rewind`, that has passed the shape's check.
    pub fn push_position(&mut self, rewind: Rewind, arriving: PositionGradient) -> PushOutcome {
        if let Err(outcome) = self.led(rewind) {
            return outcome;
        }
        let is_closed =
            self.placement.heir.is_some() || self.waits_for_rest() || !self.is_open(arriving.position);
        let rate = self.rate(arriving.position);
        let (Role::Primary(primary), Some(state)) = (&self.role, &self.state) else {
            return PushOutcome::Moved;
        };
        // Until all that was inherited is published, nobody knows which of it is.
        let Some(published) = &primary.ledger else { return PushOutcome::Busy };
        if published.contains(arriving.position) {
            return PushOutcome::Late;
        }
        if state.ledger().contains(arriving.position) {
            return PushOutcome::Held { replaced: 0 };
        }
        let (name, version) = (state.name(), state.version());
        let is_needed_here = primary.is_followed() || !state.is_on_device();
        if version.0 - self.published.0 >= IN_FLIGHT_MAX || is_closed {
            return PushOutcome::Busy;
        }
        if !self.has_memory(arriving.gradient.rows()) {
            return PushOutcome::Throttled;
        }
        let mut gradient = arriving.gradient;
        if is_needed_here && gradient.fetch().is_err() {
            // The device has failed, and the process is about to end.
            return PushOutcome::Busy;
        }
        let Role::Primary(primary) = &mut self.role else { return PushOutcome::Moved };
        primary.pending.push_back((Version(version.0 + 1), arriving.position));
        let staleness = version.0.saturating_sub(arriving.version.0);
        let update = Update::new(name, self.placement.term, arriving.weight, gradient.into_sum());
        self.update(Update { position: Some(arriving.position), staleness, rate, ..update });
        PushOutcome::Applied { replaced: 0, is_short: false, is_published: self.published > version }
    }

    /// By how many updates the block has moved on from `version`.
    pub fn staleness(&self, version: Version) -> u64 {
        self.state.as_ref().map_or(0, |state| state.version().0.saturating_sub(version.0))
    }

    /// Whether a checkpoint waits until all that was applied is published.
    fn waits_for_rest(&self) -> bool {
        let is_wanted = matches!(self.piece, Some(Piece::Wanted(_)));
        is_wanted && self.state.as_ref().is_some_and(|state| state.version() > self.published)
    }

    /// Whether a position is published, for a caller whose history is `rewind`.
    pub fn has_published(&self, rewind: Rewind, position: u64) -> bool {
        let led = self.led(rewind).ok();
        led.and_then(|(primary, _)| primary.ledger.as_ref()).is_some_and(|ledger| ledger.contains(position))
    }
}

impl Primary {
    /// All up to `published` is published.
    pub(super) fn note_published(&mut self, published: Version, state: &State) {
        match &mut self.ledger {
            None if published == state.version() => self.ledger = Some(state.ledger().clone()),
            None => {}
            Some(ledger) => {
                while let Some((_, position)) =
                    self.pending.pop_front_if(|(version, _)| *version <= published)
                {
                    ledger.insert(position);
                }
            }
        }
    }
}
