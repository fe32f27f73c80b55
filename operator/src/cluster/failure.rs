//! Why reconciling a job has failed, in words and by kind.

use super::fleet::RECONCILE_MAX;
use crate::decide::Broken;

/// Why reconciling failed: it is repeated after a pause.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReconcileError {
    #[error("{}", said(.0))]
    Api(kube::Error),
    #[error("it took more than {} s", RECONCILE_MAX.as_secs())]
    Deadline,
    #[error("this operator does not lead any more")]
    NotLeading,
    #[error(transparent)]
    Broken(#[from] Broken),
}

impl From<kube::Error> for ReconcileError {
    fn from(error: kube::Error) -> ReconcileError {
        ReconcileError::Api(error)
    }
}

impl ReconcileError {
    /// The kind by which it is counted.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            ReconcileError::Api(kube::Error::Api(status)) if status.code == 409 => "conflict",
            ReconcileError::Api(kube::Error::Api(_)) => "refused",
            ReconcileError::Api(_) => "unanswered",
            ReconcileError::Deadline => "deadline",
            ReconcileError::NotLeading => "not_leading",
            ReconcileError::Broken(_) => "broken",
        }
    }
}

/// What the API server says, without what programs read in it.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
