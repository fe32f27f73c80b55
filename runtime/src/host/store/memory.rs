//! A store in memory with faults to order, for simulations and tests. It must never be what a role chooses.

use super::{Leadership, Revision, Store, StoreError};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, watch};

/// What shall happen to a swap. Its caller learns the same of each: `Unavailable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapFault {
    /// It is lost on the way.
    NotApplied,
    /// It takes effect, and the answer is lost.
    AnswerLost,
    /// It takes effect only after the next load of any handle, if its expectation still holds then.
    AppliedLate,
}

/// One handle of a document in memory. A clone is the same handle; [`MemoryStore::another`] is another one.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    memory: Arc<Memory>,
    handle: u64,
}

#[derive(Debug, Default)]
struct Memory {
    shared: Mutex<Shared>,
    /// Told to all who wait when there is no leader any more.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Shared {
    document: Option<(Revision, Bytes)>,
    late: VecDeque<(Option<Revision>, Bytes)>,
    leader: Option<Leader>,
    elections: u64,
    handles_given: u64,
    handles: BTreeMap<u64, Handle>,
}

#[derive(Debug)]
struct Leader {
    election: u64,
    identity: String,
    lost: watch::Sender<Option<String>>,
}

#[derive(Debug, Default)]
struct Handle {
    faults: VecDeque<SwapFault>,
    /// The election it won, while it holds the leadership or has not dropped it since it was lost.
    election: Option<u64>,
}

impl MemoryStore {
    /// The first handle of a new, empty memory.
    #[allow(clippy::new_without_default, reason = "a default handle would share nothing with anyone")]
    pub fn new() -> MemoryStore {
        MemoryStore { memory: Arc::new(Memory::default()), handle: 0 }
    }
    /// Another handle of the same memory, for another contender.
    pub fn another(&self) -> MemoryStore {
        let handle = self.with(|shared| {
            shared.handles_given += 1;
            shared.handles_given
        });
        MemoryStore { memory: Arc::clone(&self.memory), handle }
    }
    /// Orders a fault for this handle's next swap; several are met in the order given.
    pub fn fail_next_swap(&self, fault: SwapFault) {
        self.with(|shared| shared.handles.entry(self.handle).or_default().faults.push_back(fault));
    }
    /// Takes the leadership away from this handle, as a lease that ran out would; nothing if it does not lead.
    pub fn depose(&self) {
        self.with(|shared| {
            if shared.is_led_by(self.handle)
                && let Some(leader) = shared.leader.take()
            {
                leader.lost.send_replace(Some(format!("it was taken away from {}", leader.identity)));
            }
        });
        self.memory.freed.notify_waiters();
    }
    /// Who leads, by the name it gave.
    pub fn leader(&self) -> Option<String> {
        self.with(|shared| shared.leader.as_ref().map(|leader| leader.identity.clone()))
    }

    fn with<T>(&self, change: impl FnOnce(&mut Shared) -> T) -> T {
        change(&mut self.memory.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// Becomes the leader if there is none.
    fn elect(&self, identity: &str) -> Option<Leadership> {
        self.with(|shared| {
            if shared.leader.is_some() {
                return None;
            }
            shared.elections += 1;
            let (election, lost) = (shared.elections, watch::Sender::new(None));
            let leadership = Leadership::new(lost.subscribe(), Hold { store: self.clone(), election });
            shared.leader = Some(Leader { election, identity: identity.to_owned(), lost });
            shared.handles.entry(self.handle).or_default().election = Some(election);
            Some(leadership)
        })
    }
}

impl Shared {
    fn is_led_by(&self, handle: u64) -> bool {
        let election = self.handles.get(&handle).and_then(|handle| handle.election);
        election.is_some() && election == self.leader.as_ref().map(|leader| leader.election)
    }
    fn swap(&mut self, expected: Option<Revision>, document: Bytes) -> Result<Revision, StoreError> {
        let found = self.document.as_ref().map(|(revision, _)| *revision);
        if found != expected {
            return Err(StoreError::Conflict(format!(
                "revision {found:?} is there, {expected:?} was expected"
            )));
        }
        let revision = Revision(found.map_or(1, |found| found.0 + 1));
        self.document = Some((revision, document));
        Ok(revision)
    }
}

#[tonic::async_trait]
impl Store for MemoryStore {
    async fn load(&self) -> Result<Option<(Revision, Bytes)>, StoreError> {
        Ok(self.with(|shared| {
            let loaded = shared.document.clone();
            for (expected, document) in std::mem::take(&mut shared.late) {
                // Whoever asked for it was told nothing, and is told nothing now.
                let _ = shared.swap(expected, document);
            }
            loaded
        }))
    }

    async fn swap(&self, expected: Option<Revision>, document: Bytes) -> Result<Revision, StoreError> {
        self.with(|shared| {
            let is_led_by_us = shared.is_led_by(self.handle);
            let handle = shared.handles.entry(self.handle).or_default();
            let fault = handle.faults.pop_front();
            let is_deposed = handle.election.is_some() && !is_led_by_us;
            let no_answer = || Err(StoreError::Unavailable("this fault was ordered".to_owned()));
            match fault {
                Some(SwapFault::NotApplied) => no_answer(),
                Some(_) if is_deposed => no_answer(),
                None if is_deposed => Err(StoreError::Conflict("the leadership is gone".to_owned())),
                Some(SwapFault::AppliedLate) => {
                    shared.late.push_back((expected, document));
                    no_answer()
                }
                Some(SwapFault::AnswerLost) => {
                    // Applied or in conflict: the caller does not learn it.
                    let _ = shared.swap(expected, document);
                    no_answer()
                }
                None => shared.swap(expected, document),
            }
        })
    }

    async fn lead(&self, identity: &str) -> Result<Leadership, StoreError> {
        loop {
            let mut freed = std::pin::pin!(self.memory.freed.notified());
            // Before looking, so that what happens in between is not missed.
            freed.as_mut().enable();
            if let Some(leadership) = self.elect(identity) {
                return Ok(leadership);
            }
            freed.await;
        }
    }
}

/// Gives the leadership up when it is dropped.
#[derive(Debug)]
struct Hold {
    store: MemoryStore,
    election: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.store.with(|shared| {
            if shared.leader.as_ref().is_some_and(|leader| leader.election == self.election) {
                shared.leader = None;
            }
            let handle = shared.handles.entry(self.store.handle).or_default();
            if handle.election == Some(self.election) {
                handle.election = None;
            }
        });
        self.store.memory.freed.notify_waiters();
    }
}
