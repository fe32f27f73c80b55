//! Being called as a pserver.

use super::{Going, NoMessage, paths, received};
use crate::host::rpc::capacity::AnswerBytes;
use crate::wire::proto::pserver_server::{Pserver, SERVICE_NAME};
use crate::wire::{malformed, status_of};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use prost::Message;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;

/// Answers calls by a pserver's service. Clones share it.
#[derive(Debug)]
pub struct PserverServer<T> {
    service: Arc<T>,
    message_bytes: usize,
}

impl<T> PserverServer<T> {
    /// By `service`, with messages of at most so many bytes.
    pub fn new(service: T, message_bytes: usize) -> PserverServer<T> {
        PserverServer { service: Arc::new(service), message_bytes }
    }
}

impl<T> Clone for PserverServer<T> {
    fn clone(&self) -> PserverServer<T> {
        PserverServer { service: Arc::clone(&self.service), message_bytes: self.message_bytes }
    }
}

impl<T> NamedService for PserverServer<T> {
    const NAME: &'static str = SERVICE_NAME;
}

impl<T: Pserver> tower::Service<Request<Body>> for PserverServer<T> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (service, limit) = (Arc::clone(&self.service), self.message_bytes);
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let answered = match head.uri.path() {
                paths::PUSH => answered(body, limit, |request| service.push(request)).await,
                paths::PULL => answered(body, limit, |request| service.pull(request)).await,
                paths::READ_STATE => answered(body, limit, |request| service.read_state(request)).await,
                paths::FOLLOW => answered(body, limit, |request| service.follow(request)).await,
                paths::DECIDE => answered(body, limit, |request| service.decide(request)).await,
                paths::SHARE => answered(body, limit, |request| service.share(request)).await,
                path => Err(Status::unimplemented(format!("{path}: a pserver has no such method"))),
            };
            Ok(answered.unwrap_or_else(|status| status.into_http()))
        })
    }
}

/// What a method answers to the message in a body.
async fn answered<Q, R, F>(
    body: Body,
    limit: usize,
    method: impl FnOnce(tonic::Request<Q>) -> F,
) -> Result<Response<Body>, Status>
where
    Q: Message + Default,
    R: Message,
    F: Future<Output = Result<tonic::Response<R>, Status>>,
{
    let (message, _) = received(body, limit).await.map_err(untaken)?;
    let message = message.ok_or_else(|| status_of(&malformed("request", "it has no message")))?;
    let answer = method(tonic::Request::new(message)).await?.into_inner();
    let mut trailers = HeaderMap::new();
    trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
    // That an answer is too long is not its caller's doing.
    let going = Going::new(&answer, limit).map_err(|what| Status::internal(format!("the answer: {what}")))?;
    let bytes = AnswerBytes(going.bytes());
    let mut response = Response::new(Body::new(going.with_trailers(trailers)));
    response.extensions_mut().insert(bytes);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// What a caller is told whose request is no message. What was cut off on its way is to be sent again.
fn untaken(what: NoMessage) -> Status {
    match what {
        NoMessage::Broken(status) => status,
        NoMessage::CutOff => Status::unavailable(format!("the request: {what}: send it again")),
        NoMessage::TooLong { .. } => Status::out_of_range(what.to_string()),
        NoMessage::Malformed(what) => status_of(&malformed("request", what)),
    }
}
