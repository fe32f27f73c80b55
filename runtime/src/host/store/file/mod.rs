//! The store in a folder of this machine. It must never show half a document, nor an old one for the newest.
//!
//! `master.state` is the document; `master.swap.lock` is held for the moment of a swap, in which it makes reading,
//! comparing and renaming one step for all processes; `master.leader.lock` is held by the leader, whose name is in it,
//! and falls with its process.

mod disk;
mod document;
mod forgetful;
mod frame;
#[cfg(test)]
mod power_tests;

pub use disk::{Disk, OsDisk};
pub use forgetful::{DiskFault, ForgetfulDisk};

use super::{Leadership, Revision, Store, StoreError};
use bytes::Bytes;
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

const SWAP_LOCK: &str = "master.swap.lock";
const LEADER_LOCK: &str = "master.leader.lock";
/// How long another process may be in the middle of a swap: a disk's slow sync.
const SWAP_PATIENCE: Duration = Duration::from_secs(60);
const SWAP_PAUSE: Duration = Duration::from_millis(10);
const LEADER_PAUSE: Duration = Duration::from_millis(200);

/// A document in a folder. Handles of several processes may name the same folder.
#[derive(Clone, Debug)]
pub struct FileStore<D = OsDisk> {
    disk: D,
}

impl FileStore {
    /// The document in `folder`, which is made if it is missing.
    ///
    /// # Errors
    /// `Broken` where the folder cannot be made.
    pub fn open(folder: &Path) -> Result<FileStore, StoreError> {
        Ok(FileStore { disk: OsDisk::open(folder).map_err(document::broken)? })
    }
}

impl<D: Disk> FileStore<D> {
    /// The document on a disk of one's own, for simulations.
    pub fn over(disk: D) -> FileStore<D> {
        FileStore { disk }
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        action: impl FnOnce(&D) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.disk.perform(action).await.unwrap_or_else(|ended| Err(StoreError::Unavailable(ended)))
    }

    /// The lock file, locked; none while another holds it.
    async fn try_lock(&self, name: &'static str) -> Result<Option<D::Lock>, StoreError> {
        self.on_disk(move |disk| disk.try_lock(name).map_err(document::broken)).await
    }
}

#[tonic::async_trait]
impl<D: Disk> Store for FileStore<D> {
    async fn load(&self) -> Result<Option<(Revision, Bytes)>, StoreError> {
        self.on_disk(|disk| document::load(disk)).await
    }

    async fn swap(&self, expected: Option<Revision>, document: Bytes) -> Result<Revision, StoreError> {
        let give_up = Instant::now() + SWAP_PATIENCE;
        let lock = loop {
            match self.try_lock(SWAP_LOCK).await? {
                Some(lock) => break lock,
                None if Instant::now() < give_up => tokio::time::sleep(SWAP_PAUSE).await,
                None => {
                    let path = self.disk.path(SWAP_LOCK);
                    let why = format!("{}: another process holds it and does not end", path.display());
                    return Err(StoreError::Unavailable(why));
                }
            }
        };
        self.on_disk(move |disk| {
            let swapped = document::swap(disk, expected, &document);
            drop(lock);
            swapped
        })
        .await
    }

    async fn lead(&self, identity: &str) -> Result<Leadership, StoreError> {
        let mut is_told = false;
        let mut lock = loop {
            match self.try_lock(LEADER_LOCK).await? {
                Some(lock) => break lock,
                None if is_told => {}
                None => {
                    let leader = self.on_disk(|disk| disk.read(LEADER_LOCK).map_err(document::broken)).await;
                    let leader = String::from_utf8_lossy(&leader.unwrap_or_default()).into_owned();
                    tracing::info!(leader, file = %self.disk.path(LEADER_LOCK).display(), "standing by");
                    is_told = true;
                }
            }
            tokio::time::sleep(LEADER_PAUSE).await;
        };
        // For people only: a name that cannot be written takes nothing from the lock.
        if let Err(error) = self.disk.sign(&mut lock, identity) {
            tracing::warn!(%error, "the leader's name could not be written");
        }
        let (never_lost, lost) = watch::channel(None);
        Ok(Leadership::new(lost, (lock, never_lost)))
    }
}
