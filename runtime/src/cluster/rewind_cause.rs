//! Why a job, or blocks of it, went back to a checkpoint or to the beginning. Each cause has one word, the same wherever it is said.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Why a job, or blocks of it, went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RewindCause {
    /// A pserver was lost, or all were as after an interruption, and of blocks on it there was no copy.
    PserverLost,
    /// The checkpoint to begin from turned out not to be what was written: an older one was taken.
    CheckpointDamaged,
    /// Records are left out from a step on that had been begun with them.
    RecordsExcluded,
}

/// How often for which cause. Those of documents from before causes were kept are in none.
pub type RewindCauses = BTreeMap<RewindCause, u64>;

impl RewindCause {
    /// All of them, in their order on the wire.
    pub const ALL: [RewindCause; 3] =
        [RewindCause::PserverLost, RewindCause::CheckpointDamaged, RewindCause::RecordsExcluded];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            RewindCause::PserverLost => "pserver-lost",
            RewindCause::CheckpointDamaged => "checkpoint-damaged",
            RewindCause::RecordsExcluded => "records-excluded",
        }
    }

    /// The cause in a clause.
    pub fn text(self) -> &'static str {
        match self {
            RewindCause::PserverLost => "a pserver was lost, and no copy of its blocks was left",
            RewindCause::CheckpointDamaged => "a checkpoint was damaged",
            RewindCause::RecordsExcluded => "records were left out",
        }
    }
}

/// How often for each cause, by its place in [`RewindCause::ALL`].
pub fn to_counts(causes: &RewindCauses) -> Vec<u64> {
    RewindCause::ALL.iter().map(|cause| causes.get(cause).copied().unwrap_or(0)).collect()
}

/// The same, read: what never was is left out, and so is what another build counts beside.
pub fn from_counts(counts: &[u64]) -> RewindCauses {
    let causes = RewindCause::ALL.into_iter().zip(counts.iter().copied());
    causes.filter(|(_, times)| *times > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_come_over_the_wire_as_they_were_counted_and_each_is_written_by_its_word() {
        let causes: RewindCauses =
            RewindCause::ALL.into_iter().zip([3, 0, 5]).filter(|(_, n)| *n > 0).collect();
        assert_eq!(to_counts(&causes), [3, 0, 5]);
        assert_eq!(from_counts(&[3, 0, 5, 7]), causes);
        assert_eq!(from_counts(&[]), RewindCauses::new());
        for cause in RewindCause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.word());
        }
    }
}
