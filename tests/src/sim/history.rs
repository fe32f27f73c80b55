//! All documents that a run's masters wrote, in order: the store, looked at from beside. It must never change what the
//! store answers.

use super::host::Host;
use super::points::{self, Points, Side};
use bytes::Bytes;
use shoal_master::document::Document;
use shoal_runtime::host::store::{Leadership, Revision, Store, StoreError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The documents by revision. Clones are the same history.
#[derive(Clone, Debug, Default)]
pub struct History {
    documents: Arc<Mutex<BTreeMap<Revision, Document>>>,
    faults: Arc<Mutex<Vec<String>>>,
}

impl History {
    /// A handle of `store` whose documents are remembered, for the master on `host`, which may be killed at any swap.
    pub fn of(&self, store: impl Store + 'static, host: &Arc<Host>, points: &Points) -> Remembered {
        let (host, points) = (Arc::clone(host), points.clone());
        Remembered { store: Box::new(store), history: self.clone(), host, points }
    }
    /// All of them, oldest first.
    pub fn documents(&self) -> Vec<Document> {
        self.documents.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
    /// How many so far.
    pub fn count(&self) -> usize {
        self.documents.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
    /// What no store may do: show two documents under one revision.
    pub fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remember(&self, revision: Revision, bytes: &[u8]) {
        let document = Document::from_bytes(bytes).expect("masters write what they read");
        let mut documents = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        if documents.get(&revision).is_some_and(|known| *known != document) {
            let fault = format!("revision {revision} is two documents");
            self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
        }
        documents.insert(revision, document);
    }
}

/// A handle of a store.
#[derive(Debug)]
pub struct Remembered {
    store: Box<dyn Store>,
    history: History,
    host: Arc<Host>,
    points: Points,
}

#[tonic::async_trait]
impl Store for Remembered {
    async fn load(&self) -> Result<Option<(Revision, Bytes)>, StoreError> {
        let found = self.store.load().await?;
        if let Some((revision, bytes)) = &found {
            self.history.remember(*revision, bytes);
        }
        Ok(found)
    }

    async fn swap(&self, expected: Option<Revision>, document: Bytes) -> Result<Revision, StoreError> {
        let before = self
            .history
            .documents
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .next_back()
            .cloned();
        let after = Document::from_bytes(&document).expect("masters write what they read");
        let what = points::swaps(before.as_ref(), &after);
        self.points.pass(&self.host, || what.to_owned(), Side::Before).await;
        let revision = self.store.swap(expected, document.clone()).await?;
        self.history.remember(revision, &document);
        self.points.pass(&self.host, || what.to_owned(), Side::After).await;
        Ok(revision)
    }

    async fn lead(&self, identity: &str) -> Result<Leadership, StoreError> {
        self.store.lead(identity).await
    }
}
