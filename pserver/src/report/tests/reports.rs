//! Registering and reporting.

use super::*;
use crate::shard::Pushed;
use crate::shard::tests::{assignment, gradient, host, message};
use shoal_runtime::cluster::{Node, RefusalKind, Step};

/// Reports for `millis` while `meanwhile` runs. Returns what ended the reporting, if anything did.
async fn report_for(
    master: &FakeMaster,
    shard: &Arc<Shard>,
    millis: u64,
    meanwhile: impl Future<Output = ()>,
) -> Option<Fault> {
    talk_for(report(shard, &master.masters(), &mut Random::seeded(1)), millis, meanwhile).await
}

fn push(shard: &Arc<Shard>, step: u64, node: Node) {
    let bytes = 1.0f32.to_le_bytes();
    let (what, weight) = (Pushed::Node(Step(step), node), u64::from(node.width()));
    shard.push(&message(what, weight, vec![gradient(1, &bytes)])).unwrap();
}

const ROOT: Node = Node { level: 1, index: 0 };

#[tokio::test(start_paused = true)]
async fn a_registration_is_repeated_under_one_nonce_until_the_master_answers() {
    let master = FakeMaster::default();
    master.heard().outage = 7;
    let mut random = Random::seeded(1);
    let (incarnation, settings, _) =
        register(&master.masters(), &identity(Some("test")), &mut random).await.unwrap();
    assert_eq!((incarnation, settings), (Incarnation(77), job(5, 2)));
    let heard = master.heard();
    assert_eq!(heard.registered.len(), 8);
    assert!(heard.registered.iter().all(|request| request.nonce == 5 && request.name == "ps-0"));
}

#[tokio::test(start_paused = true)]
async fn the_job_is_asked_for_when_it_was_not_named() {
    let master = FakeMaster::default();
    register(&master.masters(), &identity(None), &mut Random::seeded(1)).await.unwrap();
    assert_eq!(master.heard().registered[0].job, "test");
}

#[tokio::test(start_paused = true)]
async fn a_registration_that_is_refused_is_not_repeated() {
    let master = FakeMaster::default();
    master.heard().refusal = Some(Refusal::new(RefusalKind::WrongJob, "job", "another"));
    let fault =
        register(&master.masters(), &identity(Some("other")), &mut Random::seeded(1)).await.unwrap_err();
    assert_eq!(fault.refusal().unwrap().kind, RefusalKind::WrongJob);
    assert_eq!(master.heard().registered.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_master_that_does_not_believe_us_is_given_two_minutes_to_and_no_more() {
    let (mut outage, mut random) = (Outage::new(), Random::seeded(1));
    let untrusted = || Fault::Untrusted("master:7400: it refuses our certificate".to_owned());
    let began = Instant::now();
    let fault = loop {
        if let Err(fault) = outage.survive(untrusted(), &mut random).await {
            break fault;
        }
    };
    assert_eq!(fault, untrusted());
    assert!((120..122).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    // Whatever else comes in between begins the time anew.
    let mut outage = Outage::new();
    for _ in 0..3 {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(100) {
            outage.survive(untrusted(), &mut random).await.unwrap();
        }
        outage.survive(Fault::Unreachable(String::new()), &mut random).await.unwrap();
    }
}

/// Holds block 1, restored at routing version 3.
fn hosting_shard() -> Arc<Shard> {
    let shard = empty(job(5, 2), 16, ME);
    host(&shard, assignment(3, &[1]));
    shard
}

#[tokio::test(start_paused = true)]
async fn reports_follow_one_another_four_times_in_a_leases_time_to_live_and_are_counted() {
    let (master, shard) = (FakeMaster::default(), hosting_shard());
    assert!(report_for(&master, &shard, 2000, async {}).await.is_none());
    let heard = master.heard();
    let silences = heard.reports.windows(2).map(|pair| pair[1].0 - pair[0].0);
    assert!(silences.max().unwrap() <= Duration::from_millis(251));
    let calls: Vec<u64> = heard.reports.iter().map(|(_, report)| report.call).collect();
    assert_eq!(calls, (1..=calls.len() as u64).collect::<Vec<_>>());
    let (_, report) = &heard.reports[0];
    assert_eq!((report.job.as_str(), report.incarnation, report.routing_version), ("test", ME.0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_version_is_reported_at_once_and_held_nodes_a_little_later() {
    let (master, shard) = (FakeMaster::default(), hosting_shard());
    let started = Instant::now();
    let pushes = async {
        after(100).await;
        push(&shard, 0, ROOT);
        after(50).await;
        push(&shard, 1, Node::leaf(0));
        after(50).await;
        push(&shard, 1, ROOT);
    };
    report_for(&master, &shard, 240, pushes).await;
    let heard = master.heard();
    let told: Vec<(u128, u64, usize)> = heard
        .reports
        .iter()
        .skip(1)
        .filter_map(|(at, report)| Some((at.duration_since(started).as_millis(), report.progress.first()?)))
        .map(|(at, progress)| (at, progress.version, progress.held.len()))
        .collect();
    assert_eq!(
        told.iter().map(|told| (told.1, told.2)).collect::<Vec<_>>(),
        [(0, 0), (1, 0), (1, 1), (2, 0)]
    );
    assert!(told[1].0 <= 103 && told[2].0 <= 178 && told[3].0 <= 203, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn many_changes_make_few_reports() {
    let (master, shard) = (FakeMaster::default(), hosting_shard());
    let pushes = async {
        for step in 0..9 {
            push(&shard, step, ROOT);
        }
    };
    report_for(&master, &shard, 50, pushes).await;
    assert!(master.heard().reports.len() <= 3, "{:?}", master.heard().reports);
    assert_eq!(master.heard().reports.last().unwrap().1.progress[0].version, 9);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_master_is_waited_out() {
    let (master, shard) = (FakeMaster::default(), hosting_shard());
    master.heard().outage = 20;
    let pushes = async {
        after(500).await;
        push(&shard, 0, ROOT);
    };
    assert!(report_for(&master, &shard, 60_000, pushes).await.is_none());
    let heard = master.heard();
    assert_eq!(heard.outage, 0);
    let mut told = heard.reports.iter().rev().filter_map(|(_, report)| report.progress.first());
    assert_eq!(told.next().unwrap().version, 1);
    let quiet = heard.reports.iter().rev().take(9).all(|(_, report)| report.progress.is_empty());
    assert!(quiet, "what was heard is not told again");
}

/// Another master, or one that has let go of what it knew of the pieces.
#[tokio::test(start_paused = true)]
async fn a_master_that_has_forgotten_is_told_everything_and_then_what_changes_again() {
    let (master, shard) = (FakeMaster::default(), hosting_shard());
    let story = async {
        after(100).await;
        master.heard().forgotten += 1;
        after(1000).await;
    };
    report_for(&master, &shard, 1000, story).await;
    let heard = master.heard();
    let told = heard.reports.iter().map(|(_, report)| (report.base, report.progress.len()));
    // Each begins with what it was asked for: the number that came with the answer before.
    let of =
        |base| told.clone().filter(|(known, _)| *known == base).map(|(_, groups)| groups).collect::<Vec<_>>();
    assert!(of(0).len() == 1 && of(1)[0] == 1 && of(2)[0] == 1, "{:?}", told.collect::<Vec<_>>());
    assert!(of(1)[1..].iter().chain(&of(2)[1..]).all(|groups| *groups == 0));
}

#[tokio::test(start_paused = true)]
async fn a_later_life_under_the_same_name_ends_the_reporting() {
    let (master, shard) = (FakeMaster::default(), hosting_shard());
    master.heard().refusal = Some(Refusal::new(RefusalKind::StaleIncarnation, "ps-0", "superseded"));
    let fault = report_for(&master, &shard, 1000, async {}).await.unwrap();
    assert_eq!(fault.refusal().unwrap().kind, RefusalKind::StaleIncarnation);
}

#[tokio::test(start_paused = true)]
async fn what_makes_the_job_impossible_is_told_at_once() {
    let (master, shard) = (FakeMaster::default(), hosting_shard());
    let failing = async {
        after(30).await;
        shard.fail("two results differ".into());
    };
    report_for(&master, &shard, 40, failing).await;
    assert_eq!(master.heard().reports.last().unwrap().1.failure, "two results differ");
}
