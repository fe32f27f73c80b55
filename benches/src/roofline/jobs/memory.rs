//! What jobs of one, eight and sixty-four trainers have in memory at most, for each byte of the parameter: the pserver, and the
//! largest of the trainers. Flat is promised. What must not swap is left out where it would.

use super::begins::WARM;
use super::job::Job;
use super::load::Load;
use super::{MICROBATCHES_PER_TRAINER, say};
use crate::process::available_bytes;
use crate::programs::Programs;
use crate::report::Row;
use anyhow::Context;

const TRAINERS: [u32; 3] = [1, 8, 64];
/// 16 MiB, in blocks of 1 MiB.
const ELEMENTS: usize = 4 << 20;
const MICROS: u64 = 1_000;
const STEPS: u32 = WARM as u32 + 3;
/// Peaks differ little from job to job, and those of many trainers take long.
const JOBS: usize = 3;
/// More than a trainer was ever seen to have, in bytes of the parameter.
const TRAINER_PARAMETERS: u64 = 12;

pub(super) fn rows(programs: &Programs) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for trainers in TRAINERS {
        let microbatches = trainers * MICROBATCHES_PER_TRAINER;
        let load = Load { elements: ELEMENTS, microbatches, micros: MICROS, jitter_percent: 0, delay: 0 };
        let bytes = load.bytes() as u64;
        let (needed, there) = (u64::from(trainers + 4) * TRAINER_PARAMETERS * bytes, available_bytes()?);
        if needed > there {
            say(&format!(
                "memory: T = {trainers} is left out: it may need {} MiB, {} are free",
                needed >> 20,
                there >> 20
            ));
            continue;
        }
        let mut peaks = [Vec::new(), Vec::new()];
        for number in 1..=JOBS {
            say(&format!("memory: T = {trainers}, job {number} of {JOBS}"));
            let job = Job { trainers, steps: STEPS, load, slowness: 1, ttl_millis: None };
            let seen = programs.run_watched(&job)?.seen.context("nobody looked")?;
            peaks[0].push(seen.pserver_bytes as f64 / bytes as f64);
            peaks[1].push(seen.trainer_bytes as f64 / bytes as f64);
        }
        for (role, peaks) in ["pserver", "largest trainer"].into_iter().zip(peaks) {
            rows.push(Row::alone(format!("memory of the {role}, T = {trainers}"), "parameters", peaks));
        }
    }
    Ok(rows)
}
