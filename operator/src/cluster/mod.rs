//! The shell: what is seen of the cluster becomes plain values, what was decided becomes calls. Decides nothing.

mod apply;
mod authority;
mod calls;
mod cert_manager;
mod certificates;
mod clients;
mod controller;
mod creations;
mod failure;
mod fleet;
mod index;
mod leader;
mod master;
mod metrics;
mod orphans;
mod others;
mod owned;
mod planner;
mod plans;
mod pod_index;
mod pods;
mod queue;
mod refusals;
mod surroundings;
mod troubles;
mod unseen;
mod watches;

pub use calls::Calls;
pub(crate) use calls::{CallKind, Watchful};
pub use certificates::CertificateSettings;
pub use controller::{Scope, Watched, run};
pub use leader::Leader;
pub use metrics::{Jobs, Reconciles};
pub use planner::Plans;
