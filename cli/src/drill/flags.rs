//! What commands that break jobs are told of it, and the plan that becomes of that.

use super::chaos::deck::Weather;
use super::chaos::kind::{Kind, Kinds};
use shoal_runner::JobPlan;
use shoal_runner::flags::Conditions;
use std::time::Duration;

/// With chaos, a job is paced to last about so long, so that there is something to break.
const CHAOS_LASTS: Duration = Duration::from_secs(4);
/// With chaos, the lease TTL where none was asked for.
const CHAOS_TTL_MILLIS: u64 = 1000;

/// Which faults are injected.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ChaosFlags {
    /// With chaos: strike pservers even while copies are missing
    #[arg(long)]
    pub(crate) chaos_hard: bool,
    /// With chaos: only these faults. Without this, `shoal run` strikes by those that need no privileges, `shoal chaos` by
    /// all that this machine permits
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KINDS")]
    pub(crate) chaos_kinds: Vec<Kind>,
}

/// What is to be struck, and by what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fire {
    pub(crate) seed: u64,
    pub(crate) is_hard: bool,
    pub(crate) kinds: Kinds,
}

impl Fire {
    /// What it is for a job of that plan.
    pub(crate) fn weather(self, plan: &JobPlan) -> Weather {
        Weather {
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
    pub(crate) fn conditions(self) -> Conditions {
        Conditions {
            lasts: Some(CHAOS_LASTS),
            lease_ttl_millis: Some(CHAOS_TTL_MILLIS),
            has_network: self.kinds.iter().any(Kind::needs_network),
            has_disk: self.kinds.holds(Kind::Disk),
        }
    }
}
