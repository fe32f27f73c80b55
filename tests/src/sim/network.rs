//! The simulated network: carries real gRPC calls between hosts in memory, with the faults of the [`Weather`].
//!
//! All messages pass one queue, ordered by arrival time and then by the call's own key, and one courier delivers
//! them: so the order of events is a function of the seed, though tokio wakes tasks of one moment in any order.

use super::call::{Call, Response};
use super::host::{Host, HostState};
use super::trace::{Trace, hash_of};
use super::weather::{Delivery, Fate, Weather};
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::host::random::Random;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tonic::body::Body;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

/// What answers at an address.
pub type Service = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Infallible>;
/// Changes the fate of calls as they are sent.
pub type Intercept = Box<dyn FnMut(&Call, &mut Fate) + Send>;

/// Is shown calls.
pub type Witness = Box<dyn FnMut(&Call) + Send>;

/// More calls than any run needs: a program that calls without end is stopped by silence.
const CALLS_MAX: u64 = 400_000;

/// The network of one run.
pub struct Network {
    began: Instant,
    inner: Mutex<Inner>,
    posted: Notify,
}

struct Inner {
    seed: u64,
    weather: Weather,
    endpoints: BTreeMap<String, (Arc<Host>, Service)>,
    cuts: BTreeMap<(String, String), u32>,
    counts: BTreeMap<(String, String, String), u64>,
    calls: u64,
    intercepts: Vec<Intercept>,
    witnesses: Vec<Witness>,
    queue: BTreeMap<(Instant, u64), Event>,
    trace: Trace,
}

pub(super) type Answer = Result<Box<Response>, tonic::Status>;

enum Event {
    Request { call: Arc<Call>, key: u64, delivery: Delivery, caller: mpsc::Sender<Answer> },
    Reply { call: Arc<Call>, key: u64, answer: Answer, is_lost: bool, caller: mpsc::Sender<Answer> },
}

impl Network {
    /// A network without hosts. Must be called inside the runtime whose clock it follows.
    pub fn new(seed: u64, weather: Weather, trace: Trace) -> Arc<Network> {
        let inner = Inner {
            seed,
            weather,
            endpoints: BTreeMap::new(),
            cuts: BTreeMap::new(),
            counts: BTreeMap::new(),
            calls: 0,
            intercepts: Vec::new(),
            witnesses: Vec::new(),
            queue: BTreeMap::new(),
            trace,
        };
        let network = Network { began: Instant::now(), inner: Mutex::new(inner), posted: Notify::new() };
        let network = Arc::new(network);
        tokio::spawn(Arc::clone(&network).deliver_for_ever());
        network
    }

    /// Lets `service` answer at `address`, on `host`.
    pub fn serve(&self, host: &Arc<Host>, address: &str, service: Service) {
        self.inner().endpoints.insert(address.to_owned(), (Arc::clone(host), service));
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
    /// Loses everything that `from` sends to `to`, replies included, until as many calls of [`mend`](Self::mend).
    pub fn cut(&self, from: &str, to: &str) {
        *self.inner().cuts.entry((from.to_owned(), to.to_owned())).or_default() += 1;
    }
    /// Undoes one [`cut`](Self::cut).
    pub fn mend(&self, from: &str, to: &str) {
        if let Some(cuts) = self.inner().cuts.get_mut(&(from.to_owned(), to.to_owned())) {
            *cuts = cuts.saturating_sub(1);
        }
    }
    /// Undoes every [`cut`](Self::cut).
    pub fn mend_all(&self) {
        self.inner().cuts.clear();
    }
    /// How long the run has lasted by its own clock.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
    /// Calls sent from now on pass `intercept`, after those added before it.
    pub fn intercept(&self, intercept: impl FnMut(&Call, &mut Fate) + Send + 'static) {
        self.inner().intercepts.push(Box::new(intercept));
    }
    /// Shows every request that is delivered to `witness`.
    pub fn witness(&self, witness: impl FnMut(&Call) + Send + 'static) {
        self.inner().witnesses.push(Box::new(witness));
    }
    /// Writes something that is no call into the trace.
    pub fn note(&self, code: u64, line: impl std::fmt::Display) {
        let at = self.began.elapsed();
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
    pub(super) fn send(&self, mut call: Call) -> mpsc::Receiver<Answer> {
        let (caller, answers) = mpsc::channel(4);
        let now = Instant::now();
        let mut guard = self.inner();
        let inner = &mut *guard;
        inner.calls += 1;
        if inner.calls > CALLS_MAX {
            return answers;
        }
        let count =
            inner.counts.entry((call.from.clone(), call.to.clone(), call.method.clone())).or_default();
        *count += 1;
        call.number = *count;
        let key = call.key(inner.seed);
        let mut fate = Fate::draw(&inner.weather, &mut Random::seeded(key));
        inner.intercepts.iter_mut().for_each(|intercept| intercept(&call, &mut fate));
        let call = Arc::new(call);
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

    async fn deliver_for_ever(self: Arc<Self>) {
        loop {
            let next = self.inner().queue.first_key_value().map(|((due, _), _)| *due);
            let posted = self.posted.notified();
            match next {
                None => posted.await,
                Some(due) if due > Instant::now() => {
                    let _ = tokio::time::timeout_at(due, posted).await;
                }
                Some(_) => {
                    // Everybody's timers of this moment first.
                    for _ in 0..3 {
                        tokio::task::yield_now().await;
                    }
                    self.deliver_due();
                }
            }
        }
    }

    fn deliver_due(self: &Arc<Self>) {
        let now = Instant::now();
        loop {
            let mut guard = self.inner();
            let Some(entry) = guard.queue.first_entry().filter(|entry| entry.key().0 <= now) else { return };
            let event = entry.remove();
            match event {
                Event::Request { call, key, delivery, caller } => {
                    self.deliver(&mut guard, call, key, delivery, caller);
                }
                Event::Reply { call, key, answer, is_lost, caller } => {
                    self.answer(&mut guard, &call, key, answer, is_lost, &caller);
                }
            }
        }
    }

    fn deliver(
        self: &Arc<Self>,
        inner: &mut Inner,
        call: Arc<Call>,
        key: u64,
        delivery: Delivery,
        caller: mpsc::Sender<Answer>,
    ) {
        let is_lost = delivery.is_lost || inner.is_cut(&call.from, &call.to);
        inner.note_request(self.began.elapsed(), &call, key, is_lost);
        if is_lost {
            return;
        }
        inner.witnesses.iter_mut().for_each(|witness| witness(&call));
        // A process that was killed leaves a machine that refuses; a machine that is gone says nothing.
        let endpoint = inner.endpoints.get(&call.to).cloned();
        let is_refusing = |host: &Host| host.state() == HostState::Crashed && key & 2 == 0;
        let Some((host, service)) = endpoint.filter(|(host, _)| !is_refusing(host)) else {
            let answer = Err(tonic::Status::unavailable("the connection was refused"));
            let (key, due) = (mix(key), Instant::now() + delivery.reply_delay);
            return inner.post(due, key, Event::Reply { call, key, answer, is_lost: false, caller });
        };
        let (network, cancels) = (Arc::clone(self), inner.weather.cancels);
        tokio::spawn(async move {
            let work = host.run(async {
                let response = service.oneshot(call.request()).await.unwrap_or_else(|never| match never {});
                Box::new(Response::collect(response).await)
            });
            let response = tokio::select! {
                biased;
                response = work => response,
                () = caller.closed(), if cancels => None,
            };
            // A callee that was killed in mid-call leaves a connection that breaks, or one that stays silent.
            let is_broken = host.state() == HostState::Crashed && key & 2 == 0;
            let answer = match response {
                Some(response) => Ok(response),
                None if is_broken => Err(tonic::Status::unavailable("the connection broke")),
                None => return,
            };
            let (key, due) = (mix(key), Instant::now() + delivery.reply_delay);
            let is_lost = delivery.is_reply_lost;
            let reply = Event::Reply { call, key, answer, is_lost, caller };
            network.inner().post(due, key, reply);
            network.posted.notify_one();
        });
    }

    fn answer(
        &self,
        inner: &mut Inner,
        call: &Call,
        key: u64,
        answer: Answer,
        is_lost: bool,
        caller: &mpsc::Sender<Answer>,
    ) {
        let is_lost = is_lost || inner.is_cut(&call.to, &call.from);
        inner.note_reply(self.began.elapsed(), call, key, &answer, is_lost);
        if !is_lost {
            // The first answer counts; the caller may be gone.
            let _ = caller.try_send(answer);
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn post(&mut self, due: Instant, key: u64, event: Event) {
        let due = due.max(Instant::now() + Duration::from_millis(1));
        self.queue.insert((due, key), event);
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

    fn note_reply(&mut self, at: Duration, call: &Call, key: u64, answer: &Answer, is_lost: bool) {
        let (code, body) = match answer {
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
