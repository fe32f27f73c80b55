//! Leases with the tasks they are of: which records of which chunks, from the plan of a data set. How that grows with its chunks.

use crate::measure::{Spread, in_turn};
use crate::paths::leases::{Job, MICROBATCHES_PER_TRAINER};
use crate::report::Row;
use shoal_master::dispatch::Grant;
use shoal_runtime::cluster::plan::Plan;
use shoal_runtime::cluster::{JobId, JobSettings, Manifest, Mode, Precision, Rewind};
use std::hint::black_box;

const CHUNKS: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Enough for the two epochs that a plan remembers to be walked on: the pass over all chunks with which one begins is counted
/// where it comes.
const LEASES: u32 = 4_000;
const TRAINERS: u32 = 10;
const CHUNK_RECORDS: u32 = 64;
const MICROBATCH_RECORDS: u32 = 16;
const MILLION: u32 = 1_000_000;

/// A row for each number of chunks, and the cost of a lease among the most in costs among the fewest.
pub(crate) fn rows(rounds: u32) -> anyhow::Result<(Vec<Row>, Spread)> {
    let [mut a, mut b, mut c, mut d] = CHUNKS.map(Planned::new);
    for job in [&mut a, &mut b, &mut c, &mut d] {
        job.job.begin()?;
    }
    let measured =
        in_turn(rounds, [&mut || a.lease(), &mut || b.lease(), &mut || c.lease(), &mut || d.lease()])?;
    let row = |(which, chunks): (usize, &u32)| {
        let rates = measured.iter().map(|round| f64::from(LEASES) / round[which]).collect();
        Row::alone(format!("leases with their tasks, {chunks} chunks"), "leases/s", rates)
    };
    let growth = Spread::of(measured.iter().map(|[few, .., many]| many / few).collect());
    Ok((CHUNKS.iter().enumerate().map(row).collect(), growth))
}

struct Planned {
    job: Job,
    plan: Plan,
}

impl Planned {
    fn new(chunks: u32) -> Planned {
        let mut manifest = Manifest::default();
        manifest.push_file("/data/train.recordio".into(), u64::from(chunks) << 16);
        (0..chunks)
            .for_each(|chunk| manifest.push_chunk(u64::from(chunk) << 16, 1 << 16, CHUNK_RECORDS, chunk));
        let settings = JobSettings {
            job: JobId("tasks".into()),
            seed: 7,
            epochs: u64::from(MILLION),
            microbatch_records: MICROBATCH_RECORDS,
            microbatches_per_step: TRAINERS * MICROBATCHES_PER_TRAINER,
            shuffle_run: 1,
            records: manifest.record_count(),
            manifest_fingerprint: [0; 32],
            lease_ttl_millis: 60_000,
            mode: Mode::SYNC,
            gradients: Precision::F32,
            warm_start: None,
            evaluated: None,
        };
        let plan = Plan::new(manifest, settings);
        Planned { job: Job::of(TRAINERS, plan.shape()), plan }
    }

    fn lease(&mut self) -> anyhow::Result<()> {
        let plan = &mut self.plan;
        self.job.steps_with(LEASES / TRAINERS, &mut |grant| {
            black_box(Grant::Node(grant).task(plan, Rewind(1)));
        })
    }
}
