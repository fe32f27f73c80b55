//! The local runner: the same roles as on a cluster, as processes of this machine, supervised.
//!
//! [`Supervisor`] keeps the processes of one job as the job wants them, by what [`upkeep`] decides and what ends mean ([`shoal_job::ends`]); [`record`]
//! and [`journal`] remember what happened; a [`reaper`] outlives it and leaves nothing; some run on [`hosts`] of their own. Nothing here may change a bit of the model: it starts, stops and signals
//! processes only.

pub(crate) mod claim;
pub(crate) mod counts;
pub(crate) mod credentials;
pub(crate) mod description;
pub(crate) mod flags;
pub(crate) mod folder;
pub(crate) mod hosts;
pub(crate) mod journal;
pub(crate) mod latest;
pub(crate) mod life;
pub(crate) mod outcome;
pub(crate) mod plan;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod reaper;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod start;
pub(crate) mod supervisor;
pub(crate) mod upkeep;

pub(crate) use plan::JobPlan;
pub(crate) use supervisor::Supervisor;
