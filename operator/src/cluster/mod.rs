//! The shell: what is seen of the cluster becomes plain values, what was decided becomes calls. Decides nothing.

mod apply;
mod controller;
mod leader;
mod master;
mod orphans;
mod pod_index;
mod pods;
mod surroundings;
mod unseen;

pub use controller::{Fleet, Looks, run};
pub use leader::Leader;
