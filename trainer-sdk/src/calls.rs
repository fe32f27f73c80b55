//! One call, tried until it is answered: a deadline for each attempt, jittered pauses, a budget for all.

use crate::error::TrainError;
use shoal_runtime::cluster::refusal::NextMove;
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::random::Random;
use shoal_runtime::wire::Fault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

/// Retries and their budget, shared by all calls of one trainer.
#[derive(Debug)]
pub(crate) struct Caller {
    attempt: Duration,
    patience: Duration,
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
    pub(crate) fn refused(self, fault: Fault) -> TrainError {
        TrainError::Refused { role: self.role, address: self.address.to_owned(), fault }
    }
}

impl Caller {
    pub(crate) fn new(attempt: Duration, patience: Duration, random: Random) -> Caller {
        Caller { attempt, patience, random: Mutex::new(random), retries: AtomicU64::new(0) }
    }

    pub(crate) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// A pause before the next try of something that was refused for now.
    pub(crate) fn pause(&self, backoff: &mut Backoff) -> Duration {
        self.retries.fetch_add(1, Ordering::Relaxed);
        backoff.pause(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls until an answer comes. The call must be idempotent. `longer` is added to an attempt's deadline, for
    /// calls that the other side may keep open. Refusals other than "not ready" are returned.
    pub(crate) async fn call<T, F>(
        &self,
        callee: Callee<'_>,
        longer: Duration,
        mut attempt: impl FnMut() -> F,
    ) -> Result<Result<T, Fault>, TrainError>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));
        let started = Instant::now();
        loop {
            let fault = match tokio::time::timeout(self.attempt + longer, attempt()).await {
                Ok(Ok(answer)) => return Ok(Ok(answer.into_inner())),
                Ok(Err(status)) => Fault::from(status),
                Err(_) => Fault::Unreachable("no answer in time".to_owned()),
            };
            if fault.next_move() != NextMove::Retry {
                return Ok(Err(fault));
            }
            if started.elapsed() >= self.patience {
                return Err(TrainError::Unreachable {
                    role: callee.role,
                    address: callee.address.to_owned(),
                    seconds: self.patience.as_secs(),
                    last: fault.to_string(),
                });
            }
            let pause = self.pause(&mut backoff);
            if backoff.attempts() == 5 {
                tracing::warn!(role = callee.role, address = callee.address, %fault, "still trying");
            }
            tokio::time::sleep(pause).await;
        }
    }
}
