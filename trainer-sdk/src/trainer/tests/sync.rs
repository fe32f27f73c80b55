//! Synchronous jobs under changes of routing: what is pushed where, and what is thrown away.

use super::fake::{Fake, Slope, State, TTL, routing, settings};
use super::{blocks_pushed_to, is_told_pushed, last_word, node};
use crate::TrainerSettings;
use shoal_runtime::cluster::{Mode, Node};
use shoal_runtime::wire::WireVersion;
use shoal_runtime::wire::proto::PushAnswer;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const LEAF: Node = Node { level: 0, index: 2 };

pub(super) fn with_task(step: u64) -> (Fake, Slope) {
    let fake = Fake::new(Mode::SYNC);
    fake.state().tasks.push_back(node(1, step, LEAF, 1));
    (fake, Slope::default())
}

#[tokio::test(start_paused = true)]
async fn a_frozen_pserver_holds_up_no_push_once_its_blocks_live_elsewhere() {
    let (fake, model) = with_task(0);
    fake.state().no_pushes[1] = true;
    let script = async |fake: &Fake, _| {
        fake.until("a push hangs", |state| blocks_pushed_to(state, 1) == [1, 2]).await;
        sleep(Duration::from_millis(500)).await;
        let moved = Instant::now();
        fake.state().routing = routing(2, [(0, 1, 1), (0, 2, 1), (0, 2, 1)]);
        fake.until("the task is pushed", |state| blocks_pushed_to(state, 0).len() == 3).await;
        assert!(moved.elapsed() < Duration::from_millis(100), "{:?}", moved.elapsed());
        fake.until("it is told", |state| is_told_pushed(state, 1)).await;
        assert_eq!(blocks_pushed_to(&fake.state(), 0), [0, 1, 2], "a block that stayed is not sent again");
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_pserver_holds_up_no_pull_once_its_blocks_live_elsewhere() {
    let (fake, model) = with_task(0);
    fake.state().no_pulls[1] = true;
    let script = async |fake: &Fake, _| {
        fake.until("a pull hangs", |state| state.pulls.len() == 2).await;
        sleep(Duration::from_millis(500)).await;
        let moved = Instant::now();
        fake.state().routing = routing(2, [(0, 1, 1), (0, 2, 1), (0, 2, 1)]);
        fake.until("it is pushed", |state| !state.pushes.is_empty()).await;
        assert!(moved.elapsed() < Duration::from_millis(100), "{:?}", moved.elapsed());
        assert_eq!(fake.state().pulls.len(), 3, "a block that stayed is not asked again");
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_primary_held_is_pushed_again_and_not_computed_again() {
    let (fake, model) = with_task(7);
    let script = async |fake: &Fake, _| {
        fake.until("the task is pushed", |state| is_told_pushed(state, 1)).await;
        sleep(Duration::from_secs(1)).await;
        let first = fake.state().pushes.clone();
        assert_eq!(first.len(), 3);
        fake.state().routing = routing(2, [(1, 2, 1), (1, 1, 1), (1, 1, 1)]);
        fake.until("block 0 has it again", |state| blocks_pushed_to(state, 1) == [1, 2, 0]).await;
        sleep(Duration::from_secs(20)).await;
        let state = fake.state();
        assert_eq!(state.pushes.len(), 4, "once is enough");
        assert_eq!(state.pushes[3].1, super::fake::Pushed { pserver: 1, ..first[0].1.clone() });
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_every_block_has_applied_is_never_pushed_again() {
    let (fake, model) = with_task(7);
    fake.state().answer = Box::new(|_| PushAnswer::Applied);
    let script = async |fake: &Fake, _| {
        fake.until("the task is pushed", |state| is_told_pushed(state, 1)).await;
        fake.state().routing = routing(2, [(1, 2, 1), (0, 2, 1), (0, 2, 1)]);
        sleep(Duration::from_secs(20)).await;
        assert_eq!(fake.state().pushes.len(), 3);
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pull_of_the_next_step_proves_that_nothing_is_to_be_pushed_again() {
    let (fake, model) = with_task(7);
    let script = async |fake: &Fake, _| {
        fake.until("the task is pushed", |state| is_told_pushed(state, 1)).await;
        fake.state().tasks.push_back(node(2, 8, LEAF, 1));
        fake.until("the next is pushed", |state| is_told_pushed(state, 2)).await;
        fake.state().routing = routing(2, [(1, 2, 1), (0, 2, 1), (0, 2, 1)]);
        sleep(Duration::from_secs(20)).await;
        let steps: Vec<u64> = fake.state().pushes[6..].iter().map(|(_, push)| push.step).collect();
        assert_eq!(steps, [8, 8, 8]);
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_rewind_in_mid_computing_throws_the_task_away_and_asks_for_another() {
    let fake = Fake::new(Mode::SYNC);
    fake.state().tasks.push_back(node(1, 5, Node { level: 2, index: 0 }, 1));
    let model = Slope::default();
    let paced = TrainerSettings { pace: Duration::from_millis(500), ..settings() };
    let script = async |fake: &Fake, _| {
        fake.until("it computes", |state| state.pulls.len() == 2).await;
        sleep(Duration::from_millis(700)).await;
        fake.state().routing = routing(4, [(0, 4, 4), (1, 4, 4), (1, 4, 4)]);
        sleep(Duration::from_millis(100)).await;
        fake.state().tasks.push_back(node(2, 3, LEAF, 4));
        fake.until("the new task is pushed", |state| is_told_pushed(state, 2)).await;
        let state = fake.state();
        assert!(
            state.pushes.iter().all(|(_, push)| (push.step, push.rewind) == (3, 4)),
            "{:?}",
            state.pushes
        );
        assert_eq!(state.leases.last().unwrap().1.progress.len(), 1, "of a dropped lease nothing is said");
        assert_eq!(state.pulls.last().unwrap().2.rewind, 4);
    };
    assert!(fake.train(paced, model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 3, "the microbatch under way, and no further one, is in vain");
}

#[tokio::test(start_paused = true)]
async fn a_push_that_meets_a_rewound_block_ends_when_the_routing_says_so() {
    let (fake, model) = with_task(5);
    fake.state().answer = Box::new(|push| match push.rewind {
        1 => PushAnswer::Rewound,
        _ => PushAnswer::Held,
    });
    let script = async |fake: &Fake, _| {
        fake.until("a push is refused", |state| !state.pushes.is_empty()).await;
        sleep(Duration::from_secs(1)).await;
        assert!(!is_told_pushed(&fake.state(), 1));
        let calls = fake.state().pushes.len();
        assert!((9..60).contains(&calls), "asked again after pauses: {calls}");
        fake.state().tasks.push_back(node(2, 0, LEAF, 3));
        sleep(Duration::from_secs(1)).await;
        fake.state().routing = routing(3, [(0, 3, 3), (1, 3, 3), (1, 3, 3)]);
        fake.until("the new task is pushed", |state| is_told_pushed(state, 2)).await;
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_push_under_way_ends_with_its_history_and_goes_to_nobody_else() {
    let (fake, model) = with_task(5);
    fake.state().no_pushes[1] = true;
    let script = async |fake: &Fake, _| {
        fake.until("a push hangs", |state| blocks_pushed_to(state, 1) == [1, 2]).await;
        let before = fake.state().pushes.len();
        fake.state().routing = routing(4, [(0, 4, 4), (0, 4, 4), (0, 4, 4)]);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(fake.state().pushes.len(), before, "what it was for is no more");
        fake.state().tasks.push_back(node(2, 3, LEAF, 4));
        fake.until("the new task is pushed", |state| is_told_pushed(state, 2)).await;
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn more_rows_than_a_step_may_touch_end_the_trainer_before_anything_is_asked_for() {
    let (fake, mut model) = with_task(0);
    model.keys = 1_000_000;
    let ended = fake.train(settings(), model.clone(), async |_: &Fake, _| std::future::pending().await).await;
    let error = ended.unwrap().unwrap_err().to_string();
    assert!(error.contains("table \"t\"") && error.contains("declare more buckets"), "{error}");
    let state = fake.state();
    assert_eq!((state.pulls.len(), state.pushes.len(), model.computed()), (0, 0, 0));
    assert!(state.leaves[0].failure.contains("declare more buckets"), "the master hears of it");
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_newer_history_waits_for_its_routing() {
    let fake = Fake::new(Mode::SYNC);
    fake.state().tasks.push_back(node(1, 2, LEAF, 6));
    let script = async |fake: &Fake, _| {
        sleep(Duration::from_secs(3)).await;
        assert!(fake.state().pulls.is_empty());
        assert_eq!(last_word(&fake.state(), 1).map(|word| word.pushed), Some(false), "it stays in hand");
        fake.state().routing = routing(6, [(0, 6, 6), (1, 6, 6), (1, 6, 6)]);
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
    };
    assert!(fake.train(settings(), Slope::default(), script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_block_that_has_moved_to_nobody_knows_where_is_asked_again_after_bounded_pauses() {
    let (fake, model) = with_task(0);
    fake.state().answer = Box::new(|push| if push.block == 0 { PushAnswer::Moved } else { PushAnswer::Held });
    let script = async |fake: &Fake, _| {
        fake.until("it is pushed", |state| !state.pushes.is_empty()).await;
        sleep(TTL).await;
        let asked = blocks_pushed_to(&fake.state(), 0).len();
        assert!((30..120).contains(&asked), "{asked}");
        assert!(!is_told_pushed(&fake.state(), 1));
        assert_eq!(blocks_pushed_to(&fake.state(), 1), [1, 2], "others are not disturbed");
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_sum_without_room_waits_without_being_sent_and_the_lower_node_goes_first() {
    let (fake, model) = with_task(0);
    let mut has_lower = false;
    fake.state().answer = Box::new(move |push| {
        has_lower |= push.index == 0;
        if has_lower || push.block > 0 { PushAnswer::Held } else { PushAnswer::Busy }
    });
    fake.state().has_room = Box::new(|_| false);
    let script = async |fake: &Fake, _| {
        fake.until("it asks for room", |state| !state.questions.is_empty()).await;
        let words =
            |state: &State| state.leases.last().map(|(_, words)| (words.want, words.progress[0].waits));
        fake.until("it asks for one more", |state| words(state) == Some((2, true))).await;
        sleep(2 * TTL).await;
        assert_eq!(blocks_pushed_to(&fake.state(), 0), [0], "it is sent once");
        assert!(fake.state().questions.len() < 12, "each is kept open");
        assert!(!is_told_pushed(&fake.state(), 1));
        fake.state().tasks.push_back(node(2, 0, Node::leaf(0), 1));
        fake.until("both are pushed", |state| is_told_pushed(state, 1) && is_told_pushed(state, 2)).await;
        let state = fake.state();
        let of_block: Vec<u32> =
            state.pushes.iter().filter(|(_, push)| push.block == 0).map(|(_, push)| push.index).collect();
        assert_eq!(of_block, [LEAF.index, 0, LEAF.index]);
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 2, "nothing is computed twice");
}

#[tokio::test(start_paused = true)]
async fn of_a_gradient_of_several_messages_none_is_sent_before_there_is_room_for_all() {
    let (fake, model) = with_task(0);
    let model = Slope { more_elements: (256 << 10) - 1, ..model };
    fake.state().routing = routing(1, [(0, 1, 1); 3]);
    fake.state().elements = 256 << 10;
    fake.state().has_room = Box::new(|_| false);
    let script = async |fake: &Fake, _| {
        fake.until("it asks for room", |state| !state.questions.is_empty()).await;
        sleep(Duration::from_secs(1)).await;
        assert!(fake.state().pushes.is_empty());
        assert_eq!(fake.state().questions[0].1.block, 2, "the last is asked for: it is sent last");
        fake.state().has_room = Box::new(|_| true);
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        let state = fake.state();
        let sent: Vec<(u32, usize)> = state.pushes.iter().map(|(_, push)| (push.block, push.bytes)).collect();
        assert_eq!(sent, [(0, 1 << 20), (1, 1 << 20), (2, 4)], "first layers first");
        assert_eq!(state.questions.len(), 1);
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_next_task_of_a_step_is_computed_while_a_sum_is_pushed_and_the_next_step_is_not() {
    let (fake, model) = with_task(0);
    fake.state().no_pushes[1] = true;
    let computed = model.clone();
    let script = async |fake: &Fake, _| {
        fake.until("a push hangs", |state| !blocks_pushed_to(state, 1).is_empty()).await;
        fake.state().tasks.push_back(node(2, 0, Node { level: 0, index: LEAF.index + 1 }, 1));
        fake.state().tasks.push_back(node(3, 1, Node::leaf(0), 1));
        sleep(TTL).await;
        assert_eq!(computed.computed(), 2);
        let counters = fake.state().leases.last().unwrap().1.counters.unwrap();
        assert!(counters.push_micros > 5_000_000, "{counters:?}");
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_gone_is_told_as_done_and_not_computed() {
    let (fake, model) = with_task(3);
    fake.state().is_gone = true;
    let script = async |fake: &Fake, _| {
        fake.until("it is told", |state| is_told_pushed(state, 1)).await;
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_sum_that_is_published_meanwhile_is_not_pushed_again_any_more() {
    let (fake, model) = with_task(7);
    let script = async |fake: &Fake, _| {
        fake.until("the task is pushed", |state| is_told_pushed(state, 1)).await;
        fake.state().no_pushes[1] = true;
        fake.state().routing = routing(2, [(1, 2, 1), (1, 1, 1), (1, 1, 1)]);
        fake.until("it hangs at the new primary", |state| blocks_pushed_to(state, 1) == [1, 2, 0]).await;
        // Another trainer has seen to it.
        fake.state().tasks.push_back(node(2, 8, LEAF, 1));
        fake.until("the next is computed", |state| state.pushes.len() > 4).await;
        fake.state().routing = routing(3, [(0, 3, 1), (0, 3, 1), (0, 3, 1)]);
        fake.until("the next is pushed", |state| is_told_pushed(state, 2)).await;
        let state = fake.state();
        let late = state.pushes[4..].iter().filter(|(_, push)| push.step == 7).count();
        assert_eq!(late, 0);
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_step_begins_only_when_every_block_has_published_metrics_included() {
    let (fake, model) = with_task(7);
    fake.state().unpublished = Some(2);
    let computed = model.clone();
    let script = async |fake: &Fake, _| {
        sleep(2 * TTL).await;
        assert_eq!(computed.computed(), 0);
        fake.state().unpublished = None;
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pull_of_a_later_step_is_given_up_when_an_earlier_one_is_leased() {
    let (fake, model) = with_task(6);
    fake.state().published = 5;
    let script = async |fake: &Fake, _| {
        fake.until("it pulls", |state| !state.pulls.is_empty()).await;
        fake.state().tasks.push_back(node(2, 5, LEAF, 1));
        fake.until("the earlier one is pushed", |state| is_told_pushed(state, 2)).await;
        assert!(!is_told_pushed(&fake.state(), 1));
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pull_ends_with_its_history() {
    let (fake, model) = with_task(5);
    fake.state().published = 4;
    let script = async |fake: &Fake, _| {
        fake.until("it pulls", |state| !state.pulls.is_empty()).await;
        fake.state().routing = routing(4, [(0, 4, 4), (1, 4, 4), (1, 4, 4)]);
        sleep(Duration::from_millis(100)).await;
        let before = fake.state().pulls.len();
        fake.state().tasks.push_back(node(2, 5, LEAF, 4));
        fake.until("it pulls again", |state| state.pulls.len() > before + 4).await;
        assert!(fake.state().pulls[before..].iter().all(|(_, _, pull)| pull.rewind == 4));
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn every_moment_of_a_trainer_is_told_as_one_activity() {
    let fake = Fake::new(Mode::SYNC);
    let began = Instant::now();
    let settings = TrainerSettings { pace: Duration::from_millis(500), ..settings() };
    let script = async |fake: &Fake, _| {
        sleep(Duration::from_secs(3)).await;
        fake.state().no_pushes[1] = true;
        fake.state().tasks.push_back(node(1, 0, LEAF, 1));
        fake.until("a push hangs", |state| blocks_pushed_to(state, 1) == [1, 2]).await;
        sleep(Duration::from_secs(4)).await;
        fake.state().routing = routing(2, [(0, 1, 1), (0, 2, 1), (0, 2, 1)]);
        fake.until("it is told", |state| is_told_pushed(state, 1)).await;
        sleep(Duration::from_secs(20)).await;
        let state = fake.state();
        assert!(state.leases.len() > 5);
        for (told, request) in &state.leases {
            let counters = request.counters.unwrap();
            let parts = [counters.read_micros, counters.pull_micros, counters.compute_micros];
            let whole = parts.iter().sum::<u64>() + counters.push_micros + counters.wait_micros;
            let lived = (*told - began).as_micros() as u64;
            assert!(lived.saturating_sub(5000) <= whole && whole <= lived, "{counters:?} in {lived} µs");
        }
        let last = state.leases.last().unwrap().1.counters.unwrap();
        assert_eq!(last.compute_micros, 500_000, "the pause is part of the step");
        assert!((4_000_000..4_100_000).contains(&last.push_micros), "{last:?}");
        assert!(last.wait_micros > 22_000_000, "{last:?}");
    };
    assert!(fake.train(settings, Slope::default(), script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pserver_of_another_wire_version_ends_the_trainer_at_once_and_says_whom_to_upgrade() {
    let ours = WireVersion::PRESENT.0;
    for version in [ours - 1, ours + 1] {
        let (fake, model) = with_task(0);
        fake.state().pservers_speak = WireVersion(version);
        let began = Instant::now();
        let ended = fake.train(settings(), model.clone(), async |_: &Fake, _| sleep(TTL).await).await;
        let error = ended.unwrap().unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        let versions = [ours, version].map(|version| format!("wire version {version}"));
        let words = ["pserver", "another version", &versions[0], &versions[1], "upgrade"];
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
        assert_eq!((error.exit_code(), model.computed()), (1, 0));
    }
}
