//! Hashes that are recorded: what pservers tell of them, what is to be written, what of it ends the job.

use super::Machine;
use crate::recording::{self, Counters, Difference};
use shoal_runtime::cluster::recording::{hashes_of, pieces_of_hash};
use shoal_runtime::cluster::{BlockHashes, Incarnation, Layout, Rewind, StepHashes, Version};
use std::time::Duration;

impl Machine {
    /// The job goes on in the history that its document tells of.
    pub(super) fn record_this_history(&mut self) {
        let rewind = self.document.rewind();
        if self.recording.settled().0 != rewind {
            self.recording.begin(rewind, self.document.restored_version());
        }
    }

    /// A pserver tells hashes. Two copies that differ end the job: one of them is no copy.
    pub(super) fn hear_recorded(&mut self, pserver: Incarnation, told: Vec<BlockHashes>, now: Duration) {
        let Some(job) = &self.job else { return };
        let layout = &job.layout;
        let is_of_shape = |of: &BlockHashes| {
            layout.block(of.block).is_some_and(|block| hashes_of(block) == of.hashes.len())
        };
        let told: Vec<BlockHashes> = told.into_iter().filter(is_of_shape).collect();
        if told.is_empty() {
            return;
        }
        if let Some(difference) = self.recording.hear(pserver, told, layout.len(), now) {
            let why = self.words_of_copies(&difference);
            tracing::error!(why, "two copies differ");
            self.fail(why);
        }
    }

    /// Steps to be written into one object; given out once.
    pub fn hashes_to_write(&mut self, now: Duration) -> Option<Vec<StepHashes>> {
        let those = self.recording.to_write(self.document.last_version(), now)?;
        let course = self.document.job.course();
        Some(recording::recorded(those, |version| course.trained(version.0)))
    }

    /// What was given out is durable, or could not be written.
    pub fn hashes_written(&mut self, is_durable: bool, now: Duration) {
        match is_durable {
            true => self.recording.written(),
            false => self.recording.not_written(),
        }
        self.end_if_complete(now);
    }

    /// The history, and the version below which no hashes are waited for in it.
    pub fn recorded(&self) -> (Rewind, Version) {
        self.recording.settled()
    }

    /// How many steps were recorded in this master's term, and of how many hashes were lost.
    pub fn recording_counters(&self) -> Counters {
        self.recording.counters()
    }

    /// Whether the job's end waits for hashes: whoever has said nothing for so long is lost, and so is what it had to say.
    pub(super) fn is_recording(&self, now: Duration) -> bool {
        let patience = Duration::from_millis(self.settings().lease_ttl_millis);
        let records = self.document.checks.record_hashes > 0;
        let is_heard = self.job.as_ref().is_none_or(|job| job.is_heard);
        self.recording.is_worth_waiting(now, patience, is_heard || !records)
    }

    fn words_of_copies(&self, difference: &Difference) -> String {
        let Difference { block, version, hash, pservers } = difference;
        let name =
            |who: Incarnation| self.pservers.get(who).map_or_else(|| who.to_string(), |one| one.name.clone());
        let of = self.document.declaration.as_ref().and_then(|declaration| {
            let layout = Layout::new(declaration);
            let block = layout.block(*block)?;
            let first = match block.bucket {
                Some(bucket) => bucket.parameter,
                None => block.pieces.get(hash * pieces_of_hash(block.pieces.len()))?.parameter,
            };
            Some(declaration.parameters.get(first)?.name.clone())
        });
        let [one, other] = pservers.map(name);
        format!(
            "two copies of block {block} differ at version {version}, in parameter {:?}: those of pservers {one:?} and {other:?}. Copies make \
             the same updates of the same gradients, so the memory or the processor of one of the two is not sound: take the machines out \
             one after the other, and go on from a checkpoint",
            of.unwrap_or_default()
        )
    }
}
