//! Where a job is in its life.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Phase {
    /// It waits for room, for its master, or for its first step.
    #[default]
    Pending,
    /// It has not begun, and cannot as it is written: its message says what to change.
    Invalid,
    /// It trains.
    Running,
    /// It makes a checkpoint, in order to stop.
    Suspending,
    /// It has stopped, and goes on from its checkpoint.
    Suspended,
    /// It is done.
    Succeeded,
    /// It will not go on.
    Failed,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// A word that a later operator has written is none of these: the job is looked at as if nobody had. One that cannot be read would keep
/// all jobs from being listed.
impl<'de> Deserialize<'de> for Phase {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Phase, D::Error> {
        let word = String::deserialize(from)?;
        Ok(Phase::ALL.into_iter().find(|phase| phase.word() == word).unwrap_or_default())
    }
}

impl Phase {
    /// All there are.
    pub const ALL: [Phase; 7] = [
        Phase::Pending,
        Phase::Invalid,
        Phase::Running,
        Phase::Suspending,
        Phase::Suspended,
        Phase::Succeeded,
        Phase::Failed,
    ];

    /// As the resource has it.
    pub fn word(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Invalid => "Invalid",
            Phase::Running => "Running",
            Phase::Suspending => "Suspending",
            Phase::Suspended => "Suspended",
            Phase::Succeeded => "Succeeded",
            Phase::Failed => "Failed",
        }
    }

    /// Whether nothing will change it.
    pub fn is_over(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_whose_phase_a_later_operator_has_written_can_be_read() {
        let read = |word: &str| serde_json::from_value::<Phase>(json!(word)).unwrap();
        assert_eq!(read("Rehearsing"), Phase::Pending);
        for phase in Phase::ALL {
            assert_eq!((read(phase.word()), json!(phase)), (phase, json!(phase.word())));
        }
    }
}
