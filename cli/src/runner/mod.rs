//! The local runner: the same roles as on a cluster, as processes of this machine, supervised.
//!
//! [`Supervisor`] keeps the processes of one job as the job wants them; [`record`] remembers what happened; [`chaos`]
//! decides what to break. Nothing here may change a bit of the model: it starts, stops and signals processes only.

pub(crate) mod chaos;
pub(crate) mod outcome;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod record;
pub(crate) mod supervisor;

pub(crate) use supervisor::{JobPlan, Supervisor};
