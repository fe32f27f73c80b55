//! Tasks with which trainers were lost.

use super::fake::{Fake, TTL, settings};
use super::is_told_pushed;
use super::sync::with_task;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_task_with_which_trainers_were_lost_is_computed_once_the_master_has_heard_that_it_is() {
    let (fake, model) = with_task(0);
    fake.state().tasks[0].is_careful = true;
    fake.state().no_pulls = [true; 2];
    let script = async |fake: &Fake, _| {
        fake.until("it pulls", |state| state.pulls.len() >= 2).await;
        {
            let mut state = fake.state();
            (state.leader, state.no_pulls) = (None, [false; 2]);
        }
        sleep(4 * TTL).await;
        assert_eq!(model.computed(), 0, "nobody has heard of it");
        fake.state().leader = Some(0);
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        let state = fake.state();
        let announced = state.leases.iter().filter(|(_, lease)| lease.careful == 1);
        let announced: Vec<_> =
            announced.map(|(_, lease)| (lease.record, lease.want, lease.wait_millis)).collect();
        assert!(!announced.is_empty() && announced.iter().all(|told| *told == (None, 0, 0)), "{announced:?}");
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 1);
}
