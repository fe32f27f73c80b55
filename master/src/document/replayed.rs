//! The document of a job that plays steps of this one again. Pure.

use super::{Checks, Document, Wanted};
use shoal_runtime::cluster::{CheckpointId, EnvironmentRule, Version};

impl Document {
    /// A job of the same settings that begins from a kept checkpoint, or from its initial values, as this one has: with the records
    /// left out that this one has left out, but without members, and in a place of its own. It records the hashes of every step.
    /// None where no such checkpoint is kept.
    pub fn replayed(&self, from: Option<CheckpointId>, wanted: Wanted) -> Option<Document> {
        let kept = |checkpoint| self.checkpoints.iter().find(|kept| kept.record.checkpoint == checkpoint);
        let from = match from {
            Some(checkpoint) => Some(*kept(checkpoint)?),
            None => None,
        };
        let is_needed = |checkpoint: CheckpointId| from.is_some_and(|from| from.needs(checkpoint));
        let version = from.map_or(Version(0), |from| from.version);
        let course = self.job.course();
        let judged = self.evaluations.len().min(course.evaluated(version.0) as usize);
        let kept = self.checkpoints.iter().filter(|kept| is_needed(kept.record.checkpoint));
        Some(Document {
            checks: Checks { environment: EnvironmentRule::Warn, verify_millionths: 0, record_hashes: 1 },
            master_term: self.master_term,
            routing_version: self.routing_version,
            declaration: self.declaration.clone(),
            environment: self.environment.clone(),
            checkpoints: kept.copied().collect(),
            checkpoints_named: self.checkpoints_named,
            exclusions: self.exclusions.clone(),
            evaluations: self.evaluations[..judged].to_vec(),
            ..Document::new(self.job.clone(), wanted)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{End, Evaluation, KeptCheckpoint, NamedCheckpoint};
    use crate::fixture::settings;
    use shoal_runtime::cluster::{Evaluated, JobSettings, ManifestRecord, Period, Rewind};

    const WANTED: Wanted = Wanted { pservers: 1, trainers: 1, replicas: 0, exclude_max: 3 };

    fn kept(number: u64, version: u64, oldest: Option<u64>) -> KeptCheckpoint {
        let record = ManifestRecord { checkpoint: CheckpointId(number), bytes: 1, crc32: 2 };
        KeptCheckpoint {
            record,
            version: Version(version),
            rewind: Rewind(3),
            oldest: oldest.map(CheckpointId),
        }
    }

    /// Evaluations of 2 units after every 2 steps: t t e e t t e e …
    fn ended() -> Document {
        let evaluated = Evaluated { records: 4, every: Period::Steps(2), outputs: None };
        let job = JobSettings { evaluated: Some(evaluated), ..settings(16, 2, 2, 2) };
        let named =
            NamedCheckpoint { checkpoint: CheckpointId(9), version: Version(9), since: None, named_at: 4 };
        Document {
            // Of 3, on which 4 rests as well, the files alone are kept.
            checkpoints: vec![kept(2, 2, None), kept(4, 4, Some(2)), kept(6, 6, None)],
            checkpoints_named: 9,
            evaluations: vec![Evaluation { values: Vec::new() }; 3],
            named: Some(named),
            failures: 2,
            rewinds: 1,
            end: Some(End::Failed("why".to_owned())),
            ..Document::new(job, WANTED)
        }
    }

    #[test]
    fn what_was_known_at_a_checkpoint_is_kept_and_nothing_that_came_after() {
        let document = ended();
        let course = document.job.course();
        assert_eq!((course.evaluation(0), course.evaluation(1).start), (2..3, 5), "the course of this test");
        let of = |from: Option<u64>| {
            let replayed = document.replayed(from.map(CheckpointId), WANTED).unwrap();
            assert_eq!(
                (replayed.end.clone(), replayed.named, replayed.failures, replayed.rewinds),
                (None, None, 0, 0)
            );
            assert_eq!((&replayed.job, replayed.checks.record_hashes), (&document.job, 1));
            let checkpoints = replayed.checkpoints.iter().map(|kept| kept.record.checkpoint.0);
            (checkpoints.collect::<Vec<_>>(), replayed.evaluations.len())
        };
        assert_eq!(of(None), (vec![], 0));
        assert_eq!(of(Some(2)), (vec![2], 0));
        assert_eq!(of(Some(4)), (vec![2, 4], 1), "with what it rests on");
        assert_eq!(of(Some(6)), (vec![6], 2));
        assert_eq!(document.replayed(Some(CheckpointId(5)), WANTED), None);
    }
}
