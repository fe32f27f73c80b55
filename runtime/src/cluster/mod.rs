//! The words and pure functions that master, pservers and trainers share.
//!
//! Everything here is a function of its arguments: no clock, no randomness, no file, no network.

pub mod ids;
pub mod initial;
pub mod job;
pub mod layout;
pub mod manifest;
pub mod parameter;
pub mod permutation;
pub mod plan;
pub mod refusal;
pub mod routing;
pub mod schedule;
pub mod task;
pub mod tree;

pub use ids::{BlockId, Incarnation, JobId, LeaseId, Step, Version};
pub use job::JobSettings;
pub use layout::Layout;
pub use manifest::Manifest;
pub use parameter::{Declaration, Parameter, Rule};
pub use plan::Plan;
pub use refusal::{Refusal, RefusalKind};
pub use routing::Routing;
pub use task::{Microbatch, Slice, Task};
pub use tree::{Node, StepTree};
