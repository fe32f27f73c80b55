//! Stores that hold something else, that cannot be reached, that only a person can mend.

use super::*;
use bytes::Bytes;
use shoal_runtime::host::store::Leadership;
use std::sync::atomic::{AtomicU64, Ordering};

#[tokio::test(start_paused = true)]
async fn another_jobs_store_is_refused_and_left_alone() {
    let wire = Wire::default();
    let mut of_other_settings = fresh(1, 0).elected("m0");
    of_other_settings.job.seed += 1;
    let cases = [
        (of_other_settings.to_bytes(), "--seed was 8 and is now 7"),
        (b"{\"jobs\":[]}".to_vec(), "something else than a job"),
        (Vec::new(), "something else than a job"),
        (b"{\"format\":5}".to_vec(), "document of format 5, this build reads formats 1 to 4"),
    ];
    for (bytes, says) in cases {
        let (store, service) = (MemoryStore::new(), MasterService::new());
        store.swap(None, bytes.clone().into()).await.unwrap();
        let error = gives_up(&keeper(&store, &wire, "m1"), &service).await;
        assert!(format!("{error:#}").contains(says), "{error:#}");
        assert_eq!(store.load().await.unwrap(), Some((Revision(1), Bytes::from(bytes))));
        assert_eq!(term(&service), None);
    }
}

/// A store that answers each call at once with the same fault.
#[derive(Debug)]
struct Deaf {
    fault: StoreError,
    calls: AtomicU64,
}

impl Deaf {
    fn answer<T>(&self) -> Result<T, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Err(self.fault.clone())
    }
}

#[tonic::async_trait]
impl Store for Deaf {
    async fn load(&self) -> Result<Option<(Revision, Bytes)>, StoreError> {
        self.answer()
    }
    async fn swap(&self, _: Option<Revision>, _: Bytes) -> Result<Revision, StoreError> {
        self.answer()
    }
    async fn lead(&self, _: &str) -> Result<Leadership, StoreError> {
        self.answer()
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_reached_is_asked_again_but_not_without_a_breath() {
    let (wire, service) = (Wire::default(), MasterService::new());
    let deaf = Deaf { fault: StoreError::Unavailable("no route".to_owned()), calls: AtomicU64::new(0) };
    let keeper = keeper(&deaf, &wire, "m1");
    beside(&[(&keeper, &service)], sleep(Duration::from_secs(10))).await;
    let calls = deaf.calls.load(Ordering::Relaxed);
    assert!((10..=100).contains(&calls), "{calls} calls in ten seconds");
    assert_eq!(term(&service), None);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_only_a_person_can_mend_ends_the_keeper_with_its_words() {
    let (wire, service) = (Wire::default(), MasterService::new());
    let deaf = Deaf { fault: StoreError::Broken("disk full".to_owned()), calls: AtomicU64::new(0) };
    let error = gives_up(&keeper(&deaf, &wire, "m1"), &service).await;
    assert!(format!("{error:#}").contains("disk full"));
}
