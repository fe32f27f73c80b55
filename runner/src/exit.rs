//! Exit codes: 0 ok, 1 the job failed, 2 usage, 3 unreachable, 4 waited for too long, 5 not permitted; a command that was interrupted
//! ends by the signal, which shells show as 130 or 143. One place for all commands.

use rustix::process::Signal;
use shoal_runtime::host::output::Unprinted;
use shoal_runtime::host::shutdown::{self, Shutdown};
use std::process::ExitCode;

/// An error that has an exit code of its own; anything else exits with 1.
#[derive(Debug, thiserror::Error)]
pub enum Exit {
    /// What was asked for cannot be done as asked.
    #[error("{0}")]
    Usage(String),
    /// A role does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// The same of a master that says nothing at all.
    #[error("{0}")]
    Unanswered(String),
    /// What was waited for has not come to be in time.
    #[error("{0}")]
    TimedOut(String),
    /// Who asks lacks a right, and asking again does not help.
    #[error("{0}")]
    Forbidden(String),
    /// A signal asked this command to stop, and its processes have ended. The job has not failed.
    #[error("interrupted: nothing is left running")]
    Interrupted(Signal),
}

impl Exit {
    /// Whether an error says that a role does not answer, so that asking again may help.
    pub fn is_unreachable(error: &anyhow::Error) -> bool {
        matches!(error.downcast_ref::<Exit>(), Some(Exit::Unreachable(_) | Exit::Unanswered(_)))
    }

    /// Whether an error says that a master has said nothing, not even that another leads.
    pub(crate) fn is_unanswered(error: &anyhow::Error) -> bool {
        matches!(error.downcast_ref::<Exit>(), Some(Exit::Unanswered(_)))
    }

    /// What a command ends with whose moment to stop has come.
    pub fn interrupted(shutdown: &Shutdown) -> Exit {
        Exit::Interrupted(shutdown.signal())
    }
}

/// Whether there is nobody to tell of an error: who read the result has gone.
fn is_quiet(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<Unprinted>(), Some(Unprinted::Closed))
}

/// Tells why a command has failed. Returns its exit code; does not return where it ends by the signal that interrupted it.
pub fn failed(error: &anyhow::Error) -> ExitCode {
    if !is_quiet(error) {
        note!("error: {error:#}");
    }
    match error.downcast_ref::<Exit>() {
        Some(Exit::Interrupted(signal)) => ExitCode::from(shutdown::end_by(*signal)),
        _ => code_of(error),
    }
}

/// The exit code of a failed command.
pub fn code_of(error: &anyhow::Error) -> ExitCode {
    if is_quiet(error) {
        return ExitCode::SUCCESS;
    }
    match error.downcast_ref::<Exit>() {
        Some(Exit::Usage(_)) => ExitCode::from(2),
        Some(Exit::Unreachable(_) | Exit::Unanswered(_)) => ExitCode::from(3),
        Some(Exit::TimedOut(_)) => ExitCode::from(4),
        Some(Exit::Forbidden(_)) => ExitCode::from(5),
        Some(Exit::Interrupted(signal)) => ExitCode::from(128 + signal.as_raw() as u8),
        // Settings or a data set that are not taken, where this process has looked at them.
        None if shoal_master::is_hopeless(error) => ExitCode::from(2),
        None => ExitCode::FAILURE,
    }
}
