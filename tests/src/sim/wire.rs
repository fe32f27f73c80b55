//! Real gRPC between simulated hosts: HTTP/2 by tonic over turmoil's model of TCP. What calls meet is drawn as in memory;
//! cuts and crashes are the streams'. It must never know what calls are about.

use super::call::{Call, Response};
use super::host::{Host, HostState};
use super::network::{Network, Serves};
use super::weather::{Delivery, Fate};
use futures_util::stream::unfold;
use http_body_util::BodyExt;
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::host::rpc::{Channel, Limits, Security, dial_on, serve_on};
use shoal_runtime::host::shutdown::Shutdown;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::{Error, ErrorKind};
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::sleep;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;
use turmoil::net::{TcpListener, TcpStream};

/// Where every host listens.
const PORT: u16 = 7000;
/// Names the caller's host in every call, for the model of the network alone.
const FROM: &str = "sim-from";
/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(100_000);

/// What a host does until it ends.
pub type Role = Pin<Box<dyn Future<Output = ()>>>;

/// What is to be done between two ticks: hosts can only be added from outside.
pub(super) enum Change {
    /// A host does its role from now on.
    Begin(Arc<Host>, Role),
    /// What the first host sends to the second is lost from now on.
    Cut(String, String),
    /// It arrives again.
    Mend(String, String),
}

thread_local! {
    static CHANGES: RefCell<Vec<Change>> = const { RefCell::new(Vec::new()) };
}

/// Does it after this tick.
pub(super) fn change(change: Change) {
    CHANGES.with_borrow_mut(|changes| changes.push(change));
}

/// Runs `script` among hosts that speak over TCP, to its end.
///
/// # Panics
/// A host panics.
pub fn on_wire<T: 'static>(seed: u64, script: impl Future<Output = T> + 'static) -> T {
    // What a run before this one has left, if it panicked.
    drop(CHANGES.take());
    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .simulation_duration(FOR_EVER)
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(3))
        .tcp_capacity(4096)
        .build();
    let told = std::rc::Rc::new(RefCell::new(None));
    let telling = std::rc::Rc::clone(&told);
    sim.client("script", async move {
        let result = script.await;
        *telling.borrow_mut() = Some(result);
        Ok(())
    });
    let (mut running, mut known) = (Vec::<Arc<Host>>::new(), BTreeSet::new());
    while told.borrow().is_none() {
        sim.step().expect("no host fails");
        for change in CHANGES.take() {
            match change {
                Change::Begin(host, role) => {
                    begin(&mut sim, &host, role);
                    known.insert(host.name.clone());
                    running.push(host);
                }
                Change::Cut(from, to) if known.contains(&from) && known.contains(&to) => {
                    sim.partition_oneway(from, to);
                }
                Change::Mend(from, to) if known.contains(&from) && known.contains(&to) => {
                    sim.repair_oneway(from, to);
                }
                Change::Cut(..) | Change::Mend(..) => {}
            }
        }
        running.retain(|host| {
            let is_alive = host.state() != HostState::Crashed;
            if !is_alive {
                sim.crash(host.name.as_str());
            }
            is_alive
        });
    }
    told.take().expect("the script has ended")
}

fn begin(sim: &mut turmoil::Sim<'_>, host: &Arc<Host>, role: Role) {
    let role = RefCell::new(Some(role));
    sim.host(host.name.as_str(), move || {
        let role = role.borrow_mut().take();
        async move {
            if let Some(role) = role {
                role.await;
            }
            Ok(())
        }
    });
}

/// What carries `from`'s calls to whoever answers at `address` when a connection is made.
pub(super) fn dial(network: &Arc<Network>, from: &str, address: &str) -> Result<Channel, String> {
    let (at, network) = (address.to_owned(), Arc::clone(network));
    let open = move |_: String| {
        let host = network.host_at(&at);
        async move {
            let host = host.ok_or_else(|| Error::new(ErrorKind::ConnectionRefused, "nobody listens"))?;
            Ok::<TcpStream, Box<dyn std::error::Error + Send + Sync>>(TcpStream::connect((host, PORT)).await?)
        }
    };
    let channel = dial_on(&format!("{address}:{PORT}"), None, Limits::default(), &Security::default(), open)?;
    let from = http::HeaderValue::from_str(from).map_err(|error| error.to_string())?;
    Ok(BoxCloneSyncService::new(channel.map_request(move |mut request: http::Request<Body>| {
        request.headers_mut().insert(FROM, from.clone());
        request
    })))
}

/// Answers on `host`, as who lives at `address`, until the host ends.
pub(super) fn serve(network: &Arc<Network>, host: &Arc<Host>, address: &str, service: impl Serves) {
    let met =
        Met { network: Arc::clone(network), host: Arc::clone(host), address: address.to_owned(), service };
    tokio::task::spawn_local(async move {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await.expect("one role on a host");
        let incoming = unfold(listener, |listener| async move { Some((listener.accept().await, listener)) });
        let (_asks, asked) = Shutdown::pair();
        let served =
            serve_on(incoming, Routes::new(met), Limits::default(), Security::default(), asked).await;
        served.expect("a listener in memory does not fail");
    });
}

/// A service whose calls meet the network's weather.
#[derive(Clone)]
struct Met<S> {
    network: Arc<Network>,
    host: Arc<Host>,
    address: String,
    service: S,
}

impl<S: NamedService> NamedService for Met<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: Serves> tower::Service<http::Request<Body>> for Met<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let met = self.clone();
        Box::pin(async move { Ok(met.answer(request).await) })
    }
}

impl<S: Serves> Met<S> {
    async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        let (mut parts, body) = request.into_parts();
        let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
            return unavailable("the request broke");
        };
        let from = parts.headers.remove(FROM).and_then(|from| from.to_str().ok().map(str::to_owned));
        let method = parts.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
        let to = self.address.clone();
        let call = Call { from: from.unwrap_or_default(), to, method, number: 0, parts, body };
        let Some((call, key, Fate { deliveries, reset })) = self.network.meet(call) else {
            return std::future::pending().await;
        };
        let mut copies = deliveries.into_iter().enumerate().map(|(copy, delivery)| {
            self.clone().deliver(Arc::clone(&call), mix(key ^ (copy as u64 + 1)), delivery)
        });
        let first = copies.next();
        copies.for_each(|copy| drop(tokio::spawn(copy)));
        let answered = async {
            match first {
                Some(first) => first.await,
                None => None,
            }
        };
        tokio::select! {
            biased;
            Some(response) = answered => response.into_http(),
            () = after(reset) => unavailable("the connection was reset"),
        }
    }

    /// One copy of a call; nothing comes of it if it, or the answer to it, is lost.
    async fn deliver(self, call: Arc<Call>, key: u64, delivery: Delivery) -> Option<Response> {
        sleep(delivery.delay).await;
        if !self.network.arrives(&call, key, delivery.is_lost) {
            return std::future::pending().await;
        }
        let work = async {
            Response::collect(self.service.oneshot(call.request()).await.unwrap_or_else(never)).await
        };
        let response = self.host.run(work).await?;
        self.network.made(&call, &response);
        sleep(delivery.reply_delay).await;
        self.network.replied(&call, key, &response, delivery.is_reply_lost);
        if delivery.is_reply_lost { std::future::pending().await } else { Some(response) }
    }
}

async fn after(delay: Option<Duration>) {
    match delay {
        Some(delay) => sleep(delay).await,
        None => std::future::pending().await,
    }
}

fn unavailable(why: &str) -> http::Response<Body> {
    tonic::Status::unavailable(why).into_http()
}

fn never<T>(never: Infallible) -> T {
    match never {}
}
