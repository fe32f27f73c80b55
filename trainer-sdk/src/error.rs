//! Why a trainer gives up. Variants group by what its user does next.

use shoal_runtime::host::cuda::DeviceError;
use shoal_runtime::wire::Fault;
use std::any::Any;

/// The words of a panic.
pub(crate) fn panic_words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

/// What ended a trainer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// No master has answered as the job's leader for longer than the trainer's patience.
    #[error(
        "{role} at {address} has not answered for {seconds} s ({last}): check that it runs and can be reached"
    )]
    Unreachable {
        /// "master".
        role: &'static str,
        /// Where it should listen; leader and standbys with commas between them.
        address: String,
        /// How long it was tried.
        seconds: u64,
        /// The last failure.
        last: String,
    },
    /// A role said no, for good.
    #[error("{role} at {address}: {fault}")]
    Refused {
        /// "master" or "pserver".
        role: &'static str,
        /// Where it listens.
        address: String,
        /// What it said.
        fault: RoleFault,
    },
    /// The program's step function panicked: what state it left the program in, nobody knows.
    #[error("{0}; this trainer ends, and the master knows of the microbatch")]
    Panicked(String),
    /// The job has failed.
    #[error("the job has failed: {0}")]
    JobFailed(String),
    /// The device on which the program has parameters cannot be used, or has failed.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// Settings that cannot work.
    #[error("{0}")]
    Settings(String),
}

/// What a role said that refused a trainer for good: in words, with the way out.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct RoleFault(pub(crate) Fault);

#[cfg(feature = "internals")]
impl RoleFault {
    /// What it said, as roles say it.
    pub fn fault(&self) -> &Fault {
        &self.0
    }
}

impl TrainError {
    /// The process exit code: 3 when the master could not be reached, 2 for settings, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            TrainError::Unreachable { .. } => 3,
            TrainError::Settings(_) => 2,
            _ => 1,
        }
    }
    /// Whether the job's own state tells it already, so that the master need not be told.
    pub(crate) fn is_known_to_master(&self) -> bool {
        matches!(self, TrainError::JobFailed(_) | TrainError::Unreachable { .. })
    }
}
