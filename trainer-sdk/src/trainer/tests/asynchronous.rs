//! Asynchronous jobs: what is computed again, what is only sent again, and when a microbatch counts.

use super::fake::{Fake, Slope, TTL, routing, settings};
use super::{blocks_pushed_to, is_told_pushed, last_word, run};
use shoal_runtime::cluster::{Mode, Precision};
use shoal_runtime::wire::proto::PushAnswer;
use std::time::Duration;
use tokio::time::sleep;

fn with_run(first: u64, length: u64) -> (Fake, Slope) {
    let fake = Fake::new(Mode::Async { staleness_window: 8, scale_by_staleness: false });
    fake.state().tasks.push_back(run(1, first, length));
    fake.state().answer = Box::new(|_| PushAnswer::Applied);
    (fake, Slope::default())
}

#[tokio::test(start_paused = true)]
async fn each_microbatch_of_a_run_is_pushed_with_its_position_and_what_it_was_computed_from() {
    let (fake, model) = with_run(6, 2);
    fake.state().latest = [(3, 1), (5, 1), (9, 1)];
    let script = async |fake: &Fake, _| {
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        let state = fake.state();
        let mut pushes: Vec<(u64, u32, u64, u64, f32)> = state
            .pushes
            .iter()
            .map(|(_, push)| (push.position, push.block, push.version, push.rewind, push.value))
            .collect();
        pushes.sort_by_key(|push| (push.0, push.1));
        let of = |position| [(position, 0, 3, 1, 3.5), (position, 1, 5, 1, 5.5), (position, 2, 9, 1, 0.0)];
        assert_eq!(pushes, [of(6), of(7)].concat());
        assert!(state.pulls.iter().all(|(_, _, pull)| (pull.step, pull.rewind) == (0, 0)));
        assert_eq!(last_word(&state, 1).unwrap().microbatches, 2);
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 2);
}

#[tokio::test(start_paused = true)]
async fn rounded_gradients_travel_in_two_bytes_and_counters_in_four() {
    let (fake, model) = with_run(6, 1);
    fake.state().job.gradients = Precision::Bf16;
    fake.state().latest = [(1001, 1), (5, 1), (9, 1)];
    let script = async |fake: &Fake, _| {
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        let state = fake.state();
        let mut pushes: Vec<(u32, usize, f32)> =
            state.pushes.iter().map(|(_, push)| (push.block, push.bytes, push.value)).collect();
        pushes.sort_by_key(|push| push.0);
        // The gradient was 1001.5, between 1000 and 1004.
        assert_eq!(pushes, [(0, 2, 1000.0), (1, 2, 5.5), (2, 4, 0.0)]);
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_block_that_went_back_is_given_a_new_gradient_and_the_others_are_not() {
    let (fake, model) = with_run(6, 1);
    fake.state().latest = [(3, 1), (5, 1), (9, 1)];
    fake.state().answer = Box::new(|push| match (push.block, push.rewind) {
        (0, 1) => PushAnswer::Rewound,
        _ => PushAnswer::Applied,
    });
    let script = async |fake: &Fake, _| {
        fake.until("it is refused", |state| blocks_pushed_to(state, 0).contains(&0)).await;
        fake.state().latest[0] = (1, 4);
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        let state = fake.state();
        assert_eq!(blocks_pushed_to(&state, 1), [1, 2]);
        let last = &state.pushes.iter().rev().find(|(_, push)| push.block == 0).unwrap().1;
        assert_eq!((last.version, last.rewind, last.value), (1, 4, 1.5));
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert!(model.computed() >= 2);
}

#[tokio::test(start_paused = true)]
async fn the_routing_alone_tells_that_a_block_went_back() {
    let (fake, model) = with_run(6, 1);
    fake.state().no_pushes[0] = true;
    let script = async |fake: &Fake, _| {
        fake.until("a push hangs", |state| blocks_pushed_to(state, 0) == [0]).await;
        fake.state().latest[0] = (2, 7);
        fake.state().routing = routing(7, [(1, 7, 7), (1, 1, 1), (1, 1, 1)]);
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        let state = fake.state();
        assert_eq!(blocks_pushed_to(&state, 1), [1, 2, 0]);
        assert_eq!(state.pushes.last().unwrap().1.rewind, 7);
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_primary_alone_keeps_the_gradient() {
    let (fake, model) = with_run(6, 1);
    fake.state().no_pushes[0] = true;
    let script = async |fake: &Fake, _| {
        fake.until("a push hangs", |state| blocks_pushed_to(state, 0) == [0]).await;
        fake.state().routing = routing(7, [(1, 7, 1), (1, 1, 1), (1, 1, 1)]);
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_copies_do_not_have_yet_does_not_count() {
    let (fake, model) = with_run(6, 1);
    fake.state().answer =
        Box::new(|push| if push.block == 1 { PushAnswer::Held } else { PushAnswer::Applied });
    let script = async |fake: &Fake, _| {
        sleep(Duration::from_secs(5)).await;
        let word = last_word(&fake.state(), 1).unwrap();
        assert_eq!((word.microbatches, word.pushed), (0, false));
        fake.state().answer = Box::new(|_| PushAnswer::AlreadyApplied);
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_microbatch_without_room_waits_and_is_not_computed_again() {
    let (fake, model) = with_run(6, 1);
    fake.state().answer =
        Box::new(|push| if push.block == 1 { PushAnswer::Busy } else { PushAnswer::Applied });
    let script = async |fake: &Fake, _| {
        sleep(3 * TTL).await;
        assert!(!is_told_pushed(&fake.state(), 1));
        fake.state().answer = Box::new(|_| PushAnswer::Applied);
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 1);
}

#[tokio::test(start_paused = true)]
async fn parameters_of_before_a_restore_that_the_routing_tells_of_are_not_computed_from() {
    let (fake, model) = with_run(6, 1);
    // An old primary that has yet to hear of it.
    fake.state().routing = routing(7, [(0, 7, 7), (1, 1, 1), (1, 1, 1)]);
    let script = async |fake: &Fake, _| {
        sleep(Duration::from_secs(5)).await;
        assert!(fake.state().pushes.is_empty());
        fake.state().latest[0] = (2, 7);
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 1);
}

#[tokio::test(start_paused = true)]
async fn acknowledged_pushes_are_written_down_block_by_block() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pushes.jsonl");
    let (fake, model) = with_run(6, 1);
    fake.state().latest = [(3, 1), (5, 1), (9, 1)];
    let logged = crate::TrainerSettings { push_log: Some(file.clone()), ..settings() };
    let script = async |fake: &Fake, _| {
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
    };
    assert!(fake.train(logged, model, script).await.is_none());
    let mut lines: Vec<String> = std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines.len(), 4, "three blocks, and how long it lasted");
    let first = r#"{"applied":{"position":6,"block":0,"rewind":1,"version":3}}"#;
    assert!(lines[0].starts_with(first) && lines[3].starts_with(r#"{"push_micros":"#), "{lines:?}");
}
