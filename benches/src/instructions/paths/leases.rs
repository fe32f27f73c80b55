//! Leasing among few trainers and many.

use super::{HotPath, Walk};
use crate::paths::leases::Job;

/// Of one repetition, whatever the number of trainers.
const LEASES: u32 = 2000;

pub(super) fn paths() -> Vec<HotPath> {
    let path = |name, trainers| HotPath::new(name, (LEASES, "lease"), 4, move || leases(trainers));
    vec![path("leases/10", 10), path("leases/1000", 1000)]
}

fn leases(trainers: u32) -> anyhow::Result<Walk> {
    let mut job = Job::new(trainers);
    job.begin()?;
    Ok(Box::new(move || job.steps(LEASES / trainers)))
}
