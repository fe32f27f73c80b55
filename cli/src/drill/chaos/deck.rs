//! What to break, and when: a seeded plan of faults on trainers, pservers and the master. Pure: it is shown the job and
//! told the time, and strikes nothing itself.
//!
//! A shuffled deck has a card for every kind of fault; each time the first card is played that the present permits. So
//! even a short run meets most kinds. Rules:
//! - with copies, one pserver at a time is down or out of reach, and the next is struck only when all copies are in-sync
//!   again: more than that, redundancy does not promise to survive ("hard" chaos does it nevertheless). A master that is
//!   out of reach loses sight of all pservers at once, so the same holds of it;
//! - without copies a lost pserver sends the job back, so only a few are lost, or it would never end;
//! - what lasts ends, and until then its host is not struck again; only the master may be while its disk is full.

use super::kind::{Kind, Kinds};
use super::spell::{self, Ill, Spell};
use shoal_job::Role;
use shoal_runner::plan::Bounds;
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
    /// A trainer is asked to leave.
    Leave(String),
    /// So many are wanted.
    Scale(Role, u32),
    /// A pserver's blocks go to another that takes its place.
    Migrate(String),
    Begin(Spell),
    End(Spell),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Card {
    Kill(Role),
    Freeze(Role),
    Starve(Role),
    Cut(Role),
    Slow(Role),
    Fill,
    Leave,
    Scale(Role),
    Migrate,
}

impl Card {
    fn kind(self) -> Kind {
        match self {
            Card::Kill(_) => Kind::Kill,
            Card::Freeze(_) => Kind::Freeze,
            Card::Starve(_) => Kind::Memory,
            Card::Cut(_) => Kind::Partition,
            Card::Slow(_) => Kind::Slow,
            Card::Fill => Kind::Disk,
            Card::Leave => Kind::Leave,
            Card::Scale(_) => Kind::Scale,
            Card::Migrate => Kind::Migrate,
        }
    }
}

const CARDS: [Card; 24] = [
    Card::Kill(Role::Trainer),
    Card::Kill(Role::Trainer),
    Card::Freeze(Role::Trainer),
    Card::Freeze(Role::Trainer),
    Card::Starve(Role::Trainer),
    Card::Cut(Role::Trainer),
    Card::Cut(Role::Trainer),
    Card::Slow(Role::Trainer),
    Card::Leave,
    Card::Scale(Role::Trainer),
    Card::Kill(Role::Pserver),
    Card::Freeze(Role::Pserver),
    Card::Starve(Role::Pserver),
    Card::Cut(Role::Pserver),
    Card::Cut(Role::Pserver),
    Card::Slow(Role::Pserver),
    Card::Kill(Role::Master),
    Card::Freeze(Role::Master),
    Card::Starve(Role::Master),
    Card::Cut(Role::Master),
    Card::Slow(Role::Master),
    Card::Fill,
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
    /// With when they end.
    spells: Vec<(Duration, Spell)>,
    strikes: u32,
    losses: u32,
}

impl Deck {
    /// A plan that begins now.
    pub(crate) fn new(weather: Weather, now: Duration) -> Deck {
        let mut random = Random::seeded(weather.seed);
        let next = now + Duration::from_millis(400 + random.below(400));
        Deck { weather, random, cards: Vec::new(), next, spells: Vec::new(), strikes: 0, losses: 0 }
    }

    /// What is due now.
    pub(crate) fn due(&mut self, now: Duration, sight: &Sight) -> Vec<Strike> {
        let (over, spells): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.spells).into_iter().partition(|(until, _)| *until <= now);
        self.spells = spells;
        let mut strikes: Vec<Strike> = over.into_iter().map(|(_, spell)| Strike::End(spell)).collect();
        if now >= self.next && self.strikes < STRIKES_MAX {
            self.next = now + Duration::from_millis(250 + self.random.below(500));
            strikes.extend(self.strike(now, sight));
        }
        strikes
    }

    /// Ends all that lasts, for the end.
    pub(crate) fn calm(&mut self) -> Vec<Strike> {
        self.spells.drain(..).map(|(_, spell)| Strike::End(spell)).collect()
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

    /// Those of a role that nothing is wrong with.
    fn targets<'a>(&self, role: Role, sight: &'a Sight) -> Vec<&'a str> {
        let names: Vec<&str> = match role {
            Role::Trainer => sight.trainers.iter().map(String::as_str).collect(),
            Role::Pserver => sight.pservers.iter().map(String::as_str).collect(),
            Role::Master if sight.is_master_here => vec!["master"],
            Role::Master => Vec::new(),
        };
        let is_struck = |name: &str| {
            self.spells.iter().any(|(_, of)| of.role == role && of.name == name && of.ill != Ill::Full)
        };
        names.into_iter().filter(|name| !is_struck(name)).collect()
    }

    fn is_possible(&self, card: Card, sight: &Sight) -> bool {
        let range = |bounds: Bounds| bounds.min < bounds.max;
        let is_calm = sight.is_master_here && (sight.is_whole || self.weather.is_hard);
        match card {
            Card::Kill(Role::Pserver)
            | Card::Freeze(Role::Pserver)
            | Card::Starve(Role::Pserver)
            | Card::Cut(Role::Pserver)
            | Card::Slow(Role::Pserver) => self.may_lose_a_pserver(sight),
            Card::Cut(Role::Master) | Card::Slow(Role::Master) => {
                self.may_lose_a_pserver(sight) && !self.targets(Role::Master, sight).is_empty()
            }
            Card::Kill(role)
            | Card::Freeze(role)
            | Card::Starve(role)
            | Card::Cut(role)
            | Card::Slow(role) => !self.targets(role, sight).is_empty(),
            Card::Fill => {
                sight.is_master_here && !self.spells.iter().any(|(_, spell)| spell.ill == Ill::Full)
            }
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
                && targets.len() > 1
                && !self.is_master_out_of_reach();
        }
        self.losses < LOSSES_MAX
    }

    fn is_master_out_of_reach(&self) -> bool {
        let is_out_of_reach =
            |spell: &Spell| spell.role == Role::Master && matches!(spell.ill, Ill::Cut(_) | Ill::Slow(_));
        self.spells.iter().any(|(_, spell)| is_out_of_reach(spell))
    }

    fn play(&mut self, card: Card, now: Duration, sight: &Sight) -> Option<Strike> {
        let loses = |role| {
            role == Role::Pserver || role == Role::Master && matches!(card, Card::Cut(_) | Card::Slow(_))
        };
        match card {
            Card::Kill(role) => {
                self.losses += u32::from(loses(role));
                self.target(role, sight).map(|name| Strike::Kill(role, name))
            }
            Card::Freeze(role) | Card::Starve(role) | Card::Cut(role) | Card::Slow(role) => {
                self.losses += u32::from(loses(role));
                let name = self.target(role, sight)?;
                let (ill, tenths) = self.ill(card, role, &name, sight)?;
                Some(self.begin(now, Spell { ill, role, name, tenths }))
            }
            Card::Fill => {
                let tenths = 5 + self.random.below(25) as u32;
                let (role, name) = (Role::Master, "master".to_owned());
                Some(self.begin(now, Spell { ill: Ill::Full, role, name, tenths }))
            }
            Card::Leave => self.target(Role::Trainer, sight).map(Strike::Leave),
            Card::Scale(role) => {
                let Bounds { min, max } =
                    if role == Role::Pserver { self.weather.pservers } else { self.weather.trainers };
                Some(Strike::Scale(role, min + self.random.below(u64::from(max - min) + 1) as u32))
            }
            Card::Migrate => self.target(Role::Pserver, sight).map(Strike::Migrate),
        }
    }

    fn target(&mut self, role: Role, sight: &Sight) -> Option<String> {
        let targets = self.targets(role, sight);
        let at = self.random.below(targets.len().max(1) as u64) as usize;
        targets.get(at).map(|name| (*name).to_owned())
    }

    /// What is wrong with that host, and for how many tenths of a lease's time to live.
    fn ill(&mut self, card: Card, role: Role, name: &str, sight: &Sight) -> Option<(Ill, u32)> {
        let tenths = |random: &mut Random, from: u32, to: u64| from + random.below(to) as u32;
        let random = &mut self.random;
        match card {
            // Past the lease: a pserver that is only slow takes nothing from anybody.
            Card::Freeze(Role::Pserver) => Some((Ill::Frozen, tenths(random, 12, 15))),
            Card::Freeze(Role::Trainer) => Some((Ill::Frozen, tenths(random, 5, 25))),
            Card::Freeze(Role::Master) => Some((Ill::Frozen, tenths(random, 5, 15))),
            Card::Starve(_) => Some((Ill::Starved, tenths(random, 5, 20))),
            Card::Slow(_) => Some((Ill::Slow(spell::link(random)), tenths(random, 10, 25))),
            Card::Cut(_) => {
                let peers = Self::peers(random, role, name, sight);
                let is_isolation = peers.is_none();
                let others = peers.unwrap_or_else(|| sight.others(name));
                let cut = spell::cut(random, others, is_isolation);
                (!cut.peers.is_empty()).then(|| (Ill::Cut(cut), tenths(random, 5, 30)))
            }
            Card::Kill(_) | Card::Fill | Card::Leave | Card::Scale(_) | Card::Migrate => None,
        }
    }

    /// Of whom one is cut off from that host; none for all others.
    fn peers(random: &mut Random, role: Role, name: &str, sight: &Sight) -> Option<Vec<String>> {
        let but = |names: &[String]| -> Vec<String> {
            names.iter().filter(|other| *other != name).cloned().collect()
        };
        let peers = match (random.below(4), role) {
            (0, _) => return None,
            (1, Role::Trainer | Role::Pserver) => vec!["master".to_owned()],
            (2, _) => but(&sight.pservers),
            (_, Role::Trainer) => but(&sight.pservers),
            (_, Role::Pserver | Role::Master) => but(&sight.trainers),
        };
        (!peers.is_empty()).then_some(peers)
    }

    fn begin(&mut self, now: Duration, spell: Spell) -> Strike {
        self.spells.push((now + spell.lasts(self.weather.ttl), spell.clone()));
        Strike::Begin(spell)
    }
}

impl Sight {
    /// Every host but that one.
    fn others(&self, name: &str) -> Vec<String> {
        let master = ["master".to_owned()];
        self.trainers
            .iter()
            .chain(&self.pservers)
            .chain(&master)
            .filter(|other| *other != name)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests;
