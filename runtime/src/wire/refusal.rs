//! Refusals as gRPC statuses, and every failed call sorted by what the caller does next.

use super::proto;
use crate::cluster::refusal::NextMove;
use crate::cluster::{Refusal, RefusalKind};
use prost::Message;
use tonic::{Code, Status};

const PAIRS: [(RefusalKind, proto::RefusalKind, Code); 17] = [
    (RefusalKind::WrongJob, proto::RefusalKind::WrongJob, Code::FailedPrecondition),
    (RefusalKind::StaleIncarnation, proto::RefusalKind::StaleIncarnation, Code::FailedPrecondition),
    (RefusalKind::DeclarationMismatch, proto::RefusalKind::DeclarationMismatch, Code::FailedPrecondition),
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
    let (_, kind, code) = PAIRS.into_iter().find(|(kind, _, _)| *kind == refusal.kind).unwrap_or(PAIRS[5]);
    let details = proto::Refusal {
        kind: kind.into(),
        subject: refusal.subject.clone(),
        detail: refusal.detail.clone(),
    };
    Status::with_details(code, refusal.to_string(), details.encode_to_vec().into())
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The other side said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No answer, or not in time: the call may or may not have taken effect. Send it again.
    #[error("no answer: {0}")]
    Unreachable(String),
    /// No secure connection came about: one end does not believe the other's certificate. It passes when certificates
    /// are changed, or the address is another's by then; who waits for that says so, and gives up in time.
    #[error("not trusted: {0}")]
    Untrusted(String),
    /// The message could not be taken at all (too large, no such method): sending it again cannot help.
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

impl From<Status> for Fault {
    fn from(status: Status) -> Fault {
        if !status.details().is_empty()
            && let Ok(details) = proto::Refusal::decode(status.details())
            && let Some((kind, _, _)) = PAIRS.into_iter().find(|(_, wire, _)| *wire == details.kind())
        {
            return Fault::Refused(Refusal { kind, subject: details.subject, detail: details.detail });
        }
        // Made at this end, by `host::rpc::dial`: no role answers with it.
        if status.code() == Code::Unauthenticated {
            return Fault::Untrusted(status.message().to_owned());
        }
        let text = format!("{:?}: {}", status.code(), status.message());
        match status.code() {
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Unknown | Code::Aborted => {
                Fault::Unreachable(text)
            }
            // An h2 connection torn down in mid-call surfaces as Internal.
            Code::Internal if status.message().contains("h2") => Fault::Unreachable(text),
            _ => Fault::Impossible(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_refusal_survives_the_wire() {
        for (kind, _, _) in PAIRS {
            let refusal = Refusal::new(kind, "w", "what was expected");
            assert_eq!(Fault::from(status_of(&refusal)), Fault::Refused(refusal));
        }
    }

    #[test]
    fn a_passed_deadline_is_sent_again_and_an_oversized_message_is_not() {
        assert_eq!(Fault::from(Status::cancelled("Timeout expired")).next_move(), NextMove::Retry);
        assert_eq!(Fault::from(Status::out_of_range("message too large")).next_move(), NextMove::GiveUp);
        let untrusted = Fault::from(Status::unauthenticated("b:2: its certificate has expired"));
        assert_eq!(untrusted, Fault::Untrusted("b:2: its certificate has expired".to_owned()));
        assert_eq!(untrusted.next_move(), NextMove::Retry);
        assert_eq!(Fault::from(Status::permission_denied("a trainer may not")).next_move(), NextMove::GiveUp);
        let garbled = Status::with_details(Code::Unavailable, "x", vec![0xFF, 1, 2].into());
        assert_eq!(Fault::from(garbled).next_move(), NextMove::Retry);
    }
}
