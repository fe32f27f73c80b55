//! The words and pure functions that master, pservers and trainers share.
//!
//! Everything here is a function of its arguments: no clock, no randomness, no file, no network.

pub mod block_copy;
pub mod checkpoint;
pub mod course;
pub mod decisions;
pub mod exclusions;
pub mod group;
pub mod ids;
pub mod initial;
pub mod job;
pub mod job_check;
pub mod job_shape;
pub mod layout;
pub mod ledger;
pub mod manifest;
pub mod metric;
pub mod parameter;
pub mod permutation;
pub mod plan;
pub mod refusal;
pub mod routing;
pub mod rule;
pub mod schedule;
pub mod staleness;
pub mod target;
pub mod task;
pub mod tree;
pub mod warm_start;

pub use block_copy::BlockCopy;
pub use checkpoint::{CheckpointId, CheckpointManifest, DamagedCheckpoint, ManifestRecord, PieceRef};
pub use course::{Course, Stage};
pub use decisions::{Decision, Decisions, Partial, Tally};
pub use exclusions::{Exclusion, Exclusions};
pub use group::Group;
pub use ids::{BlockId, Fill, Incarnation, JobId, LeaseId, Rewind, StateName, Step, Term, Version};
pub use job::{JobSettings, Mode};
pub use job_shape::{Evaluated, JobShape, Pass, Period};
pub use layout::Layout;
pub use ledger::Ledger;
pub use manifest::Manifest;
pub use metric::{Better, Metric};
pub use parameter::{Declaration, Parameter};
pub use plan::Plan;
pub use refusal::{Refusal, RefusalKind};
pub use routing::Routing;
pub use rule::Rule;
pub use schedule::Schedule;
pub use staleness::Staleness;
pub use target::{Judged, Plateau, Target};
pub use task::{Microbatch, Slice, Task, Work};
pub use tree::{Node, StepTree};
pub use warm_start::WarmStart;
