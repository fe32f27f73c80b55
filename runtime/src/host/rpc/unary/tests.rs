//! Two ends of this kind and of tonic's, and bodies that no such end would make.

use super::*;
use crate::cluster::{Refusal, RefusalKind};
use crate::host::rpc::capacity::AnswerBytes;
use crate::host::rpc::{Channel, KeptOpen};
use crate::wire::proto::pserver_client::PserverClient as TonicClient;
use crate::wire::proto::pserver_server::{Pserver, PserverServer as TonicServer};
use crate::wire::proto::{self, PullReply, PullRequest, PulledBlock, PushReply, PushRequest};
use crate::wire::{Fault, status_of};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tonic::body::Body;
use tonic::{Code, Request, Response, Status};
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

const LIMIT: usize = 3 << 20;

/// Answers a pull with as many bytes for each block as its number says, and refuses every push.
struct Numbered;

#[tonic::async_trait]
impl Pserver for Numbered {
    async fn push(&self, request: Request<PushRequest>) -> Result<Response<PushReply>, Status> {
        let bytes: usize = request.get_ref().blocks.iter().map(|block| block.gradient.len()).sum();
        Err(status_of(&Refusal::new(RefusalKind::NotReady, "block 7", bytes)))
    }
    async fn pull(&self, request: Request<PullRequest>) -> Result<Response<PullReply>, Status> {
        Ok(Response::new(reply(&request.get_ref().blocks)))
    }
    async fn read_state(
        &self,
        _: Request<proto::ReadStateRequest>,
    ) -> Result<Response<proto::ReadStateReply>, Status> {
        Ok(Response::new(proto::ReadStateReply::default()))
    }
    async fn follow(&self, _: Request<proto::FollowRequest>) -> Result<Response<proto::FollowReply>, Status> {
        Err(Status::unimplemented(""))
    }
    async fn share(&self, _: Request<proto::ShareRequest>) -> Result<Response<proto::ShareReply>, Status> {
        Err(Status::unimplemented(""))
    }
    async fn decide(&self, _: Request<proto::DecideRequest>) -> Result<Response<proto::DecideReply>, Status> {
        Err(Status::unimplemented(""))
    }
}

fn reply(blocks: &[u32]) -> PullReply {
    let parameters = |block: &u32| (0..*block).map(|at| (at ^ block) as u8).collect::<Bytes>();
    let blocks = blocks.iter().map(|block| PulledBlock {
        block: *block,
        parameters: parameters(block),
        version: 1 << 40,
        rewind: 3,
        is_in_area: block % 2 == 1,
    });
    PullReply { blocks: blocks.collect(), ..Default::default() }
}

/// A channel to a service in this process.
fn channel<S>(service: S) -> Channel
where
    S: tower::Service<http::Request<Body>, Response = http::Response<Body>>,
    S: Clone + Send + Sync + 'static,
    S::Error: Into<crate::host::rpc::BoxError>,
    S::Future: Send + 'static,
{
    BoxCloneSyncService::new(service.map_err(Into::into))
}
fn ours() -> Channel {
    channel(PserverServer::new(Numbered, LIMIT))
}
fn pull(blocks: &[u32]) -> PullRequest {
    PullRequest { blocks: blocks.to_vec(), ..Default::default() }
}
fn push(bytes: usize) -> PushRequest {
    let block = proto::BlockGradient { gradient: vec![1; bytes].into(), ..Default::default() };
    PushRequest { blocks: vec![block], ..Default::default() }
}
fn refused(status: Status) -> Refusal {
    Fault::said(&status).refusal().expect("a refusal").clone()
}

#[tokio::test]
async fn ours_and_tonics_ends_understand_each_other() {
    let blocks = [0, 5, 4095, 4096, 1 << 20, 70_000];
    for server in [ours(), channel(TonicServer::new(Numbered))] {
        let mut client = PserverClient::new(server.clone(), LIMIT);
        assert_eq!(client.pull(pull(&blocks)).await.unwrap().into_inner(), reply(&blocks));
        let state = client.read_state(proto::ReadStateRequest::default()).await.unwrap();
        assert_eq!(state.into_inner(), proto::ReadStateReply::default(), "a message of no bytes is one");
        let refusal = refused(client.push(push(2 << 20)).await.unwrap_err());
        assert_eq!((refusal.kind, refusal.detail.as_str()), (RefusalKind::NotReady, "2097152"));
        let mut client = TonicClient::new(server);
        assert_eq!(client.pull(pull(&blocks)).await.unwrap().into_inner(), reply(&blocks));
        assert_eq!(refused(client.push(push(70_000)).await.unwrap_err()).kind, RefusalKind::NotReady);
    }
}

#[tokio::test]
async fn what_is_too_long_is_neither_sent_nor_taken() {
    let too_large = |status: Status| status.message().contains("too large").then_some(status.code());
    let mut client = PserverClient::new(ours(), LIMIT);
    assert_eq!(too_large(client.push(push(LIMIT)).await.unwrap_err()), Some(Code::OutOfRange));
    let answer = client.pull(pull(&[LIMIT as u32])).await.unwrap_err();
    assert_eq!(too_large(answer), Some(Code::Internal), "that is not the caller's doing");
    let mut client = PserverClient::new(ours(), 2 * LIMIT);
    let taken = client.push(push(LIMIT)).await.unwrap_err();
    assert_eq!((taken.code(), taken.message().contains("at most 3145728")), (Code::OutOfRange, true));
    let server = channel(PserverServer::new(Numbered, 2 * LIMIT));
    let mut client = PserverClient::new(server, LIMIT);
    let read = client.pull(pull(&[LIMIT as u32])).await.unwrap_err();
    assert_eq!(too_large(read), Some(Code::Unavailable), "another answer may be smaller");
}

/// A body of these frames.
fn body(frames: Vec<Frame<Bytes>>) -> Body {
    Body::new(StreamBody::new(futures_util::stream::iter(frames.into_iter().map(Ok::<_, Status>))))
}
fn data(bytes: &[u8]) -> Frame<Bytes> {
    Frame::data(Bytes::copy_from_slice(bytes))
}
fn status(code: &'static str) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static(code));
    Frame::trailers(trailers)
}

#[tokio::test]
async fn a_body_that_is_not_one_message_is_refused_by_name() {
    let one = [0, 0, 0, 0, 2, 0x1a, 0];
    let cases: [(&[&[u8]], Code, &str); 6] = [
        (&[], Code::InvalidArgument, "no message"),
        (&[&one[..3]], Code::Unavailable, "ended before its end"),
        (&[&one[..5], &one[5..6]], Code::Unavailable, "ended before its end"),
        (&[&one, &[0]], Code::InvalidArgument, "more came"),
        (&[&[1, 0, 0, 0, 2, 0, 0]], Code::InvalidArgument, "nobody here compresses"),
        (&[&[0, 255, 255, 255, 255]], Code::OutOfRange, "4294967295"),
    ];
    for (frames, code, words) in cases {
        let frames: Vec<&[u8]> = frames.to_vec();
        let request = http::Request::post("/shoal.v1.Pserver/Push")
            .body(body(frames.iter().map(|part| data(part)).collect()))
            .unwrap();
        let answer = ours().oneshot(request).await.unwrap();
        let refusal = Status::from_header_map(answer.headers()).unwrap();
        assert_eq!((refusal.code(), refusal.message().contains(words)), (code, true), "{refusal:?}");
    }
    let request = http::Request::post("/shoal.v1.Pserver/Other").body(Body::empty()).unwrap();
    let answer = ours().oneshot(request).await.unwrap();
    assert_eq!(Status::from_header_map(answer.headers()).unwrap().code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_message_may_come_in_parts_of_any_size() {
    let mut going = Going::new(&reply(&[3, 70_000, 5]), LIMIT).unwrap();
    let mut bytes = Vec::new();
    while let Some(frame) = http_body_util::BodyExt::frame(&mut going).await {
        bytes.extend(frame.unwrap().into_data().unwrap());
    }
    for size in [1, 2, 3, 4, 5, 6, 1000, 65_536, bytes.len()] {
        let parts = body(bytes.chunks(size).map(data).collect());
        let (message, trailers) = received::<PullReply>(parts, LIMIT).await.unwrap();
        assert_eq!((message, trailers), (Some(reply(&[3, 70_000, 5])), None), "in parts of {size}");
    }
}

#[tokio::test]
async fn an_answer_counts_only_if_it_says_so() {
    type Case = (fn() -> Vec<Frame<Bytes>>, StatusCode, Option<Code>);
    let cases: [Case; 6] = [
        (|| vec![data(&[0, 0, 0, 0, 0]), status("0")], StatusCode::OK, None),
        (|| vec![data(&[0, 0, 0, 0, 0])], StatusCode::OK, Some(Code::Unknown)),
        (|| vec![data(&[0, 0, 0, 0, 0]), status("8")], StatusCode::OK, Some(Code::ResourceExhausted)),
        (|| vec![status("0")], StatusCode::OK, Some(Code::Internal)),
        (|| vec![status("14")], StatusCode::OK, Some(Code::Unavailable)),
        (Vec::new, StatusCode::BAD_GATEWAY, Some(Code::Unavailable)),
    ];
    for (frames, http_status, expected) in cases {
        let answer = move |_: http::Request<Body>| {
            let mut answer = http::Response::new(body(frames()));
            *answer.status_mut() = http_status;
            std::future::ready(Ok::<_, Status>(answer))
        };
        let mut client = PserverClient::new(channel(tower::service_fn(answer)), LIMIT);
        let answered = client.pull(pull(&[])).await;
        assert_eq!(answered.err().map(|status| status.code()), expected);
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_what_broke_it() {
    let frames = [Ok(data(&[0, 0, 0, 0, 9])), Err(Status::unavailable("no capacity"))];
    let broken = Body::new(StreamBody::new(futures_util::stream::iter(frames)));
    let request = http::Request::post("/shoal.v1.Pserver/Pull").body(broken).unwrap();
    let answer = ours().oneshot(request).await.unwrap();
    assert_eq!(Status::from_header_map(answer.headers()).unwrap().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_call_that_may_be_kept_open_says_for_how_long_and_a_gradient_may_not() {
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let telling = std::sync::Arc::clone(&told);
    let answer = move |request: http::Request<Body>| {
        let wait = request.extensions().get().map(|KeptOpen(wait)| wait.as_millis());
        telling.lock().unwrap().push(wait.unwrap());
        std::future::ready(Err::<http::Response<Body>, _>(Status::unavailable("not here")))
    };
    let mut client = PserverClient::new(channel(tower::service_fn(answer)), LIMIT);
    let push = |asks| PushRequest { asks, wait_millis: 1, ..Default::default() };
    client.push(push(true)).await.unwrap_err();
    client.pull(PullRequest { wait_millis: 2, ..Default::default() }).await.unwrap_err();
    client.follow(proto::FollowRequest { wait_millis: 3, ..Default::default() }).await.unwrap_err();
    client.decide(proto::DecideRequest { wait_millis: 4, ..Default::default() }).await.unwrap_err();
    client.push(push(false)).await.unwrap_err();
    client.read_state(proto::ReadStateRequest::default()).await.unwrap_err();
    client.share(proto::ShareRequest::default()).await.unwrap_err();
    assert_eq!(*told.lock().unwrap(), [1, 2, 3, 4, 0, 0, 0]);
}

#[tokio::test]
async fn an_answer_is_told_with_its_size() {
    let going = Going::new(&pull(&[70_000]), LIMIT).unwrap();
    let request = http::Request::post(paths::PULL).body(Body::new(going)).unwrap();
    let answer = ours().oneshot(request).await.unwrap();
    let told = answer.extensions().get().map(|AnswerBytes(bytes)| *bytes);
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    assert_eq!((told, body.len() > 70_000), (Some(body.len()), true));
}
