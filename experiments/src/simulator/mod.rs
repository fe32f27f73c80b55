//! A cluster in discrete events: jobs that are submitted, pods that are placed, start and end, services that are asked for
//! more and less, nodes that are lost; and a policy that decides how many trainers each job has. Pure: a scenario and its
//! seed give the same series on every machine.
//!
//! What is modelled: pods take time to start and to stop; a job makes steps while its master, all its pservers and at least
//! one trainer run (where jobs are static: all trainers), at the speed of its model with so many; the scheduler places pods
//! that wait on the first node with room, the highest priority first. What is not: work that a killed trainer takes with it
//! (a task, seconds), the network between nodes, preemption by the scheduler itself.

mod cluster;
mod edl;
mod faults;
mod gang;
mod job;
mod losses;
pub mod scenario;
mod shoal;
mod world;

pub use scenario::Scenario;

use crate::Experiment;
use world::World;

/// Who decides.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Jobs are static: each starts when all of it has room
    Gang,
    /// The rules of PaddlePaddle EDL's autoscaler
    Edl,
    /// Our planner
    Shoal,
}

impl Policy {
    /// As it is said on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Gang => "gang",
            Policy::Edl => "edl",
            Policy::Shoal => "shoal",
        }
    }
}

/// Runs a scenario under a policy. `told` hears how far it is, from 0 to 1.
pub fn simulate(scenario: &Scenario, policy: Policy, told: impl FnMut(f64)) -> Experiment {
    World::new(scenario, policy).run(told)
}

#[cfg(test)]
mod tests;
