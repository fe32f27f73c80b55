//! The master's durable state: one document, changed only by compare-and-swap, and told to others only afterwards.
//!
//! Small by design: what is not here is asked of the pservers, or computed. Every swap raises the routing
//! version by one; terms, fills and rewind numbers are the routing version that made them.

mod checks;
mod evaluations;
mod replayed;
mod written;

use crate::trouble::Trouble;
pub use checks::Checks;
pub use evaluations::{Evaluation, Value};
use serde::{Deserialize, Serialize};
use shoal_job::spec::Spec;
use shoal_runtime::cluster::routing::{BlockRoute, PserverAddress};
use shoal_runtime::cluster::{
    BlockId, CheckpointId, DamagedCheckpoint, Declaration, Environment, Exclusions, Fill, Incarnation,
    JobSettings, ManifestRecord, Rewind, RewindCauses, Routing, Term, Version,
};
use std::collections::{BTreeMap, BTreeSet};
pub use written::Unread;

/// Whether a copy may be promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mark {
    /// It is being filled.
    Filling,
    /// It has all that is published, and the primary waits for it.
    InSync,
}

/// One copy of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedCopy {
    /// Where it is.
    pub pserver: Incarnation,
    /// Which copy it is.
    pub fill: Fill,
    /// Whether it may be promoted.
    pub mark: Mark,
}

/// Where the copies of one block are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedBlock {
    /// Routing version of its last restore or change of primary.
    pub term: Term,
    /// Routing version of its last restore.
    pub rewind: Rewind,
    /// Its primary, one of the copies.
    pub primary: Incarnation,
    /// All copies, the primary's first.
    pub copies: Vec<PlacedCopy>,
    /// The in-sync copy that is to take over as soon as the primary has nothing on its way.
    pub heir: Option<Incarnation>,
    /// What it was restored from at its last restore; none for its initial values.
    pub origin: Option<ManifestRecord>,
}

/// What the operator of a job asks for beside its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Pservers that share the model. So many are waited for before blocks are placed.
    pub pservers: u32,
    /// Trainers that a supervisor should run.
    pub trainers: u32,
    /// Copies of each block beside its primary.
    pub replicas: u32,
    /// Records that may be left out because no trainer can use them.
    pub exclude_max: u64,
}

/// A checkpoint under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCheckpoint {
    /// Which.
    pub checkpoint: CheckpointId,
    /// The version at which every block is written; asynchronous jobs write each block as it is.
    pub version: Version,
    /// The kept checkpoint since which buckets of tables may write what changed; without one they write everything.
    #[serde(default)]
    pub since: Option<CheckpointId>,
    /// The routing version that names it first.
    #[serde(default)]
    pub named_at: u64,
}

/// A durable checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCheckpoint {
    /// What tells its manifest from any other.
    pub record: ManifestRecord,
    /// The version of every block in it; in asynchronous jobs the lowest.
    pub version: Version,
    /// The rewind number of every block in it; in asynchronous jobs the highest.
    pub rewind: Rewind,
    /// Of one that rests on earlier ones, because it has only what changed: the oldest of these.
    #[serde(default)]
    pub oldest: Option<CheckpointId>,
}

impl KeptCheckpoint {
    /// The first checkpoint whose files it needs: itself, where it rests on no other.
    pub fn first_needed(&self) -> CheckpointId {
        self.oldest.unwrap_or(self.record.checkpoint)
    }

    /// Whether it needs the files of a checkpoint. Of those between the first that it needs and itself it needs all that were
    /// ever kept.
    pub fn needs(&self, checkpoint: CheckpointId) -> bool {
        (self.first_needed()..=self.record.checkpoint).contains(&checkpoint)
    }
}

/// Live settings that somebody has told a master, and those by which it had been started: they hold for the next one, too, unless that is
/// started with others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// The live settings of the start.
    pub started: Spec,
    /// Those that were told.
    pub live: Spec,
}

/// How a job has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// Every block has applied everything.
    Done,
    /// It could not go on, and why.
    Failed(String),
}

/// All that a master of this job has to know when it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The job.
    pub job: JobSettings,
    /// The term of the master that leads, counted by elections.
    pub master_term: u32,
    /// Who that master is: no two processes write the same document.
    pub master: String,
    /// Counts the changes of the document: who has a higher one knows better.
    pub routing_version: u64,
    /// What is asked for.
    pub wanted: Wanted,
    /// What the first trainer declared.
    pub declaration: Option<Declaration>,
    /// What the first trainer's bits depend on. `None` beside a declaration: an earlier build has written it.
    #[serde(default)]
    pub environment: Option<Environment>,
    /// How closely trainers are looked at.
    #[serde(default)]
    pub checks: Checks,
    /// Live settings that were told, if any were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Told>,
    /// The pservers that hold copies, by incarnation.
    pub pservers: BTreeMap<Incarnation, PserverAt>,
    /// Where the copies of each block are; empty until they are placed.
    #[serde(with = "runs")]
    pub blocks: Vec<PlacedBlock>,
    /// Pservers whose blocks are to go elsewhere.
    pub leaving: BTreeSet<Incarnation>,
    /// Pservers that leave as soon as another has come in their place.
    pub replacing: BTreeSet<Incarnation>,
    /// Primaries that are on their way to another pserver.
    pub moves: BTreeMap<BlockId, Incarnation>,
    /// A random identity, which the claim of the checkpoints' place carries: names are not unique. `None` in a job that began under a
    /// build without identities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Where checkpoints lie, if it was said; otherwise beside this document.
    pub checkpoint_place: Option<String>,
    /// The checkpoint under way.
    pub named: Option<NamedCheckpoint>,
    /// How many were named so far.
    pub checkpoints_named: u64,
    /// The durable checkpoints that are kept, oldest first. The newest is the last: nothing else says so.
    pub checkpoints: Vec<KeptCheckpoint>,
    /// Checkpoints that were kept and turned out not to be what was written, oldest first. Their files are left.
    pub damaged: Vec<DamagedCheckpoint>,
    /// Records that are left out.
    pub exclusions: Exclusions,
    /// Evaluations that are judged, in order.
    #[serde(default)]
    pub evaluations: Vec<Evaluation>,
    /// What trainers could not do, oldest first.
    pub troubles: Vec<Trouble>,
    /// Trainers that ended because they could not go on, since others last made a step.
    pub failures: u32,
    /// How often the job, or a block of it, has gone back.
    pub rewinds: u64,
    /// Of those, how often for which cause.
    #[serde(default, skip_serializing_if = "RewindCauses::is_empty")]
    pub rewind_causes: RewindCauses,
    /// How the job has ended, if it has.
    pub end: Option<End>,
}

/// A pserver as the document knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PserverAt {
    /// Its name.
    pub name: String,
    /// Where it listens, `host:port`.
    pub address: String,
}

impl Document {
    /// The document of a job that has not begun.
    pub fn new(job: JobSettings, wanted: Wanted) -> Document {
        Document {
            checks: Checks::usual(&job),
            told: None,
            job,
            wanted,
            master_term: 0,
            master: String::new(),
            routing_version: 0,
            declaration: None,
            environment: None,
            pservers: BTreeMap::new(),
            blocks: Vec::new(),
            leaving: BTreeSet::new(),
            replacing: BTreeSet::new(),
            moves: BTreeMap::new(),
            identity: None,
            checkpoint_place: None,
            named: None,
            checkpoints_named: 0,
            checkpoints: Vec::new(),
            damaged: Vec::new(),
            exclusions: Exclusions::default(),
            evaluations: Vec::new(),
            troubles: Vec::new(),
            failures: 0,
            rewinds: 0,
            rewind_causes: RewindCauses::new(),
            end: None,
        }
    }

    /// Returns true once the job has begun. Before that only the identity counts.
    pub fn has_begun(&self) -> bool {
        self.master_term > 0
    }

    /// Returns true if nothing was ever trained, and so nothing saved.
    pub fn is_untouched(&self) -> bool {
        self.blocks.is_empty() && self.checkpoints_named == 0
    }

    /// The document after an election: a new term, and with it a new routing version, so that whoever hears of either
    /// refuses the master before.
    pub fn elected(mut self, master: &str) -> Document {
        self.master_term += 1;
        self.master = master.to_owned();
        self.routing_version += 1;
        self
    }

    /// The routing table; none until blocks are placed.
    pub fn routing(&self) -> Option<Routing> {
        if self.blocks.is_empty() {
            return None;
        }
        let at: BTreeMap<Incarnation, u32> =
            self.pservers.keys().zip(0..).map(|(who, at)| (*who, at)).collect();
        let pservers = self.pservers.iter().map(|(incarnation, pserver)| PserverAddress {
            incarnation: *incarnation,
            address: pserver.address.clone(),
        });
        let route = |block: &PlacedBlock| BlockRoute {
            primary: at.get(&block.primary).copied().unwrap_or(0),
            term: block.term,
            rewind: block.rewind,
        };
        Some(Routing {
            version: self.routing_version,
            pservers: pservers.collect(),
            blocks: self.blocks.iter().map(route).collect(),
        })
    }

    /// The newest durable checkpoint.
    pub fn newest(&self) -> Option<&KeptCheckpoint> {
        self.checkpoints.last()
    }

    /// The rewind number of a synchronous job: all its blocks go back together.
    pub fn rewind(&self) -> Rewind {
        self.blocks.iter().map(|block| block.rewind).max().unwrap_or(Rewind(0))
    }

    /// The version that the blocks of a synchronous job were last restored to.
    pub fn restored_version(&self) -> Version {
        let origin = self.blocks.iter().find_map(|block| block.origin);
        let kept = self.checkpoints.iter().find(|kept| Some(kept.record) == origin);
        kept.map_or(Version(0), |kept| kept.version)
    }

    /// Whether a copy of anything is on a pserver.
    pub fn holds_copies(&self, pserver: Incarnation) -> bool {
        self.blocks.iter().any(|block| block.copy_on(pserver).is_some())
    }
}

impl PlacedBlock {
    /// A block begun anew on one pserver, at its initial values and routing version `version`.
    pub fn restored(pserver: Incarnation, version: u64) -> PlacedBlock {
        let copy = PlacedCopy { pserver, fill: Fill(version), mark: Mark::InSync };
        PlacedBlock {
            term: Term(version),
            rewind: Rewind(version),
            primary: pserver,
            copies: vec![copy],
            heir: None,
            origin: None,
        }
    }

    /// The copy on a pserver.
    pub fn copy_on(&self, pserver: Incarnation) -> Option<&PlacedCopy> {
        self.copies.iter().find(|copy| copy.pserver == pserver)
    }

    /// The copies that may be promoted.
    pub fn in_sync(&self) -> impl Iterator<Item = &PlacedCopy> {
        self.copies.iter().filter(|copy| copy.mark == Mark::InSync)
    }

    /// Makes a copy the primary, at routing version `version`.
    pub fn promote(&mut self, pserver: Incarnation, version: u64) {
        (self.primary, self.heir) = (pserver, None);
        self.term = Term(version);
        self.copies.sort_by_key(|copy| copy.pserver != pserver);
    }

    /// Adds an empty copy, at routing version `version`.
    pub fn add(&mut self, pserver: Incarnation, version: u64) {
        self.copies.push(PlacedCopy { pserver, fill: Fill(version), mark: Mark::Filling });
    }

    /// Removes a copy that is not the primary's.
    pub fn remove(&mut self, pserver: Incarnation) {
        self.heir = self.heir.filter(|heir| *heir != pserver);
        self.copies.retain(|copy| copy.pserver != pserver);
    }
}

/// Blocks that are placed alike are written once: a table costs what its boundaries cost.
mod runs {
    use super::PlacedBlock;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use shoal_runtime::cluster::layout::BLOCKS_MAX;

    #[derive(Serialize, Deserialize)]
    struct Run<B> {
        blocks: usize,
        placed: B,
    }
    pub(super) fn serialize<S: Serializer>(blocks: &[PlacedBlock], to: S) -> Result<S::Ok, S::Error> {
        let mut runs: Vec<Run<&PlacedBlock>> = Vec::new();
        for block in blocks {
            match runs.last_mut().filter(|run| run.placed == block) {
                Some(run) => run.blocks += 1,
                None => runs.push(Run { blocks: 1, placed: block }),
            }
        }
        runs.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PlacedBlock>, D::Error> {
        let runs = Vec::<Run<PlacedBlock>>::deserialize(from)?;
        let count = runs.iter().fold(0, |count: usize, run| count.saturating_add(run.blocks));
        if count as u64 > BLOCKS_MAX {
            return Err(serde::de::Error::custom(format!("{count} blocks: more than {BLOCKS_MAX}")));
        }
        Ok(runs.into_iter().flat_map(|run| std::iter::repeat_n(run.placed, run.blocks)).collect())
    }
}

#[cfg(test)]
mod tests;
