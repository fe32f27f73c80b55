//! The page's server: one page, its stream of frames, and the way back for buttons. Nobody gets anything without the token, which the
//! page's address has, as notebooks do it. There is a limit on everything.

use crate::action::{Action, Hands};
use crate::feed::{Feed, Frame, Source};
use crate::page;
use crate::view::Conclusion;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Body, Frame as Part};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

/// Connections at a time; the next one waits in the system's queue.
const CONNECTIONS_MAX: usize = 64;
/// Pages that are open at a time: each has a connection for as long as it is.
const PAGES_MAX: usize = 32;
/// Bytes of a request's head, and lines in it.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// How long a request's head, or a connection's next request, may take to come.
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// Bytes of a question, and how long it may take to come.
const ASKED_BYTES_MAX: usize = 4 << 10;
const ASKED_WAIT: Duration = Duration::from_secs(5);
/// How long open pages may take to hear of a run's end.
const FAREWELL: Duration = Duration::from_secs(2);
/// After a connection that could not be accepted: most likely no file handle is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A live page that is served.
pub struct Ui {
    address: SocketAddr,
    token: Arc<str>,
    concluded: watch::Sender<Option<Conclusion>>,
    server: JoinHandle<()>,
}

#[derive(Clone)]
struct Served {
    token: Arc<str>,
    cookie: Arc<str>,
    frames: watch::Receiver<Frame>,
    hands: Option<Hands>,
    pages: Arc<Semaphore>,
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl Ui {
    /// Serves the page of a job until it is [concluded](Ui::conclude) or dropped. With `hands` it has buttons.
    ///
    /// # Errors
    /// The system gives no randomness for a token, or no thread.
    pub fn start(
        listener: std::net::TcpListener,
        source: Source,
        hands: Option<Hands>,
    ) -> anyhow::Result<Ui> {
        listener.set_nonblocking(true)?;
        let (address, listener) = (listener.local_addr()?, TcpListener::from_std(listener)?);
        let token: Arc<str> = random_word()?.into();
        let (frames, shown) = watch::channel(Frame::nothing());
        let (concluded, conclusion) = watch::channel(None);
        Feed::new(source).begin(frames, conclusion)?;
        let served = Served {
            token: token.clone(),
            cookie: format!("shoal-ui-{}", address.port()).into(),
            frames: shown,
            hands,
            pages: Arc::new(Semaphore::new(PAGES_MAX)),
        };
        Ok(Ui { address, token, concluded, server: tokio::spawn(serve(listener, served)) })
    }

    /// Where a browser finds it, token and all.
    pub fn address(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token)
    }

    /// The run is over: open pages hear how it ended, and then nothing more is served.
    pub async fn conclude(mut self, conclusion: Conclusion) {
        self.concluded.send_replace(Some(conclusion));
        let _ = tokio::time::timeout(FAREWELL, &mut self.server).await;
    }
}

impl Drop for Ui {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// 128 random bits, in hexadecimal.
fn random_word() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness for a token: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Until the last frame is there, and those who are connected have it.
async fn serve(listener: TcpListener, served: Served) {
    let mut ended = std::pin::pin!(last_frame(served.frames.clone()));
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = &mut ended => break,
            Some(_) = open.join_next(), if !open.is_empty() => {}
            accepted = listener.accept(), if open.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => drop(open.spawn(converse(stream, served.clone()))),
                Err(error) => {
                    tracing::debug!(%error, "a page's connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

/// Until there is a frame after which none comes.
async fn last_frame(mut frames: watch::Receiver<Frame>) {
    let _ = frames.wait_for(|frame| frame.is_last).await.map(drop);
}

/// One connection. How it fails is the other side's business.
async fn converse(stream: TcpStream, served: Served) {
    let ended = last_frame(served.frames.clone());
    let answers = service_fn(move |request| {
        let served = served.clone();
        async move { Ok::<_, Infallible>(answer(&served, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), answers);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = &mut connection => return,
        () = ended => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(FAREWELL, connection).await;
}

async fn answer<B>(served: &Served, request: Request<B>) -> Answer
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
{
    if !is_admitted(served, &request) {
        let why =
            "this page opens with its token only: take the whole address that the command has printed\n";
        return text(StatusCode::FORBIDDEN, why);
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/") => document(served),
        (&Method::GET, "/events") => events(served),
        // The newest frame, for programs.
        (&Method::GET, "/frame") => object(StatusCode::OK, served.frames.borrow().text.to_string()),
        (&Method::POST, "/do") => act(served, request).await,
        (_, "/" | "/events" | "/frame" | "/do") => {
            text(StatusCode::METHOD_NOT_ALLOWED, "GET, and POST to /do\n")
        }
        _ => text(StatusCode::NOT_FOUND, "there are /, /events, /frame and /do\n"),
    }
}

/// Whether somebody has the token: in the address, in a cookie, or as a bearer's.
fn is_admitted<B>(served: &Served, request: &Request<B>) -> bool {
    let said = |name: HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
    let bearer = said(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    let cookies = said(header::COOKIE).unwrap_or_default();
    let cookie = cookies.split("; ").find_map(|pair| pair.strip_prefix(&*served.cookie)?.strip_prefix('='));
    let asked = request.uri().query().unwrap_or_default();
    let in_address = asked.split('&').find_map(|pair| pair.strip_prefix("token="));
    [in_address, bearer, cookie].into_iter().flatten().any(|given| is_same(given, &served.token))
}

/// Takes as long wherever they differ.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |differ, (one, other)| differ | (one ^ other));
    one.len() == other.len() && differ == 0
}

fn document(served: &Served) -> Answer {
    let Ok(nonce) = random_word() else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "the system gives no randomness\n");
    };
    let cookie = format!("{}={}; HttpOnly; SameSite=Strict; Path=/", served.cookie, served.token);
    let mut page = of(StatusCode::OK, "text/html; charset=utf-8", Full::from(page::html(&nonce)));
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, page::policy(&nonce)),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::SET_COOKIE, cookie),
    ] {
        let value = HeaderValue::from_str(&value);
        value.into_iter().for_each(|value| drop(page.headers_mut().insert(name.clone(), value)));
    }
    page
}

/// What buttons may be drawn comes first, then frame after frame. After the last one the stream says so, so that the page does not ask again.
fn events(served: &Served) -> Answer {
    let Ok(place) = served.pages.clone().try_acquire_owned() else {
        let why = format!("{PAGES_MAX} pages are open already: close one\n");
        return text(StatusCode::SERVICE_UNAVAILABLE, why);
    };
    let hands = served.hands.as_ref().map(|hands| json!({ "no_network": hands.no_network }));
    let mut frames = served.frames.clone();
    frames.mark_changed();
    let frames = stream::unfold(Stage::Frames(frames, place), next_event);
    let all = stream::iter([event("hands", &json!(hands).to_string())]).chain(frames);
    of(StatusCode::OK, "text/event-stream", StreamBody::new(all.map(|event| Ok(Part::data(event)))))
}

enum Stage {
    Frames(watch::Receiver<Frame>, OwnedSemaphorePermit),
    Over,
    Closed,
}

async fn next_event(stage: Stage) -> Option<(Bytes, Stage)> {
    match stage {
        Stage::Frames(mut frames, place) => {
            if frames.changed().await.is_err() {
                return Some((event("over", "null"), Stage::Closed));
            }
            let frame = frames.borrow_and_update().clone();
            let next = if frame.is_last { Stage::Over } else { Stage::Frames(frames, place) };
            Some((event("frame", &frame.text), next))
        }
        Stage::Over => Some((event("over", "null"), Stage::Closed)),
        Stage::Closed => None,
    }
}

/// A server-sent event; `data` is one line.
fn event(name: &str, data: &str) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// Asks whoever runs the job for what a button says. JSON alone is taken: no other page can send that across sites.
async fn act<B>(served: &Served, request: Request<B>) -> Answer
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
{
    let refused = |status, why: &str| object(status, json!({ "refused": why }).to_string());
    let Some(hands) = &served.hands else {
        let why = "this page only looks: start the run with --ui --hands-on to act on it";
        return refused(StatusCode::FORBIDDEN, why);
    };
    if !is_json(request.headers()) {
        return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json");
    }
    let body = Limited::new(request.into_body(), ASKED_BYTES_MAX).collect();
    let Ok(Ok(body)) = tokio::time::timeout(ASKED_WAIT, body).await else {
        return refused(StatusCode::PAYLOAD_TOO_LARGE, "an action is one small object, and comes at once");
    };
    let action = match serde_json::from_slice::<Action>(&body.to_bytes()) {
        Ok(action) => action,
        Err(error) => return refused(StatusCode::BAD_REQUEST, &format!("no action: {error}")),
    };
    match hands.ask(action).await {
        Ok(done) => object(StatusCode::OK, json!({ "done": done }).to_string()),
        Err(why) => refused(StatusCode::CONFLICT, &why),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn text(status: StatusCode, said: impl Into<Bytes>) -> Answer {
    of(status, "text/plain; charset=utf-8", Full::new(said.into()))
}

fn object(status: StatusCode, said: String) -> Answer {
    of(status, "application/json", Full::from(said))
}

fn of(
    status: StatusCode,
    kind: &'static str,
    body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static,
) -> Answer {
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

#[cfg(test)]
mod tests;
