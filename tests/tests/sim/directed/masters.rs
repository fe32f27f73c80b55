//! Directed traces of masters: one is killed, or another leads, between what it has written and what it tells. Each is built
//! by hand out of real roles; the numbers are those of the traces that broke earlier wordings of the rules.

use shoal_runtime::host::store::{MemoryStore, SwapFault};
use shoal_tests::sim::host::HostState;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::stage::{FIRST, SECOND, Stage, THIRD, millis, rewinds};
use shoal_tests::sim::world::World;
use std::time::Duration;
use tokio::time::sleep;

/// A kill in mid-rewind, of the master: the rewind is written and told to nobody. Whoever leads next finishes it.
#[test]
fn a_rewind_that_was_told_to_nobody_is_finished_by_the_next_master() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 0);
        let hand = stage.hand("hand").await;
        hand.do_step(&stage.world, 0).await.unwrap();
        stage.world.start_pserver(THIRD);
        sleep(millis(100)).await;
        [SECOND, THIRD].iter().for_each(|pserver| stage.deafen(pserver));
        stage.host(FIRST).crash();
        let document = stage.until("the job goes back", |document| document.rewinds == 1).await;
        stage.world.masters[0].crash();
        stage.world.network.mend_all();
        stage.world.start_master();
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        assert_eq!((document.master_term, evidence.status.as_ref().unwrap().master_term), (1, 2));
        assert_eq!(rewinds(&evidence), Some(1));
    });
}

/// A master deposed in mid-instruction: it has decided a promotion and cannot write it any more; nobody may hear of it. The
/// next master decides for itself.
#[test]
fn what_a_deposed_master_decides_and_cannot_write_is_told_to_nobody() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 1);
        let hand = stage.hand("hand").await;
        hand.do_step(&stage.world, 0).await.unwrap();
        let before = stage.document().await;
        // Nothing that it writes arrives, and it does not learn that.
        (0..100).for_each(|_| stage.world.stores[0].fail_next_swap(SwapFault::NotApplied));
        stage.host(FIRST).crash();
        stage
            .until_status("the master knows that it is lost", |status| {
                status.pservers.iter().any(|pserver| pserver.name == FIRST && pserver.lost)
            })
            .await;
        sleep(millis(500)).await;
        assert_eq!(stage.document().await.routing_version, before.routing_version);
        let told = stage.observer.status().await.unwrap().routing.unwrap().version;
        stage.world.stores[0].depose();
        stage.world.start_master();
        stage.until("another leads", |document| document.master_term == 2).await;
        stage.world.masters[0].crash();
        stage.world.start_pserver(THIRD);
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        assert_eq!(told, before.routing_version, "told before it was written");
        assert_eq!(rewinds(&evidence), Some(0));
    });
}

/// 21: a master names a checkpoint and is deposed before that is written; the next one gives the same number to a
/// checkpoint at another version. Nobody may have heard of the first.
#[test]
fn a_checkpoint_that_a_deposed_master_named_and_could_not_write_does_not_exist() {
    in_paused_time(async {
        let scenario = Scenario { pservers: 2, checkpoint_steps: 2, ..Scenario::quiet(7) };
        let mut stage = Stage::set(scenario);
        let hand = stage.hand("hand").await;
        hand.do_step(&stage.world, 0).await.unwrap();
        sleep(millis(500)).await;
        (0..100).for_each(|_| stage.world.stores[0].fail_next_swap(SwapFault::NotApplied));
        hand.do_step(&stage.world, 1).await.unwrap();
        stage.until_status("a checkpoint is due", |status| status.step == 2).await;
        sleep(millis(500)).await;
        assert_eq!(stage.document().await.checkpoints_named, 0, "it was written");
        hand.do_step(&stage.world, 2).await.unwrap();
        sleep(millis(500)).await;
        stage.world.masters[0].pause();
        stage.world.stores[0].depose();
        stage.world.start_master();
        let document = stage.until("the next names one", |document| document.named.is_some()).await;
        stage.world.masters[0].resume();
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        let named = document.named.unwrap();
        assert_eq!((document.master_term, named.checkpoint.0, named.version.0), (2, 1, 5));
        assert_eq!(rewinds(&evidence), Some(0));
    });
}

/// A late duplicate meets a pserver that was started again: the older life registers once more, after the newer one
/// has its name and its blocks.
#[test]
fn a_late_registration_of_an_older_life_does_not_end_the_newer_one() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 0);
        let late = stage.count(|call| call.is(FIRST, "master", "Register"));
        stage.world.network.intercept(|call, fate| {
            if call.is(FIRST, "master", "Register") && call.number == 1 {
                let again = fate.clone().delayed(millis(5_000)).deliveries;
                fate.deliveries.extend(again);
            }
        });
        let hand = stage.hand("hand").await;
        hand.do_step(&stage.world, 0).await.unwrap();
        stage.replace(FIRST, FIRST).await;
        stage.until("the job goes back", |document| document.rewinds == 1).await;
        assert_eq!(late.so_far(), 1);
        sleep(millis(5_000)).await;
        assert_eq!(late.so_far(), 2);
        stage.trainer("heir", Duration::ZERO);
        assert_eq!(rewinds(&stage.finished().await), Some(1));
    });
}

/// Two masters started by hand, each with a store of its own, both with the default name, over one place: the second is refused before it
/// names a checkpoint, so that none of the first is removed.
#[test]
fn of_two_masters_of_one_name_over_one_place_the_second_ends_and_no_checkpoint_is_lost() {
    in_paused_time(async {
        let scenario = |seed| Scenario { checkpoint_steps: 1, ..Scenario::quiet(seed) };
        let mut stage = Stage::set(scenario(7));
        let storage = stage.world.storage.clone();
        let began = stage.until("the first has begun", |document| document.has_begun()).await;
        let mut other = World::start_over(scenario(8), MemoryStore::new(), storage.clone(), true);
        other.start_trainer("other");
        sleep(Duration::from_secs(2)).await;
        assert_eq!(other.masters[0].state(), HostState::Crashed, "it has given up");
        let lines = other.network.trace().lines().join("\n");
        let whose = format!("is the place of sim (identity {})", began.identity.unwrap());
        assert!(lines.contains(&whose), "{lines}");
        assert!(other.history.documents().iter().all(|document| !document.has_begun()));
        stage.trainer("only", millis(5));
        let place = stage.world.place.clone().unwrap();
        let evidence = stage.finished().await;
        let last = evidence.history.documents().last().cloned().unwrap();
        assert!(last.checkpoints_named >= 2, "{}", last.checkpoints_named);
        let objects = place.objects().await;
        for kept in &last.checkpoints {
            let manifest = kept.record.checkpoint.manifest_object();
            assert!(objects.contains_key(&manifest), "{manifest} is gone");
        }
    });
}
