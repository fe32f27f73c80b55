//! What is known of the secrets of one job's roles: which are there, what they say, and when they are looked at again. Asks nobody.

use super::LOOK_EVERY;
use crate::api::{Moment, TrainingJob};
use crate::decide::{CertificateView, PodState, PodView};
use shoal_runtime::host::rpc::tls::Role;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// A secret that is the job's.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) source: Source,
    /// When it is looked at again.
    pub(super) again: Instant,
}

/// How it is known.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Not by a look: pods of its role run, which have it mounted. Holds while the authority is the one of this fingerprint.
    Pods(String),
    /// As it was when this operator looked at it, or wrote it.
    Look(Seen),
}

/// A secret as it was answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// What it says of its certificate.
    pub(super) view: Option<CertificateView>,
    pub(super) uid: Option<String>,
    pub(super) version: Option<String>,
}

/// By role, the secrets that are there.
#[derive(Default)]
pub(in super::super) struct Secrets(BTreeMap<Role, Held>);

impl Secrets {
    /// Whether pods of that role find the secret that they mount.
    pub(in super::super) fn has(&self, role: &str) -> bool {
        self.0.keys().any(|held| held.word() == role)
    }

    /// Whether that role's is there, and not due to be looked at.
    pub(in super::super) fn is_fresh(&self, role: Role) -> bool {
        self.0.get(&role).is_some_and(|held| Instant::now() < held.again)
    }

    pub(in super::super) fn note_there(&mut self, role: Role) {
        self.note(role, Seen::default());
    }

    pub(super) fn note(&mut self, role: Role, seen: Seen) {
        self.0.insert(role, Held { source: Source::Look(seen), again: Instant::now() + LOOK_EVERY });
    }

    pub(in super::super) fn forget(&mut self, role: Role) {
        self.0.remove(&role);
    }

    pub(super) fn of(&self, role: Role) -> Option<&Held> {
        self.0.get(&role)
    }

    /// Takes those for granted that pods of the job have mounted, for so long, and under this authority.
    pub(super) fn presume(&mut self, pods: &[PodView], fingerprint: &str, after: Duration) {
        for role in Role::ALL {
            // The client's is mounted by nobody: it was made after the master's.
            let mounted_by = if role == Role::Client { Role::Master } else { role };
            let is_mounted =
                |pod: &PodView| pod.role.name() == mounted_by.word() && pod.state == PodState::Running;
            if pods.iter().any(is_mounted) {
                let held =
                    Held { source: Source::Pods(fingerprint.to_owned()), again: Instant::now() + after };
                self.0.entry(role).or_insert(held);
            }
        }
    }
}

/// When an operator has last written what it saw of a job; none if none has.
pub(super) fn served(job: &TrainingJob) -> Option<Moment> {
    let status = job.status.as_ref()?;
    let progress = status.progress.as_ref().and_then(|progress| progress.at);
    let conditions = status.conditions.iter().map(|condition| condition.last_transition_time);
    let decisions = status.decisions.iter().map(|decision| decision.at);
    progress.into_iter().chain(conditions).chain(decisions).max()
}
