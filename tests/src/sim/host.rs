//! A simulated machine: what runs on it stops when it is paused (SIGSTOP) and vanishes when it crashes (SIGKILL).
//!
//! Everything of a host runs as a [`Gated`] future. Timers go on while a host is paused, as the world's clock does.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Whether a host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostState {
    /// It does.
    Running,
    /// It will when it is resumed.
    Paused,
    /// It never will again.
    Crashed,
}

/// One simulated machine.
#[derive(Debug)]
pub struct Host {
    /// Unique in the network.
    pub name: String,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: HostState,
    /// How much longer everything takes here.
    lag: Duration,
    wakers: BTreeMap<u64, Waker>,
    next: u64,
}

impl Host {
    /// A running host.
    pub fn new(name: &str) -> Arc<Host> {
        let inner =
            Inner { state: HostState::Running, lag: Duration::ZERO, wakers: BTreeMap::new(), next: 0 };
        Arc::new(Host { name: name.to_owned(), inner: Mutex::new(inner) })
    }

    /// Whether it runs.
    pub fn state(&self) -> HostState {
        self.inner().state
    }
    /// Stops it until [`resume`](Self::resume).
    pub fn pause(&self) {
        self.change(HostState::Paused);
    }
    /// Lets it run again.
    pub fn resume(&self) {
        self.change(HostState::Running);
    }
    /// Whatever it does begins so much later, until it is changed again.
    pub fn slow_down(&self, lag: Duration) {
        self.inner().lag = lag;
    }
    /// Ends it for good. What it has sent stays on its way.
    pub fn crash(&self) {
        self.change(HostState::Crashed);
    }

    /// Runs `future` on this host; nothing comes out if the host crashes first.
    pub fn run<F: Future>(self: &Arc<Self>, future: F) -> Gated<F> {
        let mut inner = self.inner();
        inner.next += 1;
        Gated { id: inner.next, host: Arc::clone(self), lagging: None, future: Some(Box::pin(future)) }
    }

    fn change(&self, state: HostState) {
        let wakers = {
            let mut inner = self.inner();
            if inner.state == HostState::Crashed {
                return;
            }
            inner.state = state;
            std::mem::take(&mut inner.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A future that runs only while its host does.
#[derive(Debug)]
pub struct Gated<F> {
    host: Arc<Host>,
    id: u64,
    /// Until when it waits before it does what it was woken for.
    lagging: Option<Pin<Box<Sleep>>>,
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Gated<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let this = &mut *self;
        let (state, lag) = {
            let mut inner = this.host.inner();
            inner.wakers.insert(this.id, context.waker().clone());
            (inner.state, inner.lag)
        };
        if state == HostState::Running && (!lag.is_zero() || this.lagging.is_some()) {
            let lagging = this.lagging.get_or_insert_with(|| Box::pin(sleep(lag)));
            if lagging.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            this.lagging = None;
        }
        match (state, &mut this.future) {
            (HostState::Paused, _) => Poll::Pending,
            (HostState::Running, Some(future)) => future.as_mut().poll(context).map(Some),
            (HostState::Crashed, _) | (_, None) => {
                this.future = None;
                Poll::Ready(None)
            }
        }
    }
}

impl<F> Drop for Gated<F> {
    fn drop(&mut self) {
        self.host.inner().wakers.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, timeout};

    #[tokio::test(start_paused = true)]
    async fn a_paused_host_finds_its_deadlines_passed_when_it_resumes() {
        let host = Host::new("a");
        let began = Instant::now();
        let work = tokio::spawn(host.run(async move {
            sleep(Duration::from_secs(1)).await;
            began.elapsed()
        }));
        // Until it sleeps: a future that was never polled has no deadline yet.
        tokio::task::yield_now().await;
        host.pause();
        sleep(Duration::from_secs(5)).await;
        assert!(!work.is_finished());
        host.resume();
        assert_eq!(work.await.unwrap().map(|elapsed| elapsed.as_secs()), Some(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crashed_host_never_finishes_and_never_runs_again() {
        let host = Host::new("a");
        let work = tokio::spawn(host.run(sleep(Duration::from_secs(1))));
        host.crash();
        host.resume();
        assert_eq!(timeout(Duration::from_secs(2), work).await.unwrap().unwrap(), None);
        assert_eq!(host.state(), HostState::Crashed);
    }

    #[tokio::test(start_paused = true)]
    async fn on_a_slow_host_everything_begins_later() {
        let (host, began) = (Host::new("a"), Instant::now());
        host.slow_down(Duration::from_secs(3));
        let twice = host.run(async {
            sleep(Duration::from_secs(1)).await;
            began.elapsed()
        });
        assert_eq!(twice.await.map(|elapsed| elapsed.as_secs()), Some(7), "3 to begin, 1, and 3 to notice");
    }
}
