//! The shell: what is seen of the cluster becomes plain values, what was decided becomes calls. Decides nothing.

mod apply;
mod controller;
mod index;
mod leader;
mod master;
mod orphans;
mod planner;
mod pod_index;
mod pods;
mod surroundings;
mod unseen;
mod watches;

pub use controller::{Fleet, Looks, Scope, run};
pub use leader::Leader;
pub use planner::Plans;
