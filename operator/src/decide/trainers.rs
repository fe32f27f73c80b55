//! The trainers: as many as are wanted, the first of them at the job's own priority. Pure.
//!
//! Those go that the plan names, for others need their nodes; then the highest ordinals. Who comes has the lowest ordinal that
//! no pod has.

use super::budget;
use super::upkeep::Upkeep;
use super::view::{Grace, PodView, Role};

/// Makes what is missing, lets go of what is too much.
pub(super) fn keep(next: &mut Upkeep<'_>) {
    let wanted = next.view.target.trainers;
    let before = next.status.trainer.wanted;
    if before != wanted && before > 0 && wanted > 0 {
        let why = next.view.target.why_trainers.clone();
        let what = format!("trainers {before} -> {wanted}");
        next.event(false, "Scaled", format!("{what}: {why}"));
        next.decided(what, why);
    }
    next.status.trainer.wanted = wanted;
    let let_go = &next.view.target.let_go;
    let (named, mut others): (Vec<&PodView>, Vec<&PodView>) =
        next.view.of(Role::Trainer).partition(|pod| let_go.contains(&pod.uid));
    others.sort_by_key(|pod| pod.ordinal);
    // Who is being deleted has its ordinal until it is gone.
    let surplus = others.split_off(others.len().min(wanted as usize));
    for pod in named.into_iter().chain(surplus) {
        next.delete(pod, Grace::Own);
    }
    if !next.is_begun() || !budget::may_start(next.status.trainer.failures, next.view.now) {
        return;
    }
    let least = next.view.job.spec.trainer.min_replicas;
    let there = next.view.of(Role::Trainer).count();
    let missing = (wanted as usize).saturating_sub(there);
    let is_free = |ordinal: &u32| next.view.pod(Role::Trainer, *ordinal).is_none();
    for ordinal in (0..).filter(is_free).take(missing).collect::<Vec<u32>>() {
        next.create(Role::Trainer, ordinal, ordinal >= least, None);
    }
}
