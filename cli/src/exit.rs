//! Exit codes: 0 ok, 1 the job failed, 2 usage, 3 unreachable, 4 waited for too long. One place for all commands.

use shoal_runtime::host::output::Unprinted;
use std::process::ExitCode;

/// An error that has an exit code of its own; anything else exits with 1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Exit {
    /// What was asked for cannot be done as asked.
    #[error("{0}")]
    Usage(String),
    /// A role does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// What was waited for has not come to be in time.
    #[cfg(feature = "cluster")]
    #[error("{0}")]
    TimedOut(String),
}

impl Exit {
    /// Whether an error says that a role does not answer, so that asking again may help.
    pub(crate) fn is_unreachable(error: &anyhow::Error) -> bool {
        matches!(error.downcast_ref::<Exit>(), Some(Exit::Unreachable(_)))
    }
}

/// Whether there is nobody to tell of an error: who read the result has gone.
fn is_quiet(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<Unprinted>(), Some(Unprinted::Closed))
}

/// Tells why a command has failed. Returns its exit code.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    if !is_quiet(error) {
        note!("error: {error:#}");
    }
    code_of(error)
}

/// The exit code of a failed command.
pub(crate) fn code_of(error: &anyhow::Error) -> ExitCode {
    if is_quiet(error) {
        return ExitCode::SUCCESS;
    }
    match error.downcast_ref::<Exit>() {
        Some(Exit::Usage(_)) => ExitCode::from(2),
        Some(Exit::Unreachable(_)) => ExitCode::from(3),
        #[cfg(feature = "cluster")]
        Some(Exit::TimedOut(_)) => ExitCode::from(4),
        // Settings or a data set that are not taken, where this process has looked at them.
        None if shoal_master::is_hopeless(error) => ExitCode::from(2),
        None => ExitCode::FAILURE,
    }
}
