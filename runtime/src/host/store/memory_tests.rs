//! Tests of the store in memory and of swaps whose outcome is in doubt, on a clock that stands still.

use super::{MemoryStore, Revision, Store, StoreError, SwapFault, settle};
use crate::host::random::Random;
use bytes::Bytes;
use proptest::prelude::*;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

async fn settled(
    store: &MemoryStore,
    expected: Option<Revision>,
    document: Bytes,
) -> Result<Revision, StoreError> {
    settle(store, expected, document, PATIENCE, &mut Random::seeded(1)).await
}

fn is_conflict<T: std::fmt::Debug>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Conflict(_)))
}

fn is_unavailable<T: std::fmt::Debug>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable(_)))
}

#[tokio::test]
async fn only_who_names_the_present_revision_may_swap() {
    let store = MemoryStore::new();
    assert_eq!(store.load().await, Ok(None));
    assert!(is_conflict(&store.swap(Some(Revision(1)), text("a")).await));
    let first = store.swap(None, text("a")).await.unwrap();
    assert!(is_conflict(&store.swap(None, text("b")).await));
    let second = store.another().swap(Some(first), text("b")).await.unwrap();
    assert!(second > first);
    assert!(is_conflict(&store.swap(Some(first), text("c")).await));
    assert_eq!(store.load().await, Ok(Some((second, text("b")))));
}

#[tokio::test]
async fn ordered_faults_are_met_once_each_and_by_their_handle_alone() {
    let store = MemoryStore::new();
    store.fail_next_swap(SwapFault::NotApplied);
    store.fail_next_swap(SwapFault::AnswerLost);
    let other = store.another();
    let first = other.swap(None, text("a")).await.unwrap();
    assert!(is_unavailable(&store.swap(Some(first), text("b")).await));
    assert_eq!(store.load().await.unwrap().unwrap().1, "a");
    assert!(is_unavailable(&store.swap(Some(first), text("c")).await));
    let (second, found) = store.load().await.unwrap().unwrap();
    assert_eq!(found, "c");
    store.swap(Some(second), text("d")).await.unwrap();
}

#[tokio::test]
async fn a_late_swap_comes_into_force_after_the_next_load_unless_it_is_overtaken() {
    let store = MemoryStore::new();
    for (document, is_overtaken) in [("a", false), ("b", true)] {
        let (before, expected) = match store.load().await.unwrap() {
            Some((revision, found)) => (Some(found), Some(revision)),
            None => (None, None),
        };
        store.fail_next_swap(SwapFault::AppliedLate);
        assert!(is_unavailable(&store.swap(expected, text(document)).await));
        if is_overtaken {
            store.another().swap(expected, text("other")).await.unwrap();
        }
        let first = store.load().await.unwrap().map(|(_, found)| found);
        let second = store.load().await.unwrap().map(|(_, found)| found);
        let (then, later) = if is_overtaken { (Some(text("other")), "other") } else { (before, document) };
        assert_eq!((first, second), (then, Some(text(later))));
    }
}

#[tokio::test(start_paused = true)]
async fn one_leads_at_a_time_and_dropping_lets_the_next_one_in() {
    let (one, two) = (MemoryStore::new(), MemoryStore::new());
    let rival = one.another();
    let mut led = one.lead("one").await.unwrap();
    assert_eq!(one.leader().as_deref(), Some("one"));
    assert!(two.lead("of another memory").await.is_ok());
    let waits = tokio::time::timeout(PATIENCE, rival.lead("rival")).await;
    assert!(waits.is_err());
    assert!(tokio::time::timeout(PATIENCE, led.lost()).await.is_err());
    let waiting = tokio::spawn(async move { (rival.lead("rival").await, rival) });
    tokio::task::yield_now().await;
    drop(led);
    let (led, rival) = tokio::time::timeout(PATIENCE, waiting).await.expect("still waiting").unwrap();
    assert!(led.is_ok());
    assert_eq!(rival.leader().as_deref(), Some("rival"));
    drop(led);
    assert_eq!(rival.leader(), None);
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_was_deposed_is_told_and_refused_until_it_gives_up_what_it_lost() {
    let store = MemoryStore::new();
    let rival = store.another();
    let mut led = store.lead("one").await.unwrap();
    let first = store.swap(None, text("a")).await.unwrap();
    rival.depose();
    assert_eq!(rival.leader().as_deref(), Some("one"), "only its own leadership can be taken from a handle");
    store.depose();
    assert!(led.lost().await.contains("one"));
    assert!(led.lost().await.contains("one"), "it stays lost");
    assert!(is_conflict(&store.swap(Some(first), text("b")).await));
    let ours = rival.lead("two").await.unwrap();
    assert!(is_conflict(&store.swap(Some(first), text("b")).await));
    let second = rival.swap(Some(first), text("c")).await.unwrap();
    drop(led);
    assert_eq!(rival.leader().as_deref(), Some("two"), "an old leadership takes nothing with it");
    assert!(store.swap(Some(second), text("d")).await.is_ok());
    drop(ours);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_settled_by_the_document_that_is_there() {
    let store = MemoryStore::new();
    for fault in [SwapFault::NotApplied, SwapFault::AnswerLost, SwapFault::AppliedLate] {
        let before = store.load().await.unwrap().map(|(revision, _)| revision);
        store.fail_next_swap(fault);
        let document = Bytes::from(format!("{fault:?}"));
        let revision = settled(&store, before, document.clone()).await.unwrap();
        assert_eq!(store.load().await, Ok(Some((revision, document))));
    }
}

#[tokio::test(start_paused = true)]
async fn another_document_is_a_conflict_though_ours_was_there_before_it() {
    let store = MemoryStore::new();
    let rival = store.another();
    let first = store.swap(None, text("a")).await.unwrap();
    store.fail_next_swap(SwapFault::AnswerLost);
    assert!(is_unavailable(&store.swap(Some(first), text("ours")).await));
    let (second, _) = rival.load().await.unwrap().unwrap();
    rival.swap(Some(second), text("theirs")).await.unwrap();
    store.fail_next_swap(SwapFault::NotApplied);
    assert!(is_conflict(&settled(&store, Some(first), text("ours")).await));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_without_doubt_is_one_though_the_same_bytes_are_there() {
    let store = MemoryStore::new();
    store.another().swap(None, text("the same")).await.unwrap();
    assert!(is_conflict(&settled(&store, None, text("the same")).await));
}

#[tokio::test(start_paused = true)]
async fn a_deposed_leader_does_not_take_the_document_it_began_from_for_its_own_swap() {
    let store = MemoryStore::new();
    let _led = store.lead("one").await.unwrap();
    let first = store.swap(None, text("the same")).await.unwrap();
    store.depose();
    store.fail_next_swap(SwapFault::NotApplied);
    assert!(is_conflict(&settled(&store, Some(first), text("the same")).await));
}

#[tokio::test(start_paused = true)]
async fn settling_ends_when_patience_does() {
    let store = MemoryStore::new();
    for _ in 0..10_000 {
        store.fail_next_swap(SwapFault::NotApplied);
    }
    let began = tokio::time::Instant::now();
    assert!(is_unavailable(&settled(&store, None, text("a")).await));
    assert!((PATIENCE..PATIENCE * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
}

proptest! {
    /// Two writers settle documents of their own under any faults: the history is a chain in which each `Ok` stands
    /// once, at the revision that was answered.
    #[test]
    fn whatever_is_lost_each_settled_swap_is_in_the_history_once(
        turns in prop::collection::vec((any::<bool>(), prop::collection::vec(0_u8..3, 0..4)), 1..12)
    ) {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        clock.block_on(async move {
            let one = MemoryStore::new();
            let (two, reader) = (one.another(), one.another());
            // What each writer believes the document to be at.
            let mut believed = [None, None];
            for (turn, (is_one, faults)) in turns.into_iter().enumerate() {
                let (writer, store) = if is_one { (0, &one) } else { (1, &two) };
                for fault in faults {
                    store.fail_next_swap(
                        [SwapFault::NotApplied, SwapFault::AnswerLost, SwapFault::AppliedLate][usize::from(fault)],
                    );
                }
                let before = reader.load().await.unwrap();
                let document = Bytes::from(format!("{writer} wrote this in turn {turn}"));
                let outcome = settled(store, believed[writer], document.clone()).await;
                let after = reader.load().await.unwrap();
                match outcome {
                    Ok(revision) => {
                        assert_eq!(before.map(|(revision, _)| revision), believed[writer]);
                        assert_eq!(after, Some((revision, document)));
                        believed[writer] = Some(revision);
                    }
                    Err(StoreError::Conflict(_)) => {
                        assert_ne!(before.as_ref().map(|(revision, _)| *revision), believed[writer]);
                        assert_eq!(&after, &before, "a conflict writes nothing");
                        believed[writer] = after.map(|(revision, _)| revision);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        });
    }
}
