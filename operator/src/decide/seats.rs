//! The pservers' seats: who stays, who leaves, who takes whose place. Pure.
//!
//! A seat has an ordinal for life. It *stays* until it is to leave (fewer are wanted) or is replaced (it moves, or its pod
//! is being deleted by others); then its blocks go elsewhere, its pod ends by itself, and only then it is given up.

use super::upkeep::Upkeep;
use super::view::{Act, Command, MasterView, Memory, PodState, Role, pod_name};
use super::{ends, load};
use crate::api::{Seat, TrainingJobStatus};
use serde_json::Value;
use shoal_planner::PserverPlan;

/// Seats that neither leave nor are replaced.
pub(super) fn staying(status: &TrainingJobStatus) -> impl Iterator<Item = &Seat> {
    status.pserver.seats.iter().filter(|seat| is_staying(seat))
}

fn is_staying(seat: &Seat) -> bool {
    !seat.leaving && seat.replaced_by.is_none()
}

/// A new seat, with resources of its own or its role's.
pub(super) fn add(status: &mut TrainingJobStatus, resources: Option<Value>) -> u32 {
    let ordinal = status.pserver.next_ordinal;
    status.pserver.next_ordinal += 1;
    status.pserver.seats.push(Seat { ordinal, resources, ..Seat::default() });
    ordinal
}

/// Another seat takes the place of this one. Returns its ordinal, also if that was decided before.
pub(super) fn replace(status: &mut TrainingJobStatus, ordinal: u32, resources: Option<Value>) -> Option<u32> {
    let seat = status.pserver.seats.iter().find(|seat| seat.ordinal == ordinal)?;
    if seat.leaving || seat.replaced_by.is_some() {
        return seat.replaced_by;
    }
    let resources = resources.or_else(|| seat.resources.clone());
    let new = add(status, resources);
    let seat = status.pserver.seats.iter_mut().find(|seat| seat.ordinal == ordinal)?;
    seat.replaced_by = Some(new);
    Some(new)
}

/// Makes seats and pods as many as are wanted.
pub(super) fn keep(next: &mut Upkeep<'_>, memory: &mut Memory) {
    give_up(next);
    replace_deleted(next);
    let plan = load::plan(next, memory);
    as_many_as_wanted(next, plan);
    if !next.has_placed_master() || !ends::may_start(&next.status, memory, Role::Pserver, next.view.now) {
        return;
    }
    for seat in staying(&next.status).cloned().collect::<Vec<_>>() {
        if next.view.pod(Role::Pserver, seat.ordinal).is_none() {
            next.create(Role::Pserver, seat.ordinal, false, seat.resources);
        }
    }
}

/// Gives up the seats that are left and whose pods are gone, and removes pods that have no seat.
fn give_up(next: &mut Upkeep<'_>) {
    let view = next.view;
    let is_held = |seat: &Seat| is_staying(seat) || view.pod(Role::Pserver, seat.ordinal).is_some();
    next.status.pserver.seats.retain(is_held);
    for pod in view.of(Role::Pserver) {
        if next.status.pserver.seats.iter().all(|seat| seat.ordinal != pod.ordinal) {
            next.delete(pod, super::Grace::Own);
        }
    }
}

/// Whose pod is being deleted by others is replaced at once, while it still serves its blocks.
fn replace_deleted(next: &mut Upkeep<'_>) {
    let deleted = |ordinal: u32| {
        let pod = next.view.pod(Role::Pserver, ordinal);
        pod.is_some_and(|pod| pod.deleted.is_some() && !matches!(pod.state, PodState::Ended(_)))
    };
    let gone: Vec<u32> =
        staying(&next.status).map(|seat| seat.ordinal).filter(|ordinal| deleted(*ordinal)).collect();
    for ordinal in gone {
        if let Some(new) = replace(&mut next.status, ordinal, None) {
            next.decided(
                format!("pserver {ordinal} is replaced by pserver {new}"),
                "its pod is being deleted",
            );
        }
    }
}

fn as_many_as_wanted(next: &mut Upkeep<'_>, plan: PserverPlan) {
    let wanted = plan.count;
    let before = staying(&next.status).count() as u32;
    for _ in before..wanted {
        add(&mut next.status, None);
    }
    for _ in wanted..before {
        let Some(seat) = next.status.pserver.seats.iter_mut().rev().find(|seat| is_staying(seat)) else {
            break;
        };
        seat.leaving = true;
    }
    if before != wanted && before > 0 {
        let what = format!("pservers {before} -> {wanted}");
        next.event(false, "Scaled", format!("{what}: {}", plan.why));
        next.decided(what, plan.why);
        next.status.pserver.changed = Some(next.view.now);
    }
    next.status.pserver.wanted = wanted;
}

/// Tells the master who is to be left, as long as it does not say so itself. Who never came to it is deleted.
pub(super) fn drain(next: &mut Upkeep<'_>, master: &MasterView) {
    for seat in next.status.pserver.seats.clone().iter().filter(|seat| !is_staying(seat)) {
        let Some(pod) = next.view.pod(Role::Pserver, seat.ordinal) else { continue };
        let known = master.pservers.iter().find(|one| one.is_live && one.name == pod.name);
        let is_waiting = matches!(pod.state, PodState::Unplaced(_) | PodState::Starting(_));
        match known {
            Some(known) if !known.is_leaving => {
                let (pserver, is_replaced) = (pod.name.clone(), seat.replaced_by.is_some());
                next.acts.push(Act::Tell(Command::Drain { pserver, is_replaced }));
            }
            None if is_waiting => next.delete(pod, super::Grace::Own),
            Some(_) | None => {}
        }
    }
}

/// The number of pservers to tell the master, before it is told who leaves, if what it says does not follow from the
/// seats. Each that it is then told of is one fewer to it; those that are replaced it counts until others have come.
pub(super) fn number_to_tell(next: &Upkeep<'_>, master: &MasterView) -> Option<u32> {
    let untold = |seat: &&Seat| {
        let name = pod_name(Role::Pserver, next.view.name(), seat.ordinal);
        seat.leaving && master.pservers.iter().any(|one| one.is_live && !one.is_leaving && one.name == name)
    };
    let seats = &next.status.pserver.seats;
    let number = (staying(&next.status).count() + seats.iter().filter(untold).count()) as u32;
    let replaced = seats.iter().filter(|seat| seat.replaced_by.is_some()).count() as u32;
    (!(number..=number + replaced).contains(&master.pservers_wanted)).then_some(number)
}
