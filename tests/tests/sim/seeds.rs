//! The whole system under random faults, one seed a run: promises P1, P2 and P4 hold, and a seed is a whole story.

use shoal_tests::sim::network::Depth;
use shoal_tests::sim::run::play;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::seeds::{Draw, simulate_all, story_of};
use std::ops::Range;
use std::time::Duration;

const THREADS: usize = 2;

/// Plays some seeds; they must keep every promise. More of them, and what they must meet: the program `simulate`.
fn keep_the_promises(draw: &Draw<'_>, seeds: Range<u64>) {
    let count = seeds.end - seeds.start;
    let summary = simulate_all(draw, seeds, THREADS);
    println!("{}", summary.coverage);
    if let Some(broken) = summary.broken.first() {
        panic!("{} of {count} seeds are broken; {}", summary.broken.len(), story_of(draw, broken));
    }
}

#[test]
fn jobs_of_either_mode_keep_the_promises() {
    keep_the_promises(&Scenario::drawn_both, 0..200);
}

#[test]
fn jobs_over_real_connections_keep_the_promises() {
    keep_the_promises(&|seed| Scenario { depth: Depth::Wire, ..Scenario::drawn_both(seed) }, 0..6);
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
fn the_same_seed_ends_alike_over_real_connections() {
    let simulate = |seed| play(Scenario { depth: Depth::Wire, ..Scenario::drawn_both(seed) }, false);
    for seed in 0..3 {
        let (first, second) = (simulate(seed), simulate(seed));
        assert_eq!((first.lasted, first.trace.hash()), (second.lasted, second.trace.hash()), "seed {seed}");
    }
}

#[test]
fn an_undisturbed_run_has_the_bits_of_the_definition() {
    for seed in 0..40 {
        let run = play(Scenario::drawn(seed).undisturbed(), false);
        assert!(run.violations.is_empty(), "seed {seed}, undisturbed: {:?}", run.violations);
        assert_eq!(run.coverage.count_of("leases given again"), 0, "seed {seed}, undisturbed");
    }
}

#[test]
fn no_lease_ends_because_clocks_run_apart() {
    for seed in 0..10 {
        let paces = vec![Duration::from_millis(300), Duration::from_millis(700)];
        let scenario = Scenario { trainers: 4, pservers: 3, replicas: 1, paces, ..Scenario::quiet(seed) };
        let alike = play(scenario.clone(), false);
        let apart = play(Scenario { drift_percent: 25, ..scenario }, false);
        assert_ne!(apart.trace.hash(), alike.trace.hash(), "seed {seed}: clocks change nothing");
        assert!(apart.violations.is_empty(), "seed {seed}: {:?}", apart.violations);
        for lost in ["leases expired", "leases given again", "goings back"] {
            assert_eq!(apart.coverage.count_of(lost), 0, "seed {seed}: {lost}");
        }
    }
}

fn draw_of(is_async: bool) -> fn(u64) -> Scenario {
    if is_async { Scenario::drawn_async } else { Scenario::drawn }
}
