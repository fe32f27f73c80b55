//! Reasons, for status calls: for not leading, and for a standstill.

use super::MasterService;
use crate::machine::Machine;
use crate::standstill::{Outside, RefusedJoin, Standstill};
use crate::starting::Starting;
use crate::{status, words};
use shoal_runtime::cluster::waits::WaitKind;
use shoal_runtime::cluster::{Refusal, RefusalKind};
use shoal_runtime::host::waits::Waits;
use shoal_runtime::wire::{proto, status_of};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tonic::Status;

/// The reason for which a master does not lead, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct StandingBy {
    /// The preparations before the first leadership; `None` in tests.
    pub(super) starting: Option<Arc<Starting>>,
    /// The end of its last leadership, or of its last election; empty before.
    pub(super) why: String,
}

impl StandingBy {
    /// The answer to a call for the master that leads.
    pub(super) fn refusal(&self, waits: &Waits) -> Status {
        let starting = self.starting.as_ref().and_then(|starting| starting.waits_for());
        let store = waits.report().into_iter().find(|wait| wait.kind == WaitKind::Store);
        let detail = match (starting, store) {
            (Some(what), _) => format!("this master is starting: {what}"),
            (None, Some(wait)) => {
                let last = if self.why.is_empty() { String::new() } else { format!("; {}", self.why) };
                let (store, seconds) = (wait.subject, wait.age.as_secs());
                format!(
                    "another master leads this job, or the store ({store}) does not answer: this one waits for {seconds} s to be elected{last}"
                )
            }
            (None, None) if self.why.is_empty() => {
                String::from("another master leads this job: ask the next address")
            }
            (None, None) => format!("this master does not lead: {}", self.why),
        };
        status_of(&Refusal::new(RefusalKind::NotLeader, "master", detail))
    }
}

impl MasterService {
    /// Returns the registry of this process's waits.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Returns the job's status without declaration and routing; `None` while this process does not lead.
    pub fn standing(&self) -> Option<proto::StatusReply> {
        self.present().map(|present| self.status_reply(&present, present.now, false))
    }

    /// This process is starting: it says how far it is until it leads.
    pub(crate) fn start(&self, starting: Arc<Starting>) {
        self.standing_by().starting = Some(starting);
    }

    /// Notes the reason for not leading.
    pub(crate) fn stand_by(&self, why: String) {
        self.standing_by().why = why;
    }

    fn standing_by(&self) -> MutexGuard<'_, StandingBy> {
        self.standing_by.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn not_leading(&self) -> Status {
        self.standing_by().refusal(&self.waits)
    }

    /// Returns the job's status with the cause of a standstill.
    pub(super) fn status_reply(
        &self,
        machine: &Machine,
        now: Duration,
        with_model: bool,
    ) -> proto::StatusReply {
        let standstill = machine.standstill(&self.outside(), now);
        proto::StatusReply {
            standstill: standstill.as_ref().map(Into::into),
            ..status::reply(machine, now, with_model)
        }
    }

    /// Returns the standstill, if the front stands; `None` as well while this process does not lead.
    pub(crate) fn standstill(&self) -> Option<Standstill> {
        let outside = self.outside();
        self.present().and_then(|present| present.standstill(&outside, present.now))
    }

    fn outside(&self) -> Outside {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Outside { waits: self.waits.report(), refused }
    }

    /// Notes how a trainer's joining has ended, for people.
    pub(super) fn note_join<T>(&self, trainer: &str, joined: &Result<T, Refusal>, at: Duration) {
        let refused = joined.as_ref().err().map(|refusal| RefusedJoin {
            trainer: trainer.to_owned(),
            at,
            why: words::bounded(refusal.to_string()),
        });
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }
}
