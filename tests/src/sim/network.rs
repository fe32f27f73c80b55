//! The simulated network: carries real gRPC calls between hosts in memory, with the faults of the [`Weather`].
//!
//! All messages pass one queue, ordered by arrival time and then by the call's own key, and one courier delivers
//! them: so the order of events is a function of the seed, though tokio wakes tasks of one moment in any order.

mod altering;
mod courier;

use super::call::{Call, Response};
use super::host::{Host, HostState};
use super::points::Points;
use super::trace::{Trace, hash_of};
use super::weather::{Delivery, Fate, Weather};
use super::wire::{self, Change};
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::answering;
use shoal_runtime::wire::WireVersion;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::util::BoxCloneSyncService;

/// What answers at an address.
pub type Service = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Infallible>;
/// A role's service, as tonic makes it.
pub trait Serves:
    tower::Service<
        http::Request<Body>,
        Response = http::Response<Body>,
        Error = Infallible,
        Future: Send + 'static,
    > + NamedService
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Serves for S
where
    S: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
}

/// Changes the fate of calls as they are sent.
pub type Intercept = Box<dyn FnMut(&Call, &mut Fate) + Send>;

/// Is shown calls.
pub type Witness = Box<dyn FnMut(&Call) + Send>;

/// Is shown successful replies as they are made, whatever becomes of them: the call, and the reply's message.
pub type ReplyWitness = Box<dyn FnMut(&Call, &[u8]) + Send>;

/// More calls than any run needs: a program that calls without end is stopped by silence.
const CALLS_MAX: u64 = 400_000;

/// The network of one run.
pub struct Network {
    /// Where processes may be killed.
    pub points: Points,
    began: Instant,
    inner: Mutex<Inner>,
    posted: Notify,
}

struct Inner {
    /// Whether calls go over TCP.
    is_wire: bool,
    seed: u64,
    weather: Weather,
    drift_percent: u64,
    endpoints: BTreeMap<String, (Arc<Host>, Service)>,
    cuts: BTreeMap<(String, String), u32>,
    spoken: BTreeMap<String, Option<WireVersion>>,
    counts: BTreeMap<(String, String, String), u64>,
    calls: u64,
    intercepts: Vec<Intercept>,
    witnesses: Vec<Witness>,
    reply_witnesses: Vec<ReplyWitness>,
    alters: Vec<altering::Alter>,
    queue: BTreeMap<(Instant, u64), Event>,
    trace: Trace,
}

pub(super) type Answer = Result<Box<Response>, tonic::Status>;
pub(super) type Said<'a> = Result<&'a Response, &'a tonic::Status>;

/// How deep the simulation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Calls are carried in memory.
    Machine,
    /// Calls go over HTTP/2 and a model of TCP.
    Wire,
}

enum Event {
    Request { call: Arc<Call>, key: u64, delivery: Delivery, caller: mpsc::Sender<Answer> },
    Reply { call: Arc<Call>, key: u64, answer: Answer, is_lost: bool, caller: mpsc::Sender<Answer> },
}

impl Network {
    /// A network without hosts. Must be called inside the runtime whose clock it follows.
    pub fn new(depth: Depth, seed: u64, weather: Weather, trace: Trace) -> Arc<Network> {
        let inner = Inner {
            is_wire: depth == Depth::Wire,
            seed,
            weather,
            drift_percent: 0,
            endpoints: BTreeMap::new(),
            cuts: BTreeMap::new(),
            spoken: BTreeMap::new(),
            counts: BTreeMap::new(),
            calls: 0,
            intercepts: Vec::new(),
            witnesses: Vec::new(),
            reply_witnesses: Vec::new(),
            alters: Vec::new(),
            queue: BTreeMap::new(),
            trace,
        };
        let network = Network {
            points: Points::default(),
            began: Instant::now(),
            inner: Mutex::new(inner),
            posted: Notify::new(),
        };
        let network = Arc::new(network);
        tokio::spawn(Arc::clone(&network).deliver_for_ever());
        network
    }

    /// Lets `host` do `role` until it ends or the host crashes.
    pub fn run(&self, host: &Arc<Host>, role: impl Future<Output = ()> + 'static) {
        let role = host.run(role);
        match self.inner().is_wire {
            true => {
                let role = Box::pin(async move { role.await.unwrap_or_default() });
                wire::change(Change::Begin(Arc::clone(host), role));
            }
            false => drop(tokio::task::spawn_local(role)),
        }
    }
    /// Lets `service` answer at `address`, on `host`. On a wire it must be the host that calls.
    pub fn serve(self: &Arc<Self>, host: &Arc<Host>, address: &str, service: impl Serves) {
        let endpoint = (Arc::clone(host), Service::new(service.clone()));
        self.inner().endpoints.insert(address.to_owned(), endpoint);
        if self.is_wire() {
            wire::serve(self, host, address, service);
        }
    }
    /// Whether calls go over TCP.
    pub(super) fn is_wire(&self) -> bool {
        self.inner().is_wire
    }
    /// The name of the host that answers at `address`; none where connections are refused.
    pub(super) fn host_at(&self, address: &str) -> Option<String> {
        let inner = self.inner();
        let (host, _) = inner.endpoints.get(address)?;
        // A process that was killed leaves a machine that refuses, or one that says nothing.
        let refuses = host.state() == HostState::Crashed && hash_of(host.name.as_bytes()) & 2 == 0;
        (!refuses).then(|| host.name.clone())
    }
    /// Lets a host speak another version of the wire; none, as builds did before there was one. It answers whom its version
    /// answers, and tells it of itself.
    pub fn speak(&self, host: &str, version: Option<WireVersion>) {
        self.inner().spoken.insert(host.to_owned(), version);
    }
    /// Whether a connection from `from` to `address` would be refused: nothing lives there, and the way is open.
    pub fn is_refused(&self, from: &str, address: &str) -> bool {
        let inner = self.inner();
        let endpoint = inner.endpoints.get(address);
        let is_dead = endpoint.is_none_or(|(host, _)| host.state() == HostState::Crashed);
        is_dead && !inner.is_cut(from, address) && !inner.is_cut(address, from)
    }
    /// Changes the weather for calls sent from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.inner().weather = weather;
    }
    /// Lets each host have a clock that runs up to so much faster or slower than what others go by.
    pub fn let_clocks_drift(&self, percent: u64) {
        self.inner().drift_percent = percent;
    }
    /// How long `host` takes so many milliseconds to be, by its clock, in those of others.
    pub(super) fn clocked(&self, host: &str, millis: u64) -> u64 {
        let inner = self.inner();
        let spread = 2 * millis * inner.drift_percent / 100;
        let luck = mix(hash_of(host.as_bytes()) ^ inner.seed) % 1001;
        millis - spread / 2 + spread * luck / 1000
    }
    /// Loses everything that `from` sends to `to`, replies included, until as many calls of [`mend`](Self::mend).
    pub fn cut(&self, from: &str, to: &str) {
        let mut inner = self.inner();
        let (from, to) = (inner.end_of(from), inner.end_of(to));
        if inner.is_wire && from != to {
            wire::change(Change::Cut(from.clone(), to.clone()));
        }
        *inner.cuts.entry((from, to)).or_default() += 1;
    }
    /// Undoes one [`cut`](Self::cut).
    pub fn mend(&self, from: &str, to: &str) {
        let mut inner = self.inner();
        let ends = (inner.end_of(from), inner.end_of(to));
        let is_wire = inner.is_wire;
        if let Some(cuts) = inner.cuts.get_mut(&ends) {
            *cuts = cuts.saturating_sub(1);
            if is_wire && *cuts == 0 && ends.0 != ends.1 {
                wire::change(Change::Mend(ends.0, ends.1));
            }
        }
    }
    /// Undoes every [`cut`](Self::cut).
    pub fn mend_all(&self) {
        let mut inner = self.inner();
        for ((from, to), cuts) in std::mem::take(&mut inner.cuts) {
            if inner.is_wire && cuts > 0 && from != to {
                wire::change(Change::Mend(from, to));
            }
        }
    }
    /// How long the run has lasted by its own clock.
    pub fn elapsed(&self) -> Duration {
        // Hosts on a wire have clocks of their own.
        turmoil::sim_elapsed().unwrap_or_else(|| self.began.elapsed())
    }
    /// Calls sent from now on pass `intercept`, after those added before it.
    pub fn intercept(&self, intercept: impl FnMut(&Call, &mut Fate) + Send + 'static) {
        self.inner().intercepts.push(Box::new(intercept));
    }
    /// Shows every request that is delivered to `witness`.
    pub fn witness(&self, witness: impl FnMut(&Call) + Send + 'static) {
        self.inner().witnesses.push(Box::new(witness));
    }
    /// Shows every successful reply to `witness` when it is made.
    pub fn witness_replies(&self, witness: impl FnMut(&Call, &[u8]) + Send + 'static) {
        self.inner().reply_witnesses.push(Box::new(witness));
    }
    /// Writes something that is no call into the trace.
    pub fn note(&self, code: u64, line: impl std::fmt::Display) {
        let at = self.elapsed();
        self.inner().trace.note(at, &[code], line);
    }
    /// What has happened so far.
    pub fn trace(&self) -> Trace {
        self.inner().trace.clone()
    }
    /// Whether the run made more calls than any run needs.
    pub fn ran_away(&self) -> bool {
        self.inner().calls > CALLS_MAX
    }

    /// Sends a call. Answers, if any, come out of the receiver; dropping it is the caller's giving up.
    pub(super) fn send(&self, call: Call) -> mpsc::Receiver<Answer> {
        let (caller, answers) = mpsc::channel(4);
        let now = Instant::now();
        let mut guard = self.inner();
        let inner = &mut *guard;
        let Some((call, key, fate)) = inner.meet(call) else { return answers };
        for (copy, delivery) in fate.deliveries.into_iter().enumerate() {
            let key = mix(key ^ (copy as u64 + 1));
            let (call, caller) = (Arc::clone(&call), caller.clone());
            inner.post(now + delivery.delay, key, Event::Request { call, key, delivery, caller });
        }
        if let Some(delay) = fate.reset {
            let (key, answer) = (mix(key), Err(tonic::Status::unavailable("the connection was reset")));
            inner.post(now + delay, key, Event::Reply { call, key, answer, is_lost: false, caller });
        }
        drop(guard);
        self.posted.notify_one();
        answers
    }

    /// What is to become of a call; none where there were more than any run needs.
    pub(super) fn meet(&self, call: Call) -> Option<(Arc<Call>, u64, Fate)> {
        self.inner().meet(call)
    }
    /// A request arrives, or is lost: whether it is carried out.
    pub(super) fn arrives(&self, call: &Call, key: u64, is_lost: bool) -> bool {
        let at = self.elapsed();
        let mut inner = self.inner();
        inner.note_request(at, call, key, is_lost);
        if !is_lost {
            inner.witnesses.iter_mut().for_each(|witness| witness(call));
        }
        !is_lost
    }
    /// A reply is made, whatever becomes of it.
    pub(super) fn made(&self, call: &Call, response: &Response) {
        if response.code() == 0 {
            let mut inner = self.inner();
            inner.reply_witnesses.iter_mut().for_each(|witness| witness(call, response.message()));
        }
    }
    /// A reply arrives, or is lost.
    pub(super) fn replied(&self, call: &Call, key: u64, response: &Response, is_lost: bool) {
        let at = self.elapsed();
        self.inner().note_reply(at, call, mix(key), Ok(response), is_lost);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn speak(&self, call: &mut Call) {
        let headers = &mut call.parts.headers;
        match self.spoken.get(&call.from) {
            Some(Some(version)) => drop(headers.insert(WireVersion::ENTRY, version.0.into())),
            Some(None) => drop(headers.remove(WireVersion::ENTRY)),
            None => {}
        }
    }

    fn speaking(&self, host: &Host, service: Service) -> Service {
        match self.spoken.get(&host.name).copied().unwrap_or(Some(WireVersion::PRESENT)) {
            Some(version) => Service::new(answering(service, version)),
            None => service,
        }
    }

    fn post(&mut self, due: Instant, key: u64, event: Event) {
        let due = due.max(Instant::now() + Duration::from_millis(1));
        self.queue.insert((due, key), event);
    }

    fn meet(&mut self, mut call: Call) -> Option<(Arc<Call>, u64, Fate)> {
        self.calls += 1;
        if self.calls > CALLS_MAX {
            return None;
        }
        let count = self.counts.entry((call.from.clone(), call.to.clone(), call.method.clone())).or_default();
        *count += 1;
        call.number = *count;
        self.speak(&mut call);
        let key = call.key(self.seed);
        let mut fate = Fate::draw(&self.weather, &mut Random::seeded(key));
        self.intercepts.iter_mut().for_each(|intercept| intercept(&call, &mut fate));
        Some((Arc::new(call), key, fate))
    }

    /// One end of a cut. On a wire that is a host; in memory, who is called goes by its address.
    fn end_of(&self, name: &str) -> String {
        let lives_there = self.endpoints.get(name).filter(|_| self.is_wire);
        lives_there.map_or(name.to_owned(), |(host, _)| host.name.clone())
    }

    fn is_cut(&self, from: &str, to: &str) -> bool {
        self.cuts.get(&(from.to_owned(), to.to_owned())).is_some_and(|cuts| *cuts > 0)
    }

    fn note_request(&mut self, at: Duration, call: &Call, key: u64, is_lost: bool) {
        let body = call.content_hash();
        let fate = if is_lost { "  LOST" } else { "" };
        let words = if self.trace.keeps_lines() { super::words::request(call) } else { String::new() };
        let (from, to, method, number) = (&call.from, &call.to, &call.method, call.number);
        self.trace.note(
            at,
            &[1, key, body, u64::from(is_lost)],
            format_args!("{from} -> {to} {method}#{number} {words}{fate}"),
        );
    }

    fn note_reply(&mut self, at: Duration, call: &Call, key: u64, answer: Said<'_>, is_lost: bool) {
        let (code, body) = match &answer {
            Ok(response) if call.tells_process() => (response.code(), 0),
            Ok(response) => (response.code(), hash_of(&response.body)),
            Err(status) => (status.code() as u64, 0),
        };
        let fate = if is_lost { "  LOST" } else { "" };
        let words = if self.trace.keeps_lines() { super::words::reply(call, answer) } else { String::new() };
        let (from, to, method, number) = (&call.from, &call.to, &call.method, call.number);
        let code_words = [2, key, body, code, u64::from(is_lost)];
        self.trace.note(at, &code_words, format_args!("{from} <- {to} {method}#{number} {words}{fate}"));
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Network({} events)", self.inner().trace.events())
    }
}
