//! Telling and checking the version of the wire, around every client and every service. What a version means and who is
//! refused is decided in [`crate::wire`], never here.

use super::answers::{Unsent, heard};
use super::{BoxError, Channel};
use crate::wire::{Side, WireVersion, status_of};
use http::{HeaderMap, HeaderValue, Request, Response};
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::body::Body;

type Answer<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

/// A channel whose calls tell this version, and whose answers must come from one who speaks it. Every other end of a call
/// is an error: a status whose source is the fault.
pub fn asking(channel: Channel, version: WireVersion) -> Channel {
    Channel::new(Asking { channel, version })
}

/// A service that answers only callers of this version, and tells it with every answer.
pub fn answering<S>(service: S, version: WireVersion) -> Answering<S> {
    Answering { service, version }
}

#[derive(Clone)]
struct Asking {
    channel: Channel,
    version: WireVersion,
}

impl tower::Service<Request<Body>> for Asking {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Answer<BoxError>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (version, unsent) = (self.version, Unsent::default());
        tell(request.headers_mut(), version);
        let called = self.channel.call(request.map(|body| unsent.watch(body)));
        Box::pin(async move { Ok(heard(called.await, &unsent, version)?) })
    }
}

/// See [`answering`].
#[derive(Clone, Debug)]
pub struct Answering<S> {
    service: S,
    version: WireVersion,
}

impl<S, B> tower::Service<Request<B>> for Answering<S>
where
    S: tower::Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Answer<S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let version = self.version;
        let mark = move |mut answer: Response<Body>| {
            tell(answer.headers_mut(), version);
            answer
        };
        match version.check(Side::Caller, told(request.headers())) {
            Ok(()) => {
                let answered = self.service.call(request);
                Box::pin(async move { answered.await.map(mark) })
            }
            Err(refusal) => {
                let refused = mark(status_of(&refusal).into_http());
                Box::pin(std::future::ready(Ok(refused)))
            }
        }
    }
}

fn tell(headers: &mut HeaderMap, version: WireVersion) {
    headers.insert(WireVersion::ENTRY, HeaderValue::from(version.0));
}

fn told(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(WireVersion::ENTRY).map(HeaderValue::as_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Refusal, RefusalKind};
    use crate::wire::Fault;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use tonic::Status;
    use tower::ServiceExt;
    use tower::util::BoxCloneSyncService;

    type Service = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

    /// Counts its calls and answers as told.
    fn service(answer: fn() -> Response<Body>) -> (Service, Arc<AtomicU32>) {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let call = move |_: Request<Body>| {
            counted.fetch_add(1, Relaxed);
            std::future::ready(Ok(answer()))
        };
        (Service::new(tower::service_fn(call)), calls)
    }

    fn message() -> Response<Body> {
        let mut answer = Response::new(Body::empty());
        answer.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        answer
    }
    fn refused(kind: RefusalKind) -> Response<Body> {
        status_of(&Refusal::new(kind, "block 7", "a test")).into_http()
    }
    fn not_ready() -> Response<Body> {
        refused(RefusalKind::NotReady)
    }
    fn unimplemented() -> Response<Body> {
        Status::unimplemented("").into_http()
    }
    fn late() -> Response<Body> {
        Status::cancelled("Timeout expired").into_http()
    }
    fn kind(fault: Option<Fault>) -> Option<RefusalKind> {
        fault?.refusal().map(|refusal| refusal.kind)
    }

    /// What the call fails with; none where a message is to come.
    async fn ask(service: Service, version: u32) -> Option<Fault> {
        let channel = Channel::new(ServiceExt::<Request<Body>>::map_err(service, |never| match never {}));
        let answer = asking(channel, WireVersion(version)).oneshot(Request::new(Body::empty())).await;
        answer.err().map(|error| Fault::from(Status::from_error(error)))
    }
    fn speaking(service: Service, version: u32) -> Service {
        Service::new(answering(service, WireVersion(version)))
    }

    #[tokio::test]
    async fn two_of_one_version_hear_each_other_refusals_included() {
        for answer in [message, not_ready, unimplemented, late] {
            let (service, calls) = service(answer);
            let said = Status::from_header_map(answer().headers()).map(|status| Fault::said(&status));
            assert_eq!(ask(speaking(service, 3), 3).await, said);
            assert_eq!(calls.load(Relaxed), 1);
        }
    }

    #[tokio::test]
    async fn a_service_is_not_reached_by_a_caller_of_another_version_or_of_none() {
        for told in [Some("2"), Some("4"), Some("x"), None] {
            let (service, calls) = service(message);
            let mut request = Request::new(Body::empty());
            if let Some(told) = told {
                request.headers_mut().insert(WireVersion::ENTRY, HeaderValue::from_static(told));
            }
            let answer = speaking(service, 3).oneshot(request).await.unwrap();
            let said = Status::from_header_map(answer.headers()).map(|status| Fault::said(&status));
            assert_eq!((kind(said), calls.load(Relaxed)), (Some(RefusalKind::OtherVersion), 0), "{told:?}");
            assert_eq!(
                super::told(answer.headers()),
                Some(&b"3"[..]),
                "the caller learns of whom it was refused"
            );
        }
    }

    #[tokio::test]
    async fn a_message_of_one_who_checks_nothing_is_not_believed() {
        let (service, _) = service(message);
        assert_eq!(kind(ask(service, 3).await), Some(RefusalKind::OtherVersion));
    }

    /// One that takes any caller, and tells its own version.
    #[tokio::test]
    async fn an_answer_of_another_version_is_not_believed() {
        for version in ["2", "4"] {
            for answer in [message, not_ready, late] {
                let call = move |_: Request<Body>| {
                    let mut answer = answer();
                    answer.headers_mut().insert(WireVersion::ENTRY, HeaderValue::from_static(version));
                    std::future::ready(Ok(answer))
                };
                let told = ask(Service::new(tower::service_fn(call)), 3).await;
                assert_eq!(kind(told), Some(RefusalKind::OtherVersion));
            }
        }
    }
}
