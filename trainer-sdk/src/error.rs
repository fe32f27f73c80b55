//! Why a trainer gives up. Variants group by what its user does next.

use shoal_job::ends::{NOT_OF_THE_JOB_CODE, UNREACHED_CODE, WRONG_USAGE_CODE};
use shoal_runtime::host::cuda::DeviceError;
use shoal_runtime::wire::Fault;
use std::any::Any;

/// The words of a panic.
pub(crate) fn panic_words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

/// A program's error that is none of its records': this trainer cannot, whoever else can. It has no memory, a full disk, a device
/// that is gone.
///
/// Returned by a function of [`Model`](crate::Model), or anywhere in what an error is caused by, it ends the trainer without a
/// search for a record to blame, and others compute the microbatch. So do an [`std::io::Error`] of a full disk or quota, of no memory
/// or of too many open files, and a [`std::collections::TryReserveError`].
///
/// ```
/// # fn read_cache() -> anyhow::Result<()> { Ok(()) }
/// # fn step() -> anyhow::Result<()> {
/// use anyhow::Context;
/// read_cache().context(shoal_trainer_sdk::Unfit("the cache folder is gone".into()))?;
/// # Ok(()) }
/// # step().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(
    /// Why, for people.
    pub String,
);

impl Unfit {
    /// Whether an error says so.
    pub(crate) fn is_said_by(error: &anyhow::Error) -> bool {
        error.is::<Unfit>() || error.chain().any(is_want)
    }
}

/// A program's error that says nothing but that it was asked to stop, by its user or by a signal: the trainer hands back what it has
/// not finished and ends as [`Ended::Left`](crate::Ended::Left), and nobody complains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the program was asked to stop")]
pub struct Leave;

impl Leave {
    /// Whether an error says so.
    pub(crate) fn is_said_by(error: &anyhow::Error) -> bool {
        error.is::<Leave>() || error.chain().any(|cause| cause.is::<Leave>())
    }
}

/// Whether it is of something that a machine has too little of.
fn is_want(cause: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{OutOfMemory, QuotaExceeded, StorageFull};
    // Of the process and of the machine.
    const TOO_MANY_FILES: [i32; 2] = [24, 23];
    let of_io = |error: &std::io::Error| {
        matches!(error.kind(), OutOfMemory | QuotaExceeded | StorageFull)
            || error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code))
    };
    cause.is::<Unfit>()
        || cause.is::<std::collections::TryReserveError>()
        || cause.downcast_ref::<std::io::Error>().is_some_and(of_io)
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
    /// The program has said that this trainer [cannot](Unfit).
    #[error("{0}: this trainer ends, and others compute the microbatch")]
    Unfit(String),
    /// The program could not say what it declares.
    #[error("the program cannot begin: {0}")]
    Declare(String),
    /// The job has failed.
    #[error("the job has failed: {0}")]
    JobFailed(String),
    /// The device on which the program has parameters cannot be used, or has failed.
    #[error(transparent)]
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
    /// The process exit code: 3 when the master could not be reached, 2 for settings and for a program that does not declare, 5 when what the program declares, or its
    /// environment, is not the job's, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            TrainError::Unreachable { .. } => UNREACHED_CODE,
            TrainError::Refused { fault: RoleFault(Fault::Refused(refusal)), .. }
                if refusal.kind.is_of_another_job() =>
            {
                NOT_OF_THE_JOB_CODE
            }
            TrainError::Settings(_) | TrainError::Declare(_) => WRONG_USAGE_CODE,
            _ => 1,
        }
    }
    /// Whether the job's own state tells it already, so that the master need not be told.
    pub(crate) fn is_known_to_master(&self) -> bool {
        matches!(self, TrainError::JobFailed(_) | TrainError::Unreachable { .. })
    }

    /// Whether it is this trainer's and no fault of the program or of the job: the master counts it like a process that ended
    /// without a word.
    pub(crate) fn is_of_trainer(&self) -> bool {
        matches!(self, TrainError::Unfit(_) | TrainError::Device(_))
    }
}
