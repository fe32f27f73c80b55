//! A pserver's share of the model: all of its copies. Takes pushes in, gives versions out, follows and is followed.
//!
//! Locks are taken in block order and never held across an await or while bytes are sent; a refused call changes
//! nothing.

mod areas;
mod checkpoint;
mod decisions;
mod device;
mod follow;
mod pull;
mod push;
mod room;
mod rows;
mod standing;

use crate::block::{Block, Terms};
use crate::bucket::arena::Slot;
use crate::counters::Counters;
use crate::hosting::{Assignment, Hosted, Hosting};
use crate::room_queue::{RoomAnswer, RoomQueue};
use areas::Areas;
pub use checkpoint::Checkpointing;
pub use decisions::{Answer, Undecided};
pub use follow::{Followed, Following};
pub use pull::{Pull, Pulled, PulledBlock};
pub use push::{Gradient, Push, Pushed};
pub use room::Asking;
pub use rows::HeldRows;
use shoal_runtime::cluster::{
    BlockCopy, BlockId, DamagedCheckpoint, Declaration, Incarnation, JobSettings, JobShape, ManifestRecord,
    Refusal, RefusalKind, Rewind, Step, Term, Version,
};
use shoal_runtime::host::signal::{Changes, Signal};
pub use standing::{Admission, CopyProgress, Progress, Standings};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::sync::oneshot;

/// Nodes that a block holds beyond the lowest missing slot before it answers `Busy`.
pub const HELD_WINDOW: usize = 8;
/// Bytes that one state message may have.
const STATE_BYTES_MAX: usize = 7 << 20;

/// The copies of one pserver in one job.
#[derive(Debug)]
pub struct Shard {
    job: JobSettings,
    terms: Arc<Terms>,
    shape: JobShape,
    hosting: RwLock<Life>,
    counters: Mutex<Counters>,
    failure: Mutex<Option<String>>,
    is_leaving: AtomicBool,
    published: Signal,
    held: Signal,
    logged: Signal,
    whole: Signal,
    assigned: Signal,
    checkpointing: Mutex<Checkpointing>,
    damaged: Mutex<Vec<DamagedCheckpoint>>,
    room: Mutex<RoomQueue<oneshot::Sender<RoomAnswer>>>,
    areas: Mutex<Areas>,
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
            terms: Arc::new(Terms::new(&job, window)),
            job,
            hosting: RwLock::new(Life { me, hosting: None }),
            counters: Mutex::default(),
            failure: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            published: Signal::new(),
            held: Signal::new(),
            logged: Signal::new(),
            whole: Signal::new(),
            assigned: Signal::new(),
            checkpointing: Mutex::default(),
            damaged: Mutex::default(),
            room: Mutex::new(RoomQueue::new(window)),
            areas: Mutex::default(),
        }
    }

    /// The job.
    pub fn job(&self) -> &JobSettings {
        &self.job
    }

    /// The parameters, once the master has said what is held.
    pub fn declaration(&self) -> Option<Declaration> {
        self.hosting().map(|hosting| hosting.declaration.clone())
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
            hosted.lock()?.retire();
        }
        self.tell_assigned();
        Ok(())
    }

    /// The master's term and the routing version of what is held; zeros while there is nothing.
    pub fn routing_version(&self) -> (u32, u64) {
        self.hosting().map_or((0, 0), |hosting| (hosting.master_term, hosting.routing_version))
    }

    /// Takes an assignment. One that is not newer, or that a deposed master gave, changes nothing.
    pub fn assign(&self, assignment: Assignment) -> Result<(), Refusal> {
        {
            let mut life = self.hosting.write().unwrap_or_else(PoisonError::into_inner);
            let (term, version) =
                life.hosting.as_ref().map_or((0, 0), |ours| (ours.master_term, ours.routing_version));
            if assignment.master_term < term || assignment.routing_version <= version {
                return Ok(());
            }
            let (checkpoint, verdicts) = (assignment.checkpoint, assignment.verdicts.clone());
            let hosting = Hosting::after(life.hosting.as_deref(), assignment, &self.terms, life.me)?;
            self.begin_checkpoint(checkpoint);
            for hosted in hosting.blocks.values() {
                let mut block = hosted.lock()?;
                block.learn(&verdicts);
                block.name_checkpoint(checkpoint);
            }
            life.hosting = Some(Arc::new(hosting));
        }
        self.tell_assigned();
        Ok(())
    }

    /// This process was asked to stop: the next report says so.
    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.published.send();
    }

    /// Whether this process was asked to stop.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Whether nothing is left here and nothing will come.
    pub fn may_leave(&self) -> bool {
        self.hosting().is_some_and(|hosting| hosting.may_leave)
    }

    fn tell_assigned(&self) {
        self.assigned.send();
        self.logged.send();
        self.published.send();
        self.tell_of_room();
    }

    /// Primaries that are still to be restored, with the term under which, and what from.
    pub fn unrestored(&self) -> Result<Vec<Unrestored>, Refusal> {
        let hosting = self.hosting();
        let mut unrestored = Vec::new();
        for hosted in hosting.iter().flat_map(|hosting| hosting.blocks.values()) {
            let block = hosted.lock()?;
            if let Some((term, _)) = block.wants_state() {
                unrestored.push((Arc::clone(hosted), term, block.origin()));
            }
        }
        Ok(unrestored)
    }

    /// A primary is restored: `restore` is given the copy, and whoever waits for it is told.
    pub fn restore(
        &self,
        hosted: &Hosted,
        restore: impl FnOnce(&mut Block) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        restore(&mut *hosted.lock()?)?;
        self.published.send();
        self.logged.send();
        Ok(())
    }

    /// Blocks that waited for memory go on, if there is any.
    pub fn go_on(&self) -> Result<(), Refusal> {
        let hosting = self.hosting();
        let mut has_moved = false;
        for hosted in hosting.iter().flat_map(|hosting| hosting.blocks.values()) {
            let mut block = hosted.lock()?;
            let before = block.version();
            block.go_on();
            has_moved |= block.version() > before;
        }
        if has_moved {
            self.published.send();
            self.logged.send();
            self.whole.send();
        }
        self.tell_of_room();
        Ok(())
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
                let detail = format!("not here at routing version {}", hosting.routing_version);
                Refusal::new(RefusalKind::UnknownBlock, format!("block {id}"), detail)
            })
        });
        let hosted = hosted.collect::<Result<Vec<_>, _>>()?;
        let bytes: usize =
            hosted.iter().map(|hosted| hosted.shape.copy_bytes_max(self.terms.segment_bytes())).sum();
        if bytes > STATE_BYTES_MAX {
            let detail = format!("{} blocks have {bytes} bytes of state: ask for fewer at a time", ids.len());
            return Err(Refusal::new(RefusalKind::OutOfRange, "blocks", detail));
        }
        let copies = hosted.iter().map(|hosted| hosted.lock()?.copy_at(version, from));
        let copies = copies.collect::<Result<Vec<_>, Refusal>>()?;
        self.count(|counters| counters.bytes_out += bytes as u64);
        Ok(copies)
    }

    /// Whether a position is published in a block whose rewind number is `rewind`.
    pub fn is_published(&self, block: BlockId, rewind: Rewind, position: u64) -> Result<bool, Refusal> {
        let hosting = self.hosting();
        let hosted = hosting.as_ref().and_then(|hosting| hosting.block(block));
        hosted.map_or(Ok(false), |hosted| Ok(hosted.lock()?.has_published(rewind, position)))
    }

    /// Told of every version that is published, of every failure and of every assignment.
    pub fn published(&self) -> Changes {
        self.published.listen()
    }
    /// Told of every node that is held.
    pub fn held(&self) -> Changes {
        self.held.listen()
    }
    /// Told of everything that followers may want.
    pub fn logged(&self) -> Changes {
        self.logged.listen()
    }
    /// Told of every block that waits for a decision.
    pub fn whole(&self) -> Changes {
        self.whole.listen()
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
            let count = if hosted.lock()?.is_primary() { &mut led } else { &mut followed };
            *count += 1;
        }
        Ok((led, followed))
    }
    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// What makes the job impossible, if anything does: the first such thing.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Notes what makes the job impossible, for the master to hear.
    pub fn fail(&self, why: String) {
        tracing::error!(job = %self.job.job, %why, "the job cannot go on");
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.published.send();
    }

    fn count(&self, count: impl FnOnce(&mut Counters)) {
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
