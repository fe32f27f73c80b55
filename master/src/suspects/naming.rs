//! When losses name what is to blame for them, and what: those of the dead, and more of them than chance explains.

use super::{Announced, Care, LOSSES, Loss, Suspects};
use shoal_runtime::cluster::Incarnation;
use std::time::Duration;

/// The probability up to which losses are not taken for chance.
const CHANCE_MAX: f64 = 2e-6;
/// Trainers, those lost last, that are told of with what is to blame.
const TOLD_MAX: usize = 8;

/// A place, or one of its records, with which trainers are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The microbatch.
    pub place: u64,
    /// The record; none where it is the microbatch as a whole.
    pub record: Option<u64>,
    /// The trainers lost there that were not yet told of with it, by name.
    pub trainers: Vec<String>,
    /// How the last of them was lost.
    pub why: String,
}

impl Suspects {
    /// What those name who are dead by now, each once. All places below `front` are done.
    pub fn judge(&mut self, front: u64, now: Duration) -> Vec<Blame> {
        self.advance(front);
        for loss in &mut self.losses {
            loss.dead_from = loss.dead_from.filter(|from| now < *from);
        }
        let names = |at: &usize| self.names(&self.losses[*at], Loss::is_dead);
        let naming: Vec<usize> = (0..self.losses.len()).filter(names).collect();
        let blame = |at: usize| {
            self.losses[at].has_named = true;
            self.blame(&self.losses[at].clone())
        };
        naming.into_iter().filter_map(blame).collect()
    }

    /// Whether a loss that has not yet named anything does so, if those count of whom `counts` says so.
    fn names(&self, last: &Loss, counts: fn(&Loss) -> bool) -> bool {
        if last.care < Care::Careful || last.has_named || !counts(last) {
            return false;
        }
        let place = last.places.start;
        let lost: Vec<&Loss> = self.at(place).filter(|loss| counts(loss)).collect();
        let mute = lost.iter().filter(|loss| loss.is_mute()).count();
        (!last.is_mute() || mute >= LOSSES) && !self.is_chance(place, lost.len())
    }

    /// What a loss names, with those of the dead who were not yet told of with it; none if all were.
    fn blame(&mut self, last: &Loss) -> Option<Blame> {
        let place = last.places.start;
        let (record, at) = match last.announced {
            Announced::Record(record) => (Some(record), "while it computed this record alone"),
            Announced::Together => {
                (None, "while it computed all of it together, each record alone having done no harm")
            }
            Announced::Nothing => (None, "before it had computed any record of it"),
        };
        let dead: Vec<(Incarnation, String)> =
            self.at(place).filter(|loss| loss.is_dead()).map(Loss::who).collect();
        let count = dead.len();
        let new = dead.into_iter().filter(|(trainer, _)| self.told.insert((place, record, *trainer)));
        let mut trainers: Vec<String> = new.map(|(_, name)| name).collect();
        trainers.drain(..trainers.len().saturating_sub(TOLD_MAX));
        let how = if last.how.is_empty() { "it fell silent" } else { &last.how };
        let why = format!(
            "{count} trainers were lost while they computed it, the last, {}, {at}: {how}",
            last.name
        );
        (!trainers.is_empty()).then_some(Blame { place, record, trainers, why })
    }

    /// Whether so many losses over a place may be chance, as trainers are lost elsewhere.
    fn is_chance(&self, place: u64, losses: usize) -> bool {
        let elsewhere = self.lost.saturating_sub(self.at(place).count() as u64) as f64;
        let share = (elsewhere + 1.0) / (elsewhere + self.survived as f64 + 20.0);
        std::iter::repeat_n(share, losses).product::<f64>() > CHANCE_MAX
    }

    /// Whether something is named over a place once all who are silent there prove dead.
    pub fn awaits(&self, place: u64) -> bool {
        self.at(place).any(|loss| self.names(loss, |_| true))
    }
}
