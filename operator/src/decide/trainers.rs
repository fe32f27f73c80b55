//! The trainers: as many as are wanted, the lowest ordinals, the first of them at the job's own priority. Pure.

use super::budget;
use super::upkeep::Upkeep;
use super::view::{Grace, Role};

/// Makes what is missing, lets go of what is too much.
pub(super) fn keep(next: &mut Upkeep<'_>) {
    let wanted = next.view.target.trainers;
    let before = next.status.trainer.wanted;
    if before != wanted && before > 0 {
        next.decided(format!("trainers {before} -> {wanted}"), next.view.target.why_trainers.clone());
    }
    next.status.trainer.wanted = wanted;
    for pod in next.view.of(Role::Trainer).filter(|pod| pod.ordinal >= wanted) {
        next.delete(pod, Grace::Own);
    }
    if !next.is_begun() || !budget::may_start(next.status.trainer.failures, next.view.now) {
        return;
    }
    let least = next.view.job.spec.trainer.min_replicas;
    for ordinal in (0..wanted).filter(|ordinal| next.view.pod(Role::Trainer, *ordinal).is_none()) {
        next.create(Role::Trainer, ordinal, ordinal >= least, None);
    }
}
