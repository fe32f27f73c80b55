//! One incarnation after another, with a master and other pservers in memory and in paused time.

use super::*;
use crate::block::Placement;
use crate::block::primary::PlacedCopy;
use crate::block::tests::{alone, job};
use crate::follower::tests::{Net, address};
use crate::report::tests::{FakeMaster, after, identity, memory};
use crate::shard::Pushed;
use crate::shard::tests::{assigned, empty, gradient, message};
use shoal_runtime::cluster::routing::PserverAddress;
use shoal_runtime::cluster::{Fill, Incarnation, Node, Refusal, RefusalKind, Step};
use std::sync::Arc;

/// The first incarnation that the test's master gives out.
const FIRST: Incarnation = Incarnation(77);

/// A pserver that has just registered.
fn registered() -> Arc<Shard> {
    empty(job(50, 2), 16, FIRST)
}

/// Lives while `meanwhile` runs. Returns what ended the life, if anything did.
async fn live_during(
    net: &Net,
    master: &FakeMaster,
    shard: &Arc<Shard>,
    meanwhile: impl Future<Output = ()>,
) -> Option<Fault> {
    let (mut identity, mut random, storage) = (identity(Some("test")), Random::seeded(3), memory());
    let masters = master.masters();
    tokio::select! {
        biased;
        fault = live(shard, net, &masters, &storage, &mut identity, &mut random) => Some(fault),
        () = meanwhile => None,
    }
}

fn led_by(primary: Incarnation) -> Placement {
    Placement { primary, ..alone(3) }
}

fn push(shard: &Arc<Shard>, step: u64) {
    let bytes = 1.0f32.to_le_bytes();
    let what = Pushed::Node(Step(step), Node { level: 1, index: 0 });
    shard.push(&message(what, 2, vec![gradient(1, &bytes)])).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pserver_that_a_later_master_does_not_know_begins_anew_with_nothing() {
    let (master, shard) = (FakeMaster::default(), registered());
    // The life before this one registered under the nonce that identities of tests have.
    let (first, mut random) = (identity(Some("test")), Random::seeded(1));
    assert_eq!(register(&master.masters(), &first, &mut random).await.unwrap().0, FIRST);
    let story = async {
        master.assign(FIRST, &assigned(1, 3, [(1, led_by(FIRST))]));
        after(10).await;
        push(&shard, 0);
        after(10).await;
        let refusal = Refusal::new(RefusalKind::UnknownIncarnation, "pserver \"ps-0\"", "of an earlier term");
        master.heard().given_up.insert(FIRST.0, refusal);
        after(600).await;
        assert_eq!((shard.incarnation(), shard.routing_version()), (Incarnation(78), (0, 0)));
        master.assign(Incarnation(78), &assigned(1, 9, [(1, led_by(Incarnation(78)))]));
        after(10).await;
    };
    assert!(live_during(&Net::default(), &master, &shard, story).await.is_none());
    let heard = master.heard();
    let nonces: Vec<u64> = heard.registered.iter().map(|request| request.nonce).collect();
    assert!(nonces.len() == 2 && nonces[0] != nonces[1], "another life has another nonce: {nonces:?}");
    assert_eq!(heard.registered[1].previous, FIRST.0);
    let of = |incarnation| {
        let reports = heard.reports.iter().map(|(_, report)| report);
        reports.filter(move |report| report.incarnation == incarnation).collect::<Vec<_>>()
    };
    assert_eq!(of(77).iter().rev().find_map(|report| report.progress.first()).unwrap().version, 1);
    let first = of(78)[0];
    assert_eq!((first.call, first.routing_version, first.progress.len()), (1, 0, 0));
    let last = *of(78).iter().rfind(|report| !report.progress.is_empty()).unwrap();
    assert_eq!((last.routing_version, last.progress[0].version), (9, 0), "restored by itself");
    let watched = heard.watches.iter().map(|(_, watch)| watch).find(|watch| watch.incarnation == 78);
    assert_eq!(watched.map(|watch| (watch.master_term, watch.routing_version)), Some((0, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_life_ends_with_what_no_new_one_can_mend() {
    let (master, shard) = (FakeMaster::default(), registered());
    master.heard().given_up.insert(FIRST.0, Refusal::new(RefusalKind::WrongJob, "job", "another"));
    let fault = live_during(&Net::default(), &master, &shard, after(1000)).await.unwrap();
    assert_eq!(fault.refusal().unwrap().kind, RefusalKind::WrongJob);
    assert_eq!((master.heard().registered.len(), shard.incarnation()), (0, FIRST));
    // Superseded: its name is another's now.
    let (master, shard) = (FakeMaster::default(), registered());
    master.heard().refusal = Some(Refusal::new(RefusalKind::StaleIncarnation, "ps-0", "superseded"));
    let fault = live_during(&Net::default(), &master, &shard, after(1000)).await.unwrap();
    assert_eq!(fault.refusal().unwrap().kind, RefusalKind::StaleIncarnation);
    assert_eq!((master.heard().registered.len(), shard.incarnation()), (0, FIRST));
}

#[tokio::test(start_paused = true)]
async fn a_life_follows_and_reports_its_copies_and_asks_for_those_that_follow_it() {
    let (net, masters) = (Net::default(), [FakeMaster::default(), FakeMaster::default()]);
    let (leader, follower) = (empty(job(50, 2), 16, Incarnation(1)), registered());
    net.listen(1, &leader);
    let copy = PlacedCopy { pserver: FIRST, fill: Fill(4), is_in_sync: false };
    let leading = Placement { copies: vec![copy], ..alone(3) };
    masters[0].assign(Incarnation(1), &assigned(1, 4, [(0, leading.clone()), (1, leading)]));
    let following = Placement { fill: Fill(4), ..alone(3) };
    let mut assignment = assigned(1, 4, [(0, following.clone()), (1, following)]);
    assignment.pservers = vec![PserverAddress { incarnation: Incarnation(1), address: address(1) }];
    masters[1].assign(FIRST, &assignment);
    let lives = async {
        let leading = live_during(&net, &masters[0], &leader, after(400));
        let following = live_during(&net, &masters[1], &follower, after(400));
        let pushed = async {
            after(100).await;
            push(&leader, 0);
        };
        let (leading, following, ()) = tokio::join!(leading, following, pushed);
        assert!(leading.is_none() && following.is_none());
    };
    lives.await;
    let heard = masters[0].heard();
    let asked = heard.reports.iter().flat_map(|(_, report)| &report.admissions).next().unwrap();
    assert_eq!((asked.block, asked.pserver, asked.fill, asked.term), (0, 77, 4, 3));
    let told = heard.reports.iter().flat_map(|(_, report)| &report.progress);
    let told = told.map(|group| (group.blocks.clone(), group.version)).collect::<Vec<_>>();
    assert_eq!(
        (told.first(), told.last()),
        (Some(&(vec![0, 1], 0)), Some(&(vec![1], 1))),
        "what has changed"
    );
    let heard = masters[1].heard();
    let last = &heard.reports.last().unwrap().1;
    let told = heard.reports.iter().flat_map(|(_, report)| &report.copies);
    let names: Vec<_> = told
        .map(|copy| (copy.blocks.clone(), copy.fill, copy.name.map(|name| name.version), copy.is_broken))
        .collect();
    assert!(names.contains(&(vec![0, 1], 4, Some(0), false)), "{names:?}");
    assert_eq!(names.last(), Some(&(vec![1], 4, Some(1), false)));
    let counters = last.counters.unwrap();
    assert_eq!((counters.fills, counters.entries, counters.bytes_followed), (2, 1, 4 * (3 * 6 + 2 + 1)));
}

#[tokio::test(start_paused = true)]
async fn every_assignment_has_its_primaries_restored_and_no_other_copies() {
    let (shard, storage, mut random) = (registered(), memory(), Random::seeded(1));
    let restored = || {
        shard
            .whole_standing()
            .unwrap()
            .0
            .iter()
            .map(|group| (group.blocks.len(), group.term))
            .collect::<Vec<_>>()
    };
    let story = async {
        after(1).await;
        shard.assign_now(assigned(1, 3, [(0, led_by(FIRST)), (1, led_by(Incarnation(9)))])).unwrap();
        after(1).await;
        assert_eq!(restored(), [(1, 3)]);
        let rewound = Placement { primary: FIRST, ..alone(5) };
        shard.assign_now(assigned(1, 5, [(0, rewound.clone()), (1, rewound)])).unwrap();
        after(1).await;
        assert_eq!(restored(), [(2, 5)]);
    };
    tokio::select! {
        biased;
        refusal = restore(&shard, &storage, &mut random) => panic!("{refusal}"),
        () = story => {}
    }
    // What it finds when it begins is restored too.
    let shard = registered();
    shard.assign_now(assigned(1, 3, [(0, led_by(FIRST))])).unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(1), restore(&shard, &storage, &mut random)).await;
    assert!(waited.is_err() && shard.unrestored().unwrap().is_empty());
}
