//! The price of P2: jobs of ours, whose bits do not depend on who computes what, beside the rival's sum in the order of arrival with
//! free task sizes. Steps per second, once all trainers are there.

use super::begins::WARM;
use super::job::Job;
use super::{MICROBATCHES_PER_TRAINER, load, rival, say};
use crate::programs::Programs;
use crate::report::Row;

/// Numbers that share no tree evenly.
const TRAINERS: [u32; 4] = [3, 5, 6, 7];
const JITTER_PERCENT: [u32; 2] = [0, 10];
const STEPS: u32 = WARM as u32 + 11;

/// Rates of ours and of the rival with so many trainers and so much jitter, round by round.
struct Case {
    trainers: u32,
    jitter_percent: u32,
    rates: Vec<[f64; 2]>,
}

pub(super) fn rows(rounds: u32, programs: &Programs) -> anyhow::Result<Vec<Row>> {
    let of =
        |trainers| JITTER_PERCENT.map(|jitter_percent| Case { trainers, jitter_percent, rates: Vec::new() });
    let mut cases: Vec<Case> = TRAINERS.into_iter().flat_map(of).collect();
    for round in 0..=rounds {
        say(&format!("price: round {round} of {rounds}"));
        for Case { trainers, jitter_percent, rates } in &mut cases {
            let load = load(*trainers * MICROBATCHES_PER_TRAINER, *jitter_percent);
            let job = Job { trainers: *trainers, steps: STEPS, load, slowness: 1, ttl_millis: None };
            let ours = programs.run(&job)?.begins.rate();
            rates.push([ours, rival::run(*trainers, STEPS, load)?.rate()]);
        }
    }
    let row = |Case { trainers, jitter_percent, rates }: &Case| {
        let name = format!("P2, T = {trainers}, jitter {jitter_percent} % / arrival order");
        Row::of_rates(&name, "steps/s", &rates[1..])
    };
    Ok(cases.iter().map(row).collect())
}
