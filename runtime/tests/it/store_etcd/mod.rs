//! The store in a real etcd, which each test starts for itself. Where none is installed the tests say so and pass, or
//! fail when `SHOAL_REQUIRE_ALL=1`.

mod link;
mod process;
mod tls;

use bytes::Bytes;
use link::Link;
use process::Etcd;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{Dial, Security, TcpDial};
use shoal_runtime::host::store::{EtcdStore, Leadership, Revision, Store, StoreError, open, settle};
use std::time::Duration;
use tokio::time::{Instant, timeout};

const TTL: Duration = Duration::from_secs(2);
/// What a loaded machine may add to anything.
const SLACK: Duration = Duration::from_secs(10);
/// "/job/state" and "/job/leader" in base 64.
const STATE_64: &str = "L2pvYi9zdGF0ZQ==";
const LEADER_64: &str = "L2pvYi9sZWFkZXI=";

fn store_by(dial: &dyn Dial, etcd: &Etcd) -> EtcdStore {
    EtcdStore::new(dial, &[etcd.address()], "/job", TTL).unwrap()
}

fn store(etcd: &Etcd) -> EtcdStore {
    store_by(&TcpDial::default(), etcd)
}

fn is_conflict<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Conflict(_)))
}

fn is_unavailable<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable(_)))
}

async fn soon_lead(store: &EtcdStore, name: &str) -> Leadership {
    timeout(TTL + SLACK, store.lead(name)).await.expect("nobody leads").unwrap()
}

#[tokio::test]
async fn only_who_names_the_present_revision_may_swap() {
    let Some(etcd) = Etcd::start(&[]).await else { return };
    let store = open(&format!("etcd://{}/job", etcd.address()), &Security::Loopback, None).unwrap();
    assert_eq!(store.load().await, Ok(None));
    assert!(is_conflict(&store.swap(Some(Revision(1)), Bytes::from("a")).await));
    let first = store.swap(None, Bytes::from("a")).await.unwrap();
    assert_eq!(store.load().await, Ok(Some((first, Bytes::from("a")))));
    assert!(is_conflict(&store.swap(None, Bytes::from("b")).await));
    let second = store.swap(Some(first), Bytes::from("b")).await.unwrap();
    assert!(second > first);
    assert!(is_conflict(&store.swap(Some(first), Bytes::from("c")).await));
    assert_eq!(store.load().await, Ok(Some((second, Bytes::from("b")))));
    let other = open(&format!("etcd://{}/job2", etcd.address()), &Security::Loopback, None).unwrap();
    assert_eq!(other.load().await, Ok(None), "prefixes are apart");
    let seen = etcd.gateway("/v3/kv/range", &format!(r#"{{"key":"{STATE_64}"}}"#)).await.unwrap();
    let says = |what: &str| assert!(seen.contains(what), "{what} is not in {seen}");
    says(r#""value":"Yg==""#); // "b"
    says(&format!(r#""mod_revision":"{second}""#));
}

#[tokio::test]
async fn swaps_of_many_handles_at_once_lose_nothing() {
    let Some(etcd) = Etcd::start(&[]).await else { return };
    let mut writers = Vec::new();
    for _ in 0..4 {
        let store = store(&etcd);
        writers.push(tokio::spawn(async move {
            let mut done = 0;
            while done < 10 {
                let (expected, count) = match store.load().await.unwrap() {
                    Some((revision, count)) => (Some(revision), count[0]),
                    None => (None, 0),
                };
                match store.swap(expected, Bytes::from(vec![count + 1])).await {
                    Ok(_) => done += 1,
                    Err(StoreError::Conflict(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(store(&etcd).load().await.unwrap().unwrap().1[0], 40);
}

#[tokio::test]
async fn one_of_two_contenders_leads_for_longer_than_a_lease_and_its_end_lets_the_other_in() {
    let Some(etcd) = Etcd::start(&[]).await else { return };
    let (one, two) = (store(&etcd), store(&etcd));
    let mut led = soon_lead(&one, "one").await;
    assert!(timeout(TTL * 2, two.lead("two")).await.is_err());
    assert!(timeout(Duration::from_millis(10), led.lost()).await.is_err());
    let first = one.swap(None, Bytes::from("a")).await.unwrap();
    drop(led);
    // Given back, not run out: a rival with a far longer lease of its own asks only every few seconds, so ask etcd.
    let given_up = Instant::now();
    let key = format!(r#"{{"key":"{LEADER_64}"}}"#);
    while etcd.gateway("/v3/kv/range", &key).await.unwrap().contains("value") {
        assert!(given_up.elapsed() < TTL / 2, "the lease is not given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let led_by_two = soon_lead(&two, "two").await;
    let seen = etcd.gateway("/v3/kv/range", &key).await.unwrap();
    assert!(seen.contains(r#""value":"dHdv""#), "two, in base 64: {seen}");
    // Having given up what it held, one is a handle like any other.
    assert!(one.swap(Some(first), Bytes::from("b")).await.is_ok());
    drop(led_by_two);
    drop(soon_lead(&one, "one").await);
}

#[tokio::test]
async fn of_many_that_ask_at_once_one_leads() {
    let Some(etcd) = Etcd::start(&[]).await else { return };
    let mut contenders = Vec::new();
    for number in 0..6 {
        let store = store(&etcd);
        contenders
            .push(tokio::spawn(async move { timeout(TTL, store.lead(&number.to_string())).await.ok() }));
    }
    let mut leaders = Vec::new();
    for contender in contenders {
        leaders.extend(contender.await.unwrap());
    }
    assert_eq!(leaders.len(), 1, "{leaders:?}");
}

#[tokio::test]
async fn a_dead_leader_is_followed_within_a_lease_and_refused_when_it_comes_back() {
    let Some(etcd) = Etcd::start(&[]).await else { return };
    let link = Link::default();
    let (one, two) = (store_by(&link, &etcd), store(&etcd));
    let mut led = soon_lead(&one, "one").await;
    let first = one.swap(None, Bytes::from("a")).await.unwrap();
    let waiting = tokio::spawn(async move { (two.lead("two").await.unwrap(), Instant::now(), two) });
    tokio::time::sleep(TTL).await;
    link.cut();
    let cut = Instant::now();
    let reason = timeout(TTL + SLACK, led.lost()).await.expect("the dead leader is not told");
    let (told, why) = (cut.elapsed(), reason.contains("not renewed"));
    assert!(why && told <= TTL * 2, "{reason} after {told:?}");
    let (_led_by_two, won, two) = timeout(TTL + SLACK, waiting).await.unwrap().unwrap();
    let after = won.duration_since(cut);
    // Measured: 1.6 to 2.1 s. etcd looks for leases that ran out twice a second, the standby asks five times a lease.
    assert!(after <= TTL * 3, "followed only after {after:?}");
    link.heal();
    // Nobody has swapped since: it is the leadership that is missing.
    assert!(is_conflict(&one.swap(Some(first), Bytes::from("b")).await));
    let second = two.swap(Some(first), Bytes::from("c")).await.unwrap();
    assert!(is_conflict(&one.swap(Some(first), Bytes::from("b")).await));
    assert!(is_conflict(&one.swap(Some(second), Bytes::from("b")).await), "it must step down first");
    drop(led);
    assert!(two.swap(Some(second), Bytes::from("d")).await.is_ok(), "and takes nothing with it");
}

#[tokio::test]
async fn a_leader_whose_key_is_taken_away_is_told() {
    let Some(etcd) = Etcd::start(&[]).await else { return };
    let one = store(&etcd);
    let mut led = soon_lead(&one, "one").await;
    etcd.gateway("/v3/kv/deleterange", &format!(r#"{{"key":"{LEADER_64}"}}"#)).await.unwrap();
    assert!(is_conflict(&one.swap(None, Bytes::from("a")).await));
    let reason = timeout(TTL + SLACK, led.lost()).await.expect("the leader is not told");
    assert!(reason.contains("no more"), "{reason}");
}

#[tokio::test]
async fn an_etcd_that_comes_back_has_document_and_leader_still() {
    let Some(mut etcd) = Etcd::start(&[]).await else { return };
    let store = EtcdStore::new(&TcpDial::default(), &[etcd.address()], "/job", TTL * 10).unwrap();
    let mut led = soon_lead(&store, "one").await;
    let first = store.swap(None, Bytes::from("a")).await.unwrap();
    etcd.kill();
    assert!(is_unavailable(&store.load().await));
    assert!(is_unavailable(&store.swap(Some(first), Bytes::from("b")).await));
    assert!(is_unavailable(&store.lead("again").await.map(drop)));
    etcd.restart().await;
    let patience = SLACK;
    let mut random = Random::seeded(1);
    let second = settle(&store, Some(first), Bytes::from("b"), patience, &mut random).await.unwrap();
    assert_eq!(store.load().await, Ok(Some((second, Bytes::from("b")))));
    assert!(timeout(Duration::from_secs(1), led.lost()).await.is_err(), "a lease outlives a restart");
}

#[tokio::test]
async fn a_lost_answer_is_unavailable_and_settled_by_what_is_there() {
    let Some(etcd) = Etcd::start(&[]).await else { return };
    let link = Link::default();
    // Twice, so that whoever repeated a call on its own would find someone to take it.
    let members = [etcd.address(), etcd.address()];
    let store = EtcdStore::new(&link, &members, "/job", TTL).unwrap();
    let first = store.swap(None, Bytes::from("a")).await.unwrap();
    link.lose_one_answer();
    assert!(is_unavailable(&store.swap(Some(first), Bytes::from("b")).await));
    let (second, found) = store.load().await.unwrap().unwrap();
    assert_eq!(found, "b");
    link.lose_one_answer();
    let mut random = Random::seeded(1);
    let third = settle(&store, Some(second), Bytes::from("c"), SLACK, &mut random).await.unwrap();
    assert_eq!(store.load().await, Ok(Some((third, Bytes::from("c")))));
    // An election whose answer is lost is given back at once.
    link.lose_one_answer();
    assert!(is_unavailable(&store.lead("one").await.map(drop)));
    assert!(timeout(TTL / 2, store.lead("one")).await.unwrap().is_ok());
}

#[tokio::test]
async fn members_that_do_not_answer_are_passed_over() {
    let Some(etcd) = Etcd::start(&[]).await else { return };
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = nobody.local_addr().unwrap().to_string();
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let members = [silent, closed, etcd.address()];
    let store = EtcdStore::new(&TcpDial::default(), &members, "/job", TTL).unwrap();
    assert_eq!(store.load().await, Ok(None));
    assert!(store.swap(None, Bytes::from("a")).await.is_ok(), "it stays with the member that answers");
    drop(soon_lead(&store, "one").await);
}

#[tokio::test]
async fn a_document_that_is_too_large_is_refused_with_its_size_and_the_largest_is_taken() {
    let Some(etcd) = Etcd::start(&[]).await else { return };
    let (store, limit) = (store(&etcd), (3 << 19) - (16 << 10));
    let _led = soon_lead(&store, "one").await;
    let first = store.swap(None, Bytes::from(vec![7; limit])).await.unwrap();
    assert_eq!(store.load().await.unwrap().unwrap().1.len(), limit);
    let refused = store.swap(Some(first), Bytes::from(vec![7; limit + 1])).await;
    let names = |what: &str| what.contains(&(limit + 1).to_string()) && what.contains(&limit.to_string());
    assert!(matches!(&refused, Err(StoreError::Broken(what)) if names(what)), "{refused:?}");
}

#[tokio::test]
async fn an_etcd_with_a_lower_limit_is_told_by_its_setting() {
    let Some(etcd) = Etcd::start(&["--max-request-bytes", "4096"]).await else { return };
    let refused = store(&etcd).swap(None, Bytes::from(vec![7; 8192])).await;
    let names = |what: &str| what.contains("--max-request-bytes") && what.contains(&etcd.address());
    assert!(matches!(&refused, Err(StoreError::Broken(what)) if names(what)), "{refused:?}");
    assert!(store(&etcd).swap(None, Bytes::from(vec![7; 2048])).await.is_ok());
}
