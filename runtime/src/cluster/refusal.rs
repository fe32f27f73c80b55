//! Refusals: every "no" that one role says to another, typed by what the caller does next.

/// A refusal: what kind, what it names, and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {subject}: {detail}")]
pub struct Refusal {
    /// What kind of "no".
    pub kind: RefusalKind,
    /// The parameter, block, trainer or job that it is about.
    pub subject: String,
    /// What was expected, what came, and the way out.
    pub detail: String,
}

/// The kinds of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The call names another job.
    WrongJob,
    /// The caller is unknown or has been replaced by a later life under the same name.
    StaleIncarnation,
    /// The parameters declared are not the job's.
    DeclarationMismatch,
    /// What the trainer's bits depend on is not what the job's do.
    EnvironmentMismatch,
    /// A gradient has not the length of its block.
    WrongShape,
    /// A gradient holds an infinity or not-a-number.
    NonFinite,
    /// The message cannot be understood.
    Malformed,
    /// The caller is of an earlier master's term; this master has yet to learn of it.
    UnknownIncarnation,
    /// This master does not lead the job.
    NotLeader,
    /// The block is not hosted here.
    UnknownBlock,
    /// The caller's routing is not the present one.
    StaleRouting,
    /// Not yet; ask again.
    NotReady,
    /// The step is done everywhere and its version no longer kept.
    StepGone,
    /// The push is for a step that has not begun.
    Ahead,
    /// Two results for one node differ in their bits.
    Nondeterministic,
    /// The job has failed.
    JobFailed,
    /// A number lies outside what is allowed.
    OutOfRange,
    /// The two sides of a call speak different versions of the wire.
    OtherVersion,
}

/// What the caller of a refused call does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextMove {
    /// The same call again, after a pause.
    Retry,
    /// Learn the present routing, then call again.
    Reroute,
    /// Drop the task: it is done.
    Drop,
    /// Join or register again, then call again.
    Rejoin,
    /// Give up and say why.
    GiveUp,
}

impl RefusalKind {
    /// Whether the caller is not of the job that it would join: see [`NOT_OF_THE_JOB_CODE`](shoal_job::ends::NOT_OF_THE_JOB_CODE).
    pub fn is_of_another_job(self) -> bool {
        matches!(self, RefusalKind::DeclarationMismatch | RefusalKind::EnvironmentMismatch)
    }

    /// What the caller does next.
    pub fn next_move(self) -> NextMove {
        match self {
            RefusalKind::NotReady | RefusalKind::NotLeader => NextMove::Retry,
            RefusalKind::UnknownIncarnation => NextMove::Rejoin,
            RefusalKind::StaleRouting | RefusalKind::UnknownBlock => NextMove::Reroute,
            RefusalKind::StepGone => NextMove::Drop,
            RefusalKind::WrongJob
            | RefusalKind::StaleIncarnation
            | RefusalKind::DeclarationMismatch
            | RefusalKind::EnvironmentMismatch
            | RefusalKind::WrongShape
            | RefusalKind::NonFinite
            | RefusalKind::Malformed
            | RefusalKind::Ahead
            | RefusalKind::Nondeterministic
            | RefusalKind::JobFailed
            | RefusalKind::OutOfRange
            | RefusalKind::OtherVersion => NextMove::GiveUp,
        }
    }
}

impl std::fmt::Display for RefusalKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RefusalKind::WrongJob => "wrong job",
            RefusalKind::StaleIncarnation => "stale incarnation",
            RefusalKind::DeclarationMismatch => "declaration mismatch",
            RefusalKind::EnvironmentMismatch => "environment mismatch",
            RefusalKind::WrongShape => "wrong shape",
            RefusalKind::NonFinite => "non-finite gradient",
            RefusalKind::Malformed => "malformed message",
            RefusalKind::UnknownIncarnation => "unknown incarnation",
            RefusalKind::NotLeader => "not the leader",
            RefusalKind::UnknownBlock => "unknown block",
            RefusalKind::StaleRouting => "stale routing",
            RefusalKind::NotReady => "not ready",
            RefusalKind::StepGone => "step gone",
            RefusalKind::Ahead => "ahead of the job",
            RefusalKind::Nondeterministic => "nondeterministic step function",
            RefusalKind::JobFailed => "job failed",
            RefusalKind::OutOfRange => "out of range",
            RefusalKind::OtherVersion => "another version",
        })
    }
}

impl Refusal {
    /// A refusal about `subject`.
    pub fn new(kind: RefusalKind, subject: impl ToString, detail: impl ToString) -> Refusal {
        Refusal { kind, subject: subject.to_string(), detail: detail.to_string() }
    }
}
