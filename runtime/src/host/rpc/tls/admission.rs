//! Every call against its caller's certificate, before any role sees it: its role must be one that may make the call.

use super::connection::Peer;
use super::permissions::may_call;
use http::{Request, Response};
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tower::Service;

/// Refuses calls that the caller's role may not make.
#[derive(Clone, Debug)]
pub(in crate::host::rpc) struct Admission<S>(pub(in crate::host::rpc) S);

impl<S> Service<Request<Body>> for Admission<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let caller = request.extensions().get::<Peer>().and_then(|peer| peer.identity.as_ref());
        let path = request.uri().path();
        if let Some(caller) = caller
            && !may_call(caller.role, path)
        {
            let method = path.rsplit('/').next().unwrap_or_default();
            let why = format!("the certificate is for {caller}, and a {} may not call {method}", caller.role);
            tracing::warn!(method, caller = %caller, "a call is refused: it is not this role's to make");
            return Box::pin(std::future::ready(Ok(Status::permission_denied(why).into_http())));
        }
        Box::pin(self.0.call(request))
    }
}
