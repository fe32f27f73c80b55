//! The master's durable memory: one document behind compare-and-swap, and who may speak for it.
//! It must never look inside the document.
//!
//! **Safety rests on the swap alone.** Whoever becomes leader loads the document, writes a higher master term into it
//! and swaps; only then does it speak to anyone, and it persists before it tells from then on. A leader that was
//! overtaken finds its revision gone and is refused, however long it slept. Leadership only keeps two masters from
//! quarrelling over the document: for a moment there may be two who believe to lead, and nothing is lost by it.

mod address;
mod etcd;
mod file;
mod leadership;
mod memory;
#[cfg(test)]
mod memory_tests;
mod settle;

pub use address::open;
pub use etcd::{EtcdStore, LEASE_TTL};
pub use file::{Disk, DiskFault, FileStore, ForgetfulDisk, OsDisk};
pub use leadership::Leadership;
pub use memory::{MemoryStore, SwapFault};
pub use settle::settle;

use bytes::Bytes;

/// Which swap made a document. It grows with every swap, not always by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What went wrong, by the caller's next move. Each message names the file or the endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else has swapped, or leads in our place: we are deposed. Nothing was written. Step down.
    #[error("deposed: {0}")]
    Conflict(String),
    /// No answer, now. Try again. A swap that ends like this **may have taken effect, or may still do so later**:
    /// load, compare, and repeat the same document before any other; [`settle`] does.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// Damaged, full or not permitted: a person has to act, and the message says how. Here too a swap may have taken
    /// effect; whoever starts next loads what is there.
    #[error("store broken: {0}")]
    Broken(String),
}

/// One document of bytes with compare-and-swap, and at most one leader at a time.
///
/// A future that is dropped before its end leaves the outcome unknown, like [`StoreError::Unavailable`].
#[tonic::async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// The document and its revision; none before the first swap. What was returned once survives a power cut.
    async fn load(&self) -> Result<Option<(Revision, Bytes)>, StoreError>;

    /// Puts `document` in the place of the one at revision `expected`; with none expected, there must be none.
    /// `Ok` means that it is durable. A handle whose [`Leadership`] was lost, and not dropped since, is refused too.
    async fn swap(&self, expected: Option<Revision>, document: Bytes) -> Result<Revision, StoreError>;

    /// Waits, for ever if need be, until this handle is the leader. `identity` is for people who ask who leads.
    /// A handle leads once at a time: drop the old [`Leadership`] first.
    ///
    /// Leading gives no right to anything: see the module's first lines.
    async fn lead(&self, identity: &str) -> Result<Leadership, StoreError>;
}
