//! The page's server: one page, its stream of frames, and the way back for buttons. Nobody gets anything without the token, which the
//! page's address has, as notebooks do it.

use crate::action::{Action, Hands};
use crate::feed::{Feed, Frame, Source};
use crate::page;
use crate::view::Conclusion;
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;

/// Pages that are open at a time.
const PAGES_MAX: usize = 32;
/// Bytes of a question.
const ASKED_BYTES_MAX: usize = 4 << 10;
/// How long open pages may take to hear of a run's end.
const FAREWELL: Duration = Duration::from_secs(2);
/// After so long without a frame a stream says that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

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
        let server = tokio::spawn(async move {
            let ended = {
                let mut frames = served.frames.clone();
                async move { drop(frames.wait_for(|frame| frame.is_last).await) }
            };
            let served = axum::serve(listener, router(served)).with_graceful_shutdown(ended).await;
            if let Err(error) = served {
                tracing::debug!(%error, "the live page is served no more");
            }
        });
        Ok(Ui { address, token, concluded, server })
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

fn router(served: Served) -> Router {
    Router::new()
        .route("/", get(document))
        .route("/events", get(events))
        .route("/frame", get(frame))
        .route("/do", post(act))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there are /, /events, /frame and /do\n") })
        .layer(DefaultBodyLimit::max(ASKED_BYTES_MAX))
        .layer(middleware::from_fn_with_state(served.clone(), admitted))
        .with_state(served)
}

#[derive(Deserialize)]
struct Asks {
    token: Option<String>,
}

/// Refuses whoever does not have the token: in the address, in a cookie, or as a bearer's.
async fn admitted(
    State(served): State<Served>,
    Query(asks): Query<Asks>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let bearer = text(headers, header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    let cookies = text(headers, header::COOKIE).unwrap_or_default();
    let cookie = cookies.split("; ").find_map(|pair| pair.strip_prefix(&*served.cookie)?.strip_prefix('='));
    let given = [asks.token.as_deref(), bearer, cookie];
    if !given.into_iter().flatten().any(|given| is_same(given, &served.token)) {
        let why =
            "this page opens with its token only: take the whole address that the command has printed\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    next.run(request).await
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Takes as long wherever they differ.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |differ, (one, other)| differ | (one ^ other));
    one.len() == other.len() && differ == 0
}

async fn document(State(served): State<Served>) -> Response {
    let Ok(nonce) = random_word() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the system gives no randomness\n").into_response();
    };
    let cookie = format!("{}={}; HttpOnly; SameSite=Strict; Path=/", served.cookie, served.token);
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CONTENT_SECURITY_POLICY, page::policy(&nonce)),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::SET_COOKIE, cookie),
    ];
    (headers, page::html(&nonce)).into_response()
}

/// The newest frame, for programs.
async fn frame(State(served): State<Served>) -> Response {
    let text = served.frames.borrow().text.to_string();
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (headers, text).into_response()
}

/// What buttons may be drawn comes first, then frame after frame. After the last one the stream says so, so that the page does not ask again.
async fn events(State(served): State<Served>) -> Response {
    let Ok(place) = served.pages.clone().try_acquire_owned() else {
        let why = format!("{PAGES_MAX} pages are open already: close one\n");
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    };
    let hands = served.hands.as_ref().map(|hands| json!({ "no_network": hands.no_network }));
    let hands = Event::default().event("hands").data(json!(hands).to_string());
    let mut frames = served.frames.clone();
    frames.mark_changed();
    let frames = stream::unfold(Stage::Frames(frames, place), next_event);
    let all = stream::iter([Ok(hands)]).chain(frames);
    Sse::new(all).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

enum Stage {
    Frames(watch::Receiver<Frame>, OwnedSemaphorePermit),
    Over,
    Closed,
}

async fn next_event(stage: Stage) -> Option<(Result<Event, Infallible>, Stage)> {
    let over = || Event::default().event("over").data("null");
    match stage {
        Stage::Frames(mut frames, place) => {
            if frames.changed().await.is_err() {
                return Some((Ok(over()), Stage::Closed));
            }
            let frame = frames.borrow_and_update().clone();
            let event = Event::default().event("frame").data(&*frame.text);
            let next = if frame.is_last { Stage::Over } else { Stage::Frames(frames, place) };
            Some((Ok(event), next))
        }
        Stage::Over => Some((Ok(over()), Stage::Closed)),
        Stage::Closed => None,
    }
}

/// Asks whoever runs the job for what a button says. JSON alone is taken: no other page can send that across sites.
async fn act(State(served): State<Served>, Json(action): Json<Action>) -> Response {
    let Some(hands) = &served.hands else {
        let why = "this page only looks: start the run with --ui --hands-on to act on it";
        return (StatusCode::FORBIDDEN, Json(json!({ "refused": why }))).into_response();
    };
    match hands.ask(action).await {
        Ok(done) => Json(json!({ "done": done })).into_response(),
        Err(why) => (StatusCode::CONFLICT, Json(json!({ "refused": why }))).into_response(),
    }
}

#[cfg(test)]
mod tests;
