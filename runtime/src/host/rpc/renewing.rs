//! A channel that does not trust a connection which has fallen silent: the next call gets a new one. It must never repeat a
//! call.
//!
//! A cut cable leaves a connection that looks alive, and after the cut is mended TCP takes as long again to find out. The
//! deadline of a call is known to its caller alone: who gives up lets go of the call, and that is what is looked at here.
//! A call that is let go before an answer was due ([`KeptOpen`]) is no sign of anything: its caller had something new to say.

use super::{BoxError, Channel};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tonic::body::Body;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

/// For how long a connection may say nothing while answers are due.
const SILENCE_MAX: Duration = Duration::from_millis(500);

/// An extension of a request: how long whoever is called may keep the call open when it has no news. Without it an answer
/// is due at once.
#[derive(Clone, Copy, Debug)]
pub struct KeptOpen(pub Duration);

/// A request of a call that may be kept open for `wait`.
pub fn kept_open<T>(message: T, wait: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.extensions_mut().insert(KeptOpen(wait));
    request
}

/// A channel over connections that `make` makes, each when the first call is made over it.
pub(super) fn renewing(make: impl Fn() -> Channel + Send + Sync + 'static) -> Channel {
    BoxCloneSyncService::new(Renewing { make: Arc::new(make), present: Arc::default() })
}

#[derive(Clone)]
struct Renewing {
    make: Arc<dyn Fn() -> Channel + Send + Sync>,
    present: Arc<Mutex<Present>>,
}

#[derive(Default)]
struct Present {
    channel: Option<Channel>,
    /// How many connections there were before.
    number: u64,
    /// How many answers the connection has given.
    answers: u64,
    /// When the first answer was due that has not come, nor any other since; none where none is missing.
    silent_since: Option<Instant>,
}

impl Present {
    /// A call was let go that was made after so many answers, and whose own was due then.
    fn let_go(&mut self, answers: u64, due: Instant) {
        if self.answers != answers || due > Instant::now() {
            return;
        }
        let since = self.silent_since.map_or(due, |since| since.min(due));
        self.silent_since = Some(since);
        if since.elapsed() >= SILENCE_MAX {
            *self = Present { number: self.number + 1, ..Present::default() };
        }
    }
}

impl Renewing {
    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl tower::Service<http::Request<Body>> for Renewing {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let wait = request.extensions().get().map_or(Duration::ZERO, |KeptOpen(wait)| *wait);
        let (channel, mut waiting) = {
            let mut present = self.present();
            let channel = present.channel.get_or_insert_with(|| (self.make)()).clone();
            let (number, answers, due) = (present.number, present.answers, Instant::now() + wait);
            (channel, Waiting { renewing: self.clone(), number, answers, due, is_over: false })
        };
        Box::pin(async move {
            let answered = channel.oneshot(request).await;
            waiting.is_over = true;
            let mut present = waiting.renewing.present();
            if present.number == waiting.number {
                present.answers += 1;
                present.silent_since = None;
            }
            drop(present);
            answered
        })
    }
}

/// A call without an answer. One that is let go lets the channel go, too, if that has said nothing all the while: the next
/// is made when it is called over, for a call may be let go where none can be made, when its runtime ends.
struct Waiting {
    renewing: Renewing,
    /// Its connection's.
    number: u64,
    /// Those that the connection had given when it was made.
    answers: u64,
    due: Instant,
    is_over: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut present = self.renewing.present();
        if !self.is_over && present.number == self.number {
            present.let_go(self.answers, self.due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use tokio::time::timeout;

    /// A channel whose first connection answers so many calls and then nothing more, and the connections made so far.
    fn falls_silent_after(answers: usize) -> (Channel, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&made);
        let channel = renewing(move || {
            let is_first = counter.fetch_add(1, Relaxed) == 0;
            let left = Arc::new(AtomicUsize::new(if is_first { answers } else { usize::MAX }));
            BoxCloneSyncService::new(tower::service_fn(move |_: http::Request<Body>| {
                let is_silent = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err();
                async move {
                    if is_silent {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, BoxError>(http::Response::new(Body::empty()))
                }
            }))
        });
        (channel, made)
    }

    async fn answers(channel: &Channel, within: Duration) -> bool {
        answers_when(channel, Duration::ZERO, within).await
    }

    /// Whether a call that may be kept open for `wait` is answered within a time.
    async fn answers_when(channel: &Channel, wait: Duration, within: Duration) -> bool {
        let mut request = http::Request::new(Body::empty());
        request.extensions_mut().insert(KeptOpen(wait));
        timeout(within, channel.clone().oneshot(request)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_silence_the_next_call_has_a_connection_of_its_own() {
        let (channel, made) = falls_silent_after(1);
        assert!(answers(&channel, SILENCE_MAX).await && made.load(Relaxed) == 1);
        assert!(!answers(&channel, SILENCE_MAX).await);
        assert!(answers(&channel, SILENCE_MAX).await);
        assert_eq!(made.load(Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_soon_given_up_changes_nothing_unless_others_are_too() {
        let (channel, made) = falls_silent_after(0);
        assert!(!answers(&channel, SILENCE_MAX / 2).await);
        assert_eq!(made.load(Relaxed), 1);
        assert!(!answers(&channel, SILENCE_MAX / 2).await);
        assert!(answers(&channel, SILENCE_MAX / 2).await);
        assert_eq!(made.load(Relaxed), 2);
    }

    #[test]
    fn a_call_may_be_let_go_when_its_runtime_has_ended() {
        let (channel, made) = falls_silent_after(0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut call = Box::pin(channel.oneshot(http::Request::new(Body::empty())));
        runtime.block_on(async { timeout(SILENCE_MAX, &mut call).await.unwrap_err() });
        drop(runtime);
        drop(call);
        assert_eq!(made.load(Relaxed), 1, "nothing is made where nothing can be");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_answers_others_is_trusted() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&made);
        // Every second call is never answered.
        let channel = renewing(move || {
            counter.fetch_add(1, Relaxed);
            let calls = Arc::new(AtomicUsize::new(0));
            BoxCloneSyncService::new(tower::service_fn(move |_: http::Request<Body>| {
                let is_silent = calls.fetch_add(1, Relaxed).is_multiple_of(2);
                async move {
                    if is_silent {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, BoxError>(http::Response::new(Body::empty()))
                }
            }))
        });
        let silent = tokio::spawn({
            let channel = channel.clone();
            async move { answers(&channel, 2 * SILENCE_MAX).await }
        });
        tokio::time::sleep(SILENCE_MAX).await;
        assert!(answers(&channel, SILENCE_MAX).await);
        assert!(!silent.await.unwrap());
        assert_eq!(made.load(Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn many_calls_that_are_given_up_together_make_one_new_connection() {
        let (channel, made) = falls_silent_after(0);
        let calls: Vec<_> = (0..5).map(|_| answers(&channel, SILENCE_MAX)).collect();
        assert!(futures_util::future::join_all(calls).await.iter().all(|answered| !answered));
        assert!(answers(&channel, SILENCE_MAX).await);
        assert_eq!(made.load(Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_let_go_while_it_may_be_kept_open_says_nothing_of_its_connection() {
        let (channel, made) = falls_silent_after(0);
        let wait = Duration::from_secs(5);
        // A decider's call is overtaken whenever a block becomes whole, for longer in all than any may be kept open.
        for _ in 0..10 {
            assert!(!answers_when(&channel, wait, 2 * SILENCE_MAX).await);
        }
        assert_eq!(made.load(Relaxed), 1);
        assert!(!answers_when(&channel, wait, wait + SILENCE_MAX).await, "and now it is silent");
        assert!(answers_when(&channel, wait, SILENCE_MAX).await);
        assert_eq!(made.load(Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_over_an_earlier_connection_says_nothing_of_the_present_one() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&made);
        // The first never answers, the others take their time.
        let channel = renewing(move || {
            let time = if counter.fetch_add(1, Relaxed) == 0 { 1000 } else { 4 };
            BoxCloneSyncService::new(tower::service_fn(move |_: http::Request<Body>| async move {
                tokio::time::sleep(time * SILENCE_MAX).await;
                Ok::<_, BoxError>(http::Response::new(Body::empty()))
            }))
        });
        let early = answers(&channel, 4 * SILENCE_MAX);
        let later = async {
            assert!(!answers(&channel, SILENCE_MAX).await);
            assert!(answers(&channel, 5 * SILENCE_MAX).await);
            assert!(answers(&channel, 5 * SILENCE_MAX).await);
        };
        assert!(!tokio::join!(early, later).0);
        assert_eq!(made.load(Relaxed), 2);
    }

    #[tokio::test]
    async fn what_a_generated_client_is_told_of_a_wait_comes_to_the_channel() {
        let (told, heard) = tokio::sync::oneshot::channel();
        let told = Arc::new(Mutex::new(Some(told)));
        let channel = BoxCloneSyncService::new(tower::service_fn(move |request: http::Request<Body>| {
            let wait = request.extensions().get().map(|KeptOpen(wait)| *wait);
            told.lock().unwrap().take().unwrap().send(wait).unwrap();
            std::future::ready(Err::<http::Response<Body>, _>(BoxError::from("no answer")))
        }));
        let channel = super::super::asking(channel, crate::wire::WireVersion::PRESENT);
        let mut master = crate::wire::proto::master_client::MasterClient::new(channel);
        let request = kept_open(crate::wire::proto::RouteRequest::default(), SILENCE_MAX);
        master.route(request).await.unwrap_err();
        assert_eq!(heard.await.unwrap(), Some(SILENCE_MAX));
    }
}
