//! One run: a scenario is played, the network heals, the job must end; then the invariants are asked.

use super::coverage::Coverage;
use super::evidence::Evidence;
use super::invariants;
use super::scenario::Scenario;
use super::script::Script;
use super::trace::Trace;
use super::world::World;
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
    /// How long the run took by its own clock.
    pub lasted: Duration,
    /// The longest that the job stood still after healing, in lease TTLs.
    pub stood_still_ttls: f64,
}

/// Makes a scenario of a seed.
pub type Draw = fn(u64) -> Scenario;

/// Plays a scenario in a runtime of its own.
pub fn play(scenario: Scenario, keeps_lines: bool) -> Run {
    in_paused_time(async move {
        let world = World::start(scenario, keeps_lines);
        let evidence = Script::new(world).play().await;
        judged(evidence).await
    })
}

/// Runs a future on one thread whose clock moves only when nothing else can.
pub fn in_paused_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build_local(LocalOptions::default());
    runtime.expect("a runtime without drivers").block_on(future)
}

async fn judged(evidence: Evidence) -> Run {
    let violations = invariants::check(&evidence);
    Run {
        violations,
        coverage: evidence.coverage,
        stood_still_ttls: evidence.stood_still.as_secs_f64() / evidence.scenario.ttl.as_secs_f64(),
        trace: evidence.trace,
        lasted: evidence.lasted,
    }
}
