//! The room that a process has for those who call it: connections, in all and from one host, and bytes on their way. What
//! does not fit is refused or waits, whosever it is, and nobody keeps room without using it.
//!
//! A [`Seat`] is one connection's: taken before its handshake, given back when it ends. It is overdue when nobody has
//! called over it for long, or an answer has been on its way for long because the other end does not read; then the
//! connection ends, and what was kept for it is free.

mod metering;
mod pace;
mod seldom;
#[cfg(test)]
mod tests;

pub(super) use metering::Metered;
pub(super) use pace::Pace;
pub(super) use seldom::Seldom;

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

/// All the room there is.
#[derive(Debug)]
pub(super) struct Room {
    limits: Limits,
    requests: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    taken: Mutex<Taken>,
    /// Of troubles with connections.
    told: Mutex<Seldom>,
}

#[derive(Debug, Default)]
struct Taken {
    connections: usize,
    by_host: BTreeMap<IpAddr, usize>,
}

/// One connection's room.
#[derive(Debug)]
pub(super) struct Seat {
    room: Arc<Room>,
    host: IpAddr,
    /// What answers may take, of the room's.
    answers: Arc<Semaphore>,
    use_: Mutex<Use>,
}

#[derive(Debug)]
struct Use {
    /// Until somebody has called.
    opened: Option<Instant>,
    /// When each answer that is on its way got room, by its number.
    answering: BTreeMap<u64, Instant>,
    next: u64,
}

/// An answer on its way, and its room.
#[derive(Debug)]
struct Answering {
    seat: Arc<Seat>,
    number: u64,
    _room: [OwnedSemaphorePermit; 2],
}

impl Room {
    pub(super) fn new(limits: Limits) -> Arc<Room> {
        let [requests, answers] =
            [(); 2].map(|()| Arc::new(Semaphore::new(limits.bytes_in_flight / 2 / UNIT)));
        Arc::new(Room { limits, requests, answers, taken: Mutex::default(), told: Mutex::default() })
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
        Ok(Arc::new(Seat { room: Arc::clone(self), host, answers, use_: Mutex::new(use_) }))
    }

    /// Takes room for a part of a request, at once or not at all: a request that waited for others to end would keep
    /// what it has of it.
    fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.requests).try_acquire_many_owned(units(bytes)).ok()
    }
}

impl Seat {
    /// When this connection is to end, as things are.
    pub(super) fn overdue(&self) -> Option<Instant> {
        let Limits { first_call, call, .. } = self.room.limits;
        let use_ = lock(&self.use_);
        let answer = use_.answering.values().min().map(|since| *since + call);
        use_.opened.map(|opened| opened + first_call).into_iter().chain(answer).min()
    }

    /// How fast it may send what carries nothing.
    pub(super) fn pace(&self) -> Pace {
        Pace::new(self.room.limits.idle_frames_per_second)
    }

    /// It is overdue: why.
    pub(super) fn end(&self) -> &'static str {
        let why = match lock(&self.use_).opened {
            Some(_) => "nobody has called over it",
            None => "an answer is not read",
        };
        if let Some(others) = lock(&self.room.told).tell() {
            tracing::warn!(peer = %self.host, why, others, "a connection is ended");
        }
        why
    }

    /// It has to wait.
    pub(super) fn hold_back(&self) {
        if let Some(others) = lock(&self.room.told).tell() {
            let why = "pings, settings, windows or resets come faster than they may";
            tracing::warn!(peer = %self.host, why, others, "a connection is held back");
        }
    }

    /// Somebody calls.
    fn called(&self) {
        lock(&self.use_).opened = None;
    }

    /// Waits until there is room for an answer of so many bytes, of this connection's and of the process's. One that is
    /// larger than all there may be is alone.
    async fn answer(self: Arc<Self>, bytes: usize) -> Option<Answering> {
        let Limits { bytes_per_connection, bytes_in_flight, .. } = self.room.limits;
        let most = bytes_per_connection.min(bytes_in_flight / 2) / UNIT * UNIT;
        let bytes = bytes.max(ANSWER_MIN).min(most);
        let acquire = |room: &Arc<Semaphore>| Arc::clone(room).acquire_many_owned(units(bytes));
        let ours = acquire(&self.answers).await.ok()?;
        let all = acquire(&self.room.answers).await.ok()?;
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
        let mut taken = lock(&self.room.taken);
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
