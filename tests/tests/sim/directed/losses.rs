//! Directed traces of trainers that end without a word: by a record, by a microbatch as a whole, or by nothing of their data.

use shoal_master::document::Document;
use shoal_runtime::cluster::{Mode, Step};
use shoal_tests::sim::evidence::{End, Evidence};
use shoal_tests::sim::reference::records_of;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::spoiled::Killer;
use shoal_tests::sim::stage::{Stage, millis, rewinds};
use shoal_tests::sim::tables::Tables;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const MODES: [Mode; 2] = [Mode::SYNC, Mode::Async { staleness_window: 8, scale_by_staleness: false }];
/// A step that is some way from the beginning.
const STEP: Step = Step(2);

fn allowing(mode: Mode, exclude_max: u64) -> Scenario {
    Scenario { mode, pservers: 2, exclude_max, epochs: 2, ..Scenario::quiet(7) }
}

/// Records that end a process: each, or only all of them in one batch.
#[derive(Clone)]
struct Deadly {
    records: Vec<u64>,
    together: bool,
    /// Whether the program says that its trainer cannot, or ends without a word.
    says_so: bool,
}

fn each(records: &[u64]) -> Deadly {
    Deadly { records: records.to_vec(), together: false, says_so: false }
}

/// A trainer whose process some records end; in a job with tables already by their keys.
fn killed_by(stage: &mut Stage, name: &str, deadly: &Deadly) -> usize {
    let (program, host) = (stage.world.scenario.program(), Arc::new(OnceLock::new()));
    let (Deadly { records, together, says_so }, host_of) = (deadly.clone(), Arc::clone(&host));
    let by_keys = program.tables.is_some();
    let model = Killer { program, records, together, by_keys, says_so, host: host_of };
    let number = stage.world.start_trainer_with(name, Duration::ZERO, model);
    host.set(Arc::clone(&stage.world.trainers[number].host)).unwrap();
    number
}

/// Keeps so many trainers going, each life under a name of its own, until the document is so. Returns it, and how many were lost.
async fn kept_going(
    stage: &mut Stage,
    count: usize,
    deadly: &Deadly,
    is_so: impl Fn(&Document) -> bool,
) -> (Document, usize) {
    let began = Instant::now();
    loop {
        let living = stage.world.trainers.iter().filter(|trainer| trainer.is_alive()).count();
        for _ in living..count {
            let name = format!("trainer-{}", stage.world.trainers.len());
            killed_by(stage, &name, deadly);
        }
        sleep(millis(20)).await;
        let document = stage.document().await;
        if is_so(&document) {
            return (document, stage.world.trainers.len() - count);
        }
        assert!(began.elapsed() < Duration::from_secs(600), "never: {document:?}");
    }
}

/// Whoever computes it is lost, whoever that is: five are, and the sixth does without the record.
#[test]
fn a_record_that_ends_every_trainer_is_named_by_five_of_them_and_left_out() {
    let with_tables = || (0..).find_map(Tables::drawn).map(|tables| tables.without_age());
    let jobs = |mode| {
        [
            (mode, 1, None, false),
            (mode, 3, None, false),
            (mode, 1, with_tables(), false),
            (mode, 2, None, true),
        ]
    };
    for (mode, count, tables, says_so) in MODES.into_iter().flat_map(jobs) {
        in_paused_time(async move {
            let mut stage = Stage::set(Scenario { tables, ..allowing(mode, 1) });
            let record = records_of(&stage.world.job, &stage.world.data, STEP)[4];
            let is_out = |document: &Document| !document.exclusions.list.is_empty();
            let deadly = Deadly { says_so, ..each(&[record]) };
            let (document, lost) = kept_going(&mut stage, count, &deadly, is_out).await;
            let excluded = &document.exclusions.list[0];
            assert_eq!(excluded.records, record..record + 1, "{excluded:?}");
            for words in [
                "trainers were lost while they computed it",
                "while it computed this record alone",
                if says_so { "no memory is left" } else { "it fell silent" },
            ] {
                assert!(excluded.why.contains(words), "{words}: {excluded:?}");
            }
            // Whoever says so is counted at once: the fifth is not replaced yet.
            let least = if says_so { 4 } else { 5 };
            assert!((least..=6).contains(&lost), "{lost} for {mode:?}, {count} at a time: {excluded:?}");
            let evidence = stage.finished().await;
            assert_eq!(evidence.status.as_ref().unwrap().records_excluded, 1);
            assert_eq!(rewinds(&evidence), Some(u64::from(mode == Mode::SYNC)));
        });
    }
}

#[test]
fn a_record_that_ends_every_trainer_ends_a_job_that_may_leave_nothing_out_and_is_named() {
    for mode in MODES {
        in_paused_time(async move {
            let mut stage = Stage::set(allowing(mode, 0));
            let record = records_of(&stage.world.job, &stage.world.data, STEP)[4];
            let has_failed = |document: &Document| document.end.is_some();
            let (document, lost) = kept_going(&mut stage, 2, &each(&[record]), has_failed).await;
            let why = format!("{:?}", document.end.unwrap());
            let of = stage.world.data.manifest().describe(&(record..record + 1));
            assert!(why.contains("Failed") && why.contains(&of) && why.contains("--exclude-max 1"), "{why}");
            assert!(lost <= 6, "{lost}: {why}");
        });
    }
}

/// Two records do no harm but in one batch: memory, say.
#[test]
fn a_microbatch_that_ends_every_trainer_though_none_of_its_records_does_ends_the_job_by_its_name() {
    for mode in MODES {
        in_paused_time(async move {
            let mut stage = Stage::set(allowing(mode, 9));
            let records = &records_of(&stage.world.job, &stage.world.data, STEP)[3..6];
            let has_failed = |document: &Document| document.end.is_some();
            let deadly = Deadly { together: true, ..each(&[records[0], records[2]]) };
            let (document, _) = kept_going(&mut stage, 2, &deadly, has_failed).await;
            let why = format!("{:?}", document.end.unwrap());
            let what = if mode == Mode::SYNC { "of step 2" } else { "the microbatch at position" };
            for words in [what, "each record alone having done no harm", "no single record is to blame"] {
                assert!(why.contains(words), "{words}: {why}");
            }
        });
    }
}

/// Two records of one microbatch end their trainers, and both may be left out.
#[test]
fn of_two_such_records_in_one_microbatch_both_are_left_out() {
    in_paused_time(async {
        let mut stage = Stage::set(allowing(Mode::SYNC, 2));
        let records = records_of(&stage.world.job, &stage.world.data, STEP)[3..5].to_vec();
        let are_out = |document: &Document| document.exclusions.list.len() == 2;
        kept_going(&mut stage, 1, &each(&records), are_out).await;
        let evidence = stage.finished().await;
        assert_eq!(evidence.status.as_ref().unwrap().records_excluded, 2);
        let lost = evidence.lives.iter().filter(|life| matches!(life.end, End::Crashed)).count();
        assert!(lost <= 7, "the second is found at once: {lost}");
    });
}

/// A record ends the trainers of one name only, and each life of it at once: others compute it, and nothing is left out.
#[test]
fn a_record_that_ends_one_trainer_of_three_is_computed_by_another() {
    for (mode, says_so) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        in_paused_time(async move {
            let mut stage = Stage::set(allowing(mode, 0));
            let records = records_of(&stage.world.job, &stage.world.data, STEP);
            let deadly = Deadly { says_so, ..each(&records[..1]) };
            let slow = [stage.trainer("one", millis(40)), stage.trainer("other", millis(40))];
            let mut sick = killed_by(&mut stage, "sick", &deadly);
            let began = Instant::now();
            while slow.iter().all(|number| stage.world.trainers[*number].is_alive()) {
                if !stage.world.trainers[sick].is_alive() {
                    sick = killed_by(&mut stage, "sick", &deadly);
                }
                sleep(millis(20)).await;
                assert!(began.elapsed() < Duration::from_secs(600));
            }
            let evidence = stage.finished().await;
            assert_eq!(evidence.status.as_ref().unwrap().phase, "done");
            assert_eq!(evidence.status.as_ref().unwrap().records_excluded, 0);
        });
    }
}

/// Twenty times whoever has the front is asked to leave, or stands still for longer than it may: that says nothing of its task.
#[test]
fn twenty_that_leave_or_stand_still_say_nothing_of_their_task() {
    for mode in MODES {
        in_paused_time(async move {
            let mut stage = Stage::set(allowing(mode, 0));
            for number in 0..20 {
                let trainer = stage.trainer(&format!("t{number}"), Duration::from_secs(5));
                sleep(Duration::from_secs(1)).await;
                if number % 2 == 0 {
                    stage.world.trainers[trainer].host.pause();
                    sleep(Duration::from_secs(3)).await;
                    stage.world.trainers[trainer].host.resume();
                    sleep(Duration::from_secs(1)).await;
                }
                stage.world.trainers[trainer].ask_to_leave();
                sleep(millis(500)).await;
            }
            let careful = stage.count(|call| {
                use shoal_runtime::wire::proto;
                call.is("last", "master", "Lease") && call.message::<proto::LeaseRequest>().careful > 0
            });
            stage.trainer("last", Duration::ZERO);
            let evidence: Evidence = stage.finished().await;
            assert_eq!((careful.so_far(), evidence.status.as_ref().unwrap().troubles.len()), (0, 0));
        });
    }
}
