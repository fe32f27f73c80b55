//! Refusals as gRPC statuses, and every failed call sorted by what the caller does next.

use super::proto;
use crate::cluster::refusal::NextMove;
use crate::cluster::{Refusal, RefusalKind};
use prost::Message;
use std::error::Error;
use std::sync::Arc;
use tonic::{Code, Status};

const PAIRS: [(RefusalKind, proto::RefusalKind, Code); 18] = [
    (RefusalKind::WrongJob, proto::RefusalKind::WrongJob, Code::FailedPrecondition),
    (RefusalKind::StaleIncarnation, proto::RefusalKind::StaleIncarnation, Code::FailedPrecondition),
    (RefusalKind::DeclarationMismatch, proto::RefusalKind::DeclarationMismatch, Code::FailedPrecondition),
    (RefusalKind::EnvironmentMismatch, proto::RefusalKind::EnvironmentMismatch, Code::FailedPrecondition),
    (RefusalKind::WrongShape, proto::RefusalKind::WrongShape, Code::InvalidArgument),
    (RefusalKind::NonFinite, proto::RefusalKind::NonFinite, Code::InvalidArgument),
    (RefusalKind::Malformed, proto::RefusalKind::Malformed, Code::InvalidArgument),
    (RefusalKind::UnknownBlock, proto::RefusalKind::UnknownBlock, Code::FailedPrecondition),
    (RefusalKind::StaleRouting, proto::RefusalKind::StaleRouting, Code::FailedPrecondition),
    (RefusalKind::NotReady, proto::RefusalKind::NotReady, Code::Unavailable),
    (RefusalKind::StepGone, proto::RefusalKind::StepGone, Code::FailedPrecondition),
    (RefusalKind::Ahead, proto::RefusalKind::Ahead, Code::FailedPrecondition),
    (RefusalKind::Nondeterministic, proto::RefusalKind::Nondeterministic, Code::FailedPrecondition),
    (RefusalKind::JobFailed, proto::RefusalKind::JobFailed, Code::FailedPrecondition),
    (RefusalKind::UnknownIncarnation, proto::RefusalKind::UnknownIncarnation, Code::FailedPrecondition),
    (RefusalKind::NotLeader, proto::RefusalKind::NotLeader, Code::Unavailable),
    (RefusalKind::OutOfRange, proto::RefusalKind::OutOfRange, Code::OutOfRange),
    (RefusalKind::OtherVersion, proto::RefusalKind::OtherVersion, Code::FailedPrecondition),
];

/// The status that carries a refusal.
pub fn status_of(refusal: &Refusal) -> Status {
    let (_, kind, code) = PAIRS.into_iter().find(|(kind, _, _)| *kind == refusal.kind).unwrap_or(PAIRS[6]);
    let details = proto::Refusal {
        kind: kind.into(),
        subject: refusal.subject.clone(),
        detail: refusal.detail.clone(),
    };
    let status = Status::with_details(code, refusal.to_string(), details.encode_to_vec().into());
    Fault::Refused(refusal.clone()).with(status)
}

/// Why a call failed. It is told where that is known (`host::rpc::answers`), and goes with the status as its source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The other side said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No answer that can be used, or not in time: the call may or may not have taken effect. Send it again. Whatever lies
    /// between (a proxy, a connection that broke) can bring about no other fault than this.
    #[error("no answer: {0}")]
    Unreachable(String),
    /// No secure connection came about: one end does not believe the other's certificate. It passes when certificates
    /// are changed, or the address is another's by then; who waits for that says so, and gives up in time.
    #[error("not trusted: {0}")]
    Untrusted(String),
    /// This end cannot send the call (too large), or the role that was called says that it can never take it (too large,
    /// no such method, not this caller's to make): sending it again cannot help.
    #[error("{0}")]
    Impossible(String),
}

impl Fault {
    /// What the caller does next.
    pub fn next_move(&self) -> NextMove {
        match self {
            Fault::Refused(refusal) => refusal.kind.next_move(),
            Fault::Unreachable(_) | Fault::Untrusted(_) => NextMove::Retry,
            Fault::Impossible(_) => NextMove::GiveUp,
        }
    }
    /// The refusal, where it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Fault::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

impl Fault {
    /// What a role means by `status`, which must be the role's own word: its refusal where there is one.
    pub fn said(status: &Status) -> Fault {
        let refusal = proto::Refusal::decode(status.details()).ok().and_then(|details| {
            let (kind, _, _) = PAIRS.into_iter().find(|(_, wire, _)| *wire == details.kind())?;
            Some(Refusal { kind, subject: details.subject, detail: details.detail })
        });
        match (refusal, status.code()) {
            (Some(refusal), _) => Fault::Refused(refusal),
            // Too large; no such method; not this caller's to make. Our servers say nothing else for good without a
            // refusal. `Internal` is also what tonic's say of a request that was cut off on its way.
            (None, Code::OutOfRange | Code::Unimplemented | Code::PermissionDenied) => {
                Fault::Impossible(words(status))
            }
            (None, _) => Fault::Unreachable(words(status)),
        }
    }

    /// `status`, meaning this.
    pub fn with(self, mut status: Status) -> Status {
        status.set_source(Arc::new(self));
        status
    }
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Status {
        let code = match &fault {
            Fault::Refused(refusal) => return status_of(refusal),
            Fault::Unreachable(_) => Code::Unavailable,
            Fault::Untrusted(_) => Code::Unauthenticated,
            Fault::Impossible(_) => Code::FailedPrecondition,
        };
        let status = Status::new(code, fault.to_string());
        fault.with(status)
    }
}

impl From<Status> for Fault {
    fn from(status: Status) -> Fault {
        let told = causes(&status).find_map(|cause| cause.downcast_ref::<Fault>());
        // Who does not say what it means did not read an answer to its end: whether one was given is not known.
        told.cloned().unwrap_or_else(|| Fault::Unreachable(words(&status)))
    }
}

/// A status in words: its code, what it says, and what caused it.
pub(crate) fn words(status: &Status) -> String {
    let mut words = format!("{:?}: {}", status.code(), status.message());
    for cause in causes(status).skip(1).map(ToString::to_string) {
        if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

/// An error, what caused it, what caused that, and so on.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_refusal_survives_the_wire() {
        for (kind, _, _) in PAIRS {
            let refusal = Refusal::new(kind, "w", "what was expected");
            assert_eq!(Fault::said(&status_of(&refusal)), Fault::Refused(refusal.clone()));
            assert_eq!(Fault::from(status_of(&refusal)), Fault::Refused(refusal));
        }
    }

    #[test]
    fn a_fault_goes_with_its_status_and_a_status_without_one_is_no_answer() {
        for fault in [
            Fault::Unreachable("x".to_owned()),
            Fault::Untrusted("x".to_owned()),
            Fault::Impossible("x".to_owned()),
        ] {
            assert_eq!(Fault::from(Status::from(fault.clone())), fault);
        }
        let unsaid = Fault::from(Status::with_details(Code::OutOfRange, "x", vec![0xFF, 1, 2].into()));
        assert_eq!(unsaid, Fault::Unreachable("OutOfRange: x".to_owned()));
    }

    #[test]
    fn no_answer_is_told_with_its_causes_once_each() {
        let refused = std::io::Error::other("connection refused");
        let mut status = Status::unavailable("cannot connect");
        status.set_source(Arc::new(refused));
        assert_eq!(words(&status), "Unavailable: cannot connect: connection refused");
        status.set_source(Arc::new(std::io::Error::other("cannot connect")));
        assert_eq!(words(&status), "Unavailable: cannot connect");
    }
}
