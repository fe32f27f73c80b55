//! Leaving: asked by a signal, allowed by the master, ended by the grace.

use super::*;
use crate::life::leave;
use crate::shard::tests::{assignment, host};
use shoal_runtime::host::shutdown::Shutdown;

const GRACE: Duration = Duration::from_secs(20);

fn nothing_at(routing_version: u64) -> Assignment {
    Assignment { may_leave: true, ..assignment(routing_version, &[]) }
}

#[tokio::test(start_paused = true)]
async fn who_was_asked_to_leave_says_so_and_stays_until_the_master_lets_it_go() {
    let (master, shard) = (FakeMaster::default(), empty(job(5, 2), 16, ME));
    host(&shard, assignment(3, &[1]));
    let (signal, due) = Shutdown::pair();
    let started = Instant::now();
    let scene = async {
        sleep(Duration::from_secs(1)).await;
        assert!(master.heard().reports.iter().all(|(_, report)| !report.is_leaving));
        signal.send();
        sleep(Duration::from_secs(5)).await;
        let (when, _) = *master.heard().reports.iter().find(|(_, report)| report.is_leaving).unwrap();
        assert!(when < started + Duration::from_millis(1010), "at once, not with the next heartbeat");
        shard.assign_now(nothing_at(4)).unwrap();
        std::future::pending::<()>().await;
    };
    let mut random = Random::seeded(1);
    let masters = master.masters();
    tokio::select! {
        left = leave(&shard, due, GRACE) => left.unwrap(),
        fault = report(&shard, &masters, &mut random) => panic!("{fault}"),
        () = scene => {}
    }
    assert_eq!(started.elapsed(), Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn who_is_not_let_go_leaves_with_an_error_when_the_grace_is_over() {
    let shard = empty(job(5, 2), 16, ME);
    host(&shard, assignment(3, &[1]));
    let (signal, due) = Shutdown::pair();
    signal.send();
    let started = Instant::now();
    let fault = leave(&shard, due, GRACE).await.unwrap_err();
    assert_eq!(started.elapsed(), GRACE);
    assert!(fault.to_string().contains("20s"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn who_is_left_by_the_master_goes_without_being_asked_and_not_for_want_of_blocks_alone() {
    let shard = empty(job(5, 2), 16, ME);
    host(&shard, assignment(3, &[]));
    let (_signal, due) = Shutdown::pair();
    let mut left = std::pin::pin!(leave(&shard, due, GRACE));
    let waited = timeout(GRACE * 2, &mut left).await;
    assert!(waited.is_err(), "blocks may come yet");
    shard.assign_now(nothing_at(4)).unwrap();
    timeout(Duration::from_secs(1), left).await.unwrap().unwrap();
}

fn over(routing_version: u64) -> Assignment {
    Assignment { is_over: true, ..assignment(routing_version, &[1]) }
}

#[tokio::test(start_paused = true)]
async fn who_is_asked_to_leave_a_job_that_is_over_goes_at_once() {
    let shard = empty(job(5, 2), 16, ME);
    host(&shard, over(3));
    let (signal, due) = Shutdown::pair();
    let mut left = std::pin::pin!(leave(&shard, due, GRACE));
    assert!(timeout(GRACE * 2, &mut left).await.is_err(), "nobody has asked it");
    signal.send();
    let asked = Instant::now();
    left.await.unwrap();
    assert_eq!(asked.elapsed(), Duration::ZERO);
}

/// A master that has not heard of it would count on it for a lease's time, and let another go in its place.
#[tokio::test(start_paused = true)]
async fn who_was_never_used_goes_once_its_master_knows_or_soon_where_it_does_not_answer() {
    for answers in [true, false] {
        let (master, shard) = (FakeMaster::default(), empty(job(5, 2), 16, ME));
        let (signal, due) = Shutdown::pair();
        signal.send();
        let asked = Instant::now();
        let mut random = Random::seeded(1);
        let masters = master.masters();
        let reporting = async {
            if answers {
                panic!("{}", report(&shard, &masters, &mut random).await);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            left = leave(&shard, due, GRACE) => left.unwrap(),
            () = reporting => {}
        }
        let said = master.heard().reports.iter().any(|(_, report)| report.is_leaving);
        let took = asked.elapsed();
        assert_eq!(said, answers);
        assert!(
            if answers { took < Duration::from_millis(50) } else { took == Duration::from_secs(1) },
            "{took:?}"
        );
    }
}

/// The word of the end is on its way where the end was the reason to ask; long after that the model may be read here.
#[tokio::test(start_paused = true)]
async fn a_job_that_ends_ends_who_was_asked_to_leave_just_before_and_nobody_who_was_long_ago() {
    for (millis, stays) in [(900, false), (1100, true)] {
        let shard = empty(job(5, 2), 16, ME);
        host(&shard, assignment(3, &[1]));
        let (signal, due) = Shutdown::pair();
        signal.send();
        let asked = Instant::now();
        let heard = async {
            sleep(Duration::from_millis(millis)).await;
            shard.assign_now(over(4)).unwrap();
        };
        let (left, ()) = tokio::join!(leave(&shard, due, GRACE), heard);
        let long = if stays { GRACE } else { Duration::from_millis(millis) };
        assert_eq!((left.is_err(), asked.elapsed()), (stays, long), "{millis}");
    }
}
