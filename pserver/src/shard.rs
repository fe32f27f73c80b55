//! A pserver's share of the model: all of its copies. Takes pushes in, gives versions out, follows and is followed.
//!
//! Locks are taken in block order and never held across an await or while bytes are sent; a refused call changes
//! nothing.

mod areas;
mod changes;
mod checkpoint;
mod credit;
mod decisions;
mod device;
mod door;
mod follow;
mod pull;
mod push;
mod rows;
mod standing;

use crate::block::shape::BlockShape;
use crate::block::state::State;
use crate::block::{Block, BlockSettings};
use crate::bucket::arena::Slot;
use crate::credit_queue::{CreditAnswer, CreditQueue};
use crate::hosting::{Assignment, Hosted, Hosting};
use areas::Areas;
use changes::{ChangeLog, Kind, Listener, Since};
pub use checkpoint::{Checkpointing, Pieces};
pub use credit::Asking;
pub use decisions::{Decided, DecisionAnswer, Undecided, Waiters};
use door::Starved;
pub(crate) use follow::CHANNELS_MAX;
use follow::Sessions;
pub(crate) use follow::grouped;
pub use follow::{Channel, FollowAnswer, Led, Stand};
pub use pull::{Pulled, Waiting};
pub use push::{Publications, Pushed};
pub use rows::HeldRows;
use shoal_job::counters::PserverCounters;
use shoal_runtime::cluster::{
    BlockCopy, BlockId, DamagedCheckpoint, Declaration, Incarnation, JobSettings, JobShape, ManifestRecord,
    Refusal, RefusalKind, Staleness, Step, Term, Version,
};
use shoal_runtime::host::processors::Processors;
use shoal_runtime::host::signal::{Changes, Signal};
use shoal_runtime::host::waits::Waits;
pub use standing::{Standings, Untold};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::sync::oneshot;

/// Nodes that a block holds beyond the lowest missing slot before it answers `Busy`.
pub const HELD_WINDOW: usize = 8;
/// Calls that wait for a device at a time, each on a thread of its own.
const WAITERS_MAX: usize = 64;
/// Bytes that one state message may have.
const STATE_BYTES_MAX: usize = 7 << 20;

/// The copies of one pserver in one job.
#[derive(Debug)]
pub struct Shard {
    job: JobSettings,
    settings: Arc<BlockSettings>,
    shape: JobShape,
    processors: Processors,
    hosting: RwLock<Life>,
    /// Held while copies are placed as an assignment says.
    placing: tokio::sync::Mutex<()>,
    counters: Mutex<PserverCounters>,
    /// Asynchronous jobs: updates of blocks led here.
    staleness: Mutex<Staleness>,
    rows: Mutex<HeldRows>,
    is_leaving: AtomicBool,
    /// Whether the master has heard of that.
    is_leaving_known: AtomicBool,
    changes: ChangeLog,
    failure: Mutex<Option<String>>,
    /// Something is to be reported at once; some invariant does not hold; other blocks are held; memory is free.
    urgent: Signal,
    violated: Mutex<Option<String>>,
    broken: Signal,
    assigned: Signal,
    freed: Signal,
    /// Blocks that wait for memory.
    starved: Mutex<Starved>,
    /// Waits of this pserver, for its reports.
    waits: Waits,
    checkpointing: Mutex<Checkpointing>,
    damaged: Mutex<Vec<DamagedCheckpoint>>,
    credits: Mutex<CreditQueue<oneshot::Sender<CreditAnswer>>>,
    areas: Mutex<Areas>,
    sessions: Mutex<Sessions>,
    /// Calls that may wait for a device at a time.
    waiters: Arc<tokio::sync::Semaphore>,
}

/// A primary that is still to be restored, the term under which, and what from.
pub type Unrestored = (Arc<Hosted>, Term, Option<ManifestRecord>);

/// What belongs to one incarnation.
#[derive(Debug)]
struct Life {
    me: Incarnation,
    hosting: Option<Arc<Hosting>>,
}

impl Shard {
    /// A pserver that holds nothing yet. Blocks hold at most `window` nodes beyond the lowest missing slot.
    pub fn new(job: JobSettings, window: usize, me: Incarnation) -> Shard {
        Shard {
            shape: job.shape(),
            settings: Arc::new(BlockSettings::new(&job, window)),
            job,
            processors: Processors::in_place(),
            hosting: RwLock::new(Life { me, hosting: None }),
            placing: tokio::sync::Mutex::default(),
            counters: Mutex::default(),
            staleness: Mutex::default(),
            rows: Mutex::default(),
            failure: Mutex::default(),
            violated: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            is_leaving_known: AtomicBool::new(false),
            changes: ChangeLog::new(),
            urgent: Signal::new(),
            broken: Signal::new(),
            assigned: Signal::new(),
            freed: Signal::new(),
            starved: Mutex::default(),
            waits: Waits::default(),
            checkpointing: Mutex::default(),
            damaged: Mutex::default(),
            credits: Mutex::new(CreditQueue::new(window)),
            areas: Mutex::default(),
            sessions: Mutex::default(),
            waiters: Arc::new(tokio::sync::Semaphore::new(WAITERS_MAX)),
        }
    }

    /// The same with these threads to compute on. Without it everything is computed where it is asked for.
    pub fn with_processors(mut self, processors: Processors) -> Shard {
        self.processors = processors;
        self
    }

    /// The job.
    pub fn job(&self) -> &JobSettings {
        &self.job
    }

    /// The parameters, once the master has said what is held.
    pub fn declaration(&self) -> Option<Declaration> {
        self.hosting().map(|hosting| hosting.assignment.declaration.clone())
    }

    /// Under which incarnation.
    pub fn incarnation(&self) -> Incarnation {
        self.hosting.read().unwrap_or_else(PoisonError::into_inner).me
    }

    /// The master has given this pserver up: it goes on as a new incarnation, with nothing.
    pub fn begin_anew(&self, me: Incarnation) -> Result<(), Refusal> {
        let old = {
            let mut life = self.hosting.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *life, Life { me, hosting: None })
        };
        for hosted in old.hosting.iter().flat_map(|hosting| hosting.blocks.values()) {
            self.with(hosted, Block::retire)?;
        }
        self.recorder().forget();
        self.tell_assigned();
        Ok(())
    }

    /// The master's term and the routing version of what is held; zeros while there is nothing.
    pub fn routing_version(&self) -> (u32, u64) {
        self.hosting()
            .map_or((0, 0), |hosting| (hosting.assignment.master_term, hosting.assignment.routing_version))
    }

    /// Takes an assignment. One that is not newer, or that a deposed master gave, changes nothing.
    ///
    /// Each copy is placed before the assignment is believed: whatever is asked meanwhile finds it as it was, or as it will be.
    pub async fn assign(self: &Arc<Self>, assignment: Assignment) -> Result<(), Refusal> {
        let _one_at_a_time = self.placing.lock().await;
        let (term, version) = self.routing_version();
        if assignment.master_term < term || assignment.routing_version <= version {
            return Ok(());
        }
        let (checkpoint, verdicts) = (assignment.checkpoint, assignment.verdicts.clone());
        self.settings.recorder().go_by(assignment.record_hashes);
        let (me, before) = (self.incarnation(), self.hosting());
        let (hosting, placing) = Hosting::after(before.as_deref(), assignment, &self.settings, me)?;
        self.begin_checkpoint(checkpoint);
        self.each(placing.dropped, |_, changed, hosted| hosted.with(changed, Block::retire)).await?;
        self.each(placing.placed, move |_, changed, (hosted, placement)| {
            hosted.with(changed, |block| {
                if let Some(placement) = placement {
                    block.place(placement, me);
                }
                block.learn(&verdicts);
                block.name_checkpoint(checkpoint);
            })
        })
        .await?;
        {
            let mut life = self.hosting.write().unwrap_or_else(PoisonError::into_inner);
            if life.me == me {
                life.hosting = Some(Arc::new(hosting));
            }
        }
        self.tell_assigned();
        Ok(())
    }

    /// This process was asked to stop: the next report says so.
    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.urgent.send();
    }

    /// Whether this process was asked to stop.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// The master has heard that this process was asked to stop: it places nothing here any more, and counts on nobody here.
    pub(crate) fn note_leaving_known(&self) {
        if !self.is_leaving_known.swap(true, Ordering::Relaxed) {
            self.assigned.send();
        }
    }

    /// Whether nothing is left here and nothing will come.
    pub fn may_leave(&self) -> bool {
        self.hosting().is_some_and(|hosting| hosting.assignment.may_leave)
    }

    /// Whether nothing will be moved from here: the job is over, or has never placed anything here and never will, as the master knows.
    pub fn is_at_rest(&self) -> bool {
        let is_known = || self.is_leaving_known.load(Ordering::Relaxed);
        self.hosting().map_or_else(is_known, |hosting| hosting.assignment.is_over)
    }

    /// Whether the master has never placed anything here.
    pub fn is_unused(&self) -> bool {
        self.hosting().is_none()
    }

    fn tell_assigned(&self) {
        self.changes.note_all(self.hosting().map_or(0, |hosting| hosting.blocks.len()));
        self.forget_sessions();
        self.assigned.send();
        self.urgent.send();
        self.grant_credit(None);
    }

    /// Primaries that are still to be restored, with the term under which, and what from.
    pub fn unrestored(&self) -> Result<Vec<Unrestored>, Refusal> {
        let hosting = self.hosting();
        let mut unrestored = Vec::new();
        for hosted in hosting.iter().flat_map(|hosting| hosting.blocks.values()) {
            let wanted = hosted.read(|block| block.wants_state().map(|(term, _)| (term, block.origin())))?;
            unrestored.extend(wanted.map(|(term, origin)| (Arc::clone(hosted), term, origin)));
        }
        Ok(unrestored)
    }

    /// Restores primaries under their terms, each at the state that `state` makes of what is known of it; where that is none, not.
    pub async fn restore<T: Send + 'static>(
        self: &Arc<Self>,
        those: Vec<(Arc<Hosted>, Term, T)>,
        state: impl Fn(&Shard, &BlockShape, Term, T) -> Result<Option<State>, Refusal> + Send + Sync + 'static,
    ) -> Result<(), Refusal> {
        let restored = self.each(those, move |shard, changed, (hosted, term, known)| {
            match state(shard, &hosted.shape, term, known)? {
                Some(state) => hosted.with(changed, |block| block.restore(term, state)),
                None => Ok(()),
            }
        });
        restored.await.map(drop)
    }

    /// A block's initial values.
    pub async fn initial(&self, shape: &Arc<BlockShape>) -> Vec<f32> {
        let (shape, seed) = (Arc::clone(shape), self.job.seed);
        self.over(shape.elements * size_of::<f32>(), move || shape.initial(seed)).await
    }

    /// Restores primaries at their initial values.
    pub async fn restore_initial(self: &Arc<Self>, those: Vec<(Arc<Hosted>, Term)>) -> Result<(), Refusal> {
        let those = those.into_iter().map(|(hosted, term)| (hosted, term, ())).collect();
        let initial = |shard: &Shard, shape: &BlockShape, term, ()| {
            Ok(Some(State::beginning(shape, shape.initial(shard.job.seed), term)))
        };
        self.restore(those, initial).await
    }

    /// Copies of blocks at rest at exactly `version`, of buckets the segments from slot `from` on.
    pub fn read_state(
        &self,
        version: Version,
        ids: &[BlockId],
        from: Slot,
    ) -> Result<Vec<BlockCopy>, Refusal> {
        let hosting = self.hosting().ok_or_else(|| self.hosts_nothing())?;
        let hosted = ids.iter().map(|id| {
            hosting.check(*id)?;
            hosting.block(*id).ok_or_else(|| {
                let detail = format!("not here at routing version {}", hosting.assignment.routing_version);
                Refusal::new(RefusalKind::UnknownBlock, format!("block {id}"), detail)
            })
        });
        let hosted = hosted.collect::<Result<Vec<_>, _>>()?;
        let bytes: usize =
            hosted.iter().map(|hosted| hosted.shape.copy_bytes_max(self.settings.segment_bytes())).sum();
        if bytes > STATE_BYTES_MAX {
            let detail = format!("{} blocks have {bytes} bytes of state: ask for fewer at a time", ids.len());
            return Err(Refusal::new(RefusalKind::OutOfRange, "blocks", detail));
        }
        let copies = hosted.iter().map(|hosted| hosted.read(|block| block.copy_at(version, from))?);
        let copies = copies.collect::<Result<Vec<_>, Refusal>>()?;
        self.count(|counters| counters.bytes_out += bytes as u64);
        Ok(copies)
    }

    /// Told of what is to be reported at once.
    pub fn urgent(&self) -> Changes {
        self.urgent.listen()
    }
    /// Told of every assignment.
    pub fn assigned(&self) -> Changes {
        self.assigned.listen()
    }
    /// How many blocks are led here, and of how many a copy follows.
    pub fn holdings(&self) -> Result<(u64, u64), Refusal> {
        let hosting = self.hosting();
        let (mut led, mut followed) = (0, 0);
        for hosted in hosting.iter().flat_map(|hosting| hosting.blocks.values()) {
            let count = if hosted.read(Block::is_primary)? { &mut led } else { &mut followed };
            *count += 1;
        }
        Ok((led, followed))
    }
    /// What was counted as it happened; the rest is 0.
    pub fn counters(&self) -> PserverCounters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Asynchronous jobs: updates by staleness, counted for each block led here.
    pub fn staleness(&self) -> Staleness {
        *self.staleness.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// What makes the job impossible, if anything does: the first such thing.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Notes what makes the job impossible, for the master to hear.
    pub fn fail(&self, why: String) {
        tracing::error!(job = %self.job.job, %why, "the job cannot go on");
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.urgent.send();
    }

    /// An invariant that does not hold, once one does not: this process has to end, and another takes its place.
    pub async fn violated(&self) -> String {
        let mut broken = self.broken.listen();
        loop {
            broken.mark_heard();
            if let Some(violated) = &*self.violated.lock().unwrap_or_else(PoisonError::into_inner) {
                return violated.clone();
            }
            broken.changed().await;
        }
    }

    fn count(&self, count: impl FnOnce(&mut PserverCounters)) {
        count(&mut self.counters.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn hosting(&self) -> Option<Arc<Hosting>> {
        self.hosting.read().unwrap_or_else(PoisonError::into_inner).hosting.clone()
    }

    fn hosts_nothing(&self) -> Refusal {
        let detail = "this pserver has yet to learn from the master what it holds";
        Refusal::new(RefusalKind::NotReady, "routing", detail)
    }

    fn beyond(&self, step: Step) -> Refusal {
        let detail = format!("the job has {} steps", self.job.steps());
        Refusal::new(RefusalKind::OutOfRange, format!("step {step}"), detail)
    }
}

#[cfg(test)]
pub(crate) mod tests;
