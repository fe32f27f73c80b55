//! Calls to the job's masters, repeated until the one who leads answers. What is called is never decided here.

use crate::calls::{Callee, Caller};
use crate::error::TrainError;
use shoal_runtime::cluster::refusal::NextMove;
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::rpc::{Channel, Dial, Masters};
use shoal_runtime::wire::{Fault, proto::master_client::MasterClient};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Response, Status};

/// The job's masters as a trainer calls them.
pub(crate) struct Leaders {
    masters: Masters,
    pub(crate) caller: Caller,
}

impl Leaders {
    /// Connects to every address of a comma-separated list, at the first call to each.
    pub(crate) fn new(list: &str, dial: &dyn Dial, caller: Caller) -> Result<Leaders, TrainError> {
        let masters = Masters::new(list, dial);
        let masters = masters.map_err(|why| TrainError::Settings(format!("SHOAL_MASTER: {why}")))?;
        Ok(Leaders { masters, caller })
    }

    /// The master that is asked at present.
    pub(crate) fn callee(&self) -> Callee<'_> {
        Callee { role: "master", address: self.masters.address() }
    }

    /// All addresses, for messages about silence.
    pub(crate) fn addresses(&self) -> String {
        self.masters.addresses()
    }

    /// Whether the leader was heard of lately: see [`Masters::check_heard`].
    pub(crate) fn check_heard(&self, ttl: Duration) -> Result<(), String> {
        self.masters.check_heard(ttl)
    }

    /// One attempt of a call, with `longer` for what the master may keep open.
    pub(crate) async fn once<T, F>(
        &self,
        longer: Duration,
        call: impl FnOnce(MasterClient<Channel>) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let (asked, client) = self.masters.present();
        let answer = self.caller.once(longer, call(client)).await;
        self.masters.hear(asked, &answer);
        answer
    }

    /// Calls until an answer comes, or nobody has led for `patience`. Refusals that pass with time are no answer.
    pub(crate) async fn until_answered<T, F>(
        &self,
        patience: Duration,
        call: impl Fn(MasterClient<Channel>) -> F,
    ) -> Result<T, TrainError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));
        let started = Instant::now();
        loop {
            let fault = match self.once(Duration::ZERO, &call).await {
                Ok(answer) => return Ok(answer),
                Err(fault) if fault.next_move() == NextMove::Retry => fault,
                Err(fault) => return Err(self.callee().refused(fault)),
            };
            if started.elapsed() >= patience {
                return Err(self.silent(patience, fault.to_string()));
            }
            let pause = self.caller.pause(&mut backoff);
            if backoff.attempts() == 5 {
                tracing::warn!(role = "master", address = self.addresses(), %fault, "still trying");
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Nobody has led for so long.
    pub(crate) fn silent(&self, time: Duration, last: String) -> TrainError {
        TrainError::Unreachable { role: "master", address: self.addresses(), seconds: time.as_secs(), last }
    }
}
