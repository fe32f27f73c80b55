//! When an evaluation is judged, and what follows for what is open, for checkpoints, for the end.

use super::tests::World;
use super::*;
use crate::document::{Evaluation, Value};
use crate::trouble::ATTEMPTS;
use shoal_runtime::cluster::{
    CheckpointId, Evaluated, ManifestRecord, Metric, Parameter, Period, Rewind, Rule, Schedule, Step, Target,
    initial::Initial,
};
use shoal_runtime::cluster::{RewindCause, RewindCauses};

/// 25 steps, evaluated after every 10 by one.
fn world(target: Option<Target>, pservers: u32) -> World {
    let weight = Parameter::new("w", &[6], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
    let metric = Parameter::metric("right", Metric::Accuracy);
    let metric = target.map_or(metric.clone(), |target| metric.aiming(target));
    let mut world = World::new(true, 2, pservers, 0);
    world.wishes.declaration = Some(Declaration { parameters: vec![weight, metric], block_elements: 0 });
    world.document.job.evaluated = Some(Evaluated { records: 4, every: Period::Steps(10), outputs: None });
    world.settle();
    world
}

fn sums(world: &mut World, number: u64, hits: f32) {
    world.sums = [(BlockId(1), (number, vec![hits, 10.0]))].into();
}

fn commit(world: &mut World) {
    let named = world.document.named.unwrap();
    let record = ManifestRecord { checkpoint: named.checkpoint, bytes: 1, crc32: 1 };
    let rewind = world.document.rewind();
    world.wishes.committed = Some(KeptCheckpoint { record, version: named.version, rewind, oldest: None });
    world.settle();
    world.wishes.committed = None;
}

fn values(world: &World) -> Vec<Option<f64>> {
    world.document.evaluations.iter().map(|evaluation| evaluation.values[0].0).collect()
}

#[test]
fn it_is_judged_when_every_block_has_applied_it_and_its_sums_are_there() {
    let mut world = world(None, 1);
    assert_eq!(world.document.open_until(), 11);
    sums(&mut world, 0, 7.0);
    world.front = Some(Version(10));
    world.settle();
    assert_eq!(values(&world), [], "some block lacks it");
    world.front = Some(Version(11));
    sums(&mut world, 1, 7.0);
    world.settle();
    assert_eq!(values(&world), [], "these are of another");
    sums(&mut world, 0, 7.0);
    world.settle();
    assert_eq!((values(&world), world.document.open_until()), (vec![Some(7.0 / 10.0)], 22));
    sums(&mut world, 0, 9.0);
    world.settle();
    assert_eq!(world.document.evaluations.len(), 1, "what is judged stays");
}

#[test]
fn where_the_best_is_kept_the_checkpoint_at_an_evaluation_comes_first_and_the_best_stays() {
    let keep = Target { keep_best: true, ..Target::default() };
    let mut world = world(Some(keep), 1);
    world.wishes.keep_last = 1;
    let mut kept = Vec::new();
    for (number, (version, hits)) in [(11, 9.0), (22, 5.0), (28, 4.0)].into_iter().enumerate() {
        world.front = Some(Version(version));
        sums(&mut world, number as u64, hits);
        world.settle();
        assert_eq!(world.document.evaluations.len(), number, "not before it is durable");
        assert_eq!(world.document.named.unwrap().version, Version(version));
        commit(&mut world);
        assert_eq!(world.document.evaluations.len(), number + 1);
        kept = world.document.checkpoints.iter().map(|kept| kept.version.0).collect();
    }
    assert_eq!(kept, [11, 28]);
    assert_eq!(world.document.best_version(), Some(Version(11)));
}

#[test]
fn a_job_that_gets_no_better_ends_there_with_a_checkpoint_at_its_end() {
    let stop = Target { stop_after: Some(1), ..Target::default() };
    let mut world = world(Some(stop), 1);
    for (number, version) in [(0, 11), (1, 22)] {
        world.front = Some(Version(version));
        sums(&mut world, number, 5.0);
        world.settle();
    }
    assert_eq!((world.document.last_version(), world.document.open_until()), (Version(22), 22));
    assert_eq!(world.document.named.unwrap().version, Version(22));
    sums(&mut world, 2, 6.0);
    world.settle();
    assert_eq!(world.document.evaluations.len(), 2, "it is over");
}

#[test]
fn an_exclusion_drops_what_was_found_of_later_versions_and_nothing_else() {
    let mut world = world(None, 1);
    world.wishes.wanted.exclude_max = 1;
    let evaluation = |value: f64| Evaluation { values: vec![Value(Some(value))] };
    world.document.evaluations = vec![evaluation(0.5), evaluation(0.6)];
    let record = ManifestRecord { checkpoint: CheckpointId(1), bytes: 1, crc32: 1 };
    let kept = KeptCheckpoint { record, version: Version(11), rewind: Rewind(0), oldest: None };
    world.document.checkpoints.push(kept);
    // The job has gone back to the first of them, and a record turns out to be poison.
    world.front = Some(Version(13));
    let complaint = |trainer: u32| Complaint {
        trainer: format!("trainer-{trainer}"),
        unit: 13,
        records: Some(5..6),
        what: String::from("a record"),
        why: String::from("bad"),
    };
    world.complaints = (0..ATTEMPTS).map(complaint).collect();
    world.settle();
    assert_eq!(world.document.exclusions.list[0].from, Step(13));
    assert_eq!(world.document.rewind_causes, RewindCauses::from([(RewindCause::RecordsExcluded, 1)]));
    assert_eq!(values(&world), [Some(0.5)]);
}
