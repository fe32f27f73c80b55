//! Directed traces of copies: skew, fills, admissions and promotions, each built by hand out of real roles. The numbers are
//! those of the traces that broke earlier wordings of the rules.

use shoal_master::document::Mark;
use shoal_runtime::wire::proto::{self, PushAnswer};
use shoal_tests::sim::call::Call;
use shoal_tests::sim::hand::Hand;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::stage::{Asked, Count, FIRST, ROOT, SECOND, Stage, THIRD, millis, rewinds};
use std::time::Duration;
use tokio::time::sleep;

/// Some blocks have it, and none says that it is applied.
fn is_withheld(answers: &[PushAnswer]) -> bool {
    answers.contains(&PushAnswer::Held) && !answers.contains(&PushAnswer::Applied)
}

/// Pushes the root of a step once to all blocks that a pserver leads, whatever it answers.
async fn push_once(hand: &Hand, stage: &Stage, address: &str, step: u64) -> Vec<PushAnswer> {
    let at = hand.index(address);
    let mut pserver = hand.pserver(at);
    let reply = pserver.push(hand.message(&stage.world, at, step, ROOT)).await.unwrap();
    reply.into_inner().answers().collect()
}

/// 2, and skew between t and t + 1: B is at 1, A at 0, the trainer dies, then B's primary. Whoever redoes step 0 reads
/// it from B's follower.
#[test]
fn a_step_is_redone_though_the_primary_that_was_ahead_is_lost() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 1);
        let hand = stage.hand("dead").await;
        hand.push_until_applied(&stage.world, hand.index(SECOND), 0, ROOT).await.unwrap();
        stage.replace(SECOND, THIRD).await;
        stage
            .until("the follower leads", |document| {
                !document.led_by(FIRST).is_empty() && document.led_by(SECOND).is_empty()
            })
            .await;
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        assert_eq!(rewinds(&evidence), Some(0));
        assert!(evidence.coverage.count_of("late pushes") >= 1, "nobody redid the step where it was done");
    });
}

/// 2, by migration: B is at 1, A at 0, B's primary hands over to a copy that was filled since.
#[test]
fn a_step_is_redone_though_the_primary_that_was_ahead_has_moved() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 0);
        let hand = stage.hand("dead").await;
        hand.push_until_applied(&stage.world, hand.index(SECOND), 0, ROOT).await.unwrap();
        stage.world.start_pserver(THIRD);
        let drain = proto::DrainRequest { job: "sim".into(), pserver: SECOND.into(), replace: true };
        hand.master().drain(drain).await.unwrap();
        stage.until("it is empty", |document| document.at(SECOND).is_none()).await;
        stage.host(SECOND).crash();
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        assert_eq!(rewinds(&evidence), Some(0));
        assert!(evidence.coverage.count_of("late pushes") >= 1, "nobody redid the step where it was done");
    });
}

/// 3: A is at 1, b at 0; a trainer asks whether step 1 is there, and meanwhile b moves to a third pserver. The one
/// that b has left has nothing more that is behind.
#[test]
fn a_step_does_not_begin_because_the_block_behind_is_on_its_way() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 0);
        let mut hand = stage.hand("hand").await;
        assert_eq!(hand.lease(1).await.unwrap()[0].step, 0);
        hand.push_until_applied(&stage.world, hand.index(FIRST), 0, ROOT).await.unwrap();
        let asked = |address: &'static str| {
            stage.count(move |call| {
                call.is("eager", address, "Pull") && call.message::<proto::PullRequest>().step == 1
            })
        };
        let (before, after) = (asked(SECOND), asked(THIRD));
        stage.trainer("eager", Duration::ZERO);
        sleep(millis(200)).await;
        assert!(before.so_far() >= 1, "nobody has asked for step 1");
        stage.world.start_pserver(THIRD);
        let drain = proto::DrainRequest { job: "sim".into(), pserver: SECOND.into(), replace: true };
        hand.master().drain(drain).await.unwrap();
        stage.until("it is empty", |document| document.at(SECOND).is_none()).await;
        sleep(millis(200)).await;
        assert!(after.so_far() >= 1, "nobody has asked the third for step 1");
        assert!(stage.observer.status().await.unwrap().step == 0);
        stage.finished().await;
    });
}

/// 4: a follower is taken out and added again, empty; its primary hears only of the newest. What the follower had said
/// under its old fill makes nobody think that it is level; so when the primary is lost the job goes back.
#[test]
fn what_a_copy_has_said_under_an_older_fill_does_not_make_it_level() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 1);
        let mut hand = stage.hand("hand").await;
        hand.do_step(&stage.world, 0).await.unwrap();
        // The primary hears nothing any more; the follower is not heard by anybody.
        stage.deafen(FIRST);
        stage.world.network.cut(SECOND, "master");
        stage.world.network.cut(SECOND, FIRST);
        stage.until("the follower is out", |document| document.at(SECOND).is_none()).await;
        stage.world.network.mend(SECOND, "master");
        stage
            .until("it is in again", |document| document.marks_at(SECOND).len() == document.blocks.len())
            .await;
        stage.undeafen(FIRST);
        sleep(stage.world.scenario.ttl * 2).await;
        let document = stage.document().await;
        assert!(
            document.marks_at(SECOND).iter().all(|mark| *mark == Mark::Filling),
            "an empty copy is in-sync"
        );
        stage.replace(FIRST, THIRD).await;
        stage.world.network.mend(SECOND, FIRST);
        stage.trainer("heir", Duration::ZERO);
        hand.look_again().await.unwrap();
        assert_eq!(rewinds(&stage.finished().await), Some(1));
    });
}

/// Pushes the root of step 0 to `primary`, which must not say that it is applied. Were that said, a trainer would go on
/// where it can: `other`'s blocks would come to step 2 and let go of what step 0 reads.
async fn push_what_must_not_count(hand: &Hand, stage: &Stage, primary: &str, other: &str) -> Vec<PushAnswer> {
    let others = hand.routing.blocks_of(hand.index(other));
    let answers = push_once(hand, stage, primary, 0).await;
    if answers.contains(&PushAnswer::Applied) {
        let mut hand = Hand::join(&stage.world, "misled", 2).await.unwrap();
        hand.look_again().await.unwrap();
        for step in [0, 1] {
            let at = hand.index(other);
            let mut message = hand.message(&stage.world, at, step, ROOT);
            message.blocks.retain(|block| others.iter().any(|other| other.0 == block.block));
            for _ in 0..20 {
                hand.send(at, message.clone()).await.unwrap();
                sleep(millis(20)).await;
            }
        }
    }
    answers
}

/// 5: a primary's word that its follower is level arrives after the follower was taken out and added again, empty.
#[test]
fn a_late_admission_does_not_admit_a_copy_that_was_added_since() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 1);
        let sent = delay_admissions(&stage, millis(9_000));
        let arrived = stage.count(|call| call.is(FIRST, "master", "Report") && is_admission(call));
        let _hand = Hand::join(&stage.world, "hand", 1).await.unwrap();
        let asked_for = stage.until("the other's copies are in-sync", |document| {
            document
                .blocks
                .iter()
                .all(|block| document.at(SECOND) != Some(block.primary) || block.in_sync().count() == 2)
        });
        asked_for.await;
        while sent.so_far() == 0 {
            sleep(millis(5)).await;
        }
        stage.world.network.cut(SECOND, "master");
        stage.world.network.cut(SECOND, FIRST);
        stage.until("the follower is out", |document| document.at(SECOND).is_none()).await;
        stage.world.network.mend(SECOND, "master");
        stage
            .until("it is in again", |document| document.marks_at(SECOND).len() == document.blocks.len())
            .await;
        assert_eq!(arrived.so_far(), 0);
        sleep(millis(9_000)).await;
        assert_eq!(arrived.so_far(), 1);
        let document = stage.document().await;
        assert!(
            document.marks_at(SECOND).iter().all(|mark| *mark == Mark::Filling),
            "an empty copy is in-sync"
        );
        stage.replace(FIRST, THIRD).await;
        stage.world.network.mend(SECOND, FIRST);
        stage.trainer("heir", Duration::ZERO);
        assert_eq!(rewinds(&stage.finished().await), Some(1));
    });
}

/// 5, the other way: the word arrives after another copy was promoted, for which nobody has said that it is level.
#[test]
fn a_late_admission_does_not_admit_a_copy_under_another_primary() {
    in_paused_time(async {
        let mut stage = Stage::quiet(3, 2);
        let unfollowed = stage.lose(|call| call.from == THIRD && call.method == "Follow");
        unfollowed.on();
        let _hand = Hand::join(&stage.world, "hand", 1).await.unwrap();
        let document = stage
            .until("the second is in-sync", |document| {
                let marks = document.marks_at(SECOND);
                !marks.is_empty() && marks.iter().all(|mark| *mark == Mark::InSync)
            })
            .await;
        let led = document.led_by(FIRST);
        let sent = delay_admissions(&stage, millis(9_000));
        let arrived = stage.count(|call| call.is(FIRST, "master", "Report") && is_admission(call));
        unfollowed.off();
        while sent.so_far() == 0 {
            sleep(millis(5)).await;
        }
        unfollowed.on();
        stage.host(FIRST).crash();
        stage.until("the second leads", |document| document.led_by(FIRST).is_empty()).await;
        sleep(millis(9_000)).await;
        assert_eq!(arrived.so_far(), 1);
        let document = stage.document().await;
        let third = document.at(THIRD).unwrap();
        for block in led {
            assert_eq!(document.primary_of(block), SECOND);
            let copy = document.blocks[block.0 as usize].copy_on(third).unwrap();
            assert_eq!(copy.mark, Mark::Filling, "in-sync though its primary does not wait for it");
        }
        unfollowed.off();
        stage.world.start_pserver("pserver-4");
        stage.trainer("heir", Duration::ZERO);
        assert_eq!(rewinds(&stage.finished().await), Some(0));
    });
}

fn is_admission(call: &Call) -> bool {
    !call.message::<proto::ReportRequest>().admissions.is_empty()
}

/// The first report of the first pserver that asks for admissions is late; all its later ones are lost, but for what
/// comes long after. Counts how many are under way.
fn delay_admissions(stage: &Stage, delay: Duration) -> Count {
    let count = Count::default();
    let sent = count.clone();
    let mut until = None;
    stage.world.network.intercept(move |call, fate| {
        if !call.is(FIRST, "master", "Report") {
            return;
        }
        match until {
            None if is_admission(call) => {
                until = Some(tokio::time::Instant::now() + delay);
                sent.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                *fate = fate.clone().delayed(delay);
            }
            Some(_) => *fate = fate.clone().request_lost(),
            None => {}
        }
    });
    count
}

/// 8, and one of two followers forwarded: the primary dies with an update that one follower has; that one is promoted
/// and must not say that it is applied before the other has it; it dies too.
#[test]
fn a_promoted_copy_does_not_publish_what_the_other_follower_lacks() {
    in_paused_time(async {
        let mut stage = Stage::quiet(3, 2);
        let mut hand = stage.hand("hand").await;
        let unfollowed = stage.lose(|call| call.from == THIRD && call.method == "Follow");
        unfollowed.on();
        // Until open calls are over.
        sleep(stage.world.scenario.ttl).await;
        let has_it = stage.count(|call| {
            let report = || call.message::<proto::ReportRequest>();
            call.is(SECOND, "master", "Report")
                && report().copies.iter().any(|copies| copies.name.is_some_and(|name| name.version == 1))
        });
        assert!(is_withheld(&push_once(&hand, &stage, FIRST, 0).await));
        sleep(millis(500)).await;
        assert!(has_it.so_far() >= 1, "the update is on no follower");
        let led = hand.routing.blocks_of(hand.index(FIRST));
        stage.host(FIRST).crash();
        let document = stage.until("another leads", |document| document.led_by(FIRST).is_empty()).await;
        assert!(led.iter().all(|block| document.primary_of(*block) == SECOND), "the one behind is promoted");
        hand.look_again().await.unwrap();
        sleep(millis(500)).await;
        let answers = push_what_must_not_count(&hand, &stage, SECOND, THIRD).await;
        stage.replace(SECOND, "pserver-4").await;
        unfollowed.off();
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        assert!(is_withheld(&answers), "{answers:?}");
        assert_eq!(rewinds(&evidence), Some(0));
    });
}

/// Admission persisted but not delivered: the master counts a copy as in-sync, its primary does not know that yet.
#[test]
fn a_primary_waits_for_a_copy_from_the_moment_it_asks_for_it() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 1);
        let unasked = stage.lose(|call| call.is(FIRST, "master", "Report"));
        unasked.on();
        let hand = Hand::join(&stage.world, "hand", 1).await.unwrap();
        sleep(millis(1_000)).await;
        stage.deafen(FIRST);
        unasked.off();
        stage.until("the copy is in-sync", Asked::is_level).await;
        stage.lose(|call| call.is(SECOND, FIRST, "Follow")).on();
        sleep(stage.world.scenario.ttl).await;
        let answers = push_what_must_not_count(&hand, &stage, FIRST, SECOND).await;
        stage.replace(FIRST, THIRD).await;
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        assert!(is_withheld(&answers), "{answers:?}");
        assert_eq!(rewinds(&evidence), Some(0));
    });
}

/// The primary is cut off from the master but not from its follower. What both have is kept; once the follower leads,
/// the old primary says of nothing that it is applied.
#[test]
fn a_primary_that_only_its_follower_hears_applies_nothing_after_the_followers_promotion() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 1);
        let hand = stage.hand("hand").await;
        stage.part(FIRST, "master");
        sleep(millis(500)).await;
        assert!(!stage.document().await.led_by(FIRST).is_empty());
        stage.until("the follower leads", |document| document.led_by(FIRST).is_empty()).await;
        sleep(millis(500)).await;
        let answers = push_what_must_not_count(&hand, &stage, FIRST, SECOND).await;
        stage.join(FIRST, "master");
        stage.trainer("heir", Duration::ZERO);
        let evidence = stage.finished().await;
        assert!(is_withheld(&answers), "{answers:?}");
        assert_eq!(rewinds(&evidence), Some(0));
    });
}
