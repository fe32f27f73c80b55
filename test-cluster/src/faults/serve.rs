//! The proxy's connections: each request is counted, refused or passed on; answers are streamed. It must never hold more
//! of an answer than a frame.

use super::{Call, Cut, Refusal, Shared};
use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Failure>;

/// The largest request; the API server takes 3 MiB.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// Serves until it is dropped, connections with it.
pub(super) async fn serve(listener: TcpListener, client: kube::Client, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (client, shared) = (client.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let (client, shared) = (client.clone(), Arc::clone(&shared));
                async move { Ok::<_, Infallible>(answer(request, client, &shared).await) }
            });
            // A broken connection is the client's affair.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(request: Request<Incoming>, client: kube::Client, shared: &Shared) -> Response<Body> {
    let uri = request.uri();
    let call = Call::of(request.method().as_str(), uri.path(), uri.query().unwrap_or_default());
    let refusal = {
        let mut state = shared.state();
        *state.counts.entry(call.clone()).or_default() += 1;
        let is_for = |name: &String| uri.path().split('/').any(|part| part == name);
        let fits = |refusal: &&Refusal| {
            refusal.only.as_ref().is_none_or(|only| *only == call) && refusal.name.as_ref().is_none_or(is_for)
        };
        let refusal = state.refusals.iter().find(fits).cloned();
        state.refused += u64::from(refusal.is_some());
        refusal
    };
    if let Some(refusal) = refusal {
        if refusal.is_silent {
            return std::future::pending().await;
        }
        return refused(&refusal);
    }
    // From before the request, so that a cut meanwhile is not missed.
    let mut cuts = shared.cuts.subscribe();
    cuts.mark_unchanged();
    match pass(request, client).await {
        Ok(response) if call.verb == "WATCH" => response.map(|body| watched(body, cuts)),
        Ok(response) => response.map(|body| body.map_err(Failure::from).boxed_unsync()),
        Err(error) => {
            refused(&Refusal { reason: "BadGateway", ..Refusal::of(502) }).map(|_| whole(error.to_string()))
        }
    }
}

async fn pass(
    request: Request<Incoming>,
    client: kube::Client,
) -> Result<Response<kube::client::Body>, Failure> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, REQUEST_BYTES_MAX).collect().await?.to_bytes();
    // The path alone: the client puts its own server before it.
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut passed =
        Request::builder().method(parts.method).uri(path).body(kube::client::Body::from(body))?;
    *passed.headers_mut() = of_the_message(parts.headers);
    passed.headers_mut().remove(header::HOST);
    passed.headers_mut().remove(header::AUTHORIZATION);
    let mut response = client.send(passed).await?;
    *response.headers_mut() = of_the_message(std::mem::take(response.headers_mut()));
    *response.version_mut() = http::Version::HTTP_11;
    Ok(response)
}

/// Headers without those of a connection, and without a length, which is said anew.
fn of_the_message(mut headers: HeaderMap) -> HeaderMap {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::CONTENT_LENGTH] {
        headers.remove(name);
    }
    headers
}

/// The body of a watch, which ends when it is cut.
fn watched(body: kube::client::Body, cuts: tokio::sync::watch::Receiver<Option<Cut>>) -> Body {
    let frames: std::pin::Pin<Box<dyn Stream<Item = Result<Bytes, Failure>> + Send>> =
        Box::pin(body.into_data_stream().map(|data| data.map_err(Failure::from)));
    let stream = futures_util::stream::unfold(Some((frames, cuts)), |state| async move {
        let (mut frames, mut cuts) = state?;
        tokio::select! {
            data = frames.next() => Some((data?.map(Frame::data), Some((frames, cuts)))),
            // Its sender is the proxy's, which outlives its connections.
            _ = cuts.changed() => match *cuts.borrow() {
                Some(Cut::Expired) => Some((Ok(Frame::data(expired())), None)),
                _ => Some((Err("the watch is cut".into()), None)),
            },
        }
    });
    StreamBody::new(stream).boxed_unsync()
}

fn status(code: u16, reason: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"refused by a test","reason":"{reason}","code":{code}}}"#
    )
}

fn expired() -> Bytes {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(410, "Expired")).into()
}

fn whole(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(Failure::from).boxed_unsync()
}

fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = Response::new(whole(status(refusal.code, refusal.reason)));
    *response.status_mut() = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}
