//! Causes between the last update and the next step, or the job's end: an open evaluation, the last checkpoint, hashes. Pure.

use super::{Cause, Reason, Watch};
use crate::machine::Placed;
use shoal_runtime::cluster::waits::WaitKind;

impl Watch<'_> {
    /// Every block is where nothing more is open: at an evaluation, or at the end.
    pub(super) fn at_end(&self, job: &Placed) -> Option<Cause> {
        let document = self.machine.document();
        if job.dispatch.front() < document.open_until() {
            return None;
        }
        let is_last = document.open_until() >= document.last_version().0;
        if is_last && self.machine.is_complete() {
            return Some(self.hashes());
        }
        if is_last || document.named.is_some() {
            return Some(self.checkpoint());
        }
        Some(Cause {
            reason: Reason::Evaluation,
            subject: String::new(),
            age: self.front_age(),
            text: format!(
                "evaluation {} is applied and not judged: sums of metrics have not come",
                document.evaluations.len() + 1
            ),
            way_out: String::from("see the logs of the pservers"),
        })
    }

    /// A checkpoint that nothing goes on without is under way.
    fn checkpoint(&self) -> Cause {
        let document = self.machine.document();
        let Some(named) = document.named else {
            return self.deciding("the last checkpoint is not named yet");
        };
        let number = named.checkpoint;
        for (id, block) in self.machine.blocks_without_piece() {
            if let Some(cause) = self.primary_silent(id, block) {
                return cause;
            }
            let Some(peer) = self.pserver(block.primary) else { continue };
            let of = format!("checkpoint {number} lacks block {id}: pserver {:?}", peer.name);
            return match peer.wait(WaitKind::Storage) {
                Some(wait) => self.storage(&of, wait),
                None => Cause {
                    reason: Reason::Checkpoint,
                    subject: peer.name.to_owned(),
                    age: self.front_age(),
                    text: format!("{of} writes its pieces"),
                    way_out: String::from("large models take their time; otherwise see its log"),
                },
            };
        }
        match self.outside.waits.iter().find(|wait| wait.kind == WaitKind::Storage) {
            Some(wait) => self
                .storage(&format!("checkpoint {number} is written but for its manifest: the master"), wait),
            None => self.deciding("the last checkpoint is durable, and the job's document has yet to say so"),
        }
    }

    /// Recorded hashes that are not durable, after all else is.
    fn hashes(&self) -> Cause {
        match self.outside.waits.iter().find(|wait| wait.kind == WaitKind::Storage) {
            Some(wait) => self.storage("recorded hashes are not durable: the master", wait),
            None => Cause {
                reason: Reason::Hashes,
                subject: String::new(),
                age: self.front_age(),
                text: String::from(
                    "the last recorded hashes, or computations that are compared, have not come",
                ),
                way_out: String::from("the job ends without them after a time to live"),
            },
        }
    }
}
