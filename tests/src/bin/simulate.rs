//! Plays seeds of the simulation: `cargo run --release -p shoal-tests --bin simulate -- --seeds A..B [--trace]`.
#![allow(clippy::print_stdout)]

fn main() {
    let seed: u64 = std::env::args().nth(1).unwrap_or_default().parse().unwrap_or(1);
    let run = shoal_tests::sim::run::simulate(seed, true);
    for line in run.trace.lines() { println!("{line}"); }
    println!("{:?} {:?} {}", run.violations, run.lasted, run.stood_still_ttls);
    println!("{}", run.coverage);
}
