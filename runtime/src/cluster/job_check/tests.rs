//! Settings drawn near every limit: who passes the check never overflows, and everything beyond is refused by its name.

use super::*;
use crate::cluster::plan::ChunkOrder;
use crate::cluster::{Evaluated, JobId, Pass, Precision, Step};
use proptest::prelude::*;
use proptest::sample::select;

/// Numbers where arithmetic breaks, and ordinary ones.
fn number() -> BoxedStrategy<u64> {
    let edges =
        [0, 1, 2, 3, 7, 1 << 16, (1 << 24) - 1, 1 << 24, u64::from(u32::MAX), 1 << 32, 1 << 48, 1 << 56];
    let near = (0u32..64, -2i64..3).prop_map(|(bit, off)| (1u64 << bit).wrapping_add_signed(off));
    prop_oneof![select(edges.to_vec()), near, 1u64..1000, any::<u64>(), Just(u64::MAX)].boxed()
}

fn settings() -> impl Strategy<Value = JobSettings> {
    let mode = prop_oneof![
        number().prop_map(|delay| Mode::Sync { delay: delay as u32 % 8 }),
        number().prop_map(|window| Mode::Async { staleness_window: window as u32, scale_by_staleness: true }),
    ];
    let every = (any::<bool>(), number()).prop_map(|(epochs, every)| match epochs {
        true => Period::Epochs(every),
        false => Period::Steps(every),
    });
    let evaluated = proptest::option::of((number(), every));
    let numbers = (number(), number(), number(), number(), number());
    (numbers, number(), mode, evaluated).prop_map(|(numbers, ttl, mode, evaluated)| {
        let (epochs, microbatch, step, run, records) = numbers;
        JobSettings {
            job: JobId(String::from("j")),
            seed: 1,
            epochs,
            microbatch_records: microbatch as u32,
            microbatches_per_step: (step as u32) % (1 << 25),
            shuffle_run: run as u32,
            records,
            manifest_fingerprint: [0; 32],
            lease_ttl_millis: ttl,
            mode,
            gradients: Precision::Bf16,
            warm_start: None,
            evaluated: evaluated.map(|(records, every)| Evaluated { records, every, outputs: None }),
        }
    })
}

/// Everything that roles work out from settings alone, at the ends of the job and around them.
fn work_out(job: &JobSettings) {
    let (shape, course) = (job.shape(), job.course());
    assert!(course.units() <= UNITS_MAX && job.positions() <= UNITS_MAX && job.steps() <= UNITS_MAX);
    assert_eq!(job.last_version().0, course.units());
    let _ = job.all_records();
    let (steps, positions) = (shape.steps(), shape.positions());
    for units in [steps, positions] {
        let end = units.units();
        for unit in [0, 1, end / 2, end.saturating_sub(2), end.saturating_sub(1), end, u64::MAX] {
            let _ = (units.stage(unit), units.trained(unit), units.evaluated(unit), units.barrier(unit));
        }
        for number in [0, units.evaluations().saturating_sub(1), units.evaluations()] {
            let _ = units.evaluation(number);
        }
    }
    for step in [0, 1, steps.units() / 2, steps.units().saturating_sub(1), steps.units(), u64::MAX] {
        let tree = shape.tree(Step(step));
        let _ = (tree.root(), job.reads(Step(step)), shape.evaluates(Step(step)));
        if step < steps.units() {
            for slot in [0, tree.present() - 1] {
                let (pass, index) = shape.microbatch(Step(step), slot);
                let _ = positions_of(job, pass, index);
            }
        }
    }
    for position in [0, positions.units() / 2, positions.units().saturating_sub(1)] {
        if position < positions.units() {
            let (pass, index) = shape.microbatch_at(position);
            let (first, end) = positions_of(job, pass, index);
            assert!(first < end, "a microbatch has records");
        }
    }
    for records in [1, 7, u32::MAX] {
        let order = ChunkOrder::new(job, Pass::Epoch(job.epochs.saturating_sub(1)), u32::MAX, records);
        assert!(order.record(0) < records && order.record(records - 1) < records);
    }
}

fn positions_of(job: &JobSettings, pass: Pass, index: u64) -> (u64, u64) {
    let shape = job.shape();
    let (cut, records) = match pass {
        Pass::Epoch(epoch) => {
            assert!(epoch < job.epochs);
            (shape.training(), job.records)
        }
        Pass::Evaluation(_) => (shape.evaluation(), job.evaluated.as_ref().unwrap().records),
    };
    let positions = cut.positions(index);
    assert!(positions.end <= records);
    (positions.start, positions.end)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn settings_that_pass_never_overflow_and_are_cut_inside_their_data(job in settings()) {
        if job.check().is_ok() {
            work_out(&job);
        }
    }
}

fn good() -> JobSettings {
    crate::wire::sample::settings()
}

/// The first fault of settings with one change.
fn fault_of(change: impl FnOnce(&mut JobSettings)) -> Option<&'static str> {
    let mut job = good();
    change(&mut job);
    job.check().err().map(|fault| fault.setting)
}

#[test]
fn every_setting_has_its_limits_and_is_refused_by_its_name() {
    assert_eq!(fault_of(|_| {}), None);
    let most = |job: &mut JobSettings| {
        (job.microbatch_records, job.shuffle_run, job.microbatches_per_step) = (u32::MAX, u32::MAX, 1 << 24);
        (job.records, job.epochs, job.lease_ttl_millis) = (1 << 48, 1 << 20, LEASE_TTL_MILLIS_MAX);
    };
    assert_eq!(fault_of(most), None, "the limits themselves are allowed");
    type Change = fn(&mut JobSettings);
    let cases: [(Change, &str); 19] = [
        (|job| job.job.0 = "j".repeat(254), "job"),
        (|job| job.epochs = 0, "epochs"),
        (|job| job.epochs = u64::MAX, "epochs"),
        (|job| (job.epochs, job.microbatch_records) = (1 << 56, 1), "epochs"),
        (|job| job.records = 0, "records"),
        (|job| job.records = (1 << 48) + 1, "records"),
        (|job| job.microbatch_records = 0, "microbatch_records"),
        (|job| job.microbatches_per_step = 0, "microbatches_per_step"),
        (|job| job.microbatches_per_step = (1 << 24) + 1, "microbatches_per_step"),
        (|job| job.shuffle_run = 0, "shuffle_run"),
        (|job| job.lease_ttl_millis = 0, "lease_ttl_millis"),
        (|job| job.lease_ttl_millis = LEASE_TTL_MILLIS_MAX + 1, "lease_ttl_millis"),
        (|job| job.mode = Mode::Sync { delay: 5 }, "delay"),
        (|job| job.mode = Mode::Async { staleness_window: 0, scale_by_staleness: true }, "staleness_window"),
        (
            |job| job.mode = Mode::Async { staleness_window: (1 << 20) + 1, scale_by_staleness: false },
            "staleness_window",
        ),
        (|job| job.evaluated.as_mut().unwrap().records = 0, "evaluated.records"),
        (|job| job.evaluated.as_mut().unwrap().records = u64::MAX, "evaluated.records"),
        (|job| job.evaluated.as_mut().unwrap().every = Period::Steps(0), "evaluated.every"),
        // Each number for itself would do.
        (|job| (job.epochs, job.evaluated.as_mut().unwrap().records) = (1 << 40, 1 << 40), "epochs"),
    ];
    for (at, (change, setting)) in cases.into_iter().enumerate() {
        assert_eq!(fault_of(change), Some(setting), "case {at}");
    }
}

#[test]
fn a_job_that_only_evaluates_has_neither_epochs_nor_records() {
    assert_eq!(fault_of(|job| (job.epochs, job.records) = (0, 0)), None);
    let nothing = |job: &mut JobSettings| (job.epochs, job.records, job.evaluated) = (0, 0, None);
    assert_eq!(fault_of(nothing), Some("epochs"));
    let mut job = good();
    (job.epochs, job.records) = (0, 0);
    work_out(&job);
}

#[test]
fn a_jobs_name_can_be_part_of_a_files_name_and_of_nothing_else_than_it_says() {
    let long = "x".repeat(JOB_BYTES_MAX);
    for good in ["a", "7", "digits-1764-12", "Team_a.v2", long.as_str()] {
        assert_eq!(name(good), Ok(()), "{good}");
    }
    let longer = format!("{long}x");
    for bad in ["", ".", "..", "../x", "a/b", "-x", "_x", "a b", "a\nb", "a\0", "é", "%41", longer.as_str()]
    {
        assert_eq!(name(bad).unwrap_err().setting, "job", "{bad:?}");
    }
}
