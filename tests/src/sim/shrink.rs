//! Makes a scenario that breaks a promise smaller for as long as it breaks it (delta debugging, Zeller and Hildebrandt 2002).

use super::run::{Run, play};
use super::scenario::Scenario;
use super::weather::Weather;
use shoal_runtime::cluster::{EnvironmentRule, Mode, Precision};
use std::time::Duration;

/// Runs that shrinking may take in all.
const RUNS_MAX: usize = 400;

/// A scenario, smaller if that could be, that breaks one of the promises that `broken` lists.
pub fn shrink(scenario: Scenario, broken: &[String]) -> Scenario {
    let mut shrinking = Shrinking { smallest: scenario, promises: promises(broken), runs_left: RUNS_MAX };
    loop {
        let before = shrinking.runs_left;
        let fewer_faults = shrinking.drop_faults();
        if !(shrinking.simplify() || fewer_faults)
            || shrinking.runs_left == 0
            || before == shrinking.runs_left
        {
            return shrinking.smallest;
        }
    }
}

struct Shrinking {
    smallest: Scenario,
    promises: Vec<String>,
    runs_left: usize,
}

/// What stands before the colon of each violation.
fn promises(violations: &[String]) -> Vec<String> {
    violations.iter().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
}

impl Shrinking {
    /// Takes a smaller scenario if it still breaks.
    fn take(&mut self, smaller: Scenario) -> bool {
        if self.runs_left == 0 {
            return false;
        }
        self.runs_left -= 1;
        let Run { violations, .. } = play(smaller.clone(), false);
        let still_breaks = promises(&violations).iter().any(|promise| self.promises.contains(promise));
        if still_breaks {
            self.smallest = smaller;
        }
        still_breaks
    }

    /// Leaves out ever smaller parts of the faults.
    fn drop_faults(&mut self) -> bool {
        let mut has_shrunk = false;
        let mut part = self.smallest.faults.len();
        while part > 0 {
            let mut at = 0;
            while at < self.smallest.faults.len() {
                let mut fewer = self.smallest.clone();
                let end = (at + part).min(fewer.faults.len());
                fewer.faults.drain(at..end);
                match self.take(fewer) {
                    true => has_shrunk = true,
                    false => at += part,
                }
            }
            part /= 2;
        }
        has_shrunk
    }

    fn simplify(&mut self) -> bool {
        let mut has_shrunk = false;
        for simpler in SIMPLER {
            while let Some(simpler) = simpler(&self.smallest) {
                if !self.take(simpler) {
                    break;
                }
                has_shrunk = true;
            }
        }
        has_shrunk
    }
}

type Simpler = fn(&Scenario) -> Option<Scenario>;

/// Ways to make a scenario simpler, each nothing once there is nothing left of what it takes away.
const SIMPLER: [Simpler; 22] = [
    |now| (now.weather.loss_percent > 0).then(|| with_weather(now, |weather| weather.loss_percent = 0)),
    |now| {
        (now.weather.duplicate_percent > 0)
            .then(|| with_weather(now, |weather| weather.duplicate_percent = 0))
    },
    |now| (now.weather.reset_percent > 0).then(|| with_weather(now, |weather| weather.reset_percent = 0)),
    |now| (now.weather.late_percent > 0).then(|| with_weather(now, |weather| weather.late_percent = 0)),
    |now| now.weather.cancels.then(|| with_weather(now, |weather| weather.cancels = false)),
    |now| (now.drift_percent > 0).then(|| Scenario { drift_percent: 0, ..now.clone() }),
    |now| (now.gradients != Precision::F32).then(|| Scenario { gradients: Precision::F32, ..now.clone() }),
    |now| now.evaluations.is_some().then(|| Scenario { evaluations: None, ..now.clone() }),
    |now| now.tables.is_some().then(|| Scenario { tables: None, ..now.clone() }),
    |now| now.decisions.is_some().then(|| Scenario { decisions: None, ..now.clone() }),
    |now| now.poison.is_some().then(|| Scenario { poison: None, exclude_max: 0, ..now.clone() }),
    |now| (now.verify_millionths > 0).then(|| Scenario { verify_millionths: 0, ..now.clone() }),
    |now| (now.record_hashes > 0).then(|| Scenario { record_hashes: 0, ..now.clone() }),
    |now| {
        let is_same = now.environment == EnvironmentRule::Same;
        (!is_same).then(|| Scenario { environment: EnvironmentRule::Same, ..now.clone() })
    },
    |now| now.stuck.is_some().then(|| Scenario { stuck: None, ..now.clone() }),
    |now| (now.trainers > 1).then(|| Scenario { trainers: now.trainers - 1, ..now.clone() }),
    |now| (now.pservers > 1).then(|| Scenario { pservers: now.pservers - 1, ..now.clone() }),
    |now| (now.replicas > 0).then(|| Scenario { replicas: now.replicas - 1, ..now.clone() }),
    |now| (now.epochs > 1).then(|| Scenario { epochs: now.epochs - 1, ..now.clone() }),
    |now| (now.checkpoint_steps > 0).then(|| Scenario { checkpoint_steps: 0, ..now.clone() }),
    |now| {
        let is_paced = now.paces.iter().any(|pace| !pace.is_zero());
        is_paced.then(|| Scenario { paces: vec![Duration::ZERO], ..now.clone() })
    },
    |now| match now.mode {
        Mode::Sync { delay } if delay > 0 => Some(Scenario { mode: Mode::SYNC, ..now.clone() }),
        _ => None,
    },
];

fn with_weather(now: &Scenario, change: impl FnOnce(&mut Weather)) -> Scenario {
    let mut simpler = now.clone();
    change(&mut simpler.weather);
    simpler
}
