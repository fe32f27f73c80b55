//! Random walks: each seed draws its job, its weather and its actions, is then healed, and must finish.

use super::action::Action;
use super::draw::draw;
use super::rules::Rules;
use super::weather::{self, Dice, Kind, Weather};
use super::witness::{Fault, Violation};
use super::words::Setting;
use super::world::World;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// Messages in flight; beyond them any one is lost.
const SOUP_MAX: usize = 40;
/// What a walk may draw in vain before it ends.
const DRAWS_MAX: usize = 4_000;

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Walks {
    /// Seeds walked.
    pub walks: u64,
    /// Actions taken; the invariants were looked at after each.
    pub actions: u64,
    /// What the document was changed for, and how often.
    pub met: BTreeMap<&'static str, u64>,
    /// Seeds that broke a promise, with what they broke first.
    pub broken: Vec<(u64, Violation)>,
}

/// Walks all `seeds`.
pub fn walks(seeds: Range<u64>, rules: Rules) -> Walks {
    let mut sum = Walks::default();
    for seed in seeds {
        let world = Walk::begun(seed, rules, false).walked().world;
        sum.walks += 1;
        sum.actions += world.actions;
        for (what, times) in &world.witness.met {
            *sum.met.entry(what).or_default() += times;
        }
        sum.broken.extend(world.witness.violations().first().map(|violation| (seed, violation.clone())));
    }
    sum
}

/// What seed `seed` breaks first, in as few actions as were found; none if it breaks nothing.
pub fn story(seed: u64, rules: Rules) -> Option<String> {
    let Walk { world, healed_at, .. } = Walk::begun(seed, rules, true).walked();
    let fault = world.witness.violations().first()?.fault;
    let mut actions = world.log?;
    if fault == Fault::CannotFinish {
        // The rest was the fair schedule's.
        actions.truncate(healed_at);
    }
    let actions = fewest(actions, |actions| replay(&world.setting, actions, fault).is_some());
    let last = replay(&world.setting, &actions, fault)?;
    let lines: Vec<String> = actions.iter().map(|action| format!("{action:?}")).collect();
    Some(format!("seed {seed}, {rules}, {:?}\n{}\n=> {last}", world.setting.shape, lines.join("\n")))
}

/// A seed on its way.
struct Walk {
    world: World,
    dice: Dice,
    weather: Weather,
    /// Actions before healing, in a run that is told.
    healed_at: usize,
}

impl Walk {
    fn begun(seed: u64, rules: Rules, is_told: bool) -> Walk {
        let mut dice = Dice::of(seed);
        let shape = weather::shape(&mut dice);
        let weather = Weather::drawn(&mut dice);
        let mut world = World::new(Setting { shape, rules });
        world.log = is_told.then(Vec::new);
        world.act(Action::Elect(0));
        Walk { world, dice, weather, healed_at: 0 }
    }

    fn walked(mut self) -> Walk {
        // Some jobs meet their weather when they have all their copies.
        (0..self.dice.among(&[0, 3, 4])).for_each(|_| self.world.round());
        let until = self.world.actions + self.dice.among(&[100, 300, 600]);
        for _ in 0..DRAWS_MAX {
            if self.world.actions >= until || self.is_broken() {
                break;
            }
            self.step();
        }
        if self.dice.one_in(2) {
            self.lose_what_is_not_on_a_pserver();
        }
        self.healed_at = self.world.log.as_ref().map_or(0, Vec::len);
        if !self.is_broken() {
            self.world.finish();
        }
        self
    }

    fn is_broken(&self) -> bool {
        !self.world.witness.violations().is_empty()
    }

    fn step(&mut self) {
        if self.world.soup.len() > SOUP_MAX {
            let message = self.world.soup[self.dice.below(SOUP_MAX)].clone();
            self.world.act(Action::Forget(message));
        }
        let before = self.world.soup.len();
        match self.weather.kind(&mut self.dice) {
            Kind::Round => self.world.round(),
            kind => {
                if let Some(action) = draw(kind, &self.world, &mut self.dice, &self.weather) {
                    self.world.act(action);
                    self.arrive_promptly(before);
                }
            }
        }
        if self.dice.one_in(30) {
            let place = self.dice.below(self.world.pservers.len());
            self.weather.paused = self.dice.one_in(2).then_some(place);
        }
    }

    /// What was sent arrives at once, mostly, and what that causes.
    fn arrive_promptly(&mut self, before: usize) {
        while self.world.soup.len() > before && self.dice.below(10) < self.weather.prompt {
            let message = self.world.soup[self.world.soup.len() - 1].clone();
            if self.weather.holds(&message) {
                return;
            }
            let again = self.weather.again(&mut self.dice);
            let master = self.dice.below(self.world.masters.len());
            self.world.act(Action::Deliver { message, master, again });
            if again {
                return;
            }
        }
    }

    fn lose_what_is_not_on_a_pserver(&mut self) {
        for trainer in 0..self.world.trainers.len() {
            self.world.act(Action::CrashTrainer(trainer));
        }
        while let Some(message) = self.world.soup.first().cloned() {
            self.world.act(Action::Forget(message));
        }
    }
}

fn replay(setting: &Setting, actions: &[Action], fault: Fault) -> Option<Violation> {
    let mut world = World::new(setting.clone());
    actions.iter().for_each(|action| {
        world.act(action.clone());
    });
    if fault == Fault::CannotFinish && world.witness.violations().is_empty() {
        world.finish();
    }
    world.witness.violations().first().filter(|found| found.fault == fault).cloned()
}

/// Leaves out what can be left out, in ever smaller parts.
fn fewest(mut actions: Vec<Action>, is_broken: impl Fn(&[Action]) -> bool) -> Vec<Action> {
    let mut part = actions.len() / 2;
    while part > 0 {
        let mut at = 0;
        while at < actions.len() {
            let mut fewer = actions.clone();
            fewer.drain(at..(at + part).min(actions.len()));
            match is_broken(&fewer) {
                true => actions = fewer,
                false => at += part,
            }
        }
        part /= 2;
    }
    actions
}

impl fmt::Display for Walks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} walks, {} actions, {} broken", self.walks, self.actions, self.broken.len())?;
        let mut faults: BTreeMap<Fault, u64> = BTreeMap::new();
        self.broken.iter().for_each(|(_, violation)| *faults.entry(violation.fault).or_default() += 1);
        self.broken.first().map_or(Ok(()), |(seed, _)| write!(f, " {faults:?}, seed {seed} first"))
    }
}
