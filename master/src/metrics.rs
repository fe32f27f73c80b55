//! The master as other programs look at it: its status as metrics, and whether it does its part. Decides nothing, and
//! puts no name of a member on anything: the number of series must not grow with the cluster.

use crate::service::MasterService;
use crate::starting::Starting;
use shoal_job::counters::{Counters, LeaseCounters, TrainerCounters};
use shoal_runtime::host::http::{self, Exposition};
use shoal_runtime::host::rpc::Security;
use shoal_runtime::wire::proto::StatusReply;
use std::time::Duration;

/// How long the store may take to answer.
const STORE_WAIT: Duration = Duration::from_secs(2);

/// A master with the doors that its readiness depends on.
#[derive(Debug)]
pub struct Watched<'a> {
    /// The master.
    pub service: &'a MasterService,
    /// How far it is, and where its document lies.
    pub starting: &'a Starting,
    /// How it speaks with others.
    pub security: &'a Security,
}

impl http::Watched for Watched<'_> {
    fn metrics(&self) -> String {
        let mut page = text(self.service.standing().as_ref());
        page.push_str(&http::certificate(self.security));
        let mut calls = Exposition::new();
        let help = "Calls for tasks that are kept open because there is nothing to give.";
        calls.gauge("shoal_lease_calls_waiting", help, self.service.calls_waiting() as u64);
        page.push_str(&calls.into_text());
        page
    }

    /// It leads, or could: it stands by and the store answers.
    async fn readiness(&self) -> Result<(), String> {
        if self.service.with(|_, _| ()).is_some() {
            return Ok(());
        }
        let (None, Some(store)) = (self.starting.waits_for(), self.starting.store()) else {
            let what = self.starting.waits_for().unwrap_or_default();
            return Err(format!("this master does not lead yet: {what}"));
        };
        match tokio::time::timeout(STORE_WAIT, store.load()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                Err(format!("this master does not lead, and its store does not answer: {error}"))
            }
            Err(_) => {
                let seconds = STORE_WAIT.as_secs();
                Err(format!("this master does not lead, and its store has not answered within {seconds} s"))
            }
        }
    }
}

/// The metrics of a master: of one that does not lead, only that.
pub fn text(status: Option<&StatusReply>) -> String {
    let mut page = Exposition::new();
    page.build("master", env!("CARGO_PKG_VERSION"));
    page.gauge(
        "shoal_master_leads",
        "1 on the master that leads the job, 0 on those that stand by.",
        status.is_some(),
    );
    if let Some(status) = status {
        job(&mut page, status);
        progress(&mut page, status);
        members(&mut page, status);
        let trainers = TrainerCounters::from(status.trainer_totals.unwrap_or_default()).metrics();
        // Records that are computed are shown beside those that are applied.
        page.counted("shoal_trainers", trainers.into_iter().filter(|metric| metric.name != "records_total"));
        work(&mut page, status);
        verified(&mut page, status);
        recorded(&mut page, status);
        page.counted("shoal", LeaseCounters::from(status.leases.unwrap_or_default()).metrics());
        checkpoints(&mut page, status);
    }
    page.into_text()
}

/// How far the job is; nothing while this master does not know, for a wrong number is worse than none.
fn progress(page: &mut Exposition, status: &StatusReply) {
    if !status.is_progress_known {
        return;
    }
    page.gauge("shoal_job_step", "The lowest step that some block has not applied.", status.step);
    page.gauge("shoal_job_epoch", "Epochs that are over.", status.epoch);
    let help = "Records that count, on the surviving history: those of all steps below the present one. It goes back with the job.";
    page.gauge("shoal_records_trained", help, status.records_trained);
}

fn job(page: &mut Exposition, status: &StatusReply) {
    let settings = status.settings.clone().unwrap_or_default();
    let phases = ["waiting", "training", "done", "failed"].map(|phase| (phase, status.phase == phase));
    page.gauges("shoal_job_phase", "1 for the phase that the job is in.", "phase", phases);
    page.gauge("shoal_job_steps", "Steps of the whole job.", status.steps);
    page.gauge("shoal_job_epochs", "Epochs of the whole job.", settings.epochs);
    page.gauge(
        "shoal_job_records",
        "Records of the whole job: those of the data set times epochs.",
        status.records_planned,
    );
    let help = "How often the job, or a block of it, has gone back to a checkpoint.";
    page.counter("shoal_rewinds_total", help, status.rewind);
    let help = "How often a master was elected: the master's term.";
    page.counter("shoal_master_elections_total", help, status.master_term);
}

/// Computed less applied plus lost is wasted work: see the glossary.
fn work(page: &mut Exposition, status: &StatusReply) {
    let computed = status.trainer_totals.unwrap_or_default().records;
    let help =
        "Records that trainers have put through the step function, or predicted, in this master's term.";
    page.counter("shoal_records_computed_total", help, computed);
    let help = "Records that every block has applied in this master's term, those lost again included.";
    page.counter("shoal_records_applied_total", help, status.records_applied);
    let help = "Records that were applied in this master's term and lost again as the job went back.";
    page.counter("shoal_records_lost_total", help, status.records_lost);
}

/// Of a job that verifies nothing, nothing.
fn verified(page: &mut Exposition, status: &StatusReply) {
    if status.verify_millionths == 0 {
        return;
    }
    let (verified, given_up) = (status.microbatches_verified, status.microbatches_unverified);
    let outcomes = [("same_bits", verified), ("given_up", given_up)];
    let help =
        "Microbatches in this master's term that were to be computed twice: with the same bits; not in time.";
    page.counters("shoal_microbatches_verified_total", help, "outcome", outcomes);
}

/// Of a job that records nothing, nothing.
fn recorded(page: &mut Exposition, status: &StatusReply) {
    if status.record_hashes == 0 {
        return;
    }
    let outcomes = [("durable", status.steps_recorded), ("lost", status.steps_unrecorded)];
    let help = "Steps in this master's term whose hashes were to be recorded: durable; lost in part before they were.";
    page.counters("shoal_steps_recorded_total", help, "outcome", outcomes);
}

fn members(page: &mut Exposition, status: &StatusReply) {
    let live = status.trainers.iter().filter(|trainer| trainer.state == "live").count() as u64;
    page.gauge("shoal_trainers_live", "Trainers heard of within a lease's time to live.", live);
    page.gauge("shoal_trainers_wanted", "Trainers that a supervisor should run.", status.trainers_wanted);
    let live = status.pservers.iter().filter(|pserver| !pserver.lost).count() as u64;
    page.gauge("shoal_pservers_live", "Pservers heard of within a lease's time to live.", live);
    page.gauge("shoal_pservers_wanted", "Pservers that a supervisor should run.", status.pservers_wanted);
    page.gauge(
        "shoal_replicas_wanted",
        "Copies of each block wanted beside its primary.",
        status.replicas_wanted,
    );
    let marks = [("in_sync", status.copies_in_sync), ("filling", status.copies_filling)];
    page.gauges("shoal_copies", "Copies of blocks beside their primaries, by mark.", "mark", marks);
}

fn checkpoints(page: &mut Exposition, status: &StatusReply) {
    let help = "Version of the newest durable checkpoint; 0 while there is none.";
    page.gauge("shoal_checkpoint_version", help, status.checkpoint_version);
    let age = status.checkpoint_age_millis as f64 / 1000.0;
    let help = "Seconds since a checkpoint was kept last; while this master has kept none, since it leads.";
    page.gauge("shoal_checkpoint_age_seconds", help, age);
    let help = "Checkpoints that turned out to be damaged.";
    page.gauge("shoal_checkpoints_damaged", help, status.damaged.len() as u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Document, Wanted};
    use crate::fixture::{at_the_end, manifest, settings};
    use bytes::Bytes;
    use http::Watched as _;
    use shoal_runtime::host::store::{Leadership, MemoryStore, Revision, Store, StoreError};
    use std::sync::Arc;

    /// A store that answers once in a while.
    #[derive(Debug)]
    struct Moody(Option<StoreError>);

    #[tonic::async_trait]
    impl Store for Moody {
        async fn load(&self) -> Result<Option<(Revision, Bytes)>, StoreError> {
            match &self.0 {
                Some(error) => Err(error.clone()),
                None => std::future::pending().await,
            }
        }
        async fn swap(&self, _: Option<Revision>, _: Bytes) -> Result<Revision, StoreError> {
            std::future::pending().await
        }
        async fn lead(&self, _: &str) -> Result<Leadership, StoreError> {
            std::future::pending().await
        }
    }

    async fn readiness(service: &MasterService, store: impl Store + 'static) -> Result<(), String> {
        let starting = Starting::prepared(Arc::new(store));
        Watched { service, starting: &starting, security: &Security::Loopback }.readiness().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_master_that_stands_by_is_ready_while_its_store_answers() {
        let standby = MasterService::new();
        assert_eq!(readiness(&standby, MemoryStore::new()).await, Ok(()));
        let broken = Moody(Some(StoreError::Unavailable("no route to etcd".to_owned())));
        assert!(readiness(&standby, broken).await.unwrap_err().contains("no route to etcd"));
        assert!(readiness(&standby, Moody(None)).await.unwrap_err().contains("within 2 s"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_master_that_leads_is_ready_whatever_its_store_does_at_the_moment() {
        let service = MasterService::new();
        let document = Document::new(
            settings(64, 2, 8, 2),
            Wanted { pservers: 1, trainers: 1, replicas: 0, exclude_max: 0 },
        );
        service.lead(document.elected("m1"), manifest(64), at_the_end(), "memory");
        assert_eq!(readiness(&service, Moody(None)).await, Ok(()));
        assert!(text(service.standing().as_ref()).contains("shoal_master_leads 1\n"));
        service.step_down();
        assert!(text(service.standing().as_ref()).contains("shoal_master_leads 0\n"));
    }
}
