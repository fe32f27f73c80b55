//! Directed traces of asynchronous jobs: ledgers, lone restores, the dispatch window, each built by hand out of real roles. The
//! numbers are those of the traces that broke earlier wordings of the rules.

use shoal_master::document::Mark;
use shoal_runtime::cluster::{BlockId, Mode};
use shoal_runtime::wire::proto::{self, PushAnswer};
use shoal_tests::sim::data_set::DataSetShape;
use shoal_tests::sim::hand::Hand;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::stage::{Asked, FIRST, SECOND, Stage, THIRD, all, millis, rewinds};
use shoal_tests::sim::weather::Weather;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::sleep;

/// Twenty microbatches, sixteen of them under way at most.
fn asynchronous(pservers: u32, replicas: u32) -> Scenario {
    let mode = Mode::Async { staleness_window: 16, scale_by_staleness: false };
    Scenario { mode, pservers, replicas, ..Scenario::quiet(7) }
}

/// Pushes a position to all blocks that a pserver leads, until each has said what became of it.
async fn apply(hand: &Hand, stage: &Stage, address: &str, position: u64) -> Vec<PushAnswer> {
    let at = hand.index(address);
    settle(hand, at, hand.position_message(&stage.world, at, position)).await
}

async fn settle(hand: &Hand, at: usize, push: proto::PushRequest) -> Vec<PushAnswer> {
    for _ in 0..50 {
        let answers = hand.send(at, push.clone()).await.unwrap();
        if !answers.contains(&PushAnswer::Held) {
            return answers;
        }
    }
    panic!("position {} is never published", push.position);
}

/// 13: the primary has applied a microbatch, no copy has it; a retry must not be told that it is applied. The primary
/// dies, and the same push is taken in by its heir.
#[test]
fn a_retry_of_what_no_copy_has_is_not_told_that_it_is_applied() {
    in_paused_time(async {
        let mut stage = Stage::set(asynchronous(2, 1));
        let mut hand = stage.hand("hand").await;
        let unfollowed = stage.lose(|call| call.is(SECOND, FIRST, "Follow"));
        unfollowed.on();
        sleep(stage.world.scenario.ttl).await;
        let first = hand.index(FIRST);
        let push = hand.position_message(&stage.world, first, 0);
        let mut answers = Vec::new();
        for _ in 0..2 {
            answers.extend(hand.send(first, push.clone()).await.unwrap());
        }
        stage.replace(FIRST, THIRD).await;
        stage.until("the follower leads", |document| document.led_by(FIRST).is_empty()).await;
        sleep(millis(100)).await;
        hand.look_again().await.unwrap();
        let again = apply(&hand, &stage, SECOND, 0).await;
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        assert!(all(&answers, PushAnswer::Held), "{answers:?}");
        assert!(!again.contains(&PushAnswer::AlreadyApplied), "{again:?}");
        assert_eq!(rewinds(&evidence), Some(0));
    });
}

/// 14: a block says that it has all; it is lost and restored, empty; the late word arrives, and its new primary is not
/// heard for a while. The block's positions are leased all the same.
#[test]
fn a_late_ledger_of_a_block_that_was_restored_since_does_not_count() {
    in_paused_time(async {
        let mut stage = Stage::set(asynchronous(2, 0));
        let mut hand = stage.hand("hand").await;
        let is_full = |call: &shoal_tests::sim::call::Call| {
            let report: proto::ReportRequest = call.message();
            report.progress.iter().any(|group| group.ledger.as_ref().is_some_and(|ledger| ledger.low == 20))
        };
        let mut is_sent = false;
        stage.world.network.intercept(move |call, fate| {
            if call.is(SECOND, "master", "Report") && (is_sent || is_full(call)) {
                *fate =
                    if is_sent { fate.clone().request_lost() } else { fate.clone().delayed(millis(8_000)) };
                is_sent = true;
            }
        });
        let late = stage.count(move |call| call.is(SECOND, "master", "Report") && is_full(call));
        for position in 0..20 {
            apply(&hand, &stage, FIRST, position).await;
            apply(&hand, &stage, SECOND, position).await;
        }
        stage.replace(SECOND, THIRD).await;
        stage.until("the block goes back", |document| document.rewinds == 1).await;
        sleep(millis(1_000)).await;
        stage.lose(|call| call.is(THIRD, "master", "Report")).on();
        assert_eq!(late.so_far(), 0);
        while late.so_far() == 0 {
            sleep(millis(5)).await;
        }
        sleep(millis(50)).await;
        let leased = hand.lease(1).await.unwrap();
        assert_eq!(leased.first().map(|task| task.position), Some(0), "nothing is leased any more");
    });
}

/// What a block that went back has to redo is not known before its new primary is heard: until then the word of the old
/// one is forgotten, and nothing is leased.
#[test]
fn the_word_about_a_block_is_forgotten_when_its_term_changes() {
    in_paused_time(async {
        let mut stage = Stage::set(asynchronous(2, 0));
        let mut hand = stage.hand("hand").await;
        for position in 0..20 {
            apply(&hand, &stage, SECOND, position).await;
        }
        sleep(millis(500)).await;
        assert_eq!(hand.lease(1).await.unwrap()[0].position, 0);
        let unheard = stage.lose(|call| call.is(THIRD, "master", "Report"));
        unheard.on();
        stage.replace(SECOND, THIRD).await;
        stage.until("the block goes back", |document| document.rewinds == 1).await;
        sleep(millis(500)).await;
        let mut other = Hand::join(&stage.world, "other", 2).await.unwrap();
        let early = other.lease(1).await.unwrap();
        unheard.off();
        sleep(millis(1_000)).await;
        let later = other.lease(1).await.unwrap();
        stage.trainer("heir", Duration::ZERO);
        assert_eq!(rewinds(&stage.finished().await), Some(1));
        assert_eq!((early.len(), later.len()), (0, 1), "leased by the word of who is gone: {early:?}");
    });
}

/// 15: a push of the first epoch arrives once more in the second.
#[test]
fn a_late_duplicate_of_a_finished_epoch_is_applied_once() {
    in_paused_time(async {
        let mut stage = Stage::set(Scenario { epochs: 2, ..asynchronous(2, 0) });
        stage.world.network.intercept(|call, fate| {
            if call.is("trainer", FIRST, "Push") && call.number == 1 {
                let again = fate.clone().delayed(millis(3_500)).deliveries;
                fate.deliveries.extend(again);
            }
        });
        let (mut newest, mut first) = (0, None);
        let is_late = stage.count(move |call| {
            if !call.is("trainer", FIRST, "Push") {
                return false;
            }
            let position = call.message::<proto::PushRequest>().position;
            newest = newest.max(position);
            *first.get_or_insert(position) == position && newest >= 20
        });
        stage.trainer("trainer", millis(100));
        stage.finished().await;
        assert_eq!(is_late.so_far(), 1, "it did not come in the second epoch");
    });
}

/// A gradient from before its block went back, alone, is refused: it is to be computed again.
#[test]
fn a_gradient_from_before_a_blocks_restore_is_refused() {
    in_paused_time(async {
        let mut stage = Stage::set(asynchronous(2, 0));
        let mut hand = stage.hand("hand").await;
        let late = hand.position_message(&stage.world, hand.index(FIRST), 3);
        stage.replace(FIRST, THIRD).await;
        stage.until("the blocks go back", |document| document.rewinds == 1).await;
        sleep(millis(500)).await;
        hand.look_again().await.unwrap();
        let here = hand.routing.blocks_of(hand.index(THIRD));
        let blocks = late.blocks.into_iter().filter(|block| here.iter().any(|id| id.0 == block.block));
        let late = proto::PushRequest { blocks: blocks.collect(), ..late };
        let answers = hand.send(hand.index(THIRD), late).await.unwrap();
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        assert!(all(&answers, PushAnswer::Rewound), "{answers:?}");
        assert_eq!(rewinds(&evidence), Some(1));
    });
}

/// An entry with the right version but a divergent past, and one of two followers forwarded: one follower has updates
/// that died with the primary, the other is promoted and makes as many others in their place, then those.
#[test]
fn a_copy_that_has_what_the_heir_has_not_is_filled_anew() {
    in_paused_time(async {
        let mut stage = Stage::set(asynchronous(3, 2));
        let mut hand = stage.hand("hand").await;
        let unfollowed = stage.lose(|call| call.from == SECOND && call.method == "Follow");
        let unheard = stage.lose(|call| call.is(THIRD, "master", "Report"));
        let apart = stage.lose(|call| call.is(THIRD, SECOND, "Follow"));
        [&unfollowed, &unheard, &apart].iter().for_each(|switch| switch.on());
        sleep(stage.world.scenario.ttl).await;
        let has_it = stage.count(|call| {
            let follow = || call.message::<proto::FollowRequest>();
            call.is(THIRD, FIRST, "Follow")
                && follow().blocks.iter().any(|group| group.name.is_some_and(|name| name.version == 6))
        });
        let first = hand.index(FIRST);
        let led = hand.routing.blocks_of(first);
        for position in 0..6 {
            let held = hand.send(first, hand.position_message(&stage.world, first, position)).await.unwrap();
            assert!(all(&held, PushAnswer::Held), "{held:?}");
        }
        assert!(has_it.so_far() >= 1);
        stage.host(FIRST).crash();
        stage.until("another leads", |document| document.led_by(FIRST).is_empty()).await;
        sleep(millis(200)).await;
        hand.look_again().await.unwrap();
        // Some of them may have moved on to the follower that is further: nothing is divergent there.
        let here = hand.routing.blocks_of(hand.index(SECOND));
        let led: Vec<BlockId> = led.into_iter().filter(|id| here.contains(id)).collect();
        assert!(!led.is_empty(), "the one that is further leads all");
        let second = hand.index(SECOND);
        let of_led = |hand: &Hand, position| {
            let message = hand.position_message(&stage.world, hand.index(SECOND), position);
            let blocks = message.blocks.into_iter().filter(|block| led.iter().any(|id| id.0 == block.block));
            proto::PushRequest { blocks: blocks.collect(), ..message }
        };
        for position in 6..12 {
            let held = hand.send(second, of_led(&hand, position)).await.unwrap();
            assert!(all(&held, PushAnswer::Held), "{held:?}");
        }
        [&unfollowed, &unheard, &apart].iter().for_each(|switch| switch.off());
        let mut answers = Vec::new();
        for position in 0..12 {
            answers.extend(settle(&hand, second, of_led(&hand, position)).await);
        }
        stage
            .until("the other is in-sync again", |document| {
                document.marks_at(THIRD).iter().all(|mark| *mark == Mark::InSync)
            })
            .await;
        stage.replace(SECOND, "pserver-4").await;
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        let (again, anew) = (PushAnswer::AlreadyApplied, PushAnswer::Applied);
        assert!(answers.iter().all(|answer| [again, anew].contains(answer)), "{answers:?}");
        assert_eq!(rewinds(&evidence), Some(0));
    });
}

/// Staleness is bounded by dispatch: while the first position is under way nobody works beyond the window.
#[test]
fn nothing_beyond_the_window_is_leased() {
    in_paused_time(async {
        let mode = Mode::Async { staleness_window: 8, scale_by_staleness: false };
        let mut stage = Stage::set(Scenario { mode, ..asynchronous(1, 0) });
        let mut hand = stage.hand("hand").await;
        assert_eq!(hand.lease(1).await.unwrap()[0].position, 0);
        let furthest = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&furthest);
        stage.world.network.witness(move |call| {
            if call.is("eager", FIRST, "Push") {
                seen.fetch_max(call.message::<proto::PushRequest>().position, Relaxed);
            }
        });
        stage.trainer("eager", Duration::ZERO);
        sleep(millis(1_500)).await;
        assert_eq!(furthest.load(Relaxed), 7);
        stage.finished().await;
    });
}

/// A block goes back while the front is under way: what it has to redo beyond the front is leased at once, and not only
/// when the front's lease is over.
#[test]
fn what_a_block_lacks_again_beyond_the_front_is_leased_again_at_once() {
    in_paused_time(async {
        // A broken connection is noticed at once.
        let weather = Weather { cancels: true, ..Weather::fair() };
        let ttl = Duration::from_secs(20);
        let mut stage = Stage::set(Scenario { ttl, weather, ..asynchronous(2, 0) });
        let mut hand = stage.hand("hand").await;
        let front = hand.lease(1).await.unwrap().remove(0);
        assert_eq!(front.position, 0);
        stage.trainer("eager", Duration::ZERO);
        sleep(ttl * 3 / 4).await;
        // The front stays under its lease for long; what is pushed beyond it is under none any more.
        let computed = proto::Progress { lease: front.lease, microbatches: 1, pushed: false, waits: false };
        hand.say(1, vec![computed]).await.unwrap();
        sleep(ttl / 2).await;
        let redone = stage.count(|call| call.is("eager", THIRD, "Push"));
        stage.replace(SECOND, THIRD).await;
        stage.until("the block goes back", |document| document.rewinds == 1).await;
        sleep(ttl / 8).await;
        assert!(redone.so_far() >= 15, "{} are redone", redone.so_far());
        assert_eq!(rewinds(&stage.finished().await), Some(1));
    });
}

/// A trainer ten times slower than three others has its share: what it computes is applied and not late. Nor does it hold
/// the others up: its runs are as short as it is slow.
#[test]
fn a_trainer_ten_times_slower_than_three_others_does_not_starve() {
    in_paused_time(async {
        let mode = Mode::Async { staleness_window: 64, scale_by_staleness: false };
        let data = DataSetShape { records: 240, ..Scenario::quiet(7).data };
        let mut stage = Stage::set(Scenario { data, mode, epochs: 6, ..asynchronous(2, 0) });
        stage.trainer("slow", millis(200));
        for name in ["fast-1", "fast-2", "fast-3"] {
            stage.trainer(name, millis(20));
        }
        let evidence = stage.finished().await;
        let status = evidence.status.as_ref().unwrap();
        let slow = status.trainers.iter().find(|trainer| trainer.name == "slow").unwrap();
        // By pace it has one of 31, and there are 480.
        let computed = slow.counters.unwrap().microbatches;
        assert!(computed >= 8, "{computed} microbatches in {:?}", evidence.lasted);
        assert!(evidence.lasted < Duration::from_secs(8), "{:?}", evidence.lasted);
        assert_eq!(evidence.coverage.count_of("late pushes"), 0);
        assert_eq!(evidence.coverage.count_of("leases given again"), 0);
    });
}
