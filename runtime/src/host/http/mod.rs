//! What other programs look at a role by: `/metrics`, `/healthz`, `/readyz` over plain HTTP/1, with a limit on
//! everything. Nothing that is asked here changes anything.
//!
//! One request per connection, and no task is spawned: whoever serves these pages may borrow what they show.

mod exposition;

pub use exposition::{Exposition, Number};

use super::rpc;
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Connections at a time; the next one waits in the system's queue.
const CONNECTIONS_MAX: usize = 16;
/// Bytes of a request's head, and lines in it.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// How long a request's head may take to come.
const HEAD_WAIT: Duration = Duration::from_secs(2);
/// How long a connection may last.
const CONNECTION_MAX: Duration = Duration::from_secs(10);
/// After a connection that could not be accepted: most likely no file handle is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A role as others look at it.
pub trait Watched: Sync {
    /// Everything that it counts, in the text format of Prometheus.
    fn metrics(&self) -> String;
    /// Whether work may be sent its way; otherwise why not, in one line.
    fn readiness(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// How long the certificate of a role is good for; nothing where it has none.
pub fn certificate(security: &rpc::Security) -> String {
    let mut page = Exposition::new();
    if let Some(validity) = security.validity() {
        let help = "When the certificate in use expires, in seconds since 1970.";
        page.gauge("shoal_certificate_expiry_seconds", help, validity.until);
    }
    page.into_text()
}

/// Binds `address`, if there is one, and logs where it listens.
///
/// # Errors
/// An address that cannot be bound; the message names it.
pub async fn listen(address: Option<SocketAddr>) -> std::io::Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    let listener = rpc::listen(address).await?;
    tracing::info!(address = %listener.local_addr()?, "pages for probes: /metrics, /healthz, /readyz");
    Ok(Some(listener))
}

/// Answers for as long as it is polled; without a listener it does nothing for ever.
pub async fn serve(listener: Option<TcpListener>, watched: &impl Watched) -> Infallible {
    let Some(listener) = listener else { return std::future::pending().await };
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(()) = open.next(), if !open.is_empty() => {}
            accepted = listener.accept(), if open.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => open.push(converse(stream, watched)),
                Err(error) => {
                    tracing::debug!(%error, "a probe's connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// One connection. How it fails is the other side's business.
async fn converse(stream: TcpStream, watched: &impl Watched) {
    let answer = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(answer(request.method(), request.uri().path(), watched).await)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    let _ = tokio::time::timeout(CONNECTION_MAX, connection).await;
}

async fn answer(method: &Method, path: &str, watched: &impl Watched) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut refused = page(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
        refused.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match path {
        "/metrics" => page_of(StatusCode::OK, exposition::CONTENT_TYPE, watched.metrics()),
        "/healthz" => page(StatusCode::OK, "alive"),
        "/readyz" => match watched.readiness().await {
            Ok(()) => page(StatusCode::OK, "ready"),
            Err(why) => page(StatusCode::SERVICE_UNAVAILABLE, &why.replace(['\n', '\r'], " ")),
        },
        _ => page(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz"),
    }
}

/// One line of text.
fn page(status: StatusCode, line: &str) -> Response<Full<Bytes>> {
    page_of(status, "text/plain; charset=utf-8", format!("{line}\n"))
}

fn page_of(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests;
