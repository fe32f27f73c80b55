//! Many seeds on several threads: who broke what, and what was met.

use super::coverage::Coverage;
use super::network::Depth;
use super::run::{Run, play};
use super::scenario::Scenario;
use shoal_runtime::cluster::Mode;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A seed that broke a promise.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The seed.
    pub seed: u64,
    /// What it broke.
    pub violations: Vec<String>,
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds that broke a promise, lowest first.
    pub broken: Vec<Broken>,
    /// What all runs met.
    pub coverage: Coverage,
    /// The longest that any job stood still after healing, in lease TTLs, and its seed.
    pub stood_still_ttls: (f64, u64),
}

/// Makes a scenario of a seed.
pub type Draw<'a> = dyn Fn(u64) -> Scenario + Sync + 'a;

/// Lines of a trace that a failure prints.
const TAIL: usize = 60;

/// Plays all `seeds` on `threads` threads; stops early once several are broken.
pub fn simulate_all(draw: &Draw<'_>, seeds: Range<u64>, threads: usize) -> Summary {
    let next = AtomicU64::new(seeds.start);
    let summary = Mutex::new(Summary::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let run = play(draw(seed), false);
                    summary.lock().expect("no thread panics while it adds up").add(seed, run);
                }
            });
        }
    });
    let mut summary = summary.into_inner().expect("all threads are done");
    summary.broken.sort_by_key(|broken| broken.seed);
    summary
}

impl Summary {
    fn add(&mut self, seed: u64, run: Run) {
        self.coverage.merge(&run.coverage);
        if run.stood_still_ttls > self.stood_still_ttls.0 {
            self.stood_still_ttls = (run.stood_still_ttls, seed);
        }
        if !run.violations.is_empty() {
            self.broken.push(Broken { seed, violations: run.violations });
        }
    }
}

/// Plays a broken seed again and tells its story: what it broke, how to see it again, and how it ended.
pub fn story_of(draw: &Draw<'_>, broken: &Broken) -> String {
    let run = play(draw(broken.seed), true);
    let lines = run.trace.lines();
    let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
    let Broken { seed, violations } = broken;
    let depth = if draw(*seed).depth == Depth::Wire { "wire" } else { "machine" };
    let mode = if matches!(draw(*seed).mode, Mode::Sync { .. }) { "sync" } else { "async" };
    format!(
        "seed {seed} ({mode}) broke:\n  {}\nthe last {TAIL} of {} events:\n{tail}\nall of it: cargo run --release -p \
         shoal-tests --bin simulate -- --depth {depth} --mode {mode} --seeds {seed}..{} --trace",
        violations.join("\n  "),
        lines.len(),
        seed + 1
    )
}
