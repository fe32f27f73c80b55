//! The capacity of a process for its callers: how many connections it has, in all and from one host, and how many bytes of requests
//! and answers may be in memory. A caller beyond that is refused or waits, whoever it is. A connection that is not used is ended.
//!
//! A [`Seat`] is one connection's: taken before its handshake, given back when it ends. It is overdue when nobody has
//! called over it for long, or an answer has been on its way for long because the other end does not read; then the
//! connection ends, and what was kept for it is free.

mod frame_rate;
mod metering;
mod once_a_second;
#[cfg(test)]
mod tests;

pub(super) use frame_rate::FrameRate;
pub(super) use metering::Metered;
pub(super) use once_a_second::OnceASecond;

use super::Limits;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// What one permit stands for, in bytes.
const UNIT: usize = 1024;
/// What the smallest answer takes, in bytes: its stream and its head are kept, too.
const ANSWER_MIN: usize = 16 << 10;

/// An extension of an answer whose body is made: how many bytes it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerBytes(pub(super) usize);

/// What is left of a process's capacity.
#[derive(Debug)]
pub(super) struct Capacity {
    limits: Limits,
    requests: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    taken: Mutex<Taken>,
    /// Of troubles with connections.
    told: Mutex<OnceASecond>,
}

#[derive(Debug, Default)]
struct Taken {
    connections: usize,
    by_host: BTreeMap<IpAddr, usize>,
}

/// One connection's capacity.
#[derive(Debug)]
pub(super) struct Seat {
    capacity: Arc<Capacity>,
    host: IpAddr,
    /// What answers may take, of the capacity's.
    answers: Arc<Semaphore>,
    use_: Mutex<Use>,
}

#[derive(Debug)]
struct Use {
    /// Until somebody has called.
    opened: Option<Instant>,
    /// When each answer that is on its way got capacity, by its number.
    answering: BTreeMap<u64, Instant>,
    next: u64,
}

/// An answer on its way, and its capacity.
#[derive(Debug)]
struct Answering {
    seat: Arc<Seat>,
    number: u64,
    _room: [OwnedSemaphorePermit; 2],
}

impl Capacity {
    pub(super) fn new(limits: Limits) -> Arc<Capacity> {
        let [requests, answers] =
            [(); 2].map(|()| Arc::new(Semaphore::new(limits.bytes_in_flight / 2 / UNIT)));
        Arc::new(Capacity { limits, requests, answers, taken: Mutex::default(), told: Mutex::default() })
    }

    /// Takes a seat for a connection from `host`.
    ///
    /// # Errors
    /// There is none; the error says why.
    pub(super) fn seat(self: &Arc<Self>, host: IpAddr) -> Result<Arc<Seat>, String> {
        let mut taken = lock(&self.taken);
        if taken.connections >= self.limits.connections {
            return Err(format!("{} connections are open, which is all that may be", taken.connections));
        }
        let of_host = taken.by_host.entry(host).or_default();
        if *of_host >= self.limits.connections_per_host {
            return Err(format!("{of_host} connections from {host} are open, which is all that may be"));
        }
        *of_host += 1;
        taken.connections += 1;
        let answers = Arc::new(Semaphore::new(self.limits.bytes_per_connection / UNIT));
        let use_ = Use { opened: Some(Instant::now()), answering: BTreeMap::new(), next: 0 };
        Ok(Arc::new(Seat { capacity: Arc::clone(self), host, answers, use_: Mutex::new(use_) }))
    }

    /// Takes capacity for a part of a request, at once or not at all: a request that waited for others to end would keep
    /// what it has of it.
    fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.requests).try_acquire_many_owned(units(bytes)).ok()
    }
}

impl Seat {
    /// When this connection is to end, as things are.
    pub(super) fn overdue(&self) -> Option<Instant> {
        let Limits { first_call, call, .. } = self.capacity.limits;
        let use_ = lock(&self.use_);
        let answer = use_.answering.values().min().map(|since| *since + call);
        use_.opened.map(|opened| opened + first_call).into_iter().chain(answer).min()
    }

    /// How fast it may send what carries nothing.
    pub(super) fn pace(&self) -> FrameRate {
        FrameRate::new(self.capacity.limits.idle_frames_per_second)
    }

    /// It is overdue: why.
    pub(super) fn end(&self) -> &'static str {
        let why = match lock(&self.use_).opened {
            Some(_) => "nobody has called over it",
            None => "an answer is not read",
        };
        if let Some(others) = lock(&self.capacity.told).tell() {
            tracing::warn!(peer = %self.host, why, others, "a connection is ended");
        }
        why
    }

    /// It has to wait.
    pub(super) fn hold_back(&self) {
        if let Some(others) = lock(&self.capacity.told).tell() {
            let why = "pings, settings, windows or resets come faster than they may";
            tracing::warn!(peer = %self.host, why, others, "a connection is held back");
        }
    }

    /// Somebody calls.
    fn called(&self) {
        lock(&self.use_).opened = None;
    }

    /// Waits until there is capacity for an answer of so many bytes, of this connection's and of the process's. One that is
    /// larger than all there may be is alone.
    async fn answer(self: Arc<Self>, bytes: usize) -> Option<Answering> {
        let Limits { bytes_per_connection, bytes_in_flight, .. } = self.capacity.limits;
        let most = bytes_per_connection.min(bytes_in_flight / 2) / UNIT * UNIT;
        let bytes = bytes.max(ANSWER_MIN).min(most);
        let acquire = |capacity: &Arc<Semaphore>| Arc::clone(capacity).acquire_many_owned(units(bytes));
        let ours = acquire(&self.answers).await.ok()?;
        let all = acquire(&self.capacity.answers).await.ok()?;
        let number = {
            let mut use_ = lock(&self.use_);
            use_.next += 1;
            let number = use_.next;
            use_.answering.insert(number, Instant::now());
            number
        };
        Some(Answering { seat: self, number, _room: [ours, all] })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        lock(&self.seat.use_).answering.remove(&self.number);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = lock(&self.capacity.taken);
        taken.connections -= 1;
        if let Some(of_host) = taken.by_host.get_mut(&self.host) {
            *of_host -= 1;
            if *of_host == 0 {
                taken.by_host.remove(&self.host);
            }
        }
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
