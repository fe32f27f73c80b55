//! A pserver's share of the model: takes pushes in and gives versions out, over all of its blocks.
//!
//! Locks are taken in block order and never held across an await or while bytes are sent; a refused call changes
//! nothing.

mod push;

use crate::block::BlockState;
use crate::counters::Counters;
use crate::hosting::{Assignment, Construction, Hosting};
use bytes::Bytes;
pub use push::Push;
use shoal_runtime::cluster::plan::EpochShape;
use shoal_runtime::cluster::{BlockId, JobSettings, Node, Refusal, RefusalKind, Step, Version};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::sync::watch;

/// Nodes that a block holds beyond the lowest missing slot before it answers `Busy`.
pub const HELD_WINDOW: usize = 64;
/// Parameter bytes after which a pull is answered with what it has: half of what a message may be.
const PULL_BYTES: usize = 4 << 20;
/// Bytes that one state message may have.
const STATE_BYTES_MAX: usize = 7 << 20;

/// The blocks of one pserver in one job.
#[derive(Debug)]
pub struct Shard {
    job: JobSettings,
    epoch: EpochShape,
    window: usize,
    hosting: RwLock<Option<Arc<Hosting>>>,
    counters: Mutex<Counters>,
    failure: Mutex<Option<String>>,
    published: watch::Sender<()>,
    held: watch::Sender<()>,
}

/// One pull message.
#[derive(Clone, Debug)]
pub struct Pull {
    /// The caller's routing.
    pub routing_version: u64,
    /// The step whose parameters are asked for.
    pub step: Step,
    /// Blocks whose parameters are wanted.
    pub blocks: Vec<BlockId>,
    /// Blocks of which only "published" is asked.
    pub without_data: Vec<BlockId>,
}

/// What a pull finds at one moment.
#[derive(Clone, Debug, Default)]
pub struct Pulled {
    /// Blocks that have published the step, with their parameters (empty where none were wanted).
    pub blocks: Vec<(BlockId, Bytes)>,
    /// Whether waiting could add nothing: all are there, or the message is full.
    pub is_final: bool,
}

/// Blocks that stand at the same version with the same held nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The blocks.
    pub blocks: Vec<BlockId>,
    /// Updates applied.
    pub version: Version,
    /// Nodes held, in slot order.
    pub held: Vec<Node>,
}

impl Shard {
    /// A pserver that hosts nothing yet. Blocks hold at most `window` nodes beyond the lowest missing slot.
    pub fn new(job: JobSettings, window: usize) -> Shard {
        Shard {
            epoch: job.shape(),
            job,
            window,
            hosting: RwLock::new(None),
            counters: Mutex::default(),
            failure: Mutex::default(),
            published: watch::Sender::new(()),
            held: watch::Sender::new(()),
        }
    }

    /// The job.
    pub fn job(&self) -> &JobSettings {
        &self.job
    }

    /// The routing version of the blocks hosted; 0 while there are none.
    pub fn routing_version(&self) -> u64 {
        self.hosting().map_or(0, |hosting| hosting.assignment.routing_version)
    }

    /// Takes an assignment. Returns the blocks that are to be made for it, if it is the first.
    ///
    /// The same assignment again changes nothing, a higher routing version over the same blocks only that number;
    /// other blocks are refused, because they could only be made at version 0.
    pub fn assign(&self, assignment: Assignment) -> Result<Option<Construction>, Refusal> {
        let Some(hosting) = self.hosting() else { return Construction::new(assignment).map(Some) };
        let ours = &hosting.assignment;
        if assignment.routing_version <= ours.routing_version {
            return Ok(None);
        }
        if assignment.declaration != ours.declaration || assignment.blocks != ours.blocks {
            let (new, old) = (assignment.routing_version, ours.routing_version);
            let detail =
                format!("routing version {new} moves blocks that {old} placed, and they have no copy");
            return Err(Refusal::new(RefusalKind::Malformed, "assignment", detail));
        }
        self.host(Hosting { assignment, blocks: hosting.blocks.clone() });
        Ok(None)
    }

    /// Makes one more block of a construction; hosts them all once the last is made, and then returns nothing.
    pub fn make_next(&self, mut construction: Construction) -> Option<Construction> {
        if construction.make_next(&self.job, self.window) {
            return Some(construction);
        }
        self.host(construction.finish(&self.job, self.window));
        None
    }

    fn host(&self, hosting: Hosting) {
        *self.hosting.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(hosting));
        self.published.send_replace(());
    }

    /// The parameters of those blocks that have published the step. Changes nothing.
    pub fn pull(&self, pull: &Pull) -> Result<Pulled, Refusal> {
        let hosting = self.hosting_at(pull.routing_version)?;
        if pull.step.0 > self.job.steps() {
            return Err(self.beyond(pull.step));
        }
        let (mut pulled, mut missing, mut bytes) = (Pulled::default(), 0, 0);
        let wanted = pull.blocks.iter().map(|id| (id, true));
        for (id, with_data) in wanted.chain(pull.without_data.iter().map(|id| (id, false))) {
            let parameters = hosting.block(*id)?.lock()?.published(pull.step)?;
            match parameters {
                None => missing += 1,
                Some(_) if bytes >= PULL_BYTES && with_data => pulled.is_final = true,
                Some(parameters) if with_data => {
                    bytes += parameters.len();
                    pulled.blocks.push((*id, parameters));
                }
                Some(_) => pulled.blocks.push((*id, Bytes::new())),
            }
        }
        pulled.is_final |= missing == 0;
        Ok(pulled)
    }

    /// Parameters and slots of blocks at rest at exactly `version`.
    pub fn read_state(
        &self,
        version: Version,
        ids: &[BlockId],
    ) -> Result<Vec<(BlockId, BlockState)>, Refusal> {
        let hosting = self.hosting().ok_or_else(|| self.hosts_nothing())?;
        let hosted = ids.iter().map(|id| hosting.block(*id)).collect::<Result<Vec<_>, _>>()?;
        let bytes: usize =
            hosted.iter().map(|hosted| 4 * hosted.shape.elements * (1 + hosted.shape.slots)).sum();
        if bytes > STATE_BYTES_MAX {
            let detail = format!("{} blocks have {bytes} bytes of state: ask for fewer at a time", ids.len());
            return Err(Refusal::new(RefusalKind::OutOfRange, "blocks", detail));
        }
        let states = hosted.iter().map(|hosted| Ok((hosted.shape.id, hosted.lock()?.state(version)?)));
        let states = states.collect::<Result<Vec<_>, Refusal>>()?;
        self.count(|counters| counters.bytes_out += bytes as u64);
        Ok(states)
    }

    /// How far the blocks are, grouped; blocks that stand alike stand together.
    pub fn progress(&self) -> Result<Vec<Progress>, Refusal> {
        let mut groups: BTreeMap<(Version, Vec<Node>), Vec<BlockId>> = BTreeMap::new();
        let hosting = self.hosting();
        for (id, hosted) in hosting.iter().flat_map(|hosting| &hosting.blocks) {
            let block = hosted.lock()?;
            groups.entry((block.version(), block.held().collect())).or_default().push(*id);
        }
        Ok(groups.into_iter().map(|((version, held), blocks)| Progress { blocks, version, held }).collect())
    }

    /// Told of every version that is published, of every failure and of every assignment.
    pub fn published(&self) -> watch::Receiver<()> {
        self.published.subscribe()
    }
    /// Told of every node that is held.
    pub fn held(&self) -> watch::Receiver<()> {
        self.held.subscribe()
    }
    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Counts parameters that are given out.
    pub fn count_out(&self, pulled: &Pulled) {
        let bytes: u64 = pulled.blocks.iter().map(|(_, parameters)| parameters.len() as u64).sum();
        self.count(|counters| counters.bytes_out += bytes);
    }
    /// What makes the job impossible, if anything does: the first such thing.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Notes what makes the job impossible, for the master to hear.
    pub fn fail(&self, why: String) {
        tracing::error!(job = %self.job.job, %why, "the job cannot go on");
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.published.send_replace(());
    }

    fn count(&self, count: impl FnOnce(&mut Counters)) {
        count(&mut self.counters.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn hosting(&self) -> Option<Arc<Hosting>> {
        self.hosting.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is hosted, for callers who have the same routing. One who is ahead of us waits, one behind us learns.
    fn hosting_at(&self, routing_version: u64) -> Result<Arc<Hosting>, Refusal> {
        let hosting = self.hosting();
        let ours = hosting.as_ref().map_or(0, |hosting| hosting.assignment.routing_version);
        match hosting {
            Some(hosting) if ours == routing_version => Ok(hosting),
            Some(_) if ours > routing_version => {
                let detail = format!("the call has version {routing_version}, the present one is {ours}");
                Err(Refusal::new(RefusalKind::StaleRouting, "routing", detail))
            }
            _ => Err(self.hosts_nothing()),
        }
    }

    fn hosts_nothing(&self) -> Refusal {
        let ours = self.routing_version();
        let detail =
            format!("this pserver is at routing version {ours} and has yet to learn the present one");
        Refusal::new(RefusalKind::NotReady, "routing", detail)
    }

    fn beyond(&self, step: Step) -> Refusal {
        let detail = format!("the job has {} steps", self.job.steps());
        Refusal::new(RefusalKind::OutOfRange, format!("step {step}"), detail)
    }
}

#[cfg(test)]
pub(crate) mod tests;
