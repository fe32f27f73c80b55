//! `--delay`: the same job with gradients of the version before, of one and of two before that, beside what its pauses alone
//! would take. What a step takes more than its pauses is the exchange: push, update, pull; how much of it each delay hides.

use super::begins::WARM;
use super::job::Job;
use super::load::Load;
use super::say;
use crate::programs::Programs;
use crate::report::Row;

const DELAYS: [u32; 3] = [0, 1, 2];
const TRAINERS: u32 = 2;
/// One for each trainer, so that a step is one pause and one exchange.
const MICROBATCHES: u32 = TRAINERS;
const MICROS: u64 = 20_000;
/// 4 MiB, in blocks of 1 MiB.
const ELEMENTS: usize = 1 << 20;
const STEPS: u32 = WARM as u32 + 60;

pub(super) fn rows(rounds: u32, programs: &Programs) -> anyhow::Result<Vec<Row>> {
    let load = |delay| Load {
        elements: ELEMENTS,
        microbatches: MICROBATCHES,
        micros: MICROS,
        jitter_percent: 0,
        delay,
    };
    let computing = load(0).pause(0, 0).as_secs_f64() * f64::from(MICROBATCHES / TRAINERS);
    let mut measured = Vec::new();
    for round in 0..=rounds {
        let mut rates = [0.0; DELAYS.len()];
        for (delay, rate) in DELAYS.into_iter().zip(&mut rates) {
            let job =
                Job { trainers: TRAINERS, steps: STEPS, load: load(delay), slowness: 1, ttl_millis: None };
            *rate = programs.run(&job)?.begins.rate();
        }
        say(&format!("delay: round {round} of {rounds}, steps/s with {DELAYS:?}: {rates:.2?}"));
        measured.push(rates);
    }
    let measured = &measured[1..];
    let speed = |(which, delay): (usize, u32)| {
        let rates: Vec<[f64; 2]> = measured.iter().map(|rates| [rates[which], 1.0 / computing]).collect();
        Row::of_rates(&format!("delay {delay} / computing alone"), "steps/s", &rates)
    };
    let hidden = |(which, delay): (usize, u32)| {
        let parts = measured.iter().map(|rates| hidden_percent(rates[0], rates[which], computing));
        Row::alone(format!("delay {delay}, of the exchange hidden"), "%", parts.collect())
    };
    let delays = || DELAYS.into_iter().enumerate();
    Ok(delays().map(speed).chain(delays().skip(1).map(hidden)).collect())
}

/// The part of what a step takes beyond `computing` that a delay hides, from the speeds without it and with it.
fn hidden_percent(without: f64, with: f64, computing: f64) -> f64 {
    100.0 * (1.0 / without - 1.0 / with) / (1.0 / without - computing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_hidden_where_a_step_takes_no_more_than_its_pauses_and_nothing_where_it_takes_as_long() {
        let percent = |with: f64| hidden_percent(25.0, with, 0.02).round();
        assert_eq!([25.0, 50.0, 1.0 / 0.03].map(percent), [0.0, 100.0, 50.0]);
    }
}
