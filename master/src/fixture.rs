//! A small job for the tests of this package: its settings, its data set, what its trainers declare.

use shoal_job::spec::{CheckpointSpec, Spec};
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::plan::EpochShape;
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::{
    Course, Declaration, JobId, JobSettings, JobShape, Manifest, Mode, Parameter, Precision, Rule,
};
use std::time::Duration;

pub(crate) const TTL_MILLIS: u64 = 1600;

pub(crate) fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Microbatches that train, and nothing else.
pub(crate) fn course(positions: u64) -> Course {
    Course::new(positions, 1, 0)
}

/// More epochs than any test gets to, of steps with so many slots; nothing is evaluated.
pub(crate) fn shape(records: u64, slots: u32) -> JobShape {
    JobShape::new(EpochShape::new(records, 1, slots), 1 << 20)
}

pub(crate) fn manifest(records: u64) -> Manifest {
    let mut manifest = Manifest::default();
    manifest.push_file("train.recordio".into(), 0);
    let mut left = records as u32;
    while left > 0 {
        manifest.push_chunk(0, 100, left.min(7), 1);
        left -= left.min(7);
    }
    manifest
}

pub(crate) fn settings(
    records: u64,
    microbatch_records: u32,
    microbatches_per_step: u32,
    epochs: u64,
) -> JobSettings {
    JobSettings {
        job: JobId("digits-1".into()),
        seed: 7,
        epochs,
        microbatch_records,
        microbatches_per_step,
        shuffle_run: 2,
        records,
        manifest_fingerprint: [0; 32],
        lease_ttl_millis: TTL_MILLIS,
        mode: Mode::SYNC,
        gradients: Precision::F32,
        warm_start: None,
        evaluated: None,
    }
}

/// Five blocks: four of `w`, one of `b` (25 elements would not fit beside it).
pub(crate) fn declaration() -> Declaration {
    let dense = |name, elements| {
        Parameter::new(name, &[elements], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros)
    };
    Declaration { parameters: vec![dense("w", 100), dense("b", 10)], block_elements: 25 }
}

/// Settings by which checkpoints are made at the end alone.
pub(crate) fn at_the_end() -> Spec {
    let checkpoint = CheckpointSpec { every_seconds: Some(0), ..CheckpointSpec::default() };
    Spec { data: vec!["records:64".to_owned()], checkpoint, ..Spec::default() }
}
