//! What commands that break jobs are told of it, and the plan that becomes of that.

use super::chaos::kind::{Kind, Kinds};
use super::chaos::schedule::ScheduleSettings;
use shoal_runner::JobPlan;
use shoal_runner::flags::Conditions;
use std::time::Duration;

/// With chaos, a job is paced to last about so long, so that there is something to break.
const CHAOS_LASTS: Duration = Duration::from_secs(4);
/// With chaos, the lease TTL where none was asked for.
const CHAOS_TTL_MILLIS: u64 = 1000;

/// Which faults are injected.
#[derive(clap::Args, Clone, Debug)]
pub struct ChaosFlags {
    /// With chaos: strike pservers even while copies are missing
    #[arg(long)]
    pub chaos_hard: bool,
    /// With chaos: only these faults. Without this, `shoal run` strikes by those that need no privileges, `shoal chaos` by
    /// all that this machine permits
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KINDS")]
    pub chaos_kinds: Vec<Kind>,
}

/// Which faults are injected, as a seed decides.
#[derive(Clone, Copy, Debug)]
pub struct ChaosPlan {
    /// What decides them.
    pub seed: u64,
    /// Whether pservers are hit while copies are missing.
    pub is_hard: bool,
    /// Of these kinds.
    pub kinds: Kinds,
}

impl ChaosPlan {
    /// What it is for a job of that plan.
    pub(crate) fn settings(self, plan: &JobPlan) -> ScheduleSettings {
        ScheduleSettings {
            seed: self.seed,
            ttl: Duration::from_millis(plan.job.lease_ttl_millis()),
            trainers: plan.trainers,
            pservers: plan.pservers,
            has_copies: plan.job.copies() > 0,
            is_hard: self.is_hard,
            kinds: self.kinds,
        }
    }

    /// What a job has to be given for it.
    pub fn conditions(self) -> Conditions {
        Conditions {
            lasts: Some(CHAOS_LASTS),
            lease_ttl_millis: Some(CHAOS_TTL_MILLIS),
            has_network: self.kinds.iter().any(Kind::needs_network),
            has_disk: self.kinds.holds(Kind::Disk),
        }
    }
}
