//! Keeps the document: gets elected, decides, swaps, and only then lets the machine tell. Persist, then tell. Beside it, and never
//! waited for by it, checkpoints are committed and removed (`storing`), hashes recorded (`recording`), and pservers asked after.

mod recording;
mod storing;
mod watching;

use crate::begun;
use crate::document::{Document, Wanted};
use crate::machine::Machine;
use crate::service::MasterService;
use crate::settings::Wrong;
use anyhow::{Context, anyhow, ensure};
use futures_util::future::join_all;
use shoal_job::spec::Spec;
use shoal_runtime::cluster::Manifest;
use shoal_runtime::cluster::waits::WaitKind;
use shoal_runtime::host::checkpoints;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::Dial;
use shoal_runtime::host::storage::{Remedy, Storage, StorageError};
use shoal_runtime::host::store::{Revision, Store, StoreError, settle};
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::timeout;

/// How long a swap without an answer is repeated before this master steps down.
const SWAP_PATIENCE: Duration = Duration::from_secs(10);

/// How long a place is waited for to say that it is this job's, where the job trains already, and to forget it, where this master ends.
const CLAIM_PATIENCE: Duration = Duration::from_secs(2);

/// The patience with a place in which a job is to begin. Then the leadership is given up, and the next leader asks again: a call that
/// hangs may never be answered.
const BEGIN_PATIENCE: Duration = Duration::from_secs(30);

/// How often it is told that a place does not answer while it is waited for.
const SILENCE: Duration = Duration::from_secs(30);

/// Between two rounds of asking after pservers.
const PROBE_PAUSE: Duration = Duration::from_millis(20);

/// Between two times in office: a store that cannot be reached is not asked without a breath.
const STANDBY_PAUSE: Duration = Duration::from_millis(200);

/// What a keeper needs.
#[allow(missing_debug_implementations, reason = "a way to dial has nothing to show")]
pub struct Keeper<'a> {
    /// Where the document lies.
    pub store: &'a dyn Store,
    /// How pservers are reached.
    pub dial: &'a dyn Dial,
    /// Who this master is: unlike any other process.
    pub identity: String,
    /// The data set.
    pub manifest: Manifest,
    /// The document of a job that has not begun.
    pub fresh: Document,
    /// The store, as people named it.
    pub store_place: String,
    /// Where checkpoints lie.
    pub storage: &'a Storage,
    /// How pservers are told of it.
    pub place: String,
    /// The settings by which it was started.
    pub spec: Spec,
}

fn place(document: &Document) -> &str {
    document.checkpoint_place.as_deref().unwrap_or("the store's folder")
}

impl Keeper<'_> {
    /// Leads whenever it is elected, until `end`, of which it returns what comes. Then the place is given back if nothing was saved there:
    /// whoever begins the job anew need not name another. Until that is done this master leads: a standby that led already would have its
    /// place taken away.
    ///
    /// # Errors
    /// What a person has to mend, if that is before the end.
    pub async fn keep_until<T>(
        &self,
        service: &MasterService,
        random: &mut Random,
        end: impl Future<Output = T>,
    ) -> anyhow::Result<T> {
        let mut kept = std::pin::pin!(self.keep(service, random));
        let ended = tokio::select! {
            biased;
            ended = end => ended,
            error = &mut kept => return Err(error),
        };
        self.release(service).await;
        Ok(ended)
    }

    /// Leads whenever it is elected, for ever. Returns only what a person has to mend.
    pub async fn keep(&self, service: &MasterService, random: &mut Random) -> anyhow::Error {
        loop {
            match self.lead_once(service, random).await {
                Ok(why) => {
                    tracing::warn!(why, "this master leads no more: standing by");
                    service.stand_by(why);
                }
                Err(error) => return error,
            }
            service.step_down();
            tokio::time::sleep(STANDBY_PAUSE).await;
        }
    }

    /// One time in office. Returns why it ended.
    async fn lead_once(&self, service: &MasterService, random: &mut Random) -> anyhow::Result<String> {
        let electing = service.waits().begin(WaitKind::Store, &self.store_place);
        let mut leadership = match self.store.lead(&self.identity).await {
            Ok(leadership) => leadership,
            Err(error) => return passing(error),
        };
        let (revision, document) = match self.elect(random).await? {
            Ok(elected) => elected,
            Err(error) => return passing(error),
        };
        drop(electing);
        tracing::info!(term = document.master_term, "this master leads");
        let mut randoms = [(); 3].map(|()| Random::seeded(random.bits()));
        let [committing, removing, recording] = &mut randoms;
        let elected = document.clone();
        service.lead(document, self.manifest.clone(), self.spec.clone(), &self.place);
        tokio::select! {
            biased;
            why = leadership.lost() => Ok(why),
            error = self.govern(service, revision, random) => passing(error),
            never = self.probe(service) => match never {},
            never = self.commit(service, committing) => match never {},
            never = self.record(service, recording) => match never {},
            never = self.remove(service, &elected, removing) => match never {},
            never = watching::watch(service) => match never {},
        }
    }

    /// Bumps the master's term in the document.
    async fn elect(&self, random: &mut Random) -> anyhow::Result<Result<(Revision, Document), StoreError>> {
        let found = match self.store.load().await {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let read =
            |bytes: &[u8]| Document::from_bytes(bytes).map_err(|unread| anyhow!("the store holds {unread}"));
        let found = found.map(|(revision, bytes)| anyhow::Ok((revision, read(&bytes)?))).transpose()?;
        let (revision, document) = match found {
            Some((revision, found)) if found.has_begun() => {
                let has_moved = found.checkpoint_place != self.fresh.checkpoint_place;
                let document = self.taken_up(found)?;
                if !has_moved {
                    self.keeps_its_place(&document).await?;
                } else if let Err(error) = self.begins_in_an_empty_place(&document).await? {
                    return Ok(Err(error));
                }
                (revision, document)
            }
            found => match self.begin(found, random).await? {
                Ok(begun) => begun,
                Err(error) => return Ok(Err(error)),
            },
        };
        let document = document.elected(&self.identity);
        let bytes = document.to_bytes().into();
        let swapped = settle(self.store, Some(revision), bytes, SWAP_PATIENCE, random).await;
        Ok(swapped.map(|revision| (revision, document)))
    }

    /// A job that has not begun gets its identity, and its place by that. The identity is in the store before it is in the place: after a
    /// master that died in between comes one that has the same.
    async fn begin(
        &self,
        found: Option<(Revision, Document)>,
        random: &mut Random,
    ) -> anyhow::Result<Result<(Revision, Document), StoreError>> {
        let (expected, known) =
            found.map_or((None, None), |(revision, found)| (Some(revision), found.identity));
        let is_known = known.is_some();
        let identity = known.unwrap_or_else(|| format!("{:016x}{:016x}", random.bits(), random.bits()));
        let fresh = Document { identity: Some(identity), ..self.fresh.clone() };
        let revision = match expected.filter(|_| is_known) {
            Some(revision) => revision,
            None => {
                let bytes = fresh.to_bytes().into();
                match settle(self.store, expected, bytes, SWAP_PATIENCE, random).await {
                    Ok(revision) => revision,
                    Err(error) => return Ok(Err(error)),
                }
            }
        };
        Ok(self.begins_in_an_empty_place(&fresh).await?.map(|()| (revision, fresh)))
    }

    /// The job that has begun, as this master goes on with it: it is this one's job, with its numbers of members, which are
    /// changed by asking. Its live settings are those of this master's start, or what was told since a master was started with the same.
    fn taken_up(&self, found: Document) -> anyhow::Result<Document> {
        let changed = begun::changed(&found.job, &self.fresh.job);
        let words: Vec<String> = changed.iter().map(ToString::to_string).collect();
        ensure!(
            found.job == self.fresh.job,
            "the store holds the job {:?}, which began otherwise: {}. These a job keeps to its end: give them as they were, or begin another job in a store of its own (--warm-start begins it at the model of this one)",
            found.job.job.0,
            words.join("; ")
        );
        let is_free = found.is_untouched();
        ensure!(
            is_free || found.checkpoint_place == self.fresh.checkpoint_place,
            "this job's checkpoints lie in {}, not in {}: give --checkpoints as before",
            place(&found),
            place(&self.fresh)
        );
        let found = Document { checkpoint_place: self.fresh.checkpoint_place.clone(), ..found };
        if found.told.as_ref().is_some_and(|told| told.started == self.spec.live()) {
            return Ok(found);
        }
        let Wanted { replicas, exclude_max, .. } = self.fresh.wanted;
        let wanted = Wanted { replicas, exclude_max, ..found.wanted };
        Ok(Document { wanted, checks: self.fresh.checks, told: None, ..found })
    }

    /// Makes the place this job's. Refuses one with another job's checkpoints, or where another has begun: this one's would be written over
    /// them.
    async fn begins_in_an_empty_place(&self, fresh: &Document) -> anyhow::Result<Result<(), StoreError>> {
        let begun = async {
            let is_empty = checkpoints::list(self.storage).await?.is_empty();
            if is_empty {
                checkpoints::claim(self.storage, &fresh.job.job.0, fresh.identity.as_deref()).await?;
            }
            Ok(is_empty)
        };
        match timeout(BEGIN_PATIENCE, begun).await.unwrap_or_else(|_| Err(self.unanswered(BEGIN_PATIENCE))) {
            Ok(true) => Ok(Ok(())),
            Ok(false) => Err(Wrong(format!(
                "{} holds checkpoints, and this job has made none: a place is for one job. Name another by --checkpoints (on a cluster spec.checkpoint.place), or remove what lies there; to begin at what another job has saved, name that by --warm-start (spec.warmStart)",
                self.storage.place()
            ))
            .into()),
            Err(StorageError::Taken { .. }) => Err(self.taken().await),
            Err(error) if error.remedy() == Remedy::Retry => {
                Ok(Err(StoreError::Unavailable(error.to_string())))
            }
            Err(error) => Err(error).context("--checkpoints"),
        }
    }

    /// Sees that the place of a job that has begun is its own: one that began under an earlier version has not said so yet. A place that does
    /// not answer, or cannot be written, holds up no job that trains; nor does another word there one that has saved: since then nobody
    /// has begun in it, so the word is damaged.
    async fn keeps_its_place(&self, document: &Document) -> anyhow::Result<()> {
        let identity = document.identity.as_deref();
        let claimed =
            timeout(CLAIM_PATIENCE, checkpoints::claim(self.storage, &document.job.job.0, identity));
        match claimed.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(StorageError::Taken { .. })) if document.checkpoints_named == 0 => Err(self.taken().await),
            Ok(Err(error)) => {
                tracing::warn!(%error, "whether the place is still this job's is not known");
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// That the place is another job's.
    async fn taken(&self) -> anyhow::Error {
        let whose = timeout(CLAIM_PATIENCE, checkpoints::claimant(self.storage)).await;
        let (place, whose) = (self.storage.place(), whose.unwrap_or_else(|_| String::from("another job")));
        Wrong(format!(
            "{place} is the place of {whose}: a place is for one job. Name another by --checkpoints (on a cluster spec.checkpoint.place), or remove that file if there is no such job"
        ))
        .into()
    }

    fn unanswered(&self, patience: Duration) -> StorageError {
        let what = format!("no answer within {} s", patience.as_secs());
        StorageError::Unreachable { at: self.storage.place().to_owned(), what }
    }

    /// Waits for a call to the place, for as long as that takes, and says every so often that it is waited for.
    async fn answered<T>(&self, what: &str, call: impl Future<Output = T>) -> T {
        let mut call = std::pin::pin!(call);
        loop {
            match timeout(SILENCE, &mut call).await {
                Ok(answer) => return answer,
                Err(_) => {
                    tracing::warn!(
                        place = self.storage.place(),
                        what,
                        "the place of checkpoints does not answer"
                    );
                }
            }
        }
    }

    /// Gives the place back if nothing was saved there and nothing will be: nothing was ever trained, or the job is over. Else the job goes
    /// on from its store, and needs the place. A master that does not lead does not know.
    async fn release(&self, service: &MasterService) {
        let is_left = |machine: &mut Machine, _| {
            let document = machine.document();
            document.is_untouched() || (document.end.is_some() && document.checkpoints_named == 0)
        };
        if service.with(is_left) != Some(true) {
            return;
        }
        let stays = "the place stays this job's although nothing was saved there";
        match timeout(CLAIM_PATIENCE, checkpoints::release(self.storage)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "{stays}"),
            Err(_) => tracing::warn!(place = self.storage.place(), "{stays}: it does not answer"),
        }
    }

    /// Decides and swaps until it may not any more.
    async fn govern(&self, service: &MasterService, revision: Revision, random: &mut Random) -> StoreError {
        let mut revision = revision;
        loop {
            let changed = service.changed().notified();
            if let Some(document) = service.with(Machine::decide).flatten() {
                let bytes = document.to_bytes().into();
                let _swap = service.waits().begin(WaitKind::Store, &self.store_place);
                revision = match settle(self.store, Some(revision), bytes, SWAP_PATIENCE, random).await {
                    Ok(revision) => revision,
                    Err(error) => return error,
                };
                tracing::debug!(routing_version = document.routing_version, "document adopted");
                service.with(|machine, now| machine.adopt(document, now));
                service.adopted();
                continue;
            }
            let _ = timeout(look(service), changed).await;
        }
    }

    /// Asks, beside everything else, whether anybody still listens where pservers have no call open.
    async fn probe(&self, service: &MasterService) -> Infallible {
        loop {
            let changed = service.changed().notified();
            let suspects = service.with(|machine, now| machine.suspects(now)).unwrap_or_default();
            let probes = suspects.iter().map(async |(pserver, address)| {
                if self.dial.is_gone(address).await {
                    tracing::warn!(%pserver, address, "nobody listens there any more");
                    service.with(|machine, _| machine.lose_pserver(*pserver));
                    service.changed().notify_waiters();
                }
            });
            if join_all(probes).await.is_empty() {
                let _ = timeout(PROBE_PAUSE, changed).await;
            } else {
                tokio::time::sleep(PROBE_PAUSE).await;
            }
        }
    }
}

/// How long whoever waits for a change waits at most: time alone may bring one.
fn look(service: &MasterService) -> Duration {
    Duration::from_millis(service.with(|machine, _| machine.settings().lease_ttl_millis).unwrap_or(1000)) / 16
}

/// What another election may mend is no error; what only a person can mend is one.
fn passing(error: StoreError) -> anyhow::Result<String> {
    match error {
        StoreError::Conflict(why) | StoreError::Unavailable(why) => Ok(why),
        StoreError::Broken(_) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
