//! What to break, and when: a seeded plan of faults on trainers, pservers and the master. Pure: it is shown the job and
//! told the time, and strikes nothing itself.
//!
//! A shuffled deck has a card for every kind of fault; each time the first card is played that the present permits. So
//! even a short run meets most kinds. Rules:
//! - with copies, one pserver at a time is down or frozen, and the next is struck only when all copies are in-sync
//!   again: more than that, redundancy does not promise to survive ("hard" chaos does it nevertheless);
//! - without copies a lost pserver sends the job back, so only a few are lost, or it would never end;
//! - what is frozen is thawed.

use crate::runner::plan::Bounds;
use crate::runner::roles::Role;
use shoal_runtime::host::random::Random;
use std::time::Duration;

/// What is to be struck, and how hard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) seed: u64,
    pub(crate) ttl: Duration,
    pub(crate) trainers: Bounds,
    pub(crate) pservers: Bounds,
    /// Whether blocks have copies beside their primary.
    pub(crate) has_copies: bool,
    /// Whether pservers are struck although copies are missing.
    pub(crate) is_hard: bool,
    /// Which faults there are.
    pub(crate) kinds: Kinds,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// kill -9 of a trainer, a pserver or the master
    Kill,
    /// SIGSTOP, and SIGCONT after a while
    Freeze,
    /// SIGTERM to a trainer: it hands back its tasks
    Leave,
    /// Other numbers of trainers or pservers, within their bounds
    Scale,
    /// A pserver's blocks go to another that takes its place
    Migrate,
}

/// A set of [kinds](Kind).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kinds(u8);

impl Kinds {
    /// These; all, if there are none.
    pub(crate) fn of(kinds: &[Kind]) -> Kinds {
        Kinds(kinds.iter().fold(0, |all, kind| all | 1 << *kind as u8)).or_all()
    }
    fn or_all(self) -> Kinds {
        if self.0 == 0 { Kinds(u8::MAX) } else { self }
    }
    fn holds(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }
}

/// The job as chaos sees it at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    /// Trainers that take part and are not leaving.
    pub(crate) trainers: Vec<String>,
    /// The same of pservers.
    pub(crate) pservers: Vec<String>,
    /// Whether all pservers that are wanted are there, and all copies in-sync.
    pub(crate) is_whole: bool,
    pub(crate) is_master_here: bool,
    /// Whether the last steps are being made: a pserver that is lost now may be lost after the end.
    pub(crate) is_ending: bool,
}

/// One thing to do to the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    Kill(Role, String),
    /// For so many tenths of a lease's time to live.
    Freeze(Role, String, u32),
    Thaw(Role, String),
    /// A trainer is asked to leave.
    Leave(String),
    /// So many are wanted.
    Scale(Role, u32),
    /// A pserver's blocks go to another that takes its place.
    Migrate(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Card {
    Kill(Role),
    Freeze(Role),
    Leave,
    Scale(Role),
    Migrate,
}

impl Card {
    fn kind(self) -> Kind {
        match self {
            Card::Kill(_) => Kind::Kill,
            Card::Freeze(_) => Kind::Freeze,
            Card::Leave => Kind::Leave,
            Card::Scale(_) => Kind::Scale,
            Card::Migrate => Kind::Migrate,
        }
    }
}

const CARDS: [Card; 12] = [
    Card::Kill(Role::Trainer),
    Card::Kill(Role::Trainer),
    Card::Freeze(Role::Trainer),
    Card::Freeze(Role::Trainer),
    Card::Leave,
    Card::Scale(Role::Trainer),
    Card::Kill(Role::Pserver),
    Card::Freeze(Role::Pserver),
    Card::Kill(Role::Master),
    Card::Freeze(Role::Master),
    Card::Migrate,
    Card::Scale(Role::Pserver),
];

/// Pservers that may be lost where that sends the job back.
const LOSSES_MAX: u32 = 6;
/// Faults of one run, so that every run ends.
const STRIKES_MAX: u32 = 60;

/// The plan of one run.
#[derive(Debug)]
pub(crate) struct Deck {
    weather: Weather,
    random: Random,
    cards: Vec<Card>,
    next: Duration,
    frozen: Vec<(Duration, Role, String)>,
    strikes: u32,
    losses: u32,
}

impl Deck {
    /// A plan that begins now.
    pub(crate) fn new(weather: Weather, now: Duration) -> Deck {
        let mut random = Random::seeded(weather.seed);
        let next = now + Duration::from_millis(400 + random.below(400));
        Deck { weather, random, cards: Vec::new(), next, frozen: Vec::new(), strikes: 0, losses: 0 }
    }

    /// What is due now.
    pub(crate) fn due(&mut self, now: Duration, sight: &Sight) -> Vec<Strike> {
        let (thawed, frozen): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.frozen).into_iter().partition(|(until, _, _)| *until <= now);
        self.frozen = frozen;
        let mut strikes: Vec<Strike> =
            thawed.into_iter().map(|(_, role, name)| Strike::Thaw(role, name)).collect();
        if now >= self.next && self.strikes < STRIKES_MAX {
            self.next = now + Duration::from_millis(250 + self.random.below(500));
            strikes.extend(self.strike(now, sight));
        }
        strikes
    }

    /// Thaws whatever is frozen, for the end.
    pub(crate) fn calm(&mut self) -> Vec<Strike> {
        self.frozen.drain(..).map(|(_, role, name)| Strike::Thaw(role, name)).collect()
    }

    fn strike(&mut self, now: Duration, sight: &Sight) -> Option<Strike> {
        let mut found = self.playable(sight);
        if found.is_none() {
            // The cards that are left wait for what may never come: a new deck.
            let kinds = self.weather.kinds;
            self.cards = CARDS.into_iter().filter(|card| kinds.holds(card.kind())).collect();
            for at in (1..self.cards.len()).rev() {
                self.cards.swap(at, self.random.below(at as u64 + 1) as usize);
            }
            found = self.playable(sight);
        }
        let at = found?;
        let card = self.cards.remove(at);
        self.strikes += 1;
        self.play(card, now, sight)
    }

    /// The first card of the deck that may be played now.
    fn playable(&self, sight: &Sight) -> Option<usize> {
        (0..self.cards.len()).find(|at| self.is_possible(self.cards[*at], sight))
    }

    /// Those of a role that are not frozen.
    fn targets<'a>(&self, role: Role, sight: &'a Sight) -> Vec<&'a str> {
        let names: Vec<&str> = match role {
            Role::Trainer => sight.trainers.iter().map(String::as_str).collect(),
            Role::Pserver => sight.pservers.iter().map(String::as_str).collect(),
            Role::Master if sight.is_master_here => vec!["master"],
            Role::Master => Vec::new(),
        };
        let is_frozen = |name: &str| self.frozen.iter().any(|(_, of, frozen)| *of == role && frozen == name);
        names.into_iter().filter(|name| !is_frozen(name)).collect()
    }

    fn is_possible(&self, card: Card, sight: &Sight) -> bool {
        let range = |bounds: Bounds| bounds.min < bounds.max;
        let is_calm = sight.is_master_here && (sight.is_whole || self.weather.is_hard);
        match card {
            Card::Kill(Role::Pserver) | Card::Freeze(Role::Pserver) => self.may_lose_a_pserver(sight),
            Card::Kill(role) | Card::Freeze(role) => !self.targets(role, sight).is_empty(),
            Card::Leave => !self.targets(Role::Trainer, sight).is_empty(),
            Card::Scale(Role::Pserver) => range(self.weather.pservers) && is_calm && !sight.is_ending,
            Card::Scale(_) => range(self.weather.trainers) && sight.is_master_here,
            Card::Migrate => is_calm && !sight.is_ending && !self.targets(Role::Pserver, sight).is_empty(),
        }
    }

    fn may_lose_a_pserver(&self, sight: &Sight) -> bool {
        let targets = self.targets(Role::Pserver, sight);
        if sight.is_ending || targets.is_empty() {
            return false;
        }
        if self.weather.has_copies && !self.weather.is_hard {
            return sight.is_whole
                && sight.is_master_here
                && targets.len() == sight.pservers.len()
                && targets.len() > 1;
        }
        self.losses < LOSSES_MAX
    }

    fn play(&mut self, card: Card, now: Duration, sight: &Sight) -> Option<Strike> {
        let target = |deck: &mut Deck, role| {
            let targets = deck.targets(role, sight);
            let at = deck.random.below(targets.len().max(1) as u64) as usize;
            targets.get(at).map(|name| (*name).to_owned())
        };
        match card {
            Card::Kill(role) => {
                self.losses += u32::from(role == Role::Pserver);
                target(self, role).map(|name| Strike::Kill(role, name))
            }
            Card::Freeze(role) => {
                self.losses += u32::from(role == Role::Pserver);
                let name = target(self, role)?;
                let tenths = match role {
                    // Past the lease: a pserver that is only slow takes nothing from anybody.
                    Role::Pserver => 12 + self.random.below(15) as u32,
                    Role::Trainer => 5 + self.random.below(25) as u32,
                    Role::Master => 5 + self.random.below(15) as u32,
                };
                self.frozen.push((now + self.weather.ttl * tenths / 10, role, name.clone()));
                Some(Strike::Freeze(role, name, tenths))
            }
            Card::Leave => target(self, Role::Trainer).map(Strike::Leave),
            Card::Scale(role) => {
                let Bounds { min, max } =
                    if role == Role::Pserver { self.weather.pservers } else { self.weather.trainers };
                Some(Strike::Scale(role, min + self.random.below(u64::from(max - min) + 1) as u32))
            }
            Card::Migrate => target(self, Role::Pserver).map(Strike::Migrate),
        }
    }
}

#[cfg(test)]
mod tests;
