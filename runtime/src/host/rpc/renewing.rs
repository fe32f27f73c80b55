//! A channel that does not trust a connection which has fallen silent: the next call gets a new one. It must never repeat a
//! call.
//!
//! A cut cable leaves a connection that looks alive, and after the cut is mended TCP takes as long again to find out. The
//! deadline of a call is known to its caller alone: who gives up lets go of the call, and that is what is looked at here.

use super::{BoxError, Channel};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tonic::body::Body;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

/// For how long a connection may say nothing while calls wait that are then given up.
const SILENCE_MAX: Duration = Duration::from_millis(500);

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
    /// When the first call was made that it has not answered, nor any call since.
    silent_since: Option<Instant>,
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
        let channel = {
            let mut present = self.present();
            present.silent_since.get_or_insert_with(Instant::now);
            present.channel.get_or_insert_with(|| (self.make)()).clone()
        };
        let waiting = Waiting { renewing: self.clone(), is_over: false };
        Box::pin(async move {
            let mut waiting = waiting;
            let answered = channel.oneshot(request).await;
            waiting.is_over = true;
            waiting.renewing.present().silent_since = None;
            answered
        })
    }
}

/// A call without an answer. One that is let go lets the channel go, too, if that has said nothing all the while: the next
/// is made when it is called over, for a call may be let go where none can be made, when its runtime ends.
struct Waiting {
    renewing: Renewing,
    is_over: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut present = self.renewing.present();
        let is_silent = present.silent_since.is_some_and(|since| since.elapsed() >= SILENCE_MAX);
        if !self.is_over && is_silent {
            *present = Present::default();
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
        let call = channel.clone().oneshot(http::Request::new(Body::empty()));
        timeout(within, call).await.is_ok()
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
}
