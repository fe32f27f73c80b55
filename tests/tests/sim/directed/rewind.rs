//! Directed traces of rewinds and checkpoints, each built by hand out of real roles. The numbers are those of the traces that
//! broke earlier wordings of the rules.

use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use shoal_runtime::host::storage::Storage;
use shoal_runtime::host::store::MemoryStore;
use shoal_runtime::wire::proto::{self, PushAnswer};
use shoal_tests::sim::call::Call;
use shoal_tests::sim::evidence::End;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::stage::{Asked, FIRST, ROOT, SECOND, Stage, THIRD, all, millis, rewinds};
use shoal_tests::sim::world::World;
use shoal_trainer_sdk::Ended;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

const FOURTH: &str = "pserver-4";

/// 1: A and B at 1, a push for step 1 to B in the net; A's pserver dies without a copy, the job goes back to 0; step 0 is
/// redone on B only and its trainer dies; the late push comes to B.
#[test]
fn a_push_from_before_a_rewind_changes_nothing_after_it() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 0);
        let mut hand = stage.hand("hand").await;
        hand.do_step(&stage.world, 0).await.unwrap();
        let late = hand.message(&stage.world, hand.index(SECOND), 1, ROOT);
        stage.replace(FIRST, THIRD).await;
        stage.until("the job goes back", |document| document.rewinds == 1).await;
        hand.look_again().await.unwrap();
        sleep(millis(500)).await;
        let second = hand.index(SECOND);
        hand.push_until_applied(&stage.world, second, 0, ROOT).await.unwrap();
        let answers = hand.send(second, late).await.unwrap();
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        assert!(all(&answers, PushAnswer::Rewound), "{answers:?}");
        assert_eq!(rewinds(&evidence), Some(1));
    });
}

/// 1, the second form: B has not heard that the job goes back and is still at 1; who asks it in the new history must not
/// run ahead of what B will be restored to.
#[test]
fn a_block_that_is_still_to_be_restored_has_published_nothing() {
    in_paused_time(async {
        let mut stage = Stage::quiet(3, 0);
        let mut hand = stage.hand("hand").await;
        hand.do_step(&stage.world, 0).await.unwrap();
        stage.deafen(SECOND);
        stage.replace(FIRST, FOURTH).await;
        let document = stage.until("the job goes back", |document| document.rewinds == 1).await;
        hand.look_again().await.unwrap();
        let (second, third) = (hand.index(SECOND), hand.index(THIRD));
        // A trainer begins a step when every block has published it.
        let mut was_there = Vec::new();
        for step in [0, 1] {
            hand.push_until_applied(&stage.world, third, step, ROOT).await.unwrap();
            let pull = proto::PullRequest {
                job: "sim".into(),
                incarnation: hand.incarnation,
                step: step + 1,
                rewind: document.rewind().0,
                without_data: hand.routing.blocks_of(second).iter().map(|block| block.0).collect(),
                ..Default::default()
            };
            let reply = hand.pserver(second).pull(pull).await.unwrap().into_inner();
            was_there.push(!reply.blocks.is_empty());
            if reply.blocks.is_empty() {
                break;
            }
        }
        stage.undeafen(SECOND);
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        assert_eq!((was_there, rewinds(&evidence)), (vec![false], Some(1)));
    });
}

/// 7: the job goes back because one block is lost with its copies; another block's restored primary dies before its
/// follower, which is further than that, is filled again.
#[test]
fn a_follower_of_the_old_history_is_not_promoted_in_the_new_one() {
    in_paused_time(async {
        // Few blocks, so that none that its primary leads is lost with others.
        let scenario = Scenario { pservers: 4, replicas: 1, block_elements: 0, ..Scenario::quiet(7) };
        let mut stage = Stage::set(scenario);
        let hand = stage.hand("hand").await;
        hand.do_step(&stage.world, 0).await.unwrap();
        let document = stage.document().await;
        // Two that are all of some block, and two that are all of another.
        let address = |who| document.pservers[&who].address.clone();
        let holders = |at: usize| {
            let copies = document.blocks[at].copies.iter().map(|copy| copy.pserver).collect::<Vec<_>>();
            (copies[0], copies[1])
        };
        let pairs = (0..document.blocks.len())
            .flat_map(|lost| (0..document.blocks.len()).map(move |kept| (holders(lost), holders(kept))));
        let mut pairs = pairs.filter(|((a, b), (c, d))| a != c && a != d && b != c && b != d);
        let ((one, two), (primary, follower)) = pairs.next().expect("two blocks without a pserver in common");
        let [one, two, primary, follower] = [one, two, primary, follower].map(address);
        // From now on nothing is filled at that follower.
        let unfollowed = stage.lose(move |call| call.method == "Follow");
        unfollowed.on();
        stage.replace(&one, "pserver-5").await;
        stage.replace(&two, "pserver-6").await;
        stage.until("the job goes back", |document| document.rewinds == 1).await;
        sleep(millis(500)).await;
        assert!(!stage.document().await.led_by(&primary).is_empty());
        assert!(stage.document().await.at(&follower).is_some());
        stage.replace(&primary, "pserver-7").await;
        stage.until("the restored primary is gone", |document| document.at(&primary).is_none()).await;
        unfollowed.off();
        stage.trainer("heir", Duration::ZERO);
        assert_eq!(rewinds(&stage.finished().await), Some(2));
    });
}

/// 9, and a kill in mid-rewind: a pserver is lost while the job goes back; the other blocks have moved on two steps since,
/// of which the master has not heard.
#[test]
fn a_loss_while_the_job_goes_back_restores_all_blocks_again() {
    in_paused_time(async {
        let mut stage = Stage::quiet(3, 0);
        let mut hand = stage.hand("hand").await;
        hand.do_step(&stage.world, 0).await.unwrap();
        let unheard = stage.lose(|call| call.method == "Report");
        unheard.on();
        stage.replace(FIRST, FOURTH).await;
        stage.until("the job goes back", |document| document.rewinds == 1).await;
        hand.look_again().await.unwrap();
        sleep(millis(500)).await;
        hand.do_step(&stage.world, 0).await.unwrap();
        hand.do_step(&stage.world, 1).await.unwrap();
        assert_eq!(stage.observer.status().await.unwrap().step, 0);
        stage.replace(SECOND, "pserver-5").await;
        stage.until("the job goes back again", |document| document.rewinds == 2).await;
        unheard.off();
        stage.trainer("heir", Duration::ZERO);
        assert_eq!(rewinds(&stage.finished().await), Some(2));
    });
}

/// 10: a checkpoint is named, and a pserver hears of it when its blocks are past it; the pieces never come.
#[test]
fn a_checkpoint_that_some_block_has_passed_is_given_up_and_another_is_named() {
    in_paused_time(async {
        let scenario = Scenario { pservers: 2, checkpoint_steps: 1, ..Scenario::quiet(7) };
        let mut stage = Stage::set(scenario);
        let has_passed = stage.count(|call| {
            call.is(FIRST, "master", "Report") && !call.message::<proto::ReportRequest>().passed.is_empty()
        });
        let hand = stage.hand("hand").await;
        stage.deafen(FIRST);
        hand.do_step(&stage.world, 0).await.unwrap();
        let named =
            stage.until("a checkpoint is named", |document| document.named.is_some()).await.named.unwrap();
        for step in 1..=named.version.0 {
            hand.do_step(&stage.world, step).await.unwrap();
        }
        stage.undeafen(FIRST);
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        assert!(has_passed.so_far() >= 1, "it came in time");
        assert_eq!(rewinds(&evidence), Some(0));
    });
}

/// 20, without exclusions: the manifest of a checkpoint takes long to write; meanwhile the job goes back. What becomes
/// durable then is of a history that is no more: it does not count, and is removed again.
#[test]
fn a_manifest_of_an_old_history_does_not_count() {
    in_paused_time(async {
        let scenario = Scenario { pservers: 2, checkpoint_steps: 2, ..Scenario::quiet(7) };
        let slow = Arc::new(ThrottledStore::new(InMemory::new(), ThrottleConfig::default()));
        let storage = Storage::over(slow.clone(), "memory");
        let mut stage = Stage::of(World::start_over(scenario, MemoryStore::new(), storage.clone(), true));
        let is_written = |call: &Call| {
            call.is(FIRST, "master", "Report") && !call.message::<proto::ReportRequest>().written.is_empty()
        };
        let (unwritten, written) = (stage.lose(is_written), stage.count(is_written));
        unwritten.on();
        let hand = stage.hand("hand").await;
        hand.do_step(&stage.world, 0).await.unwrap();
        hand.do_step(&stage.world, 1).await.unwrap();
        let named =
            stage.until("a checkpoint is named", |document| document.named.is_some()).await.named.unwrap();
        for step in 2..named.version.0 {
            hand.do_step(&stage.world, step).await.unwrap();
        }
        sleep(millis(500)).await;
        // All pieces are written. From here on the manifest takes longer than it takes to find that a pserver is lost.
        slow.config_mut(|config| config.wait_put_per_call = Duration::from_secs(20));
        unwritten.off();
        sleep(Duration::from_secs(2)).await;
        assert!(written.so_far() >= 1 && stage.document().await.named == Some(named));
        stage.host(FIRST).crash();
        sleep(Duration::from_secs(3)).await;
        assert_eq!(stage.document().await.rewinds, 1, "nothing that is decided waits for the manifest");
        let manifest = named.checkpoint.manifest_object();
        assert!(storage.bytes_of(&manifest).await.is_err(), "it is not written yet");
        sleep(Duration::from_secs(20)).await;
        slow.config_mut(|config| *config = ThrottleConfig::default());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(stage.document().await.checkpoints, [], "a checkpoint of the old history is kept");
        assert_eq!(storage.folders().await.unwrap(), Vec::<String>::new(), "its files are still there");
        stage.world.start_pserver(THIRD);
        stage.trainer("heir", Duration::ZERO);
        assert_eq!(rewinds(&stage.finished().await), Some(1));
    });
}

/// Death after the last task and before the final checkpoint: all steps are done, and a pserver is lost with what it
/// has not written yet. Its trainer is still there to redo it.
#[test]
fn trainers_stay_until_the_final_checkpoint_is_durable() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 0);
        let unwritten = stage.lose(|call| {
            call.is(FIRST, "master", "Report") && !call.message::<proto::ReportRequest>().written.is_empty()
        });
        unwritten.on();
        let only = stage.trainer("only", Duration::ZERO);
        stage.until_status("all steps are done", |status| status.step == status.steps).await;
        sleep(millis(3_000)).await;
        assert_eq!(stage.observer.status().await.unwrap().phase, "training");
        stage.replace(FIRST, THIRD).await;
        unwritten.off();
        let evidence = stage.finished().await;
        assert!(matches!(evidence.lives[only].end, End::Well(Ended::JobDone)));
        assert_eq!(rewinds(&evidence), Some(1));
    });
}
