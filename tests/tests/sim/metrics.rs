//! What roles show to Prometheus: read strictly, named by the rules, and the same in size whatever the job's.

use shoal_pserver::shard::{HELD_WINDOW, Shard};
use shoal_runtime::cluster::{Incarnation, Mode};
use shoal_runtime::wire::proto::StatusReply;
use shoal_tests::exposition::{Page, faults, read, value};
use shoal_tests::sim::data_set::{DataSet, DataSetShape};
use shoal_tests::sim::observer::Observer;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::world::{World, job_settings};
use std::time::Duration;
use tokio::time::Instant;

fn good(text: &str) -> Page {
    let page = read(text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    assert_eq!(faults(&page), [] as [String; 0]);
    page
}

fn series(page: &Page) -> usize {
    page.values().map(|family| family.samples.len()).sum()
}

/// A job that lasts: twelve seconds of three trainers.
fn long() -> Scenario {
    let quiet = Scenario::quiet(5);
    let data = DataSetShape { records: 600, ..quiet.data };
    Scenario { data, epochs: 12, paces: vec![Duration::from_millis(15)], ..quiet }
}

/// A job that has run for a while, with so many trainers.
async fn status_of(trainers: usize) -> StatusReply {
    let mut world = World::start(Scenario { pservers: 2, ..long() }, true);
    let observer = Observer::new(&world.network);
    for trainer in 0..trainers {
        world.start_trainer(&format!("t{trainer}"));
    }
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let status = observer.status().await.unwrap();
        if status.step >= 2 && status.trainers.len() == trainers {
            return status;
        }
    }
}

#[test]
fn a_masters_page_is_read_strictly_and_as_long_for_many_members_as_for_few() {
    in_paused_time(async {
        let few = good(&shoal_master::metrics::text(Some(&status_of(1).await)));
        let status = status_of(5).await;
        let many = good(&shoal_master::metrics::text(Some(&status)));
        assert_eq!(series(&few), series(&many));
        let whole = |name: &str| value(&many, name, None);
        assert_eq!(whole("shoal_trainers_live"), Some(5.0));
        assert_eq!(whole("shoal_job_step"), Some(status.step as f64));
        assert_eq!(whole("shoal_records_trained"), Some(status.records_trained as f64));
        assert_eq!(whole("shoal_master_elections_total"), Some(1.0));
        let leased = value(&many, "shoal_leases_total", Some(("kind", "leased")));
        assert_eq!(leased, status.leases.map(|leases| leases.leased as f64));
        let phases = ["waiting", "training", "done", "failed"]
            .map(|phase| value(&many, "shoal_job_phase", Some(("phase", phase))));
        assert_eq!(phases, [Some(0.0), Some(1.0), Some(0.0), Some(0.0)]);
        assert_eq!(status.phase, "training");
    });
}

#[test]
fn what_trainers_spend_adds_up_to_the_time_they_were_there_and_never_falls() {
    in_paused_time(async {
        let scenario = Scenario { ttl: Duration::from_millis(500), ..long() };
        let mut world = World::start(scenario, true);
        let observer = Observer::new(&world.network);
        let began = Instant::now();
        let trainers: Vec<usize> = (0..3).map(|name| world.start_trainer(&format!("t{name}"))).collect();
        let mut before = 0.0;
        for second in 1..=6 {
            tokio::time::sleep_until(began + Duration::from_secs(second)).await;
            let Some(status) = observer.status().await else { continue };
            let page = good(&shoal_master::metrics::text(Some(&status)));
            let parts = &page["shoal_trainers_seconds_total"].samples;
            assert_eq!(parts.len(), 5);
            let spent: f64 = parts.iter().map(|(_, _, seconds)| seconds).sum();
            assert!(spent >= before, "{spent} s after {before} s");
            before = spent;
            if second <= 3 {
                let lived = 3.0 * began.elapsed().as_secs_f64();
                // Trainers speak at least every quarter of a TTL.
                assert!((lived - 0.5..=lived).contains(&spent), "{spent} s of {lived} s");
            }
            if second == 3 {
                // Its counts stay, when it is gone and when it is forgotten.
                world.trainers[trainers[0]].host.crash();
            }
        }
        assert!(before > 11.0, "two of them went on: {before} s");
    });
}

#[test]
fn computed_less_applied_plus_lost_is_what_does_not_count_and_nothing_is_wasted_by_one_trainer() {
    in_paused_time(async {
        let mut world = World::start(Scenario { epochs: 3, ..Scenario::quiet(5) }, true);
        let observer = Observer::new(&world.network);
        world.start_trainer("t0");
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let Some(status) = observer.status().await else { continue };
            let page = good(&shoal_master::metrics::text(Some(&status)));
            let whole = |name: &str| value(&page, name, None).unwrap();
            let (applied, trained) = (whole("shoal_records_applied_total"), whole("shoal_records_trained"));
            assert_eq!((applied, whole("shoal_records_lost_total")), (trained, 0.0));
            if status.phase == "done" {
                assert_eq!((whole("shoal_records_computed_total"), trained), (180.0, 180.0));
                return;
            }
        }
    });
}

#[test]
fn a_master_that_has_yet_to_hear_of_every_block_says_nothing_of_progress() {
    in_paused_time(async {
        let known = status_of(1).await;
        let page = |status: &StatusReply| good(&shoal_master::metrics::text(Some(status)));
        let names = ["shoal_job_step", "shoal_job_epoch", "shoal_records_trained"];
        assert!(known.is_progress_known && names.iter().all(|name| page(&known).contains_key(*name)));
        let unknown = StatusReply { is_progress_known: false, ..known };
        assert!(names.iter().all(|name| !page(&unknown).contains_key(*name)));
    });
}

#[test]
fn a_master_that_does_not_lead_shows_that_and_nothing_of_the_job() {
    let page = good(&shoal_master::metrics::text(None));
    assert_eq!((value(&page, "shoal_master_leads", None), series(&page)), (Some(0.0), 3));
}

#[test]
fn a_pservers_page_is_read_strictly_before_and_after_it_is_registered() {
    assert_eq!(series(&good(&shoal_pserver::metrics::text(None))), 3);
    let scenario = Scenario::quiet(5);
    let settings = job_settings(&scenario, &DataSet::new(scenario.data, 0));
    let shard = Shard::new(settings, HELD_WINDOW, Incarnation(1));
    let page = good(&shoal_pserver::metrics::text(Some(&shard)));
    assert_eq!(value(&page, "shoal_pserver_blocks", Some(("part", "primary"))), Some(0.0));
    assert!(page.values().any(|family| family.kind == "counter"));
    assert!(!page.contains_key("shoal_pserver_staleness_updates"), "the job is synchronous");
    let mode = Mode::Async { staleness_window: 8, scale_by_staleness: false };
    let settings = job_settings(&Scenario { mode, ..scenario.clone() }, &DataSet::new(scenario.data, 0));
    let page = good(&shoal_pserver::metrics::text(Some(&Shard::new(settings, HELD_WINDOW, Incarnation(1)))));
    assert_eq!(page["shoal_pserver_staleness_updates"].kind, "histogram");
}

#[test]
fn an_asynchronous_jobs_status_tells_how_stale_its_updates_were() {
    in_paused_time(async {
        let mode = Mode::Async { staleness_window: 8, scale_by_staleness: false };
        let mut world = World::start(Scenario { mode, ..long() }, true);
        let observer = Observer::new(&world.network);
        for name in ["t0", "t1", "t2"] {
            world.start_trainer(name);
        }
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let Some(status) = observer.status().await else { continue };
            let staleness = status.pservers.iter().find_map(|pserver| pserver.staleness.clone());
            let Some(staleness) = staleness else { continue };
            if status.step >= 20 {
                assert!(
                    staleness.sum > 0 && staleness.updates.iter().skip(1).sum::<u64>() > 0,
                    "{staleness:?}"
                );
                return;
            }
        }
    });
}
