//! What runs have met: a simulation that never meets a case does not test it.

use super::call::Call;
use super::network::Network;
use shoal_master::document::Document;
use shoal_runtime::cluster::CheckpointId;
use shoal_runtime::wire::proto;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts by name, summed up over pservers, trainers and runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    counts: BTreeMap<&'static str, u64>,
}

/// What a thousand jobs, synchronous and asynchronous ones, must have met at least once each.
pub const MUST_OCCUR: [&str; 43] = [
    "ancestors that replaced descendants",
    "busy answers",
    "calls for tasks overtaken",
    "checkpoints damaged",
    "checkpoints dropped",
    "checkpoints of changes",
    "disks stalled",
    "disks that died",
    "disks that refused",
    "duplicates refused",
    "early stops",
    "evaluations",
    "goings back",
    "goings back to changes",
    "hosts isolated",
    "hosts slowed down",
    "jobs with rounded gradients",
    "late pushes",
    "leases expired",
    "leases given again",
    "leases handed back",
    "masters crashed",
    "masters deposed",
    "members superseded",
    "negative zeros",
    "places full",
    "places silent",
    "places slow",
    "power cut",
    "pservers crashed",
    "pservers migrated",
    "pservers scaled",
    "rates lowered",
    "records left out",
    "settings edited",
    "short steps",
    "speculative leases",
    "steps not recorded",
    "steps recorded",
    "swaps without an answer",
    "trainers crashed",
    "trainers joined later",
    "ways cut",
];

impl Coverage {
    /// Nothing met.
    pub fn new() -> Coverage {
        Coverage::default()
    }
    /// Adds `count` to what is called `name`.
    pub fn add(&mut self, name: &'static str, count: u64) {
        *self.counts.entry(name).or_default() += count;
    }
    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Coverage) {
        other.counts.iter().for_each(|(name, count)| self.add(name, *count));
    }
    /// One count.
    pub fn count_of(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }
    /// What of `must_occur` has not.
    pub fn missing(&self, must_occur: &[&'static str]) -> Vec<&'static str> {
        must_occur.iter().copied().filter(|name| self.count_of(name) == 0).collect()
    }

    /// Takes the counts that a master tells of.
    pub fn count(&mut self, status: &proto::StatusReply) {
        for counters in status.pservers.iter().filter_map(|pserver| pserver.counters.as_ref()) {
            self.add("ancestors that replaced descendants", counters.replaced_by_ancestor);
            self.add("busy answers", counters.busy);
            self.add("duplicates refused", counters.duplicates_refused);
            self.add("late pushes", counters.late_pushes);
            self.add("pushes", counters.pushes);
            self.add("short steps", counters.short_steps);
        }
        for trainer in &status.trainers {
            let counters = trainer.counters.unwrap_or_default();
            self.add("members superseded", u64::from(trainer.state == "superseded"));
            self.add("microbatches computed", counters.microbatches);
            self.add("negative zeros", counters.negative_zeros);
            self.add("retries", counters.retries);
        }
        let leases = status.leases.unwrap_or_default();
        self.add("leases expired", leases.expired);
        self.add("leases given", leases.leased);
        self.add("leases given again", leases.leased_again);
        self.add("leases handed back", leases.handed_back);
        self.add("speculative leases", leases.speculative);
        let gradients = status.settings.as_ref().map(proto::JobSettings::gradients);
        self.add("jobs with rounded gradients", u64::from(gradients == Some(proto::Precision::Bf16)));
        self.add("steps", status.step);
        self.add("steps recorded", status.steps_recorded);
        self.add("steps not recorded", status.steps_unrecorded);
        self.add("evaluations", status.evaluations.len() as u64);
        self.add("checkpoints dropped", status.damaged.len() as u64);
        self.add("goings back", status.rewind);
        self.add("records left out", status.records_excluded);
        self.add("early stops", u64::from(status.is_stopped_early));
        self.add("rates lowered", u64::from(status.evaluations.last().is_some_and(|last| last.rate < 1.0)));
    }

    /// Counts what a run's documents tell of checkpoints that have only what changed since others.
    pub fn count_documents(&mut self, documents: &[Document]) {
        let of_changes = |document: &Document| -> BTreeSet<CheckpointId> {
            let kept = document.checkpoints.iter().filter(|kept| kept.oldest.is_some());
            kept.map(|kept| kept.record.checkpoint).collect()
        };
        let all: BTreeSet<CheckpointId> = documents.iter().flat_map(of_changes).collect();
        self.add("checkpoints of changes", all.len() as u64);
        let goes_back = |pair: &&[Document]| {
            let mut blocks = pair[0].blocks.iter().zip(&pair[1].blocks);
            blocks.any(|(old, new)| {
                let origin = new.origin.map(|origin| origin.checkpoint);
                old.rewind != new.rewind && origin.is_some_and(|origin| all.contains(&origin))
            })
        };
        self.add("goings back to changes", documents.windows(2).filter(goes_back).count() as u64);
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts.iter().try_for_each(|(name, count)| writeln!(f, "{count:>12}  {name}"))
    }
}

/// Counts calls for tasks that arrive after a later one of the same trainer.
#[derive(Clone, Debug, Default)]
pub struct Overtaken {
    count: Arc<Mutex<u64>>,
}

impl Overtaken {
    /// Begins to watch.
    pub fn watch(network: &Network) -> Overtaken {
        let watch = Overtaken::default();
        let count = Arc::clone(&watch.count);
        let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
        network.witness(move |call: &Call| {
            if call.method != "Lease" {
                return;
            }
            let lease: proto::LeaseRequest = call.message();
            let newest = newest.entry(lease.incarnation).or_default();
            if lease.call < *newest {
                *count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            }
            *newest = lease.call.max(*newest);
        });
        watch
    }
    /// How many so far.
    pub fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
