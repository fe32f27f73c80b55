//! A slow place: pieces wait to be written, updates copy what those hold until the budget is spent, then they wait.

use super::*;
use shoal_tests::sim::run::in_paused_time;

/// A job whose place takes so long for a change, with so many bytes for pieces that wait.
fn with_budget(checkpoint_memory: u64, pace: Duration) -> (proto::PserverCounters, Duration) {
    in_paused_time(async {
        let (place, began) = (Place::new(), tokio::time::Instant::now());
        place.set_pace(pace);
        let scenario = Scenario { checkpoint_memory, pservers: 2, ..scenario() };
        let (world, observer) = begin(scenario, MemoryStore::new(), &place);
        let status = finished(world, &observer, "a slow place").await;
        assert!(status.checkpoint >= 2, "{status:?}");
        let mut most = proto::PserverCounters::default();
        for counters in status.pservers.iter().filter_map(|pserver| pserver.counters) {
            most.throttled += counters.throttled;
            most.bytes_copied_on_write += counters.bytes_copied_on_write;
            most.checkpoint_memory_peak = most.checkpoint_memory_peak.max(counters.checkpoint_memory_peak);
        }
        (most, began.elapsed())
    })
}

const SLOW: Duration = Duration::from_millis(120);

#[test]
fn a_slow_place_costs_memory_up_to_the_budget_and_then_time_and_never_bits() {
    let (free, quickest) = with_budget(u64::MAX, SLOW);
    assert!(free.throttled == 0 && free.bytes_copied_on_write > 0, "{free:?}");
    let budget = free.checkpoint_memory_peak / 2;
    assert!(budget > 100, "{free:?}");
    let (bounded, took) = with_budget(budget, SLOW);
    assert!((1..=budget).contains(&bounded.checkpoint_memory_peak), "{bounded:?}, {budget}");
    assert!(bounded.throttled > 0 && bounded.bytes_copied_on_write > 0, "{bounded:?}");
    let (none, longest) = with_budget(0, SLOW);
    assert_eq!((none.checkpoint_memory_peak, none.bytes_copied_on_write), (0, 0), "nothing to copy to");
    assert!(none.throttled > 0, "{none:?}");
    assert!(quickest <= took && took <= longest, "{quickest:?} {took:?} {longest:?}");
}

#[test]
fn in_an_asynchronous_job_it_is_the_same() {
    let story = async |checkpoint_memory| {
        let place = Place::new();
        place.set_pace(SLOW);
        let mode = Mode::Async { staleness_window: 8, scale_by_staleness: false };
        let scenario = Scenario { checkpoint_memory, mode, ..scenario() };
        let (world, observer) = begin(scenario, MemoryStore::new(), &place);
        let status = finished(world, &observer, "a slow place, asynchronous").await;
        status.pservers.iter().filter_map(|pserver| pserver.counters).map(|c| c.throttled).sum::<u64>()
    };
    assert_eq!(in_paused_time(story(u64::MAX)), 0);
    assert!(in_paused_time(story(0)) > 0);
}
