//! One run: a scenario is played, the network heals, the job must end; then the invariants are asked.

use super::coverage::Coverage;
use super::evidence::Evidence;
use super::invariants;
use super::network::Depth;
use super::points::{Order, Points};
use super::scenario::Scenario;
use super::script::Script;
use super::trace::Trace;
use super::wire::on_wire;
use super::world::World;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tokio::runtime::LocalOptions;

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    /// Broken promises; empty when all is well.
    pub violations: Vec<String>,
    /// What the run met.
    pub coverage: Coverage,
    /// What happened.
    pub trace: Trace,
    /// Where processes could be killed, and were.
    pub points: Points,
    /// How long the run took by its own clock.
    pub lasted: Duration,
    /// The longest that the job stood still after healing, in lease TTLs.
    pub stood_still_ttls: f64,
}

/// Plays a scenario in runtimes of its own.
pub fn play(scenario: Scenario, keeps_lines: bool) -> Run {
    play_with(scenario, Vec::new(), keeps_lines)
}

/// The same with kills to order.
pub fn play_with(scenario: Scenario, orders: Vec<Order>, keeps_lines: bool) -> Run {
    let (depth, seed) = (scenario.depth, scenario.seed);
    let playing = async move {
        let world = World::start(scenario, keeps_lines);
        let points = world.network.points.clone();
        points.order(orders);
        let evidence = Script::new(world).play().await;
        judged(evidence, points)
    };
    let played = catch_unwind(AssertUnwindSafe(|| match depth {
        Depth::Machine => in_paused_time(playing),
        Depth::Wire => on_wire(seed, playing),
    }));
    played.unwrap_or_else(|why| panicked(&*why))
}

/// A run that ended before anything could be asked of it.
fn panicked(why: &(dyn Any + Send)) -> Run {
    let words = why.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| why.downcast_ref::<&str>().copied()).unwrap_or_default();
    Run {
        violations: vec![format!("nothing panics: {words}")],
        points: Points::default(),
        coverage: Coverage::new(),
        stood_still_ttls: 0.0,
        trace: Trace::new(false),
        lasted: Duration::ZERO,
    }
}

/// Runs a future on one thread whose clock moves only when nothing else can.
pub fn in_paused_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build_local(LocalOptions::default());
    runtime.expect("a runtime without drivers").block_on(future)
}

fn judged(evidence: Evidence, points: Points) -> Run {
    let violations = invariants::check(&evidence);
    Run {
        violations,
        points,
        coverage: evidence.coverage,
        stood_still_ttls: evidence.stood_still.as_secs_f64() / evidence.scenario.ttl.as_secs_f64(),
        trace: evidence.trace,
        lasted: evidence.lasted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_broken_promise_with_its_words() {
        for words in ["nobody's", "two times 7"] {
            let why = match words {
                "nobody's" => catch_unwind(|| panic!("nobody's")).unwrap_err(),
                _ => catch_unwind(|| panic!("two times {}", 3 + 4)).unwrap_err(),
            };
            assert_eq!(panicked(&*why).violations, [format!("nothing panics: {words}")]);
        }
    }
}
