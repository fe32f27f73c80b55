//! Every call to the API server: given a deadline by its kind, and counted by verb, resource and answer. Changes no request and
//! no answer.
//!
//! A read timeout of the connection (`kube::Config::read_timeout`) does not fit: a watch is silent for as long as nothing
//! changes. What is silent on an open watch for too long, kube's own watcher notices (5 s after the 290 s that it asks the
//! server for); here a watch has a deadline for its first answer alone.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// A call for one object, answer and retries included: shorter than a leader may go without renewing its lease.
pub(crate) const CALL: Duration = Duration::from_secs(8);
/// A page of a list, and the first answer of a watch: some megabytes, from a server that is under load.
const LIST: Duration = Duration::from_secs(30);

/// What a call is counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallKind {
    /// `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub(crate) verb: &'static str,
    /// The plural, with a subresource after a slash; `other` for what is no resource.
    pub(crate) resource: String,
    /// The status, or 0 for a call that was not answered.
    pub(crate) code: u16,
}

/// All calls that were made.
#[derive(Debug)]
pub struct Calls {
    counted: Mutex<BTreeMap<CallKind, (u64, Duration)>>,
    answered: Mutex<Instant>,
}

impl Default for Calls {
    fn default() -> Calls {
        Calls { counted: Mutex::default(), answered: Mutex::new(Instant::now()) }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Calls {
    fn note(&self, verb: &'static str, resource: String, code: u16, took: Duration) {
        if code != 0 {
            *locked(&self.answered) = Instant::now();
        }
        let mut counted = locked(&self.counted);
        let (count, all) = counted.entry(CallKind { verb, resource, code }).or_default();
        (*count, *all) = (*count + 1, *all + took);
    }

    /// How long it is since the API server has answered anything.
    pub(crate) fn silent_for(&self) -> Duration {
        locked(&self.answered).elapsed()
    }

    /// How many of each kind there were, and how long they took together. As many kinds as this operator has uses for.
    pub(crate) fn counted(&self) -> Vec<(CallKind, u64, Duration)> {
        locked(&self.counted).iter().map(|(kind, (count, took))| (kind.clone(), *count, *took)).collect()
    }
}

/// What gives the calls of a client their deadlines.
pub(crate) struct Watchful(pub(crate) Arc<Calls>);

impl<S> Layer<S> for Watchful {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, calls: Arc::clone(&self.0) }
    }
}

/// A client below, with deadlines and counts.
pub(crate) struct Counted<S> {
    inner: S,
    calls: Arc<Calls>,
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let uri = request.uri();
        let (verb, resource) = kind(request.method(), uri.path(), uri.query().unwrap_or_default());
        let calls = Arc::clone(&self.calls);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let began = Instant::now();
            let deadline = if matches!(verb, "list" | "watch") { LIST } else { CALL };
            let answered = tokio::time::timeout(deadline, whole(answer, verb == "watch")).await;
            let code = answered
                .as_ref()
                .ok()
                .and_then(|done| done.as_ref().ok())
                .map_or(0, |one| one.status().as_u16());
            calls.note(verb, resource.clone(), code, began.elapsed());
            answered.unwrap_or_else(|_| {
                let seconds = deadline.as_secs();
                Err(format!("the API server did not answer within {seconds} s: {verb} {resource}").into())
            })
        })
    }
}

/// The answer with all of its body; of a watch, whose body has no end, the head.
async fn whole<B, E>(
    answer: impl Future<Output = Result<Response<B>, E>>,
    is_watch: bool,
) -> Result<Answer, BoxError>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    E: Into<BoxError>,
{
    let answer = answer.await.map_err(Into::into)?;
    if is_watch {
        return Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()));
    }
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await.map_err(Into::into)?.to_bytes();
    let body = http_body_util::Full::new(bytes).map_err(|never| match never {});
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

/// What a request is: its verb, and its resource.
fn kind(method: &Method, path: &str, query: &str) -> (&'static str, String) {
    let mut parts = path.trim_matches('/').split('/');
    let is_resource = match parts.next() {
        Some("api") => parts.next().is_some(),
        Some("apis") => parts.next().is_some() && parts.next().is_some(),
        _ => false,
    };
    let mut rest: Vec<&str> = parts.collect();
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        rest.drain(..2);
    }
    let is_all = is_resource && rest.len() == 1;
    let is_watch = query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1");
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ if is_watch => "watch",
        _ if is_all => "list",
        _ => "get",
    };
    let resource = match (rest.first(), rest.get(2)) {
        (Some(plural), Some(sub)) if is_resource => format!("{plural}/{sub}"),
        (Some(plural), None) if is_resource => (*plural).to_owned(),
        _ => "other".to_owned(),
    };
    (verb, resource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Api, ListParams, WatchParams};
    use tower::service_fn;

    /// A client of a server that takes every call, begins to answer or not, and never gets any further.
    fn hung(begins: bool) -> (kube::Client, Arc<Calls>) {
        let calls = Arc::new(Calls::default());
        let never = service_fn(move |_: Request<Body>| async move {
            if !begins {
                std::future::pending::<()>().await;
            }
            let never = futures_util::stream::pending::<Result<http_body::Frame<Bytes>, BoxError>>();
            Ok::<_, BoxError>(Response::new(http_body_util::StreamBody::new(never)))
        });
        (kube::Client::new(Watchful(Arc::clone(&calls)).layer(never), "n"), calls)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_never_answered_or_not_to_its_end_is_given_up_and_counted() {
        for begins in [false, true] {
            let (client, calls) = hung(begins);
            let pods: Api<Pod> = Api::namespaced(client, "n");
            let began = Instant::now();
            let error = pods.get("a").await.unwrap_err();
            assert!(began.elapsed() <= CALL + Duration::from_secs(1));
            assert!(format!("{error:?}").contains("did not answer within 8 s: get pods"), "{error:?}");
            let began = Instant::now();
            assert!(pods.list(&ListParams::default()).await.is_err());
            assert!(began.elapsed() > CALL && began.elapsed() <= LIST + Duration::from_secs(1));
            let codes: Vec<u16> = calls.counted().iter().map(|(kind, ..)| kind.code).collect();
            assert_eq!(codes, [0, 0]);
            assert!(calls.silent_for() > CALL);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_has_a_deadline_for_its_beginning_and_may_be_silent_from_then_on() {
        let (client, _) = hung(false);
        let pods: Api<Pod> = Api::namespaced(client, "n");
        assert!(pods.watch(&WatchParams::default(), "0").await.is_err());
        let (client, calls) = hung(true);
        let pods: Api<Pod> = Api::namespaced(client, "n");
        let mut events = std::pin::pin!(pods.watch(&WatchParams::default(), "0").await.unwrap());
        let soon = tokio::time::timeout(LIST * 3, futures_util::StreamExt::next(&mut events)).await;
        assert!(soon.is_err(), "silence is no end of a watch");
        assert_eq!(calls.counted()[0].0.code, 200);
    }

    #[test]
    fn a_call_is_counted_by_its_verb_and_resource_and_never_by_a_name() {
        let told = |method: Method, path: &str, query: &str| {
            let (verb, resource) = kind(&method, path, query);
            format!("{verb} {resource}")
        };
        assert_eq!(told(Method::GET, "/api/v1/pods", "limit=5"), "list pods");
        assert_eq!(told(Method::GET, "/api/v1/pods", "watch=true&limit=5"), "watch pods");
        assert_eq!(told(Method::GET, "/api/v1/namespaces/a/pods/b", ""), "get pods");
        assert_eq!(told(Method::POST, "/api/v1/namespaces/a/pods", ""), "create pods");
        let status = "/apis/shoal.dev/v1alpha1/namespaces/a/trainingjobs/b/status";
        assert_eq!(told(Method::PATCH, status, ""), "patch trainingjobs/status");
        assert_eq!(told(Method::GET, "/apis", ""), "get other");
        assert_eq!(told(Method::GET, "/readyz", ""), "get other");
    }
}
