//! Directed traces of decisions over all blocks and of `delay`, each built by hand out of real roles. The numbers are those of
//! the traces that broke earlier wordings of the rules.

use shoal_runtime::cluster::{BlockId, Mode, Node};
use shoal_runtime::wire::proto::{self, PushAnswer};
use shoal_tests::sim::hand::Hand;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::stage::{Asked, FIRST, ROOT, SECOND, Stage, THIRD, all, millis, rewinds};
use shoal_trainer_sdk::Decisions;
use std::time::Duration;
use tokio::time::sleep;

const LEFT: Node = Node { level: 1, index: 0 };

fn delayed(pservers: u32, replicas: u32) -> Scenario {
    Scenario { pservers, replicas, mode: Mode::Sync { delay: 1 }, ..Scenario::quiet(7) }
}

/// Clips, so that all blocks wait for one decision a step.
fn deciding(pservers: u32, replicas: u32) -> Scenario {
    let decisions = Decisions { clip_norm: Some(0.5), ..Decisions::default() };
    Scenario { pservers, replicas, decisions: Some(decisions), ..Scenario::quiet(7) }
}

/// Where the scalar block's primary answers, and its index in the hand's routing.
async fn scalar_primary(stage: &Stage, hand: &Hand) -> (String, usize) {
    let scalars = hand.layout.scalars().unwrap();
    let address = stage.document().await.primary_of(scalars).to_owned();
    let index = hand.index(&address);
    (address, index)
}

/// How many blocks of a pserver have published what `step` reads.
async fn published(hand: &Hand, pserver: usize, step: u64) -> usize {
    let blocks = hand.routing.blocks_of(pserver);
    let pull = proto::PullRequest {
        job: "sim".into(),
        incarnation: hand.incarnation,
        step,
        rewind: hand.routing.rewind().0,
        without_data: blocks.iter().map(|block| block.0).collect(),
        ..Default::default()
    };
    hand.pserver(pserver).pull(pull).await.unwrap().into_inner().blocks.len()
}

/// 11: with a delay of 1, A is at 3 and B at 1 when the only trainer that had B's gradient of step 1 is gone. It is computed
/// again from version 0 of A.
#[test]
fn a_block_two_steps_ahead_still_has_what_the_slowest_one_needs() {
    in_paused_time(async {
        let mut stage = Stage::set(delayed(2, 0));
        let hand = stage.hand("hand").await;
        hand.do_step(&stage.world, 0).await.unwrap();
        let (first, second) = (hand.index(FIRST), hand.index(SECOND));
        hand.push_until_applied(&stage.world, first, 1, ROOT).await.unwrap();
        hand.push_until_applied(&stage.world, first, 2, ROOT).await.unwrap();
        // Step 4 reads version 3 in this job, step 2 version 1.
        assert_eq!(published(&hand, first, 4).await, hand.routing.blocks_of(first).len());
        assert_eq!(published(&hand, second, 3).await, 0);
        stage.trainer("heir", Duration::ZERO);
        assert_eq!(rewinds(&stage.finished().await), Some(0));
    });
}

/// 12: with a delay, a primary makes one version at a time that copies lack, so that a promoted one is at most one ahead of
/// what was published; and it publishes that only when all copies have it.
#[test]
fn a_promoted_copy_under_a_delay_publishes_what_all_copies_have() {
    in_paused_time(async {
        let mut stage = Stage::set(delayed(3, 2));
        let mut hand = stage.hand("hand").await;
        let first = hand.index(FIRST);
        let led = hand.routing.blocks_of(first);
        // The third pserver hears nothing from whoever leads.
        let unheard = stage.lose(|call| call.from == THIRD && call.method == "Follow");
        unheard.on();
        sleep(millis(2_000)).await;
        let zero = hand.send(first, hand.message(&stage.world, first, 0, ROOT)).await.unwrap();
        let one = hand.send(first, hand.message(&stage.world, first, 1, ROOT)).await.unwrap();
        assert!(all(&zero, PushAnswer::Held) && all(&one, PushAnswer::Held), "{zero:?} {one:?}");
        sleep(millis(200)).await;
        stage.host(FIRST).crash();
        let leads = |document: &shoal_master::document::Document| {
            led.iter().all(|block| document.primary_of(*block) == SECOND)
        };
        stage.until("the second leads what the first did", leads).await;
        hand.look_again().await.unwrap();
        sleep(millis(500)).await;
        let second = hand.index(SECOND);
        // Step 2 reads version 1.
        assert_eq!(published(&hand, second, 2).await, 0, "published what the third lacks");
        unheard.off();
        stage.world.start_pserver("pserver-4");
        stage.trainer("heir", Duration::ZERO);
        assert_eq!(rewinds(&stage.finished().await), Some(0));
    });
}

/// 22: with a delay, nodes of a full step come to a block that is at a short one. Three slots of four are not all.
#[test]
fn absence_is_the_steps_own_and_not_that_of_the_step_the_block_is_at() {
    in_paused_time(async {
        let quiet = delayed(2, 0);
        // 19 microbatches an epoch: of the fifth step's four slots three are there.
        let data = shoal_tests::sim::data_set::DataSetShape { records: 57, ..quiet.data };
        let mut stage = Stage::set(Scenario { data, epochs: 2, ..quiet });
        let hand = stage.hand("hand").await;
        for step in 0..3 {
            hand.do_step(&stage.world, step).await.unwrap();
        }
        let first = hand.index(FIRST);
        // The short step's root while the block is at a full one.
        let early = hand.send(first, hand.message(&stage.world, first, 4, ROOT)).await.unwrap();
        assert!(all(&early, PushAnswer::Held), "{early:?}");
        hand.push_until_applied(&stage.world, first, 3, ROOT).await.unwrap();
        let is_there = hand.routing.blocks_of(first).len();
        // Step 6 reads version 5: both are done.
        assert_eq!(published(&hand, first, 6).await, is_there);
        let second = hand.index(SECOND);
        hand.push_until_applied(&stage.world, second, 3, ROOT).await.unwrap();
        // Three slots of the full step 5 while the block is at the short step 4.
        for node in [LEFT, Node::leaf(2)] {
            let held = hand.send(second, hand.message(&stage.world, second, 5, node)).await.unwrap();
            assert!(all(&held, PushAnswer::Held), "{held:?}");
        }
        hand.push_until_applied(&stage.world, second, 4, ROOT).await.unwrap();
        assert_eq!(published(&hand, second, 7).await, 0, "three slots made a step of four");
        stage.trainer("heir", Duration::ZERO);
        assert_eq!(rewinds(&stage.finished().await), Some(0));
    });
}

/// 17: what a block knew of a step in the old history comes late, and meets what others know of it in the new one. Here the
/// old history's gradient was another, as if a record had been in it that is left out now.
#[test]
fn a_partial_result_of_an_old_history_does_not_meet_those_of_the_new_one() {
    in_paused_time(async {
        let mut stage = Stage::set(deciding(3, 0));
        let mut hand = stage.hand("hand").await;
        let (scalar, _) = scalar_primary(&stage, &hand).await;
        let others: Vec<&str> = [FIRST, SECOND, THIRD].into_iter().filter(|it| *it != scalar).collect();
        let (teller, lost) = (others[0].to_owned(), others[1]);
        let told = stage.count({
            let (teller, scalar) = (teller.clone(), scalar.clone());
            move |call| call.is(&teller, &scalar, "Decide")
        });
        stage.world.network.intercept({
            let (teller, scalar) = (teller.clone(), scalar.clone());
            move |call, fate| {
                if call.is(&teller, &scalar, "Decide") && call.number == 1 {
                    let again = fate.clone().delayed(millis(6_000)).deliveries;
                    fate.deliveries.extend(again);
                }
            }
        });
        let at = hand.index(&teller);
        let mut wrong = hand.message(&stage.world, at, 0, ROOT);
        for block in &mut wrong.blocks {
            block.gradient = 7.5f32.to_le_bytes().repeat(block.gradient.len() / 4).into();
        }
        hand.send(at, wrong).await.unwrap();
        sleep(millis(500)).await;
        // What is known of the step, and the question what is decided of it.
        assert_eq!(told.so_far(), 2, "nothing was told");
        stage.replace(lost, "pserver-4").await;
        stage.until("the job goes back", |document| document.rewinds == 1).await;
        hand.look_again().await.unwrap();
        sleep(millis(7_000)).await;
        assert!(told.so_far() >= 3, "nothing came late");
        stage.trainer("heir", Duration::ZERO);
        assert_eq!(rewinds(&stage.finished().await), Some(1));
    });
}

/// 18: the scalar block's copy has yet to hear of the decision when its primary dies. Nobody may have applied by it: the copy
/// needs what every block knows of the step once more.
#[test]
fn a_decision_is_told_only_when_no_single_loss_can_take_it_back() {
    in_paused_time(async {
        let mut stage = Stage::set(deciding(3, 1));
        let hand = stage.hand("hand").await;
        let document = stage.document().await;
        let scalars = hand.layout.scalars().unwrap();
        let (scalar, _) = scalar_primary(&stage, &hand).await;
        let placed = &document.blocks[scalars.0 as usize];
        let follower = placed.copies.iter().find(|copy| copy.pserver != placed.primary).unwrap();
        let follower = document.pservers[&follower.pserver].address.clone();
        let free = [FIRST, SECOND, THIRD].into_iter().find(|it| *it != scalar && *it != follower).unwrap();
        // What the scalar block's primary leads is not followed from now on.
        let unfollowed = stage.lose({
            let scalar = scalar.clone();
            move |call| call.to == scalar && call.method == "Follow"
        });
        unfollowed.on();
        sleep(millis(2_000)).await;
        for pserver in 0..3 {
            hand.send(pserver, hand.message(&stage.world, pserver, 0, ROOT)).await.unwrap();
        }
        sleep(millis(500)).await;
        // Blocks that have nothing to do with the lost calls wait too.
        let followed_elsewhere = hand.routing.blocks_of(hand.index(free));
        assert!(!followed_elsewhere.is_empty());
        assert_eq!(published(&hand, hand.index(free), 1).await, 0, "applied by what may be lost");
        stage.host(&scalar).crash();
        stage.until("the copy leads", |document| document.primary_of(scalars) == follower).await;
        unfollowed.off();
        stage.world.start_pserver("pserver-4");
        stage.trainer("heir", Duration::ZERO);
        assert_eq!(rewinds(&stage.finished().await), Some(0));
    });
}

/// 19: a block has applied a decided step that its copy lacks, and fails over: its copy needs that decision again.
#[test]
fn a_decision_can_be_asked_for_again_by_a_block_that_failed_over() {
    in_paused_time(async {
        let mut stage = Stage::set(deciding(3, 1));
        let hand = stage.hand("hand").await;
        let scalars = hand.layout.scalars().unwrap();
        let document = stage.document().await;
        // A pserver that has nothing to do with the scalar block, neither as primary nor as copy.
        let holds = |address: &str| {
            let who = document.at(address);
            who.is_some_and(|who| document.blocks[scalars.0 as usize].copy_on(who).is_some())
        };
        let apart = [FIRST, SECOND, THIRD].into_iter().find(|it| !holds(it)).unwrap();
        let at = hand.index(apart);
        let led: Vec<BlockId> = hand.routing.blocks_of(at);
        let unfollowed = stage.lose(move |call| call.to == apart && call.method == "Follow");
        unfollowed.on();
        sleep(millis(2_000)).await;
        for pserver in 0..3 {
            hand.send(pserver, hand.message(&stage.world, pserver, 0, ROOT)).await.unwrap();
        }
        sleep(millis(500)).await;
        for pserver in (0..3).filter(|pserver| *pserver != at) {
            assert!(published(&hand, pserver, 1).await > 0, "it was not decided");
        }
        assert_eq!(published(&hand, at, 1).await, 0, "its copies have it");
        stage.host(apart).crash();
        let moved = |document: &shoal_master::document::Document| {
            led.iter().all(|block| document.primary_of(*block) != apart)
        };
        stage.until("others lead its blocks", moved).await;
        unfollowed.off();
        stage.world.start_pserver("pserver-4");
        stage.trainer("heir", Duration::ZERO);
        assert_eq!(rewinds(&stage.finished().await), Some(0));
    });
}
