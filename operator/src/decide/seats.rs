//! The pservers' seats: who stays, who leaves, who takes whose place. Pure.
//!
//! A seat has an ordinal for life. It *stays* until it is to leave (fewer are wanted) or is replaced (it moves, or its pod
//! is being deleted by others); then its blocks go elsewhere, its pod ends by itself, and only then it is given up.

use super::view::{MasterView, PodState, Role, View, pod_name};
use crate::api::{Seat, TrainingJobStatus};
use serde_json::Value;

/// All seats of a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seats {
    all: Vec<Seat>,
    /// The ordinal of the next one.
    next: u32,
}

fn is_staying(seat: &Seat) -> bool {
    !seat.leaving && seat.replaced_by.is_none()
}

impl Seats {
    /// Those that the status has.
    pub(super) fn of(status: &TrainingJobStatus) -> Seats {
        Seats { all: status.pserver.seats.clone(), next: status.pserver.next_ordinal }
    }

    /// Writes them into a status.
    pub(super) fn keep_in(&self, status: &mut TrainingJobStatus) {
        (status.pserver.seats, status.pserver.next_ordinal) = (self.all.clone(), self.next);
    }

    /// All of them.
    pub(super) fn all(&self) -> &[Seat] {
        &self.all
    }

    /// Those that neither leave nor are replaced.
    pub(super) fn staying(&self) -> impl Iterator<Item = &Seat> {
        self.all.iter().filter(|seat| is_staying(seat))
    }

    /// Those that leave or are replaced.
    pub(super) fn leaving(&self) -> impl Iterator<Item = &Seat> {
        self.all.iter().filter(|seat| !is_staying(seat))
    }

    /// A new seat, with resources of its own or its role's. Returns its ordinal.
    fn add(&mut self, resources: Option<Value>) -> u32 {
        let ordinal = self.next;
        self.next += 1;
        self.all.push(Seat { ordinal, resources, ..Seat::default() });
        ordinal
    }

    /// Whether another seat may take the place of this one, or has it already.
    pub(super) fn can_be_replaced(&self, ordinal: u32) -> bool {
        self.all.iter().any(|seat| seat.ordinal == ordinal && (!seat.leaving || seat.replaced_by.is_some()))
    }

    /// Another seat takes the place of this one. Returns its ordinal, also if that was decided before.
    pub(super) fn replace(&mut self, ordinal: u32, resources: Option<Value>) -> Option<u32> {
        let seat = self.all.iter().find(|seat| seat.ordinal == ordinal)?;
        if !is_staying(seat) {
            return seat.replaced_by;
        }
        let resources = resources.or_else(|| seat.resources.clone());
        let new = self.add(resources);
        let seat = self.all.iter_mut().find(|seat| seat.ordinal == ordinal)?;
        seat.replaced_by = Some(new);
        Some(new)
    }

    /// Gives up the seats that are left and whose pods are gone.
    pub(super) fn give_up(&mut self, view: &View<'_>) {
        let is_held = |seat: &Seat| is_staying(seat) || view.pod(Role::Pserver, seat.ordinal).is_some();
        self.all.retain(is_held);
    }

    /// Gives up all that leave: the job has no pods.
    pub(super) fn give_up_leaving(&mut self) {
        self.all.retain(is_staying);
    }

    /// Whose pod is being deleted by others is replaced at once, while it still serves its blocks. Returns who is replaced by whom.
    pub(super) fn replace_deleted(&mut self, view: &View<'_>) -> Vec<(u32, u32)> {
        let deleted = |ordinal: u32| {
            let pod = view.pod(Role::Pserver, ordinal);
            pod.is_some_and(|pod| pod.deleted.is_some() && !matches!(pod.state, PodState::Ended(_)))
        };
        let gone: Vec<u32> =
            self.staying().map(|seat| seat.ordinal).filter(|ordinal| deleted(*ordinal)).collect();
        gone.into_iter().filter_map(|ordinal| Some((ordinal, self.replace(ordinal, None)?))).collect()
    }

    /// Makes so many stay; the newest leave. Returns how many did before.
    pub(super) fn keep(&mut self, wanted: u32) -> u32 {
        let before = self.staying().count() as u32;
        for _ in before..wanted {
            self.add(None);
        }
        let surplus = before.saturating_sub(wanted) as usize;
        let newest = self.all.iter_mut().rev().filter(|seat| is_staying(seat));
        newest.take(surplus).for_each(|seat| seat.leaving = true);
        before
    }

    /// The number of pservers to tell the master, before it is told who leaves, if what it says does not follow from the
    /// seats. Each that it is then told of is one fewer to it; those that are replaced it counts until others have come.
    pub(super) fn number_to_tell(&self, job: &str, master: &MasterView) -> Option<u32> {
        let untold = |seat: &&Seat| {
            let name = pod_name(Role::Pserver, job, seat.ordinal);
            let is_it = |one: &super::MemberView| one.is_live && !one.is_leaving && one.name == name;
            seat.leaving && master.pservers.iter().any(is_it)
        };
        let number = (self.staying().count() + self.all.iter().filter(untold).count()) as u32;
        let replaced = self.all.iter().filter(|seat| seat.replaced_by.is_some()).count() as u32;
        (!(number..=number + replaced).contains(&master.pservers_wanted)).then_some(number)
    }
}
