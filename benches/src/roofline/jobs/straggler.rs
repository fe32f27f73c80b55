//! A straggler: five trainers of which one takes ten times as long for everything, beside four without it. 1/1.3 is promised of
//! the ratio. The lease TTL says when the master begins to give a task away, so it is measured under more than one.

use super::begins::WARM;
use super::job::{Job, Ran};
use super::{load, say};
use crate::measure::Spread;
use crate::programs::Programs;
use crate::report::Row;

const SLOWNESS: u32 = 10;
const TRAINERS: u32 = 5;
const MICROBATCHES: u32 = 40;
const STEPS: u32 = WARM as u32 + 7;
/// Nothing said, and one that is short beside a slow task.
const TTL_MILLIS: [Option<u64>; 2] = [None, Some(200)];

pub(super) fn rows(rounds: u32, programs: &Programs) -> anyhow::Result<Vec<Row>> {
    let mut measured: Vec<(Option<u64>, Vec<[f64; 2]>)> = TTL_MILLIS.map(|ttl| (ttl, Vec::new())).to_vec();
    for round in 0..=rounds {
        for (ttl_millis, rates) in &mut measured {
            let load = load(MICROBATCHES, 0);
            let with =
                Job { trainers: TRAINERS, steps: STEPS, load, slowness: SLOWNESS, ttl_millis: *ttl_millis };
            let without = Job { trainers: TRAINERS - 1, slowness: 1, ..with };
            let (with, without) = (programs.run(&with)?, programs.run(&without)?);
            say(&format!(
                "straggler: round {round} of {rounds}, TTL {}: {}; without it {}",
                named(*ttl_millis),
                told(&with),
                told(&without)
            ));
            rates.push([with.begins.rate(), without.begins.rate()]);
        }
    }
    let row = |(ttl_millis, rates): &(Option<u64>, Vec<[f64; 2]>)| {
        let name = format!("straggler x{SLOWNESS} / none, TTL {}", named(*ttl_millis));
        Row::of_rates(&name, "steps/s", &rates[1..])
    };
    Ok(measured.iter().map(row).collect())
}

fn named(ttl_millis: Option<u64>) -> String {
    ttl_millis.map_or_else(|| "default".to_owned(), |millis| format!("{millis} ms"))
}

/// The steps of a job, and what the master did about its tasks.
fn told(ran: &Ran) -> String {
    let Spread { median, min, max } = Spread::of(ran.begins.seconds());
    let count = |name: &str| ran.closing[name].as_u64().unwrap_or(0);
    let [leased, speculative, expired] = ["tasks_leased", "speculative", "tasks_expired"].map(count);
    format!(
        "steps of {median:.3} s ({min:.3}-{max:.3}), {leased} leases, {speculative} speculative, {expired} expired"
    )
}
