//! A master that fails over, is silent, or forgets: when a trainer goes on, and when it gives up.

use super::fake::{Fake, Slope, TTL, routing, settings};
use super::{is_told_pushed, node};
use crate::{Ended, TrainError};
use shoal_runtime::cluster::{Mode, Node};
use shoal_runtime::wire::proto::PushAnswer;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const LEAF: Node = Node { level: 0, index: 2 };

#[tokio::test(start_paused = true)]
async fn a_master_that_does_not_know_the_trainer_is_joined_again_with_room_for_its_leases() {
    let fake = Fake::new(Mode::SYNC);
    fake.state().tasks.push_back(node(1, 0, LEAF, 1));
    fake.state().published = 0;
    fake.state().answer = Box::new(|_| PushAnswer::Busy);
    let script = async |fake: &Fake, sender: shoal_runtime::host::shutdown::ShutdownSender| {
        fake.until("it computes", |state| !state.pushes.is_empty()).await;
        fake.state().knows = 500;
        fake.state().routing = routing(2, [(1, 2, 1), (1, 1, 1), (1, 1, 1)]);
        fake.until("it joins again", |state| state.joins.len() == 2).await;
        fake.until("it speaks again", |state| state.leases.last().unwrap().1.incarnation == 510).await;
        {
            let state = fake.state();
            let [first, second] = &state.joins[..] else { panic!() };
            assert_eq!((first.previous, second.previous), (0, 10));
            assert_eq!((&first.name, first.nonce), (&second.name, second.nonce));
            let newest = &state.leases.last().unwrap().1;
            assert!(newest.progress.is_empty() && newest.want > 0, "leases that nobody knows are forgotten");
        }
        // Again, in the moment of leaving.
        fake.state().knows = 900;
        sender.send();
        sleep(Duration::from_secs(10)).await;
    };
    let ended = fake.train(settings(), Slope::default(), script).await;
    assert_eq!(ended.unwrap().unwrap(), Ended::Left);
    let state = fake.state();
    let goodbyes: Vec<u64> = state.leaves.iter().map(|leave| leave.incarnation).collect();
    assert_eq!(goodbyes, [510, 910]);
}

#[tokio::test(start_paused = true)]
async fn a_trainer_joins_again_until_it_is_answered_and_that_ends_the_silence() {
    let fake = Fake::new(Mode::SYNC);
    let script = async |fake: &Fake, _| {
        fake.until("it asks", |state| !state.leases.is_empty()).await;
        fake.state().leader = None;
        sleep(Duration::from_secs(50)).await;
        {
            let mut state = fake.state();
            (state.leader, state.knows, state.lost_joins) = (Some(0), 500, 5);
        }
        fake.until("it joins again", |state| state.joins.len() == 2).await;
        let asked = fake.state().leases.len();
        fake.until("it is answered", |state| state.joins.len() == 1 + 5 + 1).await;
        assert_eq!(fake.state().leases.len(), asked, "nobody who does not know it is asked for tasks");
        fake.state().leader = None;
        sleep(Duration::from_secs(50)).await;
        fake.state().leader = Some(0);
        fake.until("it speaks again", |state| state.leases.last().unwrap().1.incarnation == 510).await;
    };
    let patient = crate::TrainerSettings { patience: Duration::from_secs(60), ..settings() };
    assert!(fake.train(patient, Slope::default(), script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn calls_find_the_master_that_leads() {
    let fake = Fake::new(Mode::SYNC);
    fake.state().leader = Some(1);
    let script = async |fake: &Fake, _| {
        fake.state().tasks.push_back(node(1, 0, LEAF, 1));
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        fake.state().leader = None;
        sleep(3 * TTL).await;
        fake.state().leader = Some(0);
        let healed = Instant::now();
        fake.state().tasks.push_back(node(2, 0, LEAF, 1));
        fake.state().routing = routing(2, [(1, 2, 1), (1, 1, 1), (1, 1, 1)]);
        fake.until("it is pushed", |state| is_told_pushed(state, 2)).await;
        assert!(healed.elapsed() < 2 * TTL, "{:?}", healed.elapsed());
    };
    assert!(fake.train(settings(), Slope::default(), script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_is_followed_by_the_other() {
    let fake = Fake::new(Mode::SYNC);
    let script = async |fake: &Fake, _| {
        fake.until("it asks", |state| !state.leases.is_empty()).await;
        fake.state().leader = Some(1);
        fake.state().is_dead[0] = true;
        let elected = Instant::now();
        fake.state().tasks.push_back(node(1, 0, LEAF, 1));
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        assert!(elected.elapsed() < 2 * TTL, "{:?}", elected.elapsed());
    };
    assert!(fake.train(settings(), Slope::default(), script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_master_silent_beyond_patience_ends_the_trainer() {
    let fake = Fake::new(Mode::SYNC);
    let script = async |fake: &Fake, _| {
        fake.until("it joins", |state| !state.leases.is_empty()).await;
        fake.state().leader = None;
        sleep(Duration::from_secs(600)).await;
    };
    let patient = crate::TrainerSettings { patience: Duration::from_secs(60), ..settings() };
    let began = Instant::now();
    let ended = fake.train(patient, Slope::default(), script).await.unwrap();
    assert!(matches!(ended, Err(TrainError::Unreachable { seconds: 60.., .. })), "{ended:?}");
    assert!((60..60 + 3 * TTL.as_secs()).contains(&began.elapsed().as_secs()));
}

#[tokio::test(start_paused = true)]
async fn a_pserver_silent_beyond_patience_does_not_while_the_master_speaks() {
    let fake = Fake::new(Mode::SYNC);
    fake.state().tasks.push_back(node(1, 0, LEAF, 1));
    fake.state().no_pushes[0] = true;
    let script = async |fake: &Fake, _| {
        sleep(Duration::from_secs(600)).await;
        fake.state().no_pushes[0] = false;
        let healed = Instant::now();
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        assert!(healed.elapsed() < 2 * TTL, "{:?}", healed.elapsed());
    };
    let patient = crate::TrainerSettings { patience: Duration::from_secs(60), ..settings() };
    assert!(fake.train(patient, Slope::default(), script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn one_lost_answer_costs_less_than_a_time_to_live() {
    let fake = Fake::new(Mode::SYNC);
    let script = async |fake: &Fake, _| {
        fake.until("it asks", |state| !state.leases.is_empty()).await;
        let asked = fake.state().leases.len();
        // The answer to the call that is open now is lost.
        fake.state().leader = None;
        sleep(TTL / 3).await;
        fake.state().leader = Some(0);
        let lost = fake.state().leases[asked - 1].0;
        fake.until("it asks again", |state| state.leases.len() > asked).await;
        assert!(lost.elapsed() < TTL, "{:?}", lost.elapsed());
    };
    let alone = crate::TrainerSettings { master: "master-0".to_owned(), ..settings() };
    assert!(fake.train(alone, Slope::default(), script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_trainer_ends_when_the_master_says_that_the_job_is_done() {
    let fake = Fake::new(Mode::SYNC);
    let script = async |fake: &Fake, _| {
        fake.state().is_done = true;
        sleep(2 * TTL).await;
    };
    let ended = fake.train(settings(), Slope::default(), script).await;
    assert_eq!(ended.unwrap().unwrap(), Ended::JobDone);
    assert_eq!(fake.state().leaves.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_trainer_whose_name_another_has_gives_up() {
    let fake = Fake::new(Mode::SYNC);
    fake.state().is_superseded = true;
    let script = async |_: &Fake, _| sleep(2 * TTL).await;
    let ended = fake.train(settings(), Slope::default(), script).await.unwrap();
    assert!(matches!(ended, Err(TrainError::Refused { role: "master", .. })), "{ended:?}");
    assert_eq!(fake.state().joins.len(), 1);
}
