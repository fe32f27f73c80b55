//! How closely a job's bits are looked at, as its document says. It changes none of them.

use serde::{Deserialize, Serialize};
use shoal_job::spec::Spec;
use shoal_runtime::cluster::verification::WHOLE_SHARE;
use shoal_runtime::cluster::{EnvironmentRule, JobSettings};

/// How closely trainers are looked at. It changes no bit, and may be another at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// Whether their environments may differ.
    pub environment: EnvironmentRule,
    /// Of so many of a million microbatches of a synchronous job two computations are compared.
    #[serde(default)]
    pub verify_millionths: u32,
    /// After every so many steps hashes of all blocks of a synchronous job are recorded; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub record_hashes: u64,
}

/// What documents of before say nothing of.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Checks {
    /// What holds where nobody says otherwise: bits are promised in synchronous jobs alone.
    pub fn usual(job: &JobSettings) -> Checks {
        let environment = if job.is_sync() { EnvironmentRule::Same } else { EnvironmentRule::Any };
        Checks { environment, verify_millionths: 0, record_hashes: 0 }
    }

    /// As a job's settings say.
    pub fn of(spec: &Spec, job: &JobSettings) -> Checks {
        Checks {
            environment: spec.environment.map_or(Checks::usual(job).environment, Into::into),
            verify_millionths: (spec.verify() * f64::from(WHOLE_SHARE)).round() as u32,
            record_hashes: spec.record_hashes(),
        }
    }
}
