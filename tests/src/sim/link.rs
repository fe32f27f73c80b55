//! How a host reaches others: the seam [`Dial`] of the real code, over the simulated network.

use super::call::{Call, Response};
use super::host::Host;
use super::network::Network;
use super::points::Side;
use super::wire;
use http_body_util::BodyExt;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{Channel, Dial};
use shoal_runtime::wire::proto;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tower::util::BoxCloneSyncService;

/// One host's door to the network.
#[derive(Clone, Debug)]
pub struct Door {
    network: Arc<Network>,
    host: Arc<Host>,
}

impl Door {
    /// The door of `host`.
    pub fn of(host: &Arc<Host>, network: &Arc<Network>) -> Door {
        Door { network: Arc::clone(network), host: Arc::clone(host) }
    }

    /// An answer as it is to a host whose clock drifts: all times that roles measure against one another's are parts of
    /// the time to live of leases, which they learn with the job.
    fn by_its_clock(&self, is_job: bool, answer: Response) -> Response {
        if !is_job || answer.code() != 0 {
            return answer;
        }
        answer.changed(|description: &mut proto::JobDescription| {
            if let Some(settings) = &mut description.settings {
                settings.lease_ttl_millis = self.network.clocked(&self.host.name, settings.lease_ttl_millis);
            }
        })
    }
}

impl Dial for Door {
    fn is_gone<'a>(&'a self, address: &'a str) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(std::future::ready(self.network.is_refused(&self.host.name, address)))
    }

    fn dial(&self, address: &str, _: Option<Role>) -> Result<Channel, String> {
        if self.network.is_wire() {
            return wire::dial(&self.network, &self.host.name, address);
        }
        let link = Link { door: self.clone(), to: address.to_owned() };
        Ok(BoxCloneSyncService::new(link))
    }
}

#[derive(Clone)]
struct Link {
    door: Door,
    to: String,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl tower::Service<http::Request<Body>> for Link {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Link { door, to } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let method = parts.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
            let (calls, is_job) = (format!("calls {method}"), method == "Describe");
            let points = &door.network.points;
            points.pass(&door.host, || calls.clone(), Side::Before).await;
            let from = door.host.name.clone();
            let mut answers = door.network.send(Call { from, to, method, number: 0, parts, body });
            match answers.recv().await {
                Some(answer) => {
                    points.pass(&door.host, || calls, Side::After).await;
                    Ok(door.by_its_clock(is_job, *answer?).into_http())
                }
                // Lost: nothing tells the caller but its own deadline.
                None => std::future::pending().await,
            }
        })
    }
}
