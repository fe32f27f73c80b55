//! Microbatches that trainers are lost with: a record, or a program, that ends its process without a word (a segmentation
//! fault, no memory, `exit`) is found by counting who was lost while computing what. Pure: time comes in as an argument.
//!
//! **Who counts.** A trainer that is *lost*: silent for a lease's time to live, or told of by whoever runs its process. Whose
//! name another process has taken is silent too once a time to live is over in which it has not spoken. Whoever speaks again
//! was not lost, and what was counted of it is taken back. Who leaves, hands back, or is late with a lease while it lives is
//! never counted.
//!
//! **What it was computing.** By its own last word: the first task in its hands, in the order in which it does them, that is
//! neither computed nor waits for room, that it could begin, and of which some block still lacks something; there from the
//! first microbatch on that it had not done. All of that stretch is counted, for it may have been further than it said.
//! Where that leaves nothing, nothing is counted.
//!
//! **What follows.** Microbatches are told apart by their *place* (step × microbatches in a step + slot, or the position), for
//! the next lease may be cut otherwise.
//! 1. Once one is lost over a place, nobody helps there; before, no more than [`LOSSES`] have it at a time, so that what ends
//!    trainers faster than they are missed ends few. [`LOSSES`] losses make it *suspect*: it is leased by itself, to a trainer that has nothing else to do and is
//!    given nothing beside it. Whoever is lost then names the microbatch.
//! 2. From then on it is computed *with care*: its trainer announces each record before it computes it alone, and all of them
//!    before it computes them together. Whoever is lost then names the record, or the microbatch as a whole; so do [`LOSSES`]
//!    who had announced nothing (they do not know how, or die of reading).
//!
//! 3. Nothing is named that may be chance. Where trainers are lost everywhere, some place loses five in a row; so what loses them
//!    must have lost more than that. With the share `p` of the tasks elsewhere over which a trainer was lost (one that was and
//!    nineteen that were not are taken as seen, for a job has a beginning), `n` losses are chance once in `p^-n` cases: `CHANCE_MAX` is the
//!    bound. Five do where one task in twenty or fewer loses its trainer, six where one in ten does, nine where one in five does.
//! 4. Silence is not death. It makes a place suspect, but names nothing before it has lasted [`DEATH_TTLS`] times to live. A process
//!    is known to be dead sooner where it is told of, or another has taken its name. A loss is weighed once: when it is of a dead
//!    trainer, and of nobody at its place it is open whether he is dead. While a name waits for that alone, nobody is given the place.
//!    Where no block lacks the place any more nothing is named, for somebody has computed it.
//!
//! So five losses name a record, however many it has beside it. What was named is the complaint of all who were lost there,
//! and [`crate::trouble`] decides of it as of any other. A new master begins to count anew.
//!
//! Invariants: a place is suspect only while [`LOSSES`] incarnations are counted there; an incarnation is counted once; nobody
//! has anything else in hand to compute while it has a suspect place; memory is bounded.

mod naming;

use crate::lease::Progress;
pub use naming::Blame;
use shoal_runtime::cluster::{Incarnation, LeaseId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// Trainers lost over one place before it is suspect.
pub const LOSSES: usize = 3;
/// Times to live after which a trainer that was lost by silence, and has not spoken since, is taken for dead.
pub const DEATH_TTLS: u32 = 5;
/// Losses that are remembered: the oldest go first. A job that loses more without a step made is stopped by who runs it.
const LOSSES_MAX: usize = 256;

/// How a place is to be computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Care {
    /// Like any other.
    #[default]
    None,
    /// By itself.
    Alone,
    /// By itself, each record announced before it is tried.
    Careful,
}

/// What a trainer has announced of a place that it computes with care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Announced {
    /// Nothing yet.
    #[default]
    Nothing,
    /// A record, computed alone.
    Record(u64),
    /// All records that it has, together.
    Together,
}

/// One trainer's leases, as far as it has not said that they are done.
#[derive(Clone, Debug, Default)]
struct Hand {
    name: String,
    /// When it last spoke.
    heard: Duration,
    held: Vec<Held>,
}

#[derive(Clone, Debug)]
struct Held {
    lease: LeaseId,
    places: Range<u64>,
    computed: u64,
    /// Whether nothing of it is left to compute.
    is_over: bool,
    care: Care,
    announced: Announced,
}

#[derive(Clone, Debug)]
struct Loss {
    trainer: Incarnation,
    name: String,
    places: Range<u64>,
    care: Care,
    announced: Announced,
    /// How its process ended; empty: nobody knows.
    how: String,
    /// From when on its silence is taken for death; none: it is dead.
    dead_from: Option<Duration>,
    /// Whether it has been weighed whether it names what is to blame: that is done once.
    is_weighed: bool,
}

/// What is counted.
#[derive(Debug, Default)]
pub struct Suspects {
    hands: BTreeMap<Incarnation, Hand>,
    /// Those whose name another has taken: lost from then on, unless they speak.
    superseded: BTreeMap<Incarnation, Duration>,
    losses: Vec<Loss>,
    /// Trainers lost so far over what they computed, and leases computed by trainers that were not.
    lost: u64,
    survived: u64,
    /// Whom a place and record was told of with, by incarnation.
    told: BTreeSet<(u64, Option<u64>, Incarnation)>,
}

impl Suspects {
    /// A trainer is given a lease.
    pub fn given(
        &mut self,
        trainer: Incarnation,
        name: &str,
        lease: LeaseId,
        places: Range<u64>,
        care: Care,
        now: Duration,
    ) {
        let hand = self.hands.entry(trainer).or_default();
        (hand.name, hand.heard) = (name.to_owned(), hand.heard.max(now));
        let (computed, is_over, announced) = (0, false, Announced::Nothing);
        hand.held.push(Held { lease, places, computed, is_over, care, announced });
    }

    /// A trainer says how far it is with all that it has in hand. So it lives; whether it was taken for lost.
    pub fn hear(&mut self, trainer: Incarnation, progress: &[Progress], now: Duration) -> bool {
        let was_lost = self.speaks(trainer);
        let Some(hand) = self.hands.get_mut(&trainer) else { return was_lost };
        hand.heard = now;
        hand.held.retain_mut(|held| {
            let Some(word) = progress.iter().find(|word| word.lease == held.lease) else {
                // It is computed and done; what is handed back had not been begun.
                self.survived += u64::from(held.computed > 0 && !held.is_over);
                return false;
            };
            held.computed = held.computed.max(word.microbatches.into());
            let is_over = word.pushed || word.waits || held.computed >= held.count();
            self.survived += u64::from(is_over && !held.is_over);
            held.is_over = is_over;
            true
        });
        was_lost
    }

    /// A trainer announces what it is about to compute of a lease.
    pub fn announces(&mut self, trainer: Incarnation, lease: LeaseId, record: Option<u64>) {
        let hand = self.hands.get_mut(&trainer);
        let held = hand.and_then(|hand| hand.held.iter_mut().find(|held| held.lease == lease));
        if let Some(held) = held {
            held.announced = record.map_or(Announced::Together, Announced::Record);
        }
    }

    /// A trainer has said something, whatever it was: it is not lost. Whether it was taken for that.
    pub fn speaks(&mut self, trainer: Incarnation) -> bool {
        if self.superseded.remove(&trainer).is_some() {
            self.hands.remove(&trainer);
        }
        let was_lost = self.losses.extract_if(.., |loss| loss.trainer == trainer).count() > 0;
        self.lost -= u64::from(was_lost);
        was_lost
    }

    /// A trainer says that it leaves: it is no loss. Whether it was taken for lost.
    pub fn leaves(&mut self, trainer: Incarnation) -> bool {
        let was_lost = self.speaks(trainer);
        self.hands.remove(&trainer);
        was_lost
    }

    /// Another process has taken a trainer's name: it is lost, and dead, at `due`, unless it speaks until then.
    pub fn supersede(&mut self, trainer: Incarnation, due: Duration) {
        if self.hands.contains_key(&trainer) {
            self.superseded.insert(trainer, due);
        }
        let lost = self.losses.iter_mut().filter(|loss| loss.trainer == trainer);
        lost.filter_map(|loss| loss.dead_from.as_mut()).for_each(|from| *from = due.min(*from));
    }

    /// Superseded trainers that have not spoken for long enough to be taken for lost.
    pub fn due(&self, now: Duration) -> Vec<Incarnation> {
        self.superseded.iter().filter(|(_, due)| now >= **due).map(|(trainer, _)| *trainer).collect()
    }

    /// When somebody is [due](Self::due), or taken for dead, next.
    pub fn next_deadline(&self) -> Option<Duration> {
        let silent = self.losses.iter().filter_map(|loss| loss.dead_from);
        self.superseded.values().copied().chain(silent).min()
    }

    /// A trainer is lost. Places from `until` on nobody could begin; `lacking` gives the places of a stretch that some block
    /// lacks. It is dead from `dead_from` on, if it does not speak before; none: it is dead.
    pub fn lose(
        &mut self,
        trainer: Incarnation,
        until: u64,
        lacking: &dyn Fn(Range<u64>) -> Vec<Range<u64>>,
        dead_from: Option<Duration>,
    ) {
        self.superseded.remove(&trainer);
        let Some(mut hand) = self.hands.remove(&trainer) else { return };
        hand.held.sort_by_key(|held| (held.places.start, held.lease));
        let left = hand.held.iter().filter(|held| !held.is_over && held.places.start < until);
        let computing = left.into_iter().find_map(|held| {
            let lacking = lacking(held.places.start + held.computed..held.places.end);
            Some((held, lacking.first()?.start..lacking.last()?.end))
        });
        let Some((held, places)) = computing else { return };
        self.lost += 1;
        let (care, announced, how, is_weighed) = (held.care, held.announced, String::new(), false);
        self.losses.push(Loss {
            trainer,
            name: hand.name,
            places,
            care,
            announced,
            how,
            dead_from,
            is_weighed,
        });
        let surplus = self.losses.len().saturating_sub(LOSSES_MAX);
        self.losses.drain(..surplus);
    }

    /// It is known how the process of a trainer that was [lost](Self::lose) ended.
    pub fn ended(&mut self, trainer: Incarnation, how: &str) {
        for loss in self.losses.iter_mut().filter(|loss| loss.trainer == trainer) {
            (loss.how, loss.dead_from) = (how.to_owned(), None);
        }
    }

    /// All places below this are done.
    pub fn advance(&mut self, front: u64) {
        self.losses.retain(|loss| loss.places.end > front);
        self.told.retain(|(place, ..)| *place >= front);
    }

    /// How a place is to be computed.
    pub fn care(&self, place: u64) -> Care {
        match self.at(place).count() {
            losses if losses < LOSSES => Care::None,
            _ if self.at(place).any(|loss| loss.care > Care::None) => Care::Careful,
            _ => Care::Alone,
        }
    }

    /// The places with which at least so many were lost, in order: from [`LOSSES`] on they are suspect.
    pub fn places(&self, least: usize) -> Vec<Range<u64>> {
        let ends = self.losses.iter().flat_map(|loss| [(loss.places.start, 1), (loss.places.end, -1)]);
        let mut ends: Vec<(u64, isize)> = ends.collect();
        ends.sort_unstable();
        let (mut suspect, mut count): (Vec<Range<u64>>, isize) = (Vec::new(), 0);
        for (place, change) in ends {
            let was = count >= least as isize;
            count += change;
            match (was, count >= least as isize) {
                (false, true) => suspect.push(place..place),
                (true, false) => {
                    if let Some(last) = suspect.last_mut() {
                        last.end = place;
                    }
                }
                _ => {}
            }
        }
        suspect
    }

    /// The trainers that were lost with some of these places, by name.
    pub fn lost(&self, places: &Range<u64>) -> impl Iterator<Item = &str> {
        let places = places.clone();
        let with = move |loss: &&Loss| loss.places.start < places.end && places.start < loss.places.end;
        self.losses.iter().filter(with).map(|loss| loss.name.as_str())
    }

    /// Whether a trainer of this name may be given a suspect place. If processes of its name were lost with it, others go first,
    /// where `others` says that somebody is there who has none of the names that were. And nobody may while it is not known
    /// whether one more is lost with it: one that had it, and whose name is taken or who was last heard before `silent`; nor
    /// while it is [awaited](Self::awaits).
    pub fn may_have(
        &self,
        name: &str,
        place: u64,
        silent: Duration,
        others: &dyn Fn(&BTreeSet<&str>) -> bool,
    ) -> bool {
        let names: BTreeSet<&str> = self.at(place).map(|loss| loss.name.as_str()).collect();
        let is_for_others = names.contains(name) && others(&names);
        let may_be_lost = |(trainer, hand): (&Incarnation, &Hand)| {
            let has_it = hand.held.iter().any(|held| !held.is_over && held.places.contains(&place));
            has_it && (hand.heard < silent || self.superseded.contains_key(trainer))
        };
        !is_for_others && !self.hands.iter().any(may_be_lost) && !self.awaits(place)
    }

    /// Whether a trainer has a suspect place to compute, and so is given nothing beside it.
    pub fn is_occupied(&self, trainer: Incarnation) -> bool {
        let hand = self.hands.get(&trainer);
        hand.is_some_and(|hand| hand.held.iter().any(|held| held.care > Care::None && !held.is_over))
    }

    fn at(&self, place: u64) -> impl Iterator<Item = &Loss> {
        self.losses.iter().filter(move |loss| loss.places.contains(&place))
    }
}

impl Loss {
    fn is_dead(&self) -> bool {
        self.dead_from.is_none()
    }

    /// Whether it may name something once it is [weighed](Self::is_weighed): its trainer computed with care.
    fn is_open(&self) -> bool {
        self.care == Care::Careful && !self.is_weighed
    }

    /// It was lost where it was to announce what it does, and had announced nothing.
    fn is_mute(&self) -> bool {
        self.care == Care::Careful && self.announced == Announced::Nothing
    }

    fn who(&self) -> (Incarnation, String) {
        (self.trainer, self.name.clone())
    }
}

impl Held {
    fn count(&self) -> u64 {
        self.places.end - self.places.start
    }
}

#[cfg(test)]
#[path = "suspects_tests.rs"]
mod tests;
