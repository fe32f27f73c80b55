//! Which checkpoints are meant: a place, and what the master's document says of it. Changes nothing in either.

use anyhow::Context;
use shoal_master::document::Document;
use shoal_runner::exit::Exit;
use shoal_runner::folder::RunFolder;
use shoal_runtime::cluster::{CheckpointId, ManifestRecord};
use shoal_runtime::host::checkpoints::{Completeness, Entry, list, load_unrecorded};
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::storage::{Remedy, Storage, StorageError};
use shoal_runtime::host::store;
use std::path::{Path, PathBuf};

/// Where checkpoints lie.
#[derive(clap::Args, Clone, Debug)]
pub(in crate::commands) struct PlaceChoice {
    /// Where they lie, a folder or a URL; by default where the store says
    #[arg(long, env = "SHOAL_CHECKPOINTS", value_name = "PLACE")]
    pub(in crate::commands) place: Option<String>,
    /// The master's store, which alone knows the newest: a folder or etcd://HOST:PORT/PREFIX, over TLS etcds://; by default the one in the
    /// run's folder
    #[arg(long, env = "SHOAL_STORE", value_name = "PLACE")]
    pub(in crate::commands) store: Option<String>,
    /// Folder with ca.pem, and a client's cert.pem and key.pem, for an etcd over TLS
    #[arg(long, env = "SHOAL_STORE_TLS", value_name = "DIR")]
    pub(in crate::commands) store_tls: Option<PathBuf>,
    /// Speak plaintext with an etcd on another machine
    #[arg(long, env = "SHOAL_PLAINTEXT")]
    pub(in crate::commands) plaintext: bool,
    /// Folder of a local run (`shoal run` names it)
    #[arg(long, env = "SHOAL_RUN", default_value = "runs/latest", value_name = "DIR")]
    pub(in crate::commands) run: PathBuf,
}

/// A place and what is known of it.
#[derive(Debug)]
pub(in crate::commands) struct Chosen {
    pub(in crate::commands) storage: Storage,
    /// Absent where only a place was named.
    pub(in crate::commands) document: Option<Document>,
}

impl PlaceChoice {
    /// Where a local run keeps them.
    pub(in crate::commands) fn of_run(run: &Path) -> PlaceChoice {
        PlaceChoice { place: None, store: None, store_tls: None, plaintext: false, run: run.to_owned() }
    }

    pub(in crate::commands) async fn open(&self) -> anyhow::Result<Chosen> {
        let state = RunFolder(self.run.clone()).state();
        let text = |path: &Path| path.display().to_string();
        let store = match (&self.store, &self.place) {
            (Some(store), _) => Some(store.clone()),
            (None, Some(_)) => None,
            (None, None) if state.is_dir() => Some(text(&state)),
            (None, None) => {
                let why = "name a run by --run, or a place by --place; local runs are started by `shoal run`";
                return Err(
                    Exit::Usage(format!("no run found: {} is no folder; {why}", state.display())).into()
                );
            }
        };
        let document = match &store {
            Some(store) => self.document_in(existing(store)?).await?,
            None => None,
        };
        let said = document.as_ref().and_then(|document| document.checkpoint_place.clone());
        let place = match (self.place.clone().or(said), &store) {
            (Some(place), _) => place,
            (None, Some(store)) if !store.contains("://") => text(&Path::new(store).join("checkpoints")),
            _ => return Err(Exit::Usage("--place: name where the checkpoints lie".into()).into()),
        };
        existing(&place)?;
        Ok(Chosen { storage: Storage::open(&place).await.map_err(reached)?, document })
    }

    async fn document_in(&self, store: &str) -> anyhow::Result<Option<Document>> {
        let security = if self.plaintext { Security::Plaintext } else { Security::Loopback };
        let opened = store::open(store, &security, self.store_tls.as_deref())?;
        let found = opened.load().await.with_context(|| format!("the store {store}"))?;
        let Some((_, bytes)) = found else { return Ok(None) };
        Document::from_bytes(&bytes)
            .map(Some)
            .with_context(|| format!("{store} holds no job of this version"))
    }
}

/// Opening makes a folder: a mistyped name must not become an empty place.
fn existing(place: &str) -> Result<&str, Exit> {
    let is_there = place.contains("://") || Path::new(place).is_dir();
    is_there.then_some(place).ok_or_else(|| Exit::Usage(format!("{place}: there is no such folder")))
}

impl Chosen {
    /// What there is, oldest first.
    pub(in crate::commands) async fn entries(&self) -> anyhow::Result<Vec<Entry>> {
        list(&self.storage).await.map_err(reached)
    }

    /// The newest: as the store has it, or the highest complete one where no store is known.
    pub(in crate::commands) async fn newest(&self) -> anyhow::Result<Option<ManifestRecord>> {
        if let Some(document) = &self.document {
            return Ok(document.newest().map(|kept| kept.record));
        }
        let complete = self.entries().await?.into_iter().rev().find_map(|entry| match entry.completeness {
            Completeness::Complete(record) => Some(record),
            Completeness::Incomplete(_) => None,
        });
        Ok(complete)
    }

    /// The one at the best evaluation, of a job that keeps it.
    pub(in crate::commands) fn best(&self) -> anyhow::Result<ManifestRecord> {
        let Some(document) = &self.document else {
            return Err(Exit::Usage(String::from(
                "which is the best the store alone knows: name it by --store",
            ))
            .into());
        };
        let version = document.best_version();
        let kept = document.checkpoints.iter().find(|kept| Some(kept.version) == version);
        let none =
            "no checkpoint is kept as the best: declare a metric with `Target { keep_best: true, .. }`";
        Ok(kept.map(|kept| kept.record).ok_or_else(|| Exit::Usage(none.to_owned()))?)
    }

    /// The one with this number, or the newest. The store's word on a manifest goes before what lies there.
    pub(in crate::commands) async fn record(&self, number: Option<u64>) -> anyhow::Result<ManifestRecord> {
        let Some(number) = number else {
            let none = || Exit::Usage(format!("{}: there is no checkpoint yet", self.storage.place()));
            return Ok(self.newest().await?.ok_or_else(none)?);
        };
        if let Some(record) = self.known(number) {
            return Ok(record);
        }
        match load_unrecorded(&self.storage, CheckpointId(number)).await {
            Ok((record, _)) => Ok(record),
            Err(StorageError::Missing { .. }) => {
                let place = self.storage.place();
                Err(Exit::Usage(format!("{place}: no checkpoint {number}: see `shoal checkpoint ls`")).into())
            }
            Err(error) => Err(reached(error)),
        }
    }

    /// What the store has of a checkpoint, kept or damaged.
    pub(in crate::commands) fn known(&self, number: u64) -> Option<ManifestRecord> {
        let document = self.document.as_ref()?;
        let kept = document.checkpoints.iter().map(|kept| kept.record);
        let damaged = document.damaged.iter().map(|damaged| damaged.record);
        kept.chain(damaged).find(|record| record.checkpoint.0 == number)
    }
}

/// A storage's error with its exit code.
pub(in crate::commands) fn reached(error: StorageError) -> anyhow::Error {
    match error.remedy() {
        Remedy::Retry => Exit::Unreachable(error.to_string()).into(),
        Remedy::Fix | Remedy::GiveUp => error.into(),
    }
}
