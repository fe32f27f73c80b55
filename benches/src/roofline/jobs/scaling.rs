//! Scaling: the same steps with one to eight trainers, beside as many times the speed of one; and what goes over the wire in a
//! step, beside the formula 2 T P of benches/README.md.

use super::begins::{WARM, perfect};
use super::job::Job;
use super::{MICROBATCHES_PER_TRAINER, load, say};
use crate::programs::Programs;
use crate::report::Row;
use anyhow::Context;

const TRAINERS: u32 = 8;
const STEPS: u32 = WARM as u32 + 6;

pub(super) fn rows(rounds: u32, programs: &Programs) -> anyhow::Result<Vec<Row>> {
    let load = load(TRAINERS * MICROBATCHES_PER_TRAINER, 0);
    let mut measured = Vec::new();
    for round in 0..=rounds {
        say(&format!("scaling: round {round} of {rounds}"));
        let mut jobs = Vec::new();
        for trainers in 1..=TRAINERS {
            let job = Job { trainers, steps: STEPS, load, slowness: 1, ttl_millis: None };
            let ran = programs.run_watched(&job)?;
            jobs.push([ran.begins.rate(), ran.seen.context("nobody looked")?.bytes_per_step / 1e6]);
        }
        measured.push(jobs);
    }
    let of = |trainers: u32| measured[1..].iter().map(move |jobs| (jobs[trainers as usize - 1], jobs[0]));
    let speed = |trainers: u32| {
        let rates: Vec<[f64; 2]> =
            of(trainers).map(|([rate, _], [one, _])| [rate, perfect(trainers, one)]).collect();
        Row::of_rates(&format!("scaling, T = {trainers} / {trainers} times T = 1"), "steps/s", &rates)
    };
    let traffic = |trainers: u32| {
        let formula = 2.0 * f64::from(trainers) * load.bytes() as f64 / 1e6;
        let bytes: Vec<[f64; 2]> = of(trainers).map(|([_, bytes], _)| [bytes, formula]).collect();
        Row::of_rates(&format!("traffic, T = {trainers} / 2 T P"), "MB/step", &bytes)
    };
    Ok((2..=TRAINERS).map(speed).chain((1..=TRAINERS).map(traffic)).collect())
}
