//! Those who may lead the job, and how a call finds the one who does: it turns to the next address when there is no
//! answer or the answer is "not the leader". What is called is never decided here.

use crate::calls::{Callee, Caller};
use crate::error::TrainError;
use shoal_runtime::cluster::RefusalKind;
use shoal_runtime::cluster::refusal::NextMove;
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::rpc::{Channel, Dial, master_client};
use shoal_runtime::wire::{Fault, proto::master_client::MasterClient};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Response, Status};

/// The master's addresses: leader and standbys.
pub(crate) struct Leaders {
    seats: Vec<(String, MasterClient<Channel>)>,
    /// Whom to ask, modulo the number of addresses.
    at: AtomicUsize,
    pub(crate) caller: Caller,
}

impl Leaders {
    /// Connects to every address of a comma-separated list, at the first call to each.
    pub(crate) fn new(list: &str, dial: &dyn Dial, caller: Caller) -> Result<Leaders, TrainError> {
        let addresses = list.split(',').map(str::trim).filter(|address| !address.is_empty());
        let seat = |address: &str| Ok((address.to_owned(), master_client(dial, address)?));
        let seats: Result<Vec<_>, String> = addresses.map(seat).collect();
        let seats = seats.map_err(TrainError::Settings)?;
        if seats.is_empty() {
            return Err(TrainError::Settings(format!(
                "SHOAL_MASTER={list:?}: give host:port, or several with commas"
            )));
        }
        Ok(Leaders { seats, at: AtomicUsize::new(0), caller })
    }

    /// Who is asked at present.
    pub(crate) fn callee(&self) -> Callee<'_> {
        Callee { role: "master", address: &self.seats[self.at.load(Relaxed) % self.seats.len()].0 }
    }

    /// All addresses, for messages about silence.
    pub(crate) fn addresses(&self) -> String {
        self.seats.iter().map(|(address, _)| address.as_str()).collect::<Vec<_>>().join(",")
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
        let at = self.at.load(Relaxed);
        let answer = self.caller.once(longer, call(self.seats[at % self.seats.len()].1.clone())).await;
        if answer.as_ref().is_err_and(is_no_leader) {
            // Not when another call has turned meanwhile: together they would pass the leader by.
            let _ = self.at.compare_exchange(at, at.wrapping_add(1), Relaxed, Relaxed);
        }
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

fn is_no_leader(fault: &Fault) -> bool {
    matches!(fault, Fault::Unreachable(_))
        || fault.refusal().is_some_and(|refusal| refusal.kind == RefusalKind::NotLeader)
}
