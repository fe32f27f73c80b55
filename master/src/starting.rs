//! What a master does before it can lead: reads the data set and the file that the job begins at, opens store and storage.
//! It says how far it is, and must never hold up a probe or a signal: what blocks is done on threads for it.

use crate::data_set::{self, Progress};
use crate::document::Document;
use crate::settings::{MasterSettings, Wrong, check_outputs};
use crate::warm_start;
use anyhow::Context;
use shoal_runtime::cluster::Manifest;
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::storage::Storage;
use shoal_runtime::host::store::{self, Store};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinSet;

/// How often the log says how far it is.
const TELL: Duration = Duration::from_secs(5);

/// What takes its time, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    DataSet,
    Store,
    WarmStart,
    Storage,
    Prepared,
}

/// How far a master is that does not lead yet.
#[derive(Debug, Default)]
pub struct Starting {
    stage: AtomicU8,
    scan: Arc<Progress>,
    store: OnceLock<Arc<dyn Store>>,
}

/// What a keeper is made of.
pub(crate) struct Prepared {
    pub(crate) manifest: Manifest,
    /// What the job begins as.
    pub(crate) fresh: Document,
    pub(crate) store: Arc<dyn Store>,
    /// Where checkpoints lie.
    pub(crate) place: String,
    pub(crate) storage: Storage,
}

impl Starting {
    /// A master that has done all of it.
    #[cfg(test)]
    pub(crate) fn prepared(store: Arc<dyn Store>) -> Starting {
        let starting = Starting { store: OnceLock::from(store), ..Starting::default() };
        starting.is_at(Stage::Prepared);
        starting
    }

    /// Where the document lies; none before it is opened.
    pub(crate) fn store(&self) -> Option<&dyn Store> {
        self.store.get().map(AsRef::as_ref)
    }

    /// What is waited for; none once all is there.
    pub(crate) fn waits_for(&self) -> Option<String> {
        let stage = self.stage.load(Relaxed);
        let is = |of: Stage| stage == of as u8;
        Some(match () {
            () if is(Stage::DataSet) => self.scan.to_string(),
            () if is(Stage::Store) => "opening the store".to_owned(),
            () if is(Stage::WarmStart) => "reading the file that --warm-start names".to_owned(),
            () if is(Stage::Storage) => "opening the place of checkpoints".to_owned(),
            () => return None,
        })
    }

    /// Logs every few seconds what is waited for.
    pub(crate) async fn tell(&self) -> Infallible {
        loop {
            tokio::time::sleep(TELL).await;
            if let Some(what) = self.waits_for() {
                tracing::info!("not ready yet: {what}");
            }
        }
    }

    /// Does all of it. May be dropped at any await.
    ///
    /// # Errors
    /// An unreadable data set, settings that make no job, a file that no job can begin at, a store or a place of checkpoints that
    /// cannot be opened.
    pub(crate) async fn prepare(
        &self,
        settings: &MasterSettings,
        security: &Security,
    ) -> anyhow::Result<Prepared> {
        let place = settings.checkpoints()?;
        let spec = settings.spec()?.clone();
        let checked = tokio::task::spawn_blocking(move || check_outputs(&spec));
        checked.await.context("--predict")?.map_err(|error| Wrong(format!("{error:#}")))?;
        let (manifest, trained) = self.scanned(settings).await?;
        let mut fresh = settings.fresh(&manifest, trained)?;
        let records = manifest.record_count();
        let (files, bytes) = manifest.files_of(&(0..records));
        tracing::info!(job = %fresh.job.job, files, records, chunks = manifest.chunk_count(), bytes, "data set pinned");
        self.is_at(Stage::Store);
        let (address, trusted, tls) = (settings.store(), security.clone(), settings.store_tls.clone());
        let opened = tokio::task::spawn_blocking(move || store::open(&address, &trusted, tls.as_deref()));
        let store = opened.await.context("opening the store")??;
        let store = Arc::clone(self.store.get_or_init(|| store));
        self.is_at(Stage::WarmStart);
        let file = settings.spec()?.warm_start.as_deref().map(warm_start::located).transpose()?;
        fresh.job.warm_start = warm_start::pinned(file, store.as_ref()).await?;
        self.is_at(Stage::Storage);
        let storage = Storage::open(&place).await.context("--checkpoints")?;
        self.is_at(Stage::Prepared);
        Ok(Prepared { manifest, fresh, store, place, storage })
    }

    fn is_at(&self, stage: Stage) {
        self.stage.store(stage as u8, Relaxed);
    }

    /// The data set, read in a task of its own: what it computes between two reads holds up nobody. Dropped, it ends.
    async fn scanned(&self, settings: &MasterSettings) -> anyhow::Result<(Manifest, u64)> {
        let (trained, evaluated) = settings.spec()?.trained_and_evaluated();
        let (trained, evaluated) = (trained.to_vec(), evaluated.to_vec());
        let progress = Arc::clone(&self.scan);
        let mut scan = JoinSet::new();
        scan.spawn(async move { data_set::scan_telling(&trained, &evaluated, &progress).await });
        scan.join_next().await.context("nothing is read")?.context("reading the data set")?
    }
}
