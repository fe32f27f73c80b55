//! The whole system under random faults, one seed a run: promises P1, P2 and P4 hold, and a seed is a whole story.

#![allow(clippy::print_stdout, reason = "what a failing seed has to tell")]

use shoal_tests::sim::coverage::{MUST_OCCUR, MUST_OCCUR_ASYNC};
use shoal_tests::sim::run::{Draw, play};
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::seeds::{Broken, simulate_all, story_of};

const THREADS: usize = 2;

/// Plays a thousand seeds; they must keep every promise, and meet all of `must_occur`.
fn play_a_thousand(draw: Draw, must_occur: &[&'static str]) {
    let summary = simulate_all(draw, 0..1000, THREADS);
    println!("{}", summary.coverage);
    if let Some(broken) = summary.broken.first() {
        panic!("{} of 1,000 seeds are broken; {}", summary.broken.len(), story_of(draw, broken));
    }
    let missing = summary.coverage.missing(must_occur);
    assert!(missing.is_empty(), "a thousand seeds never met: {missing:?}");
}

#[test]
fn a_thousand_synchronous_jobs_keep_the_promises() {
    play_a_thousand(Scenario::drawn, &MUST_OCCUR);
}

#[test]
fn a_thousand_asynchronous_jobs_keep_the_promises() {
    play_a_thousand(Scenario::drawn_async, &MUST_OCCUR_ASYNC);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let simulate = |seed: u64, keeps_lines| play(draw_of(seed % 2 == 1)(seed), keeps_lines);
    for seed in 0..20 {
        // One run keeps lines and the other does not: watching changes nothing.
        let (first, second) = (simulate(seed, true), simulate(seed, false));
        assert_eq!(first.trace.hash(), second.trace.hash(), "seed {seed}");
        assert_eq!(first.trace.events(), second.trace.events(), "seed {seed}");
        assert_eq!((first.lasted, first.coverage), (second.lasted, second.coverage), "seed {seed}");
    }
    assert_ne!(simulate(0, false).trace.hash(), simulate(2, false).trace.hash());
}

#[test]
fn an_undisturbed_run_has_the_bits_of_the_definition() {
    for seed in 0..40 {
        let run = play(Scenario::drawn(seed).undisturbed(), false);
        assert!(run.violations.is_empty(), "seed {seed}, undisturbed: {:?}", run.violations);
        assert_eq!(run.coverage.count_of("leases given again"), 0, "seed {seed}, undisturbed");
    }
}

fn draw_of(is_async: bool) -> Draw {
    if is_async { Scenario::drawn_async } else { Scenario::drawn }
}

/// `[SHOAL_SIM_MODE=async] SHOAL_SIM_SEED=N cargo test -p shoal-tests --test simulation replay -- --nocapture` tells all of seed N.
#[test]
fn replay() {
    let seed = std::env::var("SHOAL_SIM_SEED").ok().map_or(1, |seed| seed.parse().expect("a whole number"));
    let draw = draw_of(std::env::var("SHOAL_SIM_MODE").is_ok_and(|mode| mode == "async"));
    let run = play(draw(seed), true);
    run.trace.lines().iter().for_each(|line| println!("{line}"));
    println!("seed {seed} lasted {:?}, trace hash {:016x}", run.lasted, run.trace.hash());
    if !run.violations.is_empty() {
        panic!("{}", story_of(draw, &Broken { seed, violations: run.violations }));
    }
}
