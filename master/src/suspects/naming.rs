//! When losses name what is to blame for them, and what: five at least, of the dead, and more than chance explains.

use super::{Announced, LOSSES, Loss, Suspects};
use shoal_runtime::cluster::Incarnation;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Trainers lost over one place before it, or a record of it, is named: who made it suspect, one who had it by itself, and one who
/// had it with care.
const NAMING: usize = LOSSES + 2;
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
    /// Trainers that were silent for long enough are dead from now on.
    pub fn bury(&mut self, now: Duration) {
        for loss in &mut self.losses {
            loss.dead_from = loss.dead_from.filter(|from| now < *from);
        }
    }

    /// What is named by losses that can be weighed by now. All places below `front` are done, and those that are not among what
    /// `lacking` gives of a stretch.
    pub fn judge(&mut self, front: u64, lacking: &dyn Fn(Range<u64>) -> Vec<Range<u64>>) -> Vec<Blame> {
        if !self.losses.iter().any(Loss::is_open) {
            return Vec::new();
        }
        self.advance(front);
        // Of one place the newest names: those before it were weighed as the newest once, or would be now with the same dead.
        let mut newest: BTreeMap<u64, usize> = BTreeMap::new();
        for at in 0..self.losses.len() {
            let place = self.losses[at].places.start;
            if self.losses[at].is_open() && self.at(place).all(Loss::is_dead) {
                newest.insert(place, at);
                self.losses[at].is_weighed = true;
            }
        }
        newest.retain(|place, at| {
            self.names(&self.losses[*at], Loss::is_dead) && !lacking(*place..*place + 1).is_empty()
        });
        newest.into_values().filter_map(|at| self.blame(&self.losses[at].clone())).collect()
    }

    /// Whether a loss names something, if those count of whom `counts` says so.
    fn names(&self, last: &Loss, counts: fn(&Loss) -> bool) -> bool {
        let place = last.places.start;
        let lost: Vec<&Loss> = self.at(place).filter(|loss| counts(loss)).collect();
        let mute = lost.iter().filter(|loss| loss.is_mute()).count();
        let has_told = !last.is_mute() || mute >= LOSSES;
        has_told && lost.len() >= NAMING && !self.is_chance(place, lost.len())
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
        self.at(place).any(|loss| loss.is_open() && self.names(loss, |_| true))
    }
}
