//! Batch norm as docs/training.md describes it: what the rule `Ema` keeps are the running statistics of the microbatches,
//! by a plain reference in f64, with the same bits however many trainers there are.

use shoal_runtime::cluster::Step;
use shoal_tests::sim::evidence::Evidence;
use shoal_tests::sim::reference::records_of;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::stage::{Stage, millis};
use shoal_trainer_sdk::{
    Batch, Declaration, Gradient, Initial, Job, Model, Parameter, Parameters, Rule, Schedule,
};
use std::time::Duration;

const FEATURES: usize = 3;
const DECAY: f32 = 0.9;
const EPSILON: f32 = 1e-3;
const RATE: f32 = 0.05;

/// The first bytes of a record as numbers.
fn features(bytes: &[u8]) -> [f32; FEATURES] {
    std::array::from_fn(|at| f32::from(bytes[at]) / 64.0)
}

/// A scale for each feature, trained on features that their microbatch's statistics have normalised: the loss of a record
/// is half the square of (scale x normalised - feature).
struct Normalised;

impl Model for Normalised {
    fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
        let of = |name: &str, rule, rate, value| {
            let (shape, initial) = ([FEATURES as u64], Initial::Constant { value });
            Parameter::new(name, &shape, rule, Schedule::constant(rate), initial)
        };
        let ema = Rule::Ema { decay: DECAY };
        let parameters = vec![
            of("scale", Rule::Sgd, RATE, 1.0),
            of("running.mean", ema, 0.0, 0.0),
            of("running.variance", ema, 0.0, 1.0),
        ];
        Ok(Declaration { parameters, block_elements: 2 })
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        let rows: Vec<_> = batch.records.iter().map(|record| features(record.bytes)).collect();
        let records = rows.len() as f32;
        for at in 0..FEATURES {
            let mean = rows.iter().map(|row| row[at]).sum::<f32>() / records;
            let variance = rows.iter().map(|row| (row[at] - mean) * (row[at] - mean)).sum::<f32>() / records;
            let scale = parameters.slice("scale")?[at];
            for row in &rows {
                let normalised = (row[at] - mean) / (variance + EPSILON).sqrt();
                gradient.slice_mut("scale")?[at] += (scale * normalised - row[at]) * normalised;
            }
            // Sums over records, as all gradients.
            gradient.slice_mut("running.mean")?[at] += mean * records;
            gradient.slice_mut("running.variance")?[at] += variance * records;
        }
        Ok(())
    }
}

/// The parameters after a job of `trainers` trainers.
fn trained(scenario: Scenario, trainers: usize) -> Vec<Vec<f32>> {
    in_paused_time(async move {
        let mut stage = Stage::set(scenario);
        for trainer in 0..trainers {
            let (name, pace) = (format!("trainer-{trainer}"), millis(1 + 2 * trainer as u64));
            stage.world.start_trainer_with(&name, pace, Normalised);
        }
        // Not `finished`, whose invariants are of the simulation's own program.
        let evidence = Evidence::when_over(stage.world, &stage.observer, Duration::from_secs(60)).await;
        assert_eq!(evidence.status.as_ref().unwrap().phase, "done");
        evidence.trained.unwrap().into_iter().map(|parameter| parameter.values).collect()
    })
}

/// The same in f64, straight from the paper's formulas, microbatch by microbatch.
fn reference(scenario: &Scenario) -> [[f64; FEATURES]; 3] {
    let stage = in_paused_time(async { Stage::set(scenario.clone()) });
    let (job, data) = (&stage.world.job, &stage.world.data);
    let (mut scale, mut mean, mut variance) = ([1.0; FEATURES], [0.0; FEATURES], [1.0; FEATURES]);
    for step in (0..job.steps()).map(Step) {
        let records = records_of(job, data, step);
        let rows: Vec<[f64; FEATURES]> =
            records.iter().map(|index| features(data.record(*index)).map(f64::from)).collect();
        for at in 0..FEATURES {
            let (mut slope, mut means, mut variances) = (0.0, 0.0, 0.0);
            for ghost in rows.chunks(scenario.microbatch_records as usize) {
                let count = ghost.len() as f64;
                let of_batch = ghost.iter().map(|row| row[at]).sum::<f64>() / count;
                let spread =
                    ghost.iter().map(|row| row[at] * row[at]).sum::<f64>() / count - of_batch * of_batch;
                for row in ghost {
                    let normalised = (row[at] - of_batch) / (spread + f64::from(EPSILON)).sqrt();
                    slope += (scale[at] * normalised - row[at]) * normalised;
                }
                means += of_batch * count;
                variances += spread * count;
            }
            let (count, decay) = (rows.len() as f64, f64::from(DECAY));
            scale[at] -= f64::from(RATE) * slope / count;
            mean[at] = decay * mean[at] + (1.0 - decay) * means / count;
            variance[at] = decay * variance[at] + (1.0 - decay) * variances / count;
        }
    }
    [scale, mean, variance]
}

fn scenario() -> Scenario {
    // 60 records in microbatches of 3: five whole steps an epoch, so that no microbatch is short.
    Scenario { epochs: 3, pservers: 2, ..Scenario::quiet(11) }
}

#[test]
fn running_statistics_are_those_of_the_microbatches() {
    let found = trained(scenario(), 1);
    for (found, expected) in found.iter().zip(reference(&scenario())) {
        for (found, expected) in found.iter().zip(expected) {
            let apart = (f64::from(*found) - expected).abs();
            assert!(apart < 1e-5 * (1.0 + expected.abs()), "{found}, not {expected}");
        }
    }
}

#[test]
fn statistics_depend_on_the_microbatch_and_on_no_number_of_trainers() {
    let alone = trained(scenario(), 1);
    assert_eq!(trained(scenario(), 3), alone);
    let larger = Scenario { microbatch_records: 6, microbatches_per_step: 2, ..scenario() };
    assert_ne!(trained(larger, 1), alone);
}
