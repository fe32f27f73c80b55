//! Why a master does not lead, for whoever asks it how the job is.

use crate::starting::Starting;
use shoal_runtime::cluster::waits::WaitKind;
use shoal_runtime::cluster::{Refusal, RefusalKind};
use shoal_runtime::host::waits::Waits;
use shoal_runtime::wire::status_of;
use std::sync::Arc;
use tonic::Status;

/// What a master that does not lead knows of the reason.
#[derive(Debug, Default)]
pub(super) struct StandingBy {
    /// What it does before it can lead; `None` in tests.
    pub(super) starting: Option<Arc<Starting>>,
    /// Why it led no more, or was not elected; empty before.
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
