//! Calling a pserver.

use super::{Going, NoMessage, paths, received};
use crate::host::rpc::answers::status;
use crate::host::rpc::{Channel, KeptOpen};
use crate::wire::{Fault, proto};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderValue, StatusCode};
use prost::Message;
use std::time::Duration;
use tonic::body::Body;
use tonic::{Code, Response, Status};
use tower::ServiceExt;

/// Calls one pserver. Clones share the connection.
#[derive(Clone, Debug)]
pub struct PserverClient {
    channel: Channel,
    message_bytes: usize,
}

impl PserverClient {
    /// Over `channel`, with messages of at most so many bytes.
    pub fn new(channel: Channel, message_bytes: usize) -> PserverClient {
        PserverClient { channel, message_bytes }
    }

    /// Brings a gradient.
    ///
    /// # Errors
    /// The pserver's refusal, or what kept the call from it; so of all calls.
    pub async fn push(&mut self, request: proto::PushRequest) -> Result<Response<proto::PushReply>, Status> {
        // A gradient is answered at once, a question when there is capacity.
        self.call(paths::PUSH, &request, if request.asks { request.wait_millis } else { 0 }).await
    }
    /// Asks for parameters.
    pub async fn pull(&mut self, request: proto::PullRequest) -> Result<Response<proto::PullReply>, Status> {
        self.call(paths::PULL, &request, request.wait_millis).await
    }
    /// Asks for whole copies at rest.
    pub async fn read_state(
        &mut self,
        request: proto::ReadStateRequest,
    ) -> Result<Response<proto::ReadStateReply>, Status> {
        self.call(paths::READ_STATE, &request, 0).await
    }
    /// Says what a follower has, and asks for what is next.
    pub async fn follow(
        &mut self,
        request: proto::FollowRequest,
    ) -> Result<Response<proto::FollowReply>, Status> {
        self.call(paths::FOLLOW, &request, request.wait_millis).await
    }
    /// Tells partial results, and asks for the decision.
    pub async fn decide(
        &mut self,
        request: proto::DecideRequest,
    ) -> Result<Response<proto::DecideReply>, Status> {
        self.call(paths::DECIDE, &request, request.wait_millis).await
    }

    /// Asks for an area to put gradients into.
    pub async fn share(
        &mut self,
        request: proto::ShareRequest,
    ) -> Result<Response<proto::ShareReply>, Status> {
        self.call(paths::SHARE, &request, 0).await
    }

    async fn call<R: Message + Default>(
        &self,
        path: &'static str,
        request: &impl Message,
        wait_millis: u32,
    ) -> Result<Response<R>, Status> {
        let going = Going::new(request, self.message_bytes).map_err(unsent)?;
        let mut request = http::Request::new(Body::new(going));
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        *request.uri_mut() = http::Uri::from_static(path);
        request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        request.extensions_mut().insert(KeptOpen(Duration::from_millis(wait_millis.into())));
        let answer = self.channel.clone().oneshot(request).await.map_err(Status::from_error)?;
        let (head, body) = answer.into_parts();
        if let Some(status) = status(&head.headers) {
            ok(status)?;
        }
        let (message, trailers) = received(body, self.message_bytes).await.map_err(unread)?;
        let status = trailers.as_ref().or(Some(&head.headers)).and_then(status);
        ok(status.unwrap_or_else(|| unsaid(head.status)))?;
        message.map(Response::new).ok_or_else(|| Status::internal("an answer without a message"))
    }
}

/// This end cannot send it: no repetition helps.
fn unsent(what: NoMessage) -> Status {
    Fault::Impossible(what.to_string()).with(Status::out_of_range(what.to_string()))
}

/// What came is no answer, whoever made it: the call may be repeated, and no process ends for it.
fn unread(what: NoMessage) -> Status {
    match what {
        NoMessage::Broken(status) => status,
        NoMessage::CutOff => Fault::Unreachable(what.to_string()).into(),
        NoMessage::TooLong { .. } | NoMessage::Malformed(_) => {
            Fault::Unreachable(format!("the answer cannot be read: {what}")).into()
        }
    }
}

fn ok(status: Status) -> Result<(), Status> {
    if status.code() == Code::Ok { Ok(()) } else { Err(status) }
}

/// What an answer that does not say so means, by <https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md>.
fn unsaid(status: StatusCode) -> Status {
    let code = match status {
        StatusCode::BAD_REQUEST => Code::Internal,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Unknown,
    };
    Status::new(code, format!("an answer of HTTP status {status} that does not say how the call ended"))
}
