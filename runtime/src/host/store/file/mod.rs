//! The store in a folder of this machine. It must never show half a document, nor an old one for the newest.
//!
//! `master.state` is the document; `master.swap.lock` is held for the moment of a swap, in which it makes reading,
//! comparing and renaming one step for all processes; `master.leader.lock` is held by the leader, whose name is in it,
//! and falls with its process.

mod disk;
mod document;
mod frame;
#[cfg(test)]
mod power_tests;

use super::{Leadership, Revision, Store, StoreError};
use bytes::Bytes;
use disk::{Disk, OsDisk};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
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
#[derive(Debug)]
pub struct FileStore {
    disk: OsDisk,
}

impl FileStore {
    /// The document in `folder`, which is made if it is missing.
    ///
    /// # Errors
    /// `Broken` where the folder cannot be made.
    pub fn open(folder: &Path) -> Result<FileStore, StoreError> {
        Ok(FileStore { disk: OsDisk::open(folder).map_err(document::broken)? })
    }

    /// Runs `action` where it may wait for the disk. It is carried out even if nobody waits for it any more.
    async fn on_disk<T: Send + 'static>(
        &self,
        action: impl FnOnce(&OsDisk) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let disk = self.disk.clone();
        let done = tokio::task::spawn_blocking(move || action(&disk)).await;
        done.unwrap_or_else(|error| Err(StoreError::Unavailable(format!("the disk's thread ended: {error}"))))
    }

    /// The lock file, locked; none while another holds it.
    async fn try_lock(&self, name: &'static str) -> Result<Option<File>, StoreError> {
        self.on_disk(move |disk| {
            let path = disk.path(name);
            let tried = |error: std::io::Error| {
                let what = format!("{}: cannot lock: {error}", path.display());
                document::broken(std::io::Error::new(error.kind(), what))
            };
            let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let file = options.map_err(tried)?;
            match file.try_lock() {
                Ok(()) => Ok(Some(file)),
                Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(error)) => Err(tried(error)),
            }
        })
        .await
    }
}

#[tonic::async_trait]
impl Store for FileStore {
    async fn load(&self) -> Result<Option<(Revision, Bytes)>, StoreError> {
        self.on_disk(document::load).await
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
        let named = lock.set_len(0).and_then(|()| lock.write_all(identity.as_bytes()));
        if let Err(error) = named {
            tracing::warn!(%error, "the leader's name could not be written");
        }
        let (never_lost, lost) = watch::channel(None);
        Ok(Leadership::new(lost, (lock, never_lost)))
    }
}
