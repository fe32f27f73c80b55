//! How many of whom a job is to have, from its spec alone. Pure.

use super::view::Target;
use crate::api::TrainingJobSpec;

/// As many as the spec says, or the least.
pub fn target(spec: &TrainingJobSpec) -> Target {
    let within = |replicas: Option<u32>, min: u32, max: Option<u32>| {
        let (wanted, why) = match replicas {
            Some(replicas) => (replicas, "replicas, as the job's spec says"),
            None => (min, "minReplicas, as the job's spec says"),
        };
        (wanted.clamp(min, max.unwrap_or(min).max(min)), why.to_owned())
    };
    let trainer = &spec.trainer;
    let pserver = &spec.pserver;
    let (trainers, why_trainers) = within(trainer.replicas, trainer.min_replicas, trainer.max_replicas);
    let (pservers, why_pservers) = within(pserver.replicas, pserver.min_replicas, pserver.max_replicas);
    Target { trainers, pservers, why_trainers, why_pservers }
}
