//! The keeper in paused time, over a store in memory: who is elected, what is told, how an office ends.

use super::*;
use crate::document::{Checks, End, Wanted};
use crate::fixture::*;
use crate::members::State;
use object_store::memory::InMemory;
use shoal_runtime::cluster::{CheckpointId, EnvironmentRule, Incarnation};
use shoal_runtime::host::rpc::Channel;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::store::{MemoryStore, SwapFault};
use shoal_runtime::wire::proto::{self, master_server::Master};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tokio::time::{Instant, sleep};
use tonic::Request;

mod places;
mod settings;
mod storage;
mod stores;

/// Addresses where nobody listens, and who was asked about.
#[derive(Debug, Default)]
struct Wire {
    gone: BTreeSet<String>,
    asked: Mutex<Vec<String>>,
}

impl Dial for Wire {
    fn dial(&self, address: &str, _: Option<Role>) -> Result<Channel, String> {
        Err(format!("{address}: a keeper calls nobody"))
    }
    fn is_gone<'a>(&'a self, address: &'a str) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        self.asked.lock().unwrap().push(address.to_owned());
        Box::pin(async move {
            sleep(Duration::from_millis(5)).await;
            self.gone.contains(address)
        })
    }
}

fn fresh(pservers: u32, replicas: u32) -> Document {
    Document::new(settings(64, 2, 8, 2), Wanted { pservers, trainers: 1, replicas, exclude_max: 0 })
}

fn keeper<'a>(store: &'a dyn Store, dial: &'a dyn Dial, identity: &str) -> Keeper<'a> {
    let (identity, manifest) = (identity.to_owned(), manifest(64));
    // A test's keeper lives as long as the test.
    let storage = Box::leak(Box::new(Storage::over(Arc::new(InMemory::new()), "memory")));
    let (place, spec) = (String::from("memory"), at_the_end());
    Keeper {
        store,
        dial,
        identity,
        manifest,
        fresh: fresh(1, 0),
        storage,
        place,
        store_place: String::from("store"),
        spec,
    }
}

async fn stored(store: &dyn Store) -> (Revision, Document) {
    let (revision, bytes) = store.load().await.unwrap().expect("nothing is stored");
    (revision, Document::from_bytes(&bytes).unwrap())
}
async fn put(store: &dyn Store, expected: Option<Revision>, document: &Document) -> Revision {
    store.swap(expected, document.to_bytes().into()).await.unwrap()
}

/// Runs keepers, each beside its service, until the scenario is over: for five minutes of paused time at most.
async fn beside<T>(keepers: &[(&Keeper<'_>, &MasterService)], scenario: impl Future<Output = T>) -> T {
    let mut randoms: Vec<Random> = (0..keepers.len() as u64).map(Random::seeded).collect();
    let kept =
        keepers.iter().zip(&mut randoms).map(|((keeper, service), random)| keeper.keep(service, random));
    tokio::select! {
        biased;
        outcome = timeout(Duration::from_secs(300), scenario) => outcome.expect("it never came to be"),
        (error, ..) = futures_util::future::select_all(kept.map(Box::pin)) => panic!("a keeper gave up: {error:#}"),
    }
}

/// Why a keeper gives up.
async fn gives_up(keeper: &Keeper<'_>, service: &MasterService) -> anyhow::Error {
    let mut random = Random::seeded(1);
    let kept = keeper.keep(service, &mut random);
    timeout(Duration::from_secs(300), kept).await.expect("it never gave up")
}

/// Looks every millisecond. Returns after how many it was so.
async fn until(mut is_so: impl FnMut() -> bool) -> u64 {
    let since = Instant::now();
    while !is_so() {
        sleep(Duration::from_millis(1)).await;
    }
    since.elapsed().as_millis() as u64
}

fn told(service: &MasterService) -> Option<Document> {
    service.with(|machine, _| machine.document().clone())
}
fn term(service: &MasterService) -> Option<u32> {
    told(service).map(|document| document.master_term)
}
fn is_placed(service: &MasterService) -> bool {
    told(service).is_some_and(|document| !document.blocks.is_empty())
}
fn register(service: &MasterService, name: &str, nonce: u64) -> Incarnation {
    let registered = service
        .with(|machine, now| machine.register(name, &format!("{name}:7000"), nonce, 1, None, now))
        .unwrap()
        .unwrap();
    service.changed().notify_waiters();
    registered
}
fn join(service: &MasterService) {
    service.with(|machine, now| machine.join("a", 1, 1, declaration(), None, now)).unwrap().unwrap();
    service.changed().notify_waiters();
}

#[tokio::test(start_paused = true)]
async fn whoever_is_elected_writes_a_higher_term_before_it_says_a_word() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let keeper = keeper(&store, &wire, "m1");
    beside(&[(&keeper, &service)], async {
        until(|| term(&service).is_some()).await;
    })
    .await;
    let first = stored(&store).await.1;
    assert_eq!((first.master_term, first.routing_version, first.master.as_str()), (1, 1, "m1"));
    let identity = first.identity.clone();
    assert!(identity.is_some());
    assert_eq!(first, Document { identity, ..fresh(1, 0) }.elected("m1"));

    let (other, service) = (store.another(), MasterService::new());
    let keeper = self::keeper(&other, &wire, "m2");
    beside(&[(&keeper, &service)], async {
        until(|| term(&service) == Some(2)).await;
        assert_eq!(told(&service).unwrap(), first.clone().elected("m2"));
    })
    .await;
    assert_eq!(stored(&store).await.1, first.elected("m2"));
}

#[tokio::test(start_paused = true)]
async fn what_is_decided_is_in_the_store_before_it_is_told() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let keeper = keeper(&store, &wire, "m1");
    beside(&[(&keeper, &service)], async {
        until(|| term(&service).is_some()).await;
        for _ in 0..5 {
            store.fail_next_swap(SwapFault::NotApplied);
        }
        let before = stored(&store).await;
        join(&service);
        register(&service, "p0", 1);
        let mut was_undecided = 0;
        while !is_placed(&service) {
            assert!(told(&service).unwrap().routing_version <= stored(&store).await.1.routing_version);
            was_undecided += u64::from(stored(&store).await.0 == before.0);
            sleep(Duration::from_millis(1)).await;
        }
        assert!(was_undecided > 50, "five swaps were lost on their way");
        assert_eq!(told(&service), Some(stored(&store).await.1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_swap_whose_answer_was_lost_is_settled_and_nobody_steps_down() {
    for fault in [SwapFault::AnswerLost, SwapFault::NotApplied, SwapFault::AppliedLate] {
        let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
        store.fail_next_swap(fault);
        let keeper = keeper(&store, &wire, "m1");
        beside(&[(&keeper, &service)], async {
            until(|| term(&service).is_some()).await;
            for n in 0..4 {
                store.fail_next_swap(fault);
                register(&service, &format!("p{n}"), 1);
                join(&service);
                let wanted = Wanted { pservers: 1, trainers: 9 + n, replicas: 0, exclude_max: 0 };
                service.with(|machine, _| machine.scale(wanted));
                service.changed().notify_waiters();
                until(|| told(&service).unwrap().wanted == wanted).await;
            }
            assert!(is_placed(&service));
            sleep(Duration::from_millis(500)).await;
            assert_eq!(
                (term(&service), told(&service)),
                (Some(1), Some(stored(&store).await.1)),
                "{fault:?}"
            );
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn other_wishes_make_no_other_job_and_of_members_those_in_the_store_hold_of_copies_ones_own() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    put(&store, None, &fresh(3, 2).elected("m0")).await;
    let mut keeper = keeper(&store, &wire, "m1");
    keeper.fresh.wanted = Wanted { pservers: 1, trainers: 9, replicas: 1, exclude_max: 4 };
    let checks = Checks { environment: EnvironmentRule::Warn, verify_millionths: 64, record_hashes: 10 };
    keeper.fresh.checks = checks;
    beside(&[(&keeper, &service)], async {
        until(|| term(&service).is_some()).await;
        let wanted = Wanted { pservers: 3, trainers: 1, replicas: 1, exclude_max: 4 };
        assert_eq!(told(&service).unwrap().wanted, wanted);
        assert_eq!(stored(&store).await.1.wanted, wanted);
        assert_eq!(stored(&store).await.1.checks, checks, "how closely one looks is one's own");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_when_the_leadership_is_lost_and_the_deposed_stands_by() {
    let (first, wire) = (MemoryStore::new(), Wire::default());
    let second = first.another();
    let services = [MasterService::new(), MasterService::new()];
    let keepers = [keeper(&first, &wire, "m1"), keeper(&second, &wire, "m2")];
    beside(&[(&keepers[0], &services[0]), (&keepers[1], &services[1])], async {
        until(|| term(&services[0]) == Some(1)).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(
            [term(&services[0]), term(&services[1])],
            [Some(1), None],
            "one leads for as long as it can"
        );
        join(&services[0]);
        register(&services[0], "p0", 1);
        until(|| is_placed(&services[0])).await;
        let placed = told(&services[0]).unwrap();
        first.depose();
        until(|| term(&services[1]) == Some(2)).await;
        assert_eq!(term(&services[0]), None, "the deposed answers that another leads");
        assert_eq!(told(&services[1]).unwrap(), placed.elected("m2"));
        assert_eq!(second.leader().as_deref(), Some("m2"));
        second.depose();
        until(|| term(&services[0]) == Some(3)).await;
        assert_eq!(term(&services[1]), None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_was_overtaken_without_noticing_tells_nothing_that_it_could_not_write() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let keeper = keeper(&store, &wire, "m1");
    beside(&[(&keeper, &service)], async {
        until(|| term(&service).is_some()).await;
        join(&service);
        register(&service, "p0", 1);
        until(|| is_placed(&service)).await;
        let before = told(&service).unwrap();
        let (revision, document) = stored(&store).await;
        put(&store.another(), Some(revision), &document.elected("m2")).await;
        service.with(|machine, _| {
            machine.scale(Wanted { pservers: 1, trainers: 77, replicas: 0, exclude_max: 0 })
        });
        service.changed().notify_waiters();
        let mut was_silent = false;
        while term(&service) != Some(3) {
            match told(&service) {
                Some(document) => assert_eq!(document, before),
                None => was_silent = true,
            }
            sleep(Duration::from_millis(1)).await;
        }
        assert!(was_silent, "it has stepped down in between");
        let again = told(&service).unwrap();
        assert_eq!((again.routing_version, again.wanted.trainers), (before.routing_version + 2, 1));
        assert_eq!(again.master, "m1");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn only_suspects_are_probed_and_who_is_gone_is_lost_at_once() {
    let store = MemoryStore::new();
    let wire = Wire { gone: ["p1:7000".to_owned()].into(), ..Wire::default() };
    let service = MasterService::new();
    let keeper = Keeper { fresh: fresh(2, 0), ..keeper(&store, &wire, "m1") };
    beside(&[(&keeper, &service)], async {
        until(|| term(&service).is_some()).await;
        join(&service);
        let [p0, p1] = ["p0", "p1"].map(|name| register(&service, name, 1));
        let attend = |who| service.with(|machine, now| machine.attend_pserver(who, now)).unwrap().unwrap();
        [p0, p1].into_iter().for_each(attend);
        until(|| is_placed(&service)).await;
        sleep(Duration::from_millis(300)).await;
        assert_eq!(*wire.asked.lock().unwrap(), Vec::<String>::new());
        let state = |who| service.with(|machine, _| machine.pservers.get(who).unwrap().state).unwrap();
        for who in [p0, p1] {
            service.with(|machine, now| machine.suspect_pserver(who, now));
        }
        service.changed().notify_waiters();
        let millis = until(|| state(p1) == State::Lost).await;
        assert!(millis <= 15, "{millis}");
        assert_eq!(state(p0), State::Live, "somebody listens there");
        let asked = wire.asked.lock().unwrap().clone();
        assert_eq!(asked[..2], ["p0:7000", "p1:7000"]);
        attend(p0);
        sleep(Duration::from_millis(200)).await;
        let count = wire.asked.lock().unwrap().len();
        sleep(Duration::from_millis(500)).await;
        assert_eq!(
            wire.asked.lock().unwrap().len(),
            count,
            "who has a call open and who is lost are left alone"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn silence_is_noticed_although_nobody_calls() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let keeper = Keeper { fresh: fresh(2, 0), ..keeper(&store, &wire, "m1") };
    beside(&[(&keeper, &service)], async {
        until(|| term(&service).is_some()).await;
        join(&service);
        for name in ["p0", "p1"] {
            register(&service, name, 1);
        }
        until(|| is_placed(&service)).await;
        let rewind = told(&service).unwrap().blocks[0].rewind;
        let stays = "p2";
        let millis = until(|| {
            service
                .with(|machine, now| machine.register(stays, "p2:7000", 1, 1, None, now))
                .unwrap()
                .unwrap();
            told(&service).unwrap().blocks.iter().all(|block| block.rewind > rewind)
        })
        .await;
        let (ttl, step) = (TTL_MILLIS, TTL_MILLIS / 16);
        assert!(
            (2 * ttl - step..=2 * ttl + 3 * step).contains(&millis),
            "lost after a ttl, restored after another: {millis}"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_adopted_is_told_at_once_to_whoever_waits_for_it() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let keeper = keeper(&store, &wire, "m1");
    beside(&[(&keeper, &service)], async {
        until(|| term(&service).is_some()).await;
        join(&service);
        let request =
            proto::RouteRequest { job: "digits-1".to_owned(), routing_version: 0, wait_millis: 9000 };
        let (asked, waiting) = (Instant::now(), service.route(Request::new(request)));
        let registering = async {
            sleep(Duration::from_millis(33)).await;
            register(&service, "p0", 1);
        };
        let (reply, ()) = futures_util::future::join(waiting, registering).await;
        assert!(reply.unwrap().into_inner().routing.is_some());
        assert_eq!(asked.elapsed(), Duration::from_millis(33));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_end_is_written_and_known_to_the_next() {
    let (store, wire) = (MemoryStore::new(), Wire::default());
    for (identity, expected) in [("m1", 1), ("m2", 2)] {
        let service = MasterService::new();
        let handle = store.another();
        let keeper = keeper(&handle, &wire, identity);
        beside(&[(&keeper, &service)], async {
            until(|| term(&service) == Some(expected)).await;
            if expected == 1 {
                service.with(|machine, _| machine.fail("no".to_owned()));
                service.changed().notify_waiters();
            }
            until(|| told(&service).unwrap().end == Some(End::Failed("no".to_owned()))).await;
        })
        .await;
    }
    assert_eq!(stored(&store).await.1.end, Some(End::Failed("no".to_owned())));
}
