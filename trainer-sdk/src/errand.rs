//! A pull or a push on its way: many calls at a time to many pservers, each tried until its blocks have answered, and
//! dropped when the routing takes them elsewhere. It has no patience of its own: it goes on until somebody drops it,
//! for only the master's word ends a trainer.

use crate::calls::Callee;
use crate::error::TrainError;
use crate::pending::{BlockBatch, Pending};
use crate::queues::Queues;
use crate::session::Session;
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable, FutureExt, LocalBoxFuture};
use futures_util::stream::FuturesUnordered;
use shoal_runtime::cluster::refusal::NextMove;
use shoal_runtime::cluster::waits::WaitKind;
use shoal_runtime::cluster::{BlockId, Routing};
use shoal_runtime::host::rpc::PserverClient;
use shoal_runtime::host::waits::OpenWait;
use shoal_runtime::wire::Fault;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::{Response, Status};

/// Calls of one errand that one pserver is sent at a time, so that a message's deadline need not cover them all. No more messages
/// are in memory.
const CALLS_PER_PSERVER: usize = 8;

/// A pull or a push: its blocks, the messages for them, and what follows from answers.
pub(crate) trait Errand {
    type Request: Send + 'static;
    type Reply: Send + 'static;
    type End;

    /// The blocks still to be asked under `routing`, or the end if the errand is pointless under it.
    fn wanted(&mut self, routing: &Arc<Routing>) -> ControlFlow<Self::End, BTreeSet<BlockId>>;

    /// The message of a batch's call, which is made once it may be sent.
    fn message(&self, batch: &BlockBatch) -> Message<Self::Request>;

    /// Calls the pserver with a message.
    async fn send(client: PserverClient, request: Self::Request) -> Result<Response<Self::Reply>, Status>;

    /// Bytes that a block adds to a message.
    fn bytes(&self, block: BlockId) -> usize;

    /// How long a pserver may keep the call for a batch open.
    fn open(&self, batch: &BlockBatch) -> Duration;

    /// Whether a pserver may have no room, and is asked for it before it is sent more than one message.
    fn asks_for_credit(&self) -> bool {
        false
    }

    /// Takes in the answer to a batch, and leaves in the batch the blocks that must be asked again.
    async fn hear(
        &mut self,
        batch: &mut BlockBatch,
        reply: Self::Reply,
    ) -> Result<ControlFlow<Self::End>, TrainError>;

    /// The end of an errand of which a pserver says that its step is done everywhere; `None`: no pserver may say so of it.
    fn gone(&mut self) -> Option<Self::End>;

    /// Every block has answered.
    fn done(&mut self) -> Self::End;
}

/// A message that is yet to be made.
pub(crate) struct Message<T> {
    make: Box<dyn FnOnce() -> Result<T, TrainError> + Send>,
    /// Bytes that making the message goes over.
    bytes: usize,
}

impl<T> Message<T> {
    pub(crate) fn new(
        bytes: usize,
        make: impl FnOnce() -> Result<T, TrainError> + Send + 'static,
    ) -> Message<T> {
        Message { make: Box::new(make), bytes }
    }
}

/// A batch's number and the answer to its call, or why the message could not be made.
type CallEnd<T> = Result<(u64, Result<T, Fault>), TrainError>;

/// Calls of one errand that are under way or pausing.
struct Calls<'a, T> {
    session: &'a Session,
    under_way: FuturesUnordered<Abortable<LocalBoxFuture<'a, CallEnd<T>>>>,
    handles: BTreeMap<u64, AbortHandle>,
    /// Permits to call a pserver, by its incarnation.
    room: BTreeMap<u64, Arc<Semaphore>>,
    /// Batches for which pservers may have no room.
    queues: Queues,
    /// Batches whose calls fail, by number.
    failing: BTreeMap<u64, OpenWait>,
}

/// Runs an errand to its end.
pub(crate) async fn run<E: Errand>(session: &Session, errand: &mut E) -> Result<E::End, TrainError> {
    let began = Instant::now();
    let mut routings = session.routes.subscribe();
    let mut pending = Pending::new((session.master.ttl() / 4).min(Duration::from_secs(2)));
    let mut calls = Calls::new(session);
    loop {
        routings.mark_heard();
        let routing = session.routes.present();
        let wanted = match errand.wanted(&routing) {
            ControlFlow::Break(end) => return Ok(end),
            ControlFlow::Continue(wanted) => wanted,
        };
        let followed = pending.follow(&routing, &wanted, |block| errand.bytes(block));
        for id in followed.abandoned {
            calls.abandon(id);
            let next = calls.queues.leave(id);
            calls.ask(errand, &mut pending, next, Duration::ZERO)?;
        }
        calls.send(errand, &mut pending, &followed.begun)?;
        while !pending.is_empty() {
            let (id, answer) = tokio::select! {
                biased;
                () = routings.changed() => break,
                answered = calls.next() => answered?,
            };
            if let ControlFlow::Break(end) =
                calls.heard(errand, &mut pending, id, answer, began.elapsed()).await?
            {
                return Ok(end);
            }
        }
        if pending.is_empty() && !routings.has_changed() {
            return Ok(errand.done());
        }
    }
}

impl<'a, T: Send + 'static> Calls<'a, T> {
    fn new(session: &'a Session) -> Calls<'a, T> {
        let (handles, room, queues) = (BTreeMap::new(), BTreeMap::new(), Queues::default());
        let (under_way, failing) = (FuturesUnordered::new(), BTreeMap::new());
        Calls { session, under_way, handles, room, queues, failing }
    }

    fn abandon(&mut self, id: u64) {
        self.failing.remove(&id);
        if let Some(handle) = self.handles.remove(&id) {
            handle.abort();
        }
    }

    /// Calls for new batches. A pserver that gets more than one is asked for room first.
    fn send<E: Errand<Reply = T> + 'a>(
        &mut self,
        errand: &E,
        pending: &mut Pending,
        begun: &[u64],
    ) -> Result<(), TrainError> {
        let mut by_pserver: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for id in begun {
            let Some(batch) = pending.batch(*id) else { continue };
            by_pserver.entry(batch.pserver.incarnation.0).or_default().push(*id);
        }
        for (pserver, batches) in by_pserver {
            if errand.asks_for_credit() && (batches.len() > 1 || self.queues.has(pserver)) {
                let first = self.queues.join(pserver, batches);
                self.ask(errand, pending, first, Duration::ZERO)?;
                continue;
            }
            for id in batches {
                self.begin(errand, pending, id, Duration::ZERO)?;
            }
        }
        self.ask(errand, pending, None, Duration::ZERO)
    }

    /// Lets a batch ask for room after a pause; `None`: no batch is to ask now.
    fn ask<E: Errand<Reply = T>>(
        &mut self,
        errand: &E,
        pending: &mut Pending,
        id: Option<u64>,
        pause: Duration,
    ) -> Result<(), TrainError> {
        if errand.asks_for_credit() {
            self.session.is_waiting_for_room.store(!self.queues.is_empty(), Relaxed);
        }
        let Some(id) = id else { return Ok(()) };
        if let Some(batch) = pending.batch(id) {
            batch.asks = true;
        }
        self.begin(errand, pending, id, pause)
    }

    /// Calls for a batch after a pause.
    fn begin<E: Errand<Reply = T>>(
        &mut self,
        errand: &E,
        pending: &mut Pending,
        id: u64,
        pause: Duration,
    ) -> Result<(), TrainError> {
        let Some(batch) = pending.batch(id) else { return Ok(()) };
        let room = self.room.entry(batch.pserver.incarnation.0);
        let room = room.or_insert_with(|| Arc::new(Semaphore::new(CALLS_PER_PSERVER))).clone();
        let client = self.session.routes.client(&batch.pserver.address)?;
        let (message, open) = (errand.message(batch), errand.open(batch));
        let session = self.session;
        let calling = async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let _room = room.acquire().await;
            let request = session.processors.over(message.bytes, message.make).await?;
            Ok((id, session.master.leaders.caller.once(open, E::send(client, request)).await))
        };
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(id, handle);
        self.under_way.push(Abortable::new(calling.boxed_local(), registration));
        Ok(())
    }

    /// The next answer to a call that was not abandoned; never resolves while no call is under way.
    async fn next(&mut self) -> CallEnd<T> {
        loop {
            match self.under_way.next().await {
                Some(Ok(answered)) => return answered,
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Takes in the answer to a batch's call, and calls again for what it has left.
    async fn heard<E: Errand<Reply = T>>(
        &mut self,
        errand: &mut E,
        pending: &mut Pending,
        id: u64,
        answer: Result<T, Fault>,
        now: Duration,
    ) -> Result<ControlFlow<E::End>, TrainError> {
        self.handles.remove(&id);
        let Some(batch) = pending.batch(id) else { return Ok(ControlFlow::Continue(())) };
        let caller = &self.session.master.leaders.caller;
        let patience = self.session.master.patience();
        let pause = match answer {
            Ok(reply) => {
                batch.silent.succeed();
                batch.untrusted_since = None;
                self.failing.remove(&id);
                if let ControlFlow::Break(end) = errand.hear(batch, reply).await? {
                    return Ok(ControlFlow::Break(end));
                }
                if batch.asks || batch.is_refused {
                    self.heard_of_room(errand, pending, id)?;
                    return Ok(ControlFlow::Continue(()));
                }
                if batch.blocks.is_empty() {
                    pending.done(id);
                    return Ok(ControlFlow::Continue(()));
                }
                caller.pause(&mut batch.answered)
            }
            Err(fault) => match (fault.next_move(), &batch.pserver.address) {
                // The pserver has yet to hear of the routing that this trainer has, or the other way round.
                (NextMove::Reroute, _) => caller.pause(&mut batch.answered),
                (NextMove::Retry, address) => {
                    // The master lets us in and a pserver does not, or we do not believe it: no routing mends that, and
                    // its reason would be retried for ever.
                    let since = match fault {
                        Fault::Untrusted(_) => now.saturating_sub(*batch.untrusted_since.get_or_insert(now)),
                        _ => {
                            batch.untrusted_since = None;
                            Duration::ZERO
                        }
                    };
                    if since > patience {
                        return Err(Callee { role: "pserver", address }.refused(fault));
                    }
                    let waits = &self.session.waits;
                    let begin = || waits.begin(WaitKind::Pserver, address.clone());
                    self.failing.entry(id).or_insert_with(begin).failed(&fault);
                    if batch.silent.attempts() == 5 {
                        tracing::warn!(role = "pserver", address, %fault, "still trying");
                    }
                    caller.pause(&mut batch.silent)
                }
                (next, address) => match errand.gone().filter(|_| next == NextMove::Drop) {
                    Some(end) => return Ok(ControlFlow::Break(end)),
                    None => return Err(Callee { role: "pserver", address }.refused(fault)),
                },
            },
        };
        self.begin(errand, pending, id, pause)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Goes on with a batch whose pserver has said that it has room, or that it has none.
    fn heard_of_room<E: Errand<Reply = T>>(
        &mut self,
        errand: &E,
        pending: &mut Pending,
        id: u64,
    ) -> Result<(), TrainError> {
        let Some(batch) = pending.batch(id) else { return Ok(()) };
        let (pserver, asked, is_refused) = (batch.pserver.incarnation.0, batch.asks, batch.is_refused);
        (batch.asks, batch.is_refused) = (false, false);
        if is_refused {
            // A question was kept open for as long as it may be: no pause on top of that.
            let pause = match asked {
                true => Duration::ZERO,
                false => self.session.master.leaders.caller.pause(&mut batch.answered),
            };
            let next = if asked { self.queues.turn(pserver) } else { self.queues.join(pserver, [id]) };
            return self.ask(errand, pending, next, pause);
        }
        for id in self.queues.open(pserver) {
            match pending.batch(id) {
                Some(batch) if batch.blocks.is_empty() => pending.done(id),
                Some(_) => self.begin(errand, pending, id, Duration::ZERO)?,
                None => {}
            }
        }
        self.ask(errand, pending, None, Duration::ZERO)
    }
}
