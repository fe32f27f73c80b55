//! Every way in which a call can end badly, as a caller sorts it: a role's own word may end it, nothing else may.

use super::{Channel, Limits, PserverClient, PserverServer, Security, asking, dial_on, serve_on};
use crate::cluster::refusal::NextMove;
use crate::cluster::{Refusal, RefusalKind};
use crate::host::shutdown::Shutdown;
use crate::wire::proto::master_client::MasterClient;
use crate::wire::proto::pserver_client::PserverClient as TonicClient;
use crate::wire::{Fault, WireVersion, proto, status_of};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use prost::Message;
use std::net::SocketAddr;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower::util::BoxCloneSyncService;

const LIMIT: usize = 1 << 20;

/// A channel on which every call is answered so.
fn answered(answer: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static) -> Channel {
    let call = move |_: http::Request<Body>| std::future::ready(Ok::<_, super::BoxError>(answer()));
    asking(BoxCloneSyncService::new(tower::service_fn(call)), WireVersion::PRESENT)
}

/// The fault of a call over `channel`, as our client of a pserver, and tonic's of a pserver and of a master have it.
async fn faults(channel: &Channel) -> [Fault; 3] {
    let pull = proto::PullRequest::default;
    let ours = PserverClient::new(channel.clone(), LIMIT).pull(pull()).await;
    let tonics = TonicClient::new(channel.clone()).max_decoding_message_size(LIMIT).pull(pull()).await;
    let masters = MasterClient::new(channel.clone()).status(proto::StatusRequest::default()).await;
    [ours.unwrap_err(), tonics.unwrap_err(), masters.unwrap_err()].map(Fault::from)
}

async fn is_sent_again(channel: Channel, what: &str) {
    for fault in faults(&channel).await {
        assert!(matches!(fault, Fault::Unreachable(_)), "{what}: {fault:?}");
        assert_eq!(fault.next_move(), NextMove::Retry);
    }
}

fn telling_version(mut answer: Response<Body>) -> Response<Body> {
    answer.headers_mut().insert(WireVersion::ENTRY, HeaderValue::from(WireVersion::PRESENT.0));
    answer
}

fn codes() -> impl Iterator<Item = Code> {
    (1..=16).map(Code::from_i32)
}

/// The codes of our servers that end a call without a refusal: too large, no such method, not the caller's to make.
const FOR_GOOD: [Code; 3] = [Code::OutOfRange, Code::Unimplemented, Code::PermissionDenied];

#[tokio::test]
async fn a_roles_refusal_is_heard_whatever_its_code() {
    for code in codes() {
        let refusal = Refusal::new(RefusalKind::StepGone, "block 7", "a test");
        let details = status_of(&refusal).details().to_vec();
        let said =
            move || telling_version(Status::with_details(code, "words", details.clone().into()).into_http());
        assert_eq!(
            faults(&answered(said)).await,
            [(); 3].map(|()| Fault::Refused(refusal.clone())),
            "{code:?}"
        );
    }
}

#[tokio::test]
async fn a_role_without_a_refusal_ends_a_call_by_three_codes_alone() {
    for code in codes() {
        let channel = answered(move || telling_version(Status::new(code, "h2 words").into_http()));
        for fault in faults(&channel).await {
            let is_for_good = matches!(fault, Fault::Impossible(_));
            assert_eq!(is_for_good, FOR_GOOD.contains(&code), "{code:?}: {fault:?}");
            assert!(is_for_good || matches!(fault, Fault::Unreachable(_)), "{code:?}: {fault:?}");
        }
    }
}

#[tokio::test]
async fn whatever_a_gateway_says_the_call_is_sent_again() {
    let refusal = status_of(&Refusal::new(RefusalKind::JobFailed, "j", "a test")).details().to_vec();
    // A google.rpc.Status, as load balancers attach it: by its fields it could be one of our refusals.
    let theirs = [&[8, 7, 18, 4][..], b"quot"].concat();
    for code in codes() {
        for details in [Vec::new(), refusal.clone(), theirs.clone()] {
            let what = format!("{code:?} with {details:?}");
            let said = move || Status::with_details(code, "words", details.clone().into()).into_http();
            is_sent_again(answered(said), &what).await;
        }
    }
    for status in [200_u16, 400, 401, 403, 404, 413, 429, 500, 502, 503, 504] {
        let page = move || {
            let mut answer = Response::new(body(vec![Ok(data(b"<html>"))]));
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            answer.headers_mut().insert("content-type", HeaderValue::from_static("text/html"));
            answer
        };
        is_sent_again(answered(page), &format!("HTTP {status}")).await;
    }
}

#[tokio::test]
async fn a_connection_that_ends_a_call_for_any_reason_has_it_sent_again() {
    for reason in 0..=14 {
        let call = move |_: http::Request<Body>| {
            let error = h2::Error::from(h2::Reason::from(reason));
            std::future::ready(Err::<Response<Body>, _>(super::BoxError::from(error)))
        };
        let channel = asking(BoxCloneSyncService::new(tower::service_fn(call)), WireVersion::PRESENT);
        is_sent_again(channel, &format!("h2 reason {reason}")).await;
    }
}

fn body(frames: Vec<Result<Frame<Bytes>, Status>>) -> Body {
    Body::new(StreamBody::new(futures_util::stream::iter(frames)))
}
fn data(bytes: &[u8]) -> Frame<Bytes> {
    Frame::data(Bytes::copy_from_slice(bytes))
}
fn trailers(entries: &[(&'static str, &'static str)]) -> Frame<Bytes> {
    let entries = entries
        .iter()
        .map(|(key, value)| (http::HeaderName::from_static(key), HeaderValue::from_static(value)));
    Frame::trailers(HeaderMap::from_iter(entries))
}

/// A role's answer, with this body.
fn begun(frames: fn() -> Vec<Result<Frame<Bytes>, Status>>) -> Channel {
    answered(move || {
        let mut answer = telling_version(Response::new(body(frames())));
        answer.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        answer
    })
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_to_its_end_is_asked_for_again() {
    type Case = (&'static str, fn() -> Vec<Result<Frame<Bytes>, Status>>);
    let cases: [Case; 12] = [
        ("nothing", Vec::new),
        ("no prefix", || vec![Ok(data(&[0, 0, 0]))]),
        ("cut off", || vec![Ok(data(&[0, 0, 0, 0, 9, 1]))]),
        ("cut off, said to be well", || {
            vec![Ok(data(&[0, 0, 0, 0, 9, 1])), Ok(trailers(&[("grpc-status", "0")]))]
        }),
        ("broken off", || vec![Ok(data(&[0, 0, 0, 0, 9])), Err(Status::internal("the stream broke"))]),
        ("broken off by a limit", || vec![Err(Status::resource_exhausted("too many bytes"))]),
        ("whole, and no word of how it ended", || vec![Ok(data(&[0, 0, 0, 0, 0]))]),
        ("too long", || vec![Ok(data(&[0, 255, 255, 255, 255]))]),
        ("compressed", || vec![Ok(data(&[1, 0, 0, 0, 2, 0, 0]))]),
        ("no message of ours", || vec![Ok(data(&[0, 0, 0, 0, 2, 255, 255]))]),
        ("a status alone", || vec![Ok(trailers(&[("grpc-status", "13")]))]),
        ("garbled details", || {
            vec![Ok(trailers(&[("grpc-status", "9"), ("grpc-status-details-bin", "?!")]))]
        }),
    ];
    for (what, frames) in cases {
        is_sent_again(begun(frames), what).await;
    }
}

#[tokio::test]
async fn details_that_nobody_can_read_make_nobody_panic() {
    for is_a_roles in [true, false] {
        let answer = move || {
            let mut answer = Status::failed_precondition("words").into_http();
            answer.headers_mut().insert("grpc-status-details-bin", HeaderValue::from_static("?!"));
            if is_a_roles { telling_version(answer) } else { answer }
        };
        is_sent_again(answered(answer), "garbled details").await;
    }
}

/// A channel to a server in this process that serves a pserver's methods, over a connection in memory.
fn connected(routes: Routes, shutdown: Shutdown) -> Channel {
    let (connect, incoming) = tokio::sync::mpsc::unbounded_channel();
    let incoming = tokio_stream::wrappers::UnboundedReceiverStream::new(incoming);
    tokio::spawn(serve_on(incoming, routes, Limits::default(), Security::Loopback, shutdown));
    let open = move |_: String| {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        let sent = connect.send(Ok((theirs, from))).map_err(|_| super::BoxError::from("closed"));
        std::future::ready(sent.map(|()| ours))
    };
    let channel = dial_on("localhost:1", None, Limits::default(), &Security::Loopback, open).unwrap();
    asking(channel, WireVersion::PRESENT)
}

#[tokio::test]
async fn a_request_that_is_too_large_to_be_sent_is_told_so_by_every_client() {
    let (_stop, shutdown) = Shutdown::pair();
    let channel = connected(Routes::default(), shutdown);
    let push = proto::PushRequest { job: "j".repeat(LIMIT), ..Default::default() };
    let mut tonics = TonicClient::new(channel.clone()).max_encoding_message_size(LIMIT);
    let mut ours = PserverClient::new(channel, LIMIT);
    for status in [ours.push(push.clone()).await.unwrap_err(), tonics.push(push).await.unwrap_err()] {
        let fault = Fault::from(status);
        assert!(matches!(&fault, Fault::Impossible(why) if why.contains("too large")), "{fault:?}");
    }
}

/// A service that is never reached.
struct Nobody;

#[tonic::async_trait]
impl proto::pserver_server::Pserver for Nobody {
    async fn push(
        &self,
        _: tonic::Request<proto::PushRequest>,
    ) -> Result<tonic::Response<proto::PushReply>, Status> {
        Ok(tonic::Response::new(proto::PushReply::default()))
    }
    async fn pull(
        &self,
        _: tonic::Request<proto::PullRequest>,
    ) -> Result<tonic::Response<proto::PullReply>, Status> {
        let block = proto::PulledBlock { parameters: vec![0; LIMIT].into(), ..Default::default() };
        Ok(tonic::Response::new(proto::PullReply { blocks: vec![block], ..Default::default() }))
    }
    async fn read_state(
        &self,
        _: tonic::Request<proto::ReadStateRequest>,
    ) -> Result<tonic::Response<proto::ReadStateReply>, Status> {
        Err(Status::unavailable("not here"))
    }
    async fn follow(
        &self,
        _: tonic::Request<proto::FollowRequest>,
    ) -> Result<tonic::Response<proto::FollowReply>, Status> {
        Err(Status::unavailable("not here"))
    }
    async fn share(
        &self,
        _: tonic::Request<proto::ShareRequest>,
    ) -> Result<tonic::Response<proto::ShareReply>, Status> {
        Err(Status::unavailable("not here"))
    }
    async fn decide(
        &self,
        _: tonic::Request<proto::DecideRequest>,
    ) -> Result<tonic::Response<proto::DecideReply>, Status> {
        Err(Status::unavailable("not here"))
    }
}

/// The fault of a push whose body is these frames, at our server.
async fn pushed(frames: Vec<Result<Frame<Bytes>, Status>>) -> Option<Fault> {
    let server = super::answering(PserverServer::new(Nobody, LIMIT), WireVersion::PRESENT);
    let server = tower::ServiceExt::map_err(server, |never: std::convert::Infallible| match never {});
    let channel = asking(BoxCloneSyncService::new(server), WireVersion::PRESENT);
    let request = http::Request::post("/shoal.v1.Pserver/Push").body(body(frames)).unwrap();
    let answer = tower::ServiceExt::oneshot(channel, request).await;
    answer.err().map(|error| Fault::from(Status::from_error(error)))
}

#[tokio::test]
async fn a_server_tells_a_request_that_was_cut_off_from_one_that_it_can_never_take() {
    let malformed = |fault: Option<Fault>| {
        fault.as_ref().and_then(Fault::refusal).is_some_and(|refusal| refusal.kind == RefusalKind::Malformed)
    };
    let whole = proto::PushRequest::default().encode_to_vec();
    assert_eq!((whole.len(), pushed(vec![Ok(data(&[0; 5]))]).await), (0, None));
    for cut in [vec![0, 0, 0], vec![0, 0, 0, 0, 9, 1]] {
        let fault = pushed(vec![Ok(data(&cut))]).await;
        assert!(matches!(fault, Some(Fault::Unreachable(_))), "{fault:?}");
    }
    for never in [vec![], vec![0, 0, 0, 0, 0, 7], vec![1, 0, 0, 0, 0], vec![0, 0, 0, 0, 2, 255, 255]] {
        let fault = pushed(vec![Ok(data(&never))]).await;
        assert!(malformed(fault.clone()), "{never:?}: {fault:?}");
    }
    let fault = pushed(vec![Ok(data(&[0, 255, 255, 255, 255]))]).await;
    assert!(matches!(&fault, Some(Fault::Impossible(why)) if why.contains("at most 1048576")), "{fault:?}");
}

#[tokio::test]
async fn an_answer_that_a_server_cannot_send_ends_no_caller() {
    let server = super::answering(PserverServer::new(Nobody, LIMIT), WireVersion::PRESENT);
    let server = tower::ServiceExt::map_err(server, |never: std::convert::Infallible| match never {});
    let channel = asking(BoxCloneSyncService::new(server), WireVersion::PRESENT);
    let mut client = PserverClient::new(channel, 2 * LIMIT);
    let fault = Fault::from(client.pull(proto::PullRequest::default()).await.unwrap_err());
    assert!(matches!(&fault, Fault::Unreachable(why) if why.contains("too large")), "{fault:?}");
}
