//! What scenarios evaluate: how much, how often, and what the job aims at. Drawn from a seed of its own, so that scenarios
//! without it stay as they were.

use shoal_runtime::cluster::permutation::key;
use shoal_runtime::cluster::{Evaluated, Period};
use shoal_runtime::host::random::Random;
use shoal_trainer_sdk::{Plateau, Target};

/// What a scenario evaluates.
#[derive(Clone, Copy, Debug)]
pub struct Evaluations {
    /// Records that are evaluated.
    pub records: u64,
    /// How often.
    pub every: Period,
    /// What the job aims at.
    pub target: Option<Target>,
}

impl Evaluations {
    /// Those of a seed, for steps of `per_step` records: none in half of the scenarios.
    pub fn drawn(seed: u64, per_step: u64) -> Option<Evaluations> {
        let mut random = Random::seeded(key(&[seed, 0xE7A1]));
        if random.percent(50) {
            return None;
        }
        let records = 1 + random.below((3 * per_step).min(60));
        let every = match random.percent(50) {
            true => Period::Epochs(1 + random.below(2)),
            false => Period::Steps(1 + random.below(9)),
        };
        let plateau = Some(Plateau { after: 1 + random.below(2) as u32, factor: 0.5 });
        let target = Target {
            least_change: if random.percent(50) { 0.0 } else { 0.01 },
            keep_best: random.percent(50),
            stop_after: Some(1 + random.below(3) as u32).filter(|_| random.percent(40)),
            plateau: plateau.filter(|_| random.percent(50)),
        };
        let aims = target.keep_best || target.stop_after.is_some() || target.plateau.is_some();
        let target = Some(target).filter(|_| aims && random.percent(80));
        Some(Evaluations { records, every, target })
    }

    /// As the job's settings have it.
    pub fn settings(&self) -> Evaluated {
        Evaluated { records: self.records, every: self.every, outputs: None }
    }
}
