//! Evaluations where something goes back, or records cannot be used, each built by hand out of real roles. That all bits are
//! those of the definition is checked at the end of each.

use shoal_runtime::cluster::{Mode, Period, Step};
use shoal_tests::sim::evaluated::Evaluations;
use shoal_tests::sim::reference::records_of;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::spoiled::Poisoned;
use shoal_tests::sim::stage::{Stage, millis, rewinds};
use shoal_trainer_sdk::Target;
use std::time::Duration;

/// Ten steps, evaluated after every two.
fn evaluating(target: Option<Target>) -> Scenario {
    let evaluations = Some(Evaluations { records: 20, every: Period::Steps(2), target });
    Scenario { epochs: 2, evaluations, ..Scenario::quiet(7) }
}

fn poisoned(stage: &mut Stage, name: &str, records: Vec<u64>, evaluated: Option<u64>) {
    let model = Poisoned { program: stage.world.scenario.program(), records, evaluated, panics: false };
    stage.world.start_trainer_with(name, Duration::ZERO, model);
}

/// Two evaluations are judged when the only pserver is lost: the job begins anew. Then a record of its first step is left
/// out: what was judged is of a history that is no more.
#[test]
fn evaluations_of_a_history_with_a_record_that_is_left_out_are_made_again() {
    in_paused_time(async {
        let mut stage = Stage::set(Scenario { exclude_max: 1, ..evaluating(None) });
        let well = stage.trainer("well", millis(20));
        let before = stage.until("two are judged", |document| document.evaluations.len() == 2).await;
        stage.world.trainers[well].host.crash();
        let poison = records_of(&stage.world.job, &stage.world.data, Step(0))[5];
        stage.replace("pserver-1", "pserver-2").await;
        for name in ["a", "b", "c"] {
            poisoned(&mut stage, name, vec![poison], None);
        }
        let left_out = stage.until("it is left out", |document| !document.exclusions.list.is_empty()).await;
        assert_eq!(left_out.exclusions.list[0].from, Step(0));
        assert_eq!(left_out.evaluations.len(), 0, "{:?}", before.evaluations);
        let evidence = stage.finished().await;
        assert_eq!((evidence.evaluations().len(), rewinds(&evidence)), (5, Some(2)));
    });
}

/// The same loss without a record left out: what was judged stays, and is found again by the same steps.
#[test]
fn evaluations_that_a_job_goes_back_beyond_stay_judged() {
    in_paused_time(async {
        let mut stage = Stage::set(evaluating(Some(Target { stop_after: Some(9), ..Target::default() })));
        stage.trainer("a", millis(5));
        let before = stage.until("three are judged", |document| document.evaluations.len() == 3).await;
        stage.replace("pserver-1", "pserver-2").await;
        let after = stage.until("it is restored", |document| document.rewinds == 1).await;
        assert!(after.evaluations.starts_with(&before.evaluations));
        stage.finished().await;
    });
}

/// A record of the evaluated data that nobody can use: the evaluation that meets it first, and all after it, do without.
#[test]
fn an_evaluated_record_that_nobody_can_use_is_left_out_of_evaluations() {
    for mode in [Mode::SYNC, Mode::Async { staleness_window: 8, scale_by_staleness: false }] {
        in_paused_time(async {
            let mut stage = Stage::set(Scenario { exclude_max: 1, mode, pservers: 2, ..evaluating(None) });
            for name in ["a", "b", "c"] {
                poisoned(&mut stage, name, Vec::new(), Some(11));
            }
            stage.until("it is left out", |document| !document.exclusions.list.is_empty()).await;
            let evidence = stage.finished().await;
            let status = evidence.status.as_ref().unwrap();
            // The 12th of the evaluated ones.
            let trouble = &status.troubles[0];
            let first = evidence.scenario.data.records + 11;
            assert_eq!(trouble.records.as_ref().map(|records| records.first), Some(first));
            assert!(trouble.what.contains("evaluated.recordio"), "{trouble:?}");
            assert_eq!((evidence.evaluations().len(), status.records_excluded), (5, 1));
        });
    }
}

/// A pserver is lost with the sums of an evaluation before the master has judged it: they are made again by the others.
#[test]
fn sums_that_are_lost_before_they_are_judged_are_made_again() {
    in_paused_time(async {
        let mut stage = Stage::set(Scenario { pservers: 3, replicas: 1, ..evaluating(None) });
        for name in ["a", "b"] {
            stage.trainer(name, millis(10));
        }
        stage.until("one is judged", |document| document.evaluations.len() == 1).await;
        // Nobody hears what the next one comes to.
        let silence = stage.lose(|call| call.method == "Report" && call.from == "pserver-1");
        silence.on();
        tokio::time::sleep(millis(300)).await;
        stage.replace("pserver-1", "pserver-4").await;
        silence.off();
        let evidence = stage.finished().await;
        assert_eq!((evidence.evaluations().len(), rewinds(&evidence)), (5, Some(0)));
    });
}
