//! How far blocks on their way to another pserver are, as the master's document tells. Pure.

use shoal_master::document::{Document, Mark};
use shoal_runtime::cluster::{BlockId, Incarnation};

/// A phase of a change that moves blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It was asked for.
    Asked,
    /// A target is being filled.
    Filling,
    /// A target is level, and its primary is to hand over.
    Level,
    /// A target leads; its source may be about to end.
    HandedOver,
}

/// All of them, in their order.
pub const PHASES: [Phase; 4] = [Phase::Asked, Phase::Filling, Phase::Level, Phase::HandedOver];

/// From where a block goes, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Its primary, or the one it had.
    pub source: Incarnation,
    /// Its primary to be, or the one it has; none while it is not chosen.
    pub target: Option<Incarnation>,
}

/// A block in this phase of a change that began with the document `before`.
pub fn way(phase: Phase, before: &Document, now: &Document) -> Option<Way> {
    let mut blocks = before.blocks.iter().zip(&now.blocks).zip(0..);
    blocks.find_map(|((before, block), at)| {
        let target = now.moves.get(&BlockId(at)).copied();
        let moving = target.filter(|target| *target != block.primary);
        let is_at = match (phase, moving) {
            (Phase::Asked, _) => return Some(Way { source: block.primary, target: moving }),
            (Phase::Filling, Some(target)) => {
                block.copy_on(target).is_some_and(|copy| copy.mark == Mark::Filling)
            }
            (Phase::Level, Some(target)) => block.heir == Some(target),
            (Phase::HandedOver, _) => {
                let (source, target) = (before.primary, Some(block.primary));
                return (source != block.primary).then_some(Way { source, target });
            }
            (_, None) => false,
        };
        is_at.then_some(Way { source: block.primary, target: moving })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_master::document::{PlacedBlock, Wanted};
    use shoal_runtime::cluster::{JobId, JobSettings, Mode, Precision};

    fn settings() -> JobSettings {
        JobSettings {
            job: JobId("j".into()),
            seed: 7,
            epochs: 1,
            microbatch_records: 1,
            microbatches_per_step: 1,
            shuffle_run: 1,
            records: 1,
            manifest_fingerprint: [0; 32],
            lease_ttl_millis: 1000,
            mode: Mode::SYNC,
            gradients: Precision::F32,
            warm_start: None,
            evaluated: None,
        }
    }

    #[test]
    fn a_move_goes_through_its_phases() {
        let (a, b) = (Incarnation::new(1, 1), Incarnation::new(1, 2));
        let wanted = Wanted { pservers: 2, trainers: 1, replicas: 0, exclude_max: 0 };
        let mut before = Document::new(settings(), wanted);
        before.blocks = vec![PlacedBlock::restored(a, 1); 2];
        let mut now = before.clone();
        let way = |now: &Document| PHASES.map(|phase| way(phase, &before, now));
        let to_b = Some(Way { source: a, target: Some(b) });
        assert_eq!(way(&now), [Some(Way { source: a, target: None }), None, None, None]);

        now.moves.insert(BlockId(1), b);
        now.blocks[1].add(b, 2);
        assert_eq!(way(&now)[1..], [to_b, None, None]);
        now.blocks[1].copies[1].mark = Mark::InSync;
        now.blocks[1].heir = Some(b);
        assert_eq!(way(&now)[1..], [None, to_b, None]);
        now.blocks[1].promote(b, 3);
        assert_eq!(way(&now)[1..], [None, None, to_b]);
    }
}
