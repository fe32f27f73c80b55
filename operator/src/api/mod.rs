//! What people write and read: the resources `TrainingJob` and `ScalePlan` of the group `shoal.dev/v1alpha1`.
//!
//! Doc comments here are what `kubectl explain` shows. Nothing here talks to a cluster.

#[cfg(test)]
mod cases;
mod file;
mod job;
mod moment;
mod phase;
mod plan;
mod quantity;
mod schema;
mod status;
mod template;
mod tls;
mod validate;

pub use file::{WrittenJob, written_jobs};
pub use job::{
    CleanPodPolicy, FailurePolicy, MasterSpec, PLANNED_TRAINERS, PserverSpec, TrainerSpec, TrainingJob,
    TrainingJobSpec,
};
pub use moment::Moment;
pub use phase::Phase;
pub use plan::{MigratePod, ReplicaResourceSpec, ScalePlan, ScalePlanPhase, ScalePlanSpec, ScalePlanStatus};
pub use quantity::{bytes, doubled, quantity_value};
pub use schema::{definitions, definitions_as_yaml};
pub use status::{
    AvoidedNode, CheckpointStatus, Condition, DecisionRecord, Ends, Failure, Failures, MemoryGrant,
    PlanStatus, Progress, PserverRoleStatus, Seat, Speed, Suspending, TrainerRoleStatus, TrainingJobStatus,
};
pub use template::{TRAINER_CONTAINER, container, typed_template};
pub use tls::{TlsMode, TlsSpec};
pub(crate) use validate::pinned;
pub use validate::{changed, faults};

/// The API group of all resources here.
pub const GROUP: &str = "shoal.dev";
/// Their version.
pub const VERSION: &str = "v1alpha1";
