//! One attempt of a call: its deadline, the pause before the next one, and the count of retries. Which call is made,
//! and how often, is never decided here.

use crate::error::{RoleFault, TrainError};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::random::Random;
use shoal_runtime::wire::Fault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tonic::Status;

/// What all calls of one trainer share.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) attempt: Duration,
    random: Mutex<Random>,
    retries: AtomicU64,
}

/// Whom a call is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callee<'a> {
    pub(crate) role: &'static str,
    pub(crate) address: &'a str,
}

impl Callee<'_> {
    pub(crate) fn refused(self, fault: impl Into<Fault>) -> TrainError {
        let (address, fault) = (self.address.to_owned(), RoleFault(fault.into()));
        TrainError::Refused { role: self.role, address, fault }
    }
}

impl Caller {
    pub(crate) fn new(attempt: Duration, random: Random) -> Caller {
        Caller { attempt, random: Mutex::new(random), retries: AtomicU64::new(0) }
    }

    pub(crate) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// A pause before the next try of something that was refused for now.
    pub(crate) fn pause(&self, backoff: &mut Backoff) -> Duration {
        self.retries.fetch_add(1, Ordering::Relaxed);
        backoff.pause(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for the answer to one call until its deadline. The call must be idempotent: it may have taken effect
    /// though no answer came. `longer` is added to the deadline, for calls that the other side may keep open.
    pub(crate) async fn once<T>(
        &self,
        longer: Duration,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, Fault> {
        match tokio::time::timeout(self.attempt + longer, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(Fault::from(status)),
            Err(_) => Err(Fault::Unreachable("no answer in time".to_owned())),
        }
    }
}
