//! Learning what to hold.

use super::*;
use crate::block::tests::alone;
use crate::restore::restore;
use crate::shard::tests::{assigned, assignment};
use shoal_runtime::cluster::RefusalKind;

/// Watches and restores and reports for `millis` while `meanwhile` runs. Returns what ended the watching or reporting.
async fn live_for(
    master: &FakeMaster,
    shard: &Arc<Shard>,
    millis: u64,
    meanwhile: impl Future<Output = ()>,
) -> Option<Fault> {
    let mut randoms = [Random::seeded(1), Random::seeded(2), Random::seeded(3)];
    let [watching, reporting, restoring] = &mut randoms;
    let storage = memory();
    let life = async {
        let masters = master.masters();
        tokio::select! {
            biased;
            fault = watch(shard, &masters, watching) => fault,
            fault = report(shard, &masters, reporting) => fault,
            refusal = restore(shard, &storage, restoring) => refusal.into(),
        }
    };
    talk_for(life, millis, meanwhile).await
}

#[tokio::test(start_paused = true)]
async fn an_assignment_is_done_once_and_reported_under_its_routing_version() {
    let (master, shard) = (FakeMaster::default(), empty(job(5, 2), 16, ME));
    let started = Instant::now();
    let assign = async {
        after(300).await;
        master.assign(ME, &assignment(3, &[0, 1]));
    };
    assert!(live_for(&master, &shard, 2000, assign).await.is_none());
    let heard = master.heard();
    let hosted: Vec<_> = heard.reports.iter().filter(|(_, report)| report.routing_version == 3).collect();
    let told = hosted.iter().find(|(_, report)| !report.progress.is_empty()).unwrap();
    assert_eq!((&told.1.progress[0].blocks[..], told.1.progress[0].term), (&[0, 1][..], 3));
    // Watched for, and the blocks are reported as soon as they are restored.
    assert!(told.0 - started <= Duration::from_millis(300 + 10), "{:?}", told.0 - started);
    let asked: Vec<_> =
        heard.watches.iter().map(|(_, asked)| (asked.master_term, asked.routing_version)).collect();
    assert_eq!(asked[..2], [(0, 0), (1, 3)]);
    // Each of the others was kept open for half of a lease's time to live.
    assert!(asked.len() <= 6, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_master_is_waited_out_and_the_newest_assignment_counts() {
    let (master, shard) = (FakeMaster::default(), empty(job(5, 2), 16, ME));
    master.assign(ME, &assignment(3, &[0]));
    let changes = async {
        after(100).await;
        master.heard().outage = 20;
        master.assign(ME, &assignment(4, &[0, 1]));
    };
    assert!(live_for(&master, &shard, 60_000, changes).await.is_none());
    assert_eq!((master.heard().outage, shard.routing_version()), (0, (1, 4)));
    assert_eq!(shard.whole_standing().unwrap().0[0].blocks.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_assignment_that_cannot_be_done_is_told_as_a_failure() {
    let (master, shard) = (FakeMaster::default(), empty(job(5, 2), 16, ME));
    master.assign(ME, &assignment(3, &[2]));
    live_for(&master, &shard, 1000, async {}).await;
    let heard = master.heard();
    assert!(heard.reports.last().unwrap().1.failure.contains("the declaration has 2 blocks"));
    assert!(heard.watches.len() <= 50, "{} calls in a second", heard.watches.len());
}

#[tokio::test(start_paused = true)]
async fn a_deposed_masters_assignment_is_not_asked_for_again_and_again() {
    let (master, shard) = (FakeMaster::default(), empty(job(5, 2), 16, ME));
    shard.assign_now(assigned(2, 1, [(0, alone(1))])).unwrap();
    // A master that does not look at what the caller knows.
    let mut stubborn = assignment(9, &[1]);
    stubborn.master_term = 1;
    master.heard().is_stubborn = true;
    master.assign(ME, &stubborn);
    live_for(&master, &shard, 1000, async {}).await;
    assert_eq!(shard.routing_version(), (2, 1));
    assert!(master.heard().watches.len() <= 50, "{} calls in a second", master.heard().watches.len());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_no_repetition_can_mend_ends_the_watching() {
    let (master, shard) = (FakeMaster::default(), empty(job(5, 2), 16, ME));
    for kind in [RefusalKind::UnknownIncarnation, RefusalKind::StaleIncarnation, RefusalKind::WrongJob] {
        master.heard().refusal = Some(Refusal::new(kind, "ps-0", "given up"));
        let mut random = Random::seeded(1);
        let masters = master.masters();
        let watching = watch(&shard, &masters, &mut random);
        let fault = timeout(Duration::from_secs(1), watching).await.unwrap();
        assert_eq!(fault.refusal().unwrap().kind, kind);
    }
}
