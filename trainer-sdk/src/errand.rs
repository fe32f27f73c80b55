//! A pull or a push on its way: many calls at a time to many pservers, each tried until its blocks have answered, and
//! dropped when the routing takes them elsewhere. It has no patience of its own: it goes on until somebody drops it,
//! for only the master's word ends a trainer.

use crate::calls::Callee;
use crate::error::TrainError;
use crate::pending::{Batch, Pending};
use crate::session::Session;
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable, FutureExt, LocalBoxFuture};
use futures_util::stream::FuturesUnordered;
use shoal_runtime::cluster::refusal::NextMove;
use shoal_runtime::cluster::{BlockId, Routing, Term};
use shoal_runtime::host::rpc::PserverClient;
use shoal_runtime::wire::Fault;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::{Response, Status};

/// Calls of one errand that one pserver is sent at a time, so that a message's deadline need not cover them all.
const CALLS_PER_PSERVER: usize = 8;

/// What is wanted of pservers, block by block.
pub(crate) trait Errand {
    type Reply: Send + 'static;
    type End;

    /// The blocks still to be asked under `routing`, or the end if the errand is pointless under it.
    fn wanted(&mut self, routing: &Arc<Routing>) -> ControlFlow<Self::End, BTreeSet<BlockId>>;

    /// The call for some blocks of one pserver.
    fn call(&self, client: PserverClient, blocks: &[(BlockId, Term)]) -> Calling<Self::Reply>;

    /// What a block adds to a message.
    fn bytes(&self, block: BlockId) -> usize;

    /// How long a pserver may keep the call open.
    fn open(&self) -> Duration;

    /// Takes in an answer and leaves in the batch what must be asked again. `now` is the time since the errand began.
    fn hear(
        &mut self,
        batch: &mut Batch,
        reply: Self::Reply,
        now: Duration,
    ) -> Result<ControlFlow<Self::End>, TrainError>;

    /// A pserver says that all of it is done; none where that is no sensible answer.
    fn gone(&mut self) -> Option<Self::End>;

    /// Every block has answered.
    fn done(&mut self) -> Self::End;
}

/// A call under way.
pub(crate) type Calling<T> = LocalBoxFuture<'static, Result<Response<T>, Status>>;

/// A batch, and what came of its call.
type Answered<T> = (u64, Result<T, Fault>);

/// Calls of one errand that are under way or pausing.
struct Calls<'a, T> {
    session: &'a Session,
    under_way: FuturesUnordered<Abortable<LocalBoxFuture<'a, Answered<T>>>>,
    handles: BTreeMap<u64, AbortHandle>,
    /// By pserver.
    room: BTreeMap<u64, Arc<Semaphore>>,
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
        followed.abandoned.iter().for_each(|id| calls.abandon(*id));
        for id in followed.begun {
            calls.begin(errand, &mut pending, id, Duration::ZERO)?;
        }
        while !pending.is_empty() {
            let (id, answer) = tokio::select! {
                biased;
                () = routings.changed() => break,
                answer = calls.next() => answer,
            };
            if let ControlFlow::Break(end) = calls.heard(errand, &mut pending, id, answer, began.elapsed())? {
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
        Calls { session, under_way: FuturesUnordered::new(), handles: BTreeMap::new(), room: BTreeMap::new() }
    }

    fn abandon(&mut self, id: u64) {
        if let Some(handle) = self.handles.remove(&id) {
            handle.abort();
        }
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
        let (call, open) = (errand.call(client, &batch.blocks), errand.open());
        let caller = &self.session.master.leaders.caller;
        let calling = async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let _room = room.acquire().await;
            (id, caller.once(open, call).await)
        };
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(id, handle);
        self.under_way.push(Abortable::new(calling.boxed_local(), registration));
        Ok(())
    }

    /// The next answer to a call that was not abandoned; never resolves when there is none.
    async fn next(&mut self) -> Answered<T> {
        loop {
            match self.under_way.next().await {
                Some(Ok(answer)) => return answer,
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Takes in the answer to a batch's call, and calls again for what it has left.
    fn heard<E: Errand<Reply = T>>(
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
                if let ControlFlow::Break(end) = errand.hear(batch, reply, now)? {
                    return Ok(ControlFlow::Break(end));
                }
                if batch.blocks.is_empty() {
                    pending.done(id);
                    return Ok(ControlFlow::Continue(()));
                }
                caller.pause(&mut batch.answered)
            }
            Err(fault) => match (fault.next_move(), &batch.pserver.address) {
                // It has yet to hear of the routing that this trainer has, or the other way round.
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
}
