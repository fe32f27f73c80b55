//! The desk of one trainer: the tasks in hand, how far each is, what the master must still be told, and the sums of
//! finished tasks. Pure state behind one lock that is never held across an await.

use crate::chunks::MicrobatchRecords;
use crate::complaint::Complaint;
use crate::kept::Kept;
use crate::origin::NodeOf;
use crate::taken::Taken;
use shoal_runtime::cluster::{LeaseId, Rewind, Routing, Step, Task, Work};
use shoal_runtime::wire::proto;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tasks in hand at a time: one being computed, one whose records are read meanwhile.
pub(crate) const IN_HAND: u32 = 2;

/// Tasks in order of step (of position, in asynchronous jobs), so that the lowest is always done first: nobody waits
/// for a later one while an earlier one lacks a worker.
#[derive(Debug)]
pub(crate) struct Desk {
    tasks: BTreeMap<(u64, LeaseId), OnDesk>,
    /// The history that the routing is of. Tasks of an older one are worth nothing; tasks of a newer one wait until
    /// the routing of that one is there.
    rewind: Rewind,
    /// The job's.
    delay: u64,
    /// Sums of computed tasks.
    pub(crate) kept: Kept,
    /// Whether the lowest that is due waits for room at some pserver, and has for a while.
    pub(crate) waits: bool,
    /// Set when there will be no more tasks: the job is done, or the trainer was asked to leave.
    pub(crate) is_closed: bool,
    /// What the master has yet to hear of.
    complaints: Vec<proto::Complaint>,
    /// What is computed next of a careful task, once the master has heard of it.
    pub(crate) announcing: Option<Announcement>,
}

/// What is about to be computed of a task: a record alone, or all that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) lease: LeaseId,
    pub(crate) record: Option<u64>,
}

#[derive(Debug)]
struct OnDesk {
    task: Arc<Task>,
    records: Option<Arc<Vec<MicrobatchRecords>>>,
    microbatches: u32,
    is_finished: bool,
}

/// A task whose records are in memory.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) task: Arc<Task>,
    pub(crate) records: Arc<Vec<MicrobatchRecords>>,
}

impl Desk {
    /// An empty desk under the routing that came with joining, in a job of this delay.
    pub(crate) fn new(routing: &Routing, delay: u64) -> Desk {
        let (tasks, rewind, kept) = (BTreeMap::new(), routing.rewind(), Kept::default());
        let (waits, is_closed, complaints, announcing) = (false, false, Vec::new(), None);
        Desk { tasks, rewind, delay, kept, waits, is_closed, complaints, announcing }
    }

    pub(crate) fn add(&mut self, tasks: Vec<Task>) {
        for task in tasks {
            if let Work::Node { step, rewind, .. } = task.work {
                if rewind < self.rewind {
                    continue;
                }
                // The front is no further back, and all before it is applied.
                self.published(Step(step.0.saturating_sub(1 + self.delay)));
            }
            let is_computed = self.is_computed(&task);
            if is_computed {
                // Leased once more: the lease before it has expired. What is still to be computed stays on the desk beside it, so
                // that one that cannot go on is given no more than it can hold.
                self.tasks.retain(|_, old| old.is_finished || old.task.work != task.work);
            }
            let task = Arc::new(task);
            let microbatches = if is_computed { task.microbatches.len() as u32 } else { 0 };
            let on_desk = OnDesk { task, records: None, microbatches, is_finished: false };
            self.tasks.insert(place(&on_desk.task), on_desk);
        }
    }

    /// Every block has published `step`: what is of earlier steps is done, whoever did it.
    pub(crate) fn published(&mut self, step: Step) {
        self.kept.published(step);
        let is_done = |task: &Task| NodeOf::of(task).is_some_and(|of| of.step < step);
        let done: Vec<Arc<Task>> =
            self.tasks.values().map(|on_desk| on_desk.task.clone()).filter(|task| is_done(task)).collect();
        done.iter().for_each(|task| self.finished(task));
    }

    /// Follows a newer routing. When all blocks have gone back, what was done since is worth nothing: it is dropped
    /// without a word, for the master knows of no lease of before.
    pub(crate) fn follow(&mut self, routing: &Routing) {
        self.rewind = routing.rewind();
        self.tasks
            .retain(|_, on_desk| rewind_of(&on_desk.task).is_none_or(|rewind| rewind >= routing.rewind()));
        self.kept.follow(routing);
    }

    /// Whether work of this rewind number still counts.
    pub(crate) fn is_present(&self, rewind: Rewind) -> bool {
        rewind == self.rewind
    }

    /// A master of a later term has taken over, and knows none of these leases: it leases again what blocks lack, the
    /// lowest step first, and must find room for it.
    pub(crate) fn forget_leases(&mut self) {
        self.tasks.clear();
    }

    /// How many more tasks may be asked for. A sum that finds no room waits for a lower one, which may be anybody's to
    /// compute: so there is room until this trainer has that one, whatever else it has that must wait.
    pub(crate) fn room(&self) -> u32 {
        let due = self.kept.due().map(|kept| kept.of.step).filter(|_| self.waits);
        let may_wait = |task: &Task| {
            let is_later = due.is_some_and(|due| task.work.order() > due.0);
            is_later || self.is_computed(task) || self.must_wait(task)
        };
        let unfinished = self.tasks.values().filter(|on_desk| !on_desk.is_finished);
        let in_hand = unfinished.filter(|on_desk| !(self.waits && may_wait(&on_desk.task))).count() as u32;
        if self.is_closed { 0 } else { IN_HAND.saturating_sub(in_hand) }
    }

    /// Whether its sum is kept for blocks that lack it.
    fn is_computed(&self, task: &Task) -> bool {
        NodeOf::of(task).is_some_and(|of| self.kept.has_due(of))
    }

    /// Whether a sum must be pushed before this task is begun, or there would be too many that wait.
    fn must_wait(&self, task: &Task) -> bool {
        let Some((due, of)) = self.kept.due().zip(NodeOf::of(task)) else { return false };
        let is_below = (of.step, of.node.first()) < (due.of.step, due.of.node.first());
        !(is_below || self.kept.has_room())
    }

    /// Whether what `step` reads cannot be published before this trainer has pushed a sum.
    pub(crate) fn holds_up(&self, step: Step) -> bool {
        self.kept.due().is_some_and(|due| due.of.step.0 + self.delay < step.0)
    }

    /// What the master is to be told.
    pub(crate) fn progress(&self) -> Vec<proto::Progress> {
        let word = |on_desk: &OnDesk| proto::Progress {
            lease: on_desk.task.lease.0,
            microbatches: on_desk.microbatches,
            pushed: on_desk.is_finished,
            waits: self.waits && !on_desk.is_finished && self.is_computed(&on_desk.task),
        };
        self.tasks.values().map(word).collect()
    }

    /// Whether something that was told to wait for room is pushed now.
    pub(crate) fn has_pushed(&self, told: &[proto::Progress]) -> bool {
        let waited =
            |on_desk: &OnDesk| told.iter().any(|word| word.waits && word.lease == on_desk.task.lease.0);
        self.tasks.values().any(|on_desk| on_desk.is_finished && waited(on_desk))
    }

    /// The master is to hear what is computed next of a task.
    pub(crate) fn announce(&mut self, task: &Task, record: Option<u64>) {
        self.announcing = Some(Announcement { lease: task.lease, record });
    }

    /// The master has heard `told`.
    pub(crate) fn heard_announcement(&mut self, told: Option<Announcement>) {
        self.announcing.take_if(|announcing| Some(*announcing) == told);
    }

    /// Whether the master has heard what is computed next of a task; false if that is not to be done here any more. None: not
    /// yet.
    pub(crate) fn is_announced(&self, task: &Task) -> Option<bool> {
        let is_here = self.tasks.get(&place(task)).is_some_and(|on_desk| !on_desk.is_finished);
        let is_pending = self.announcing.is_some_and(|announcing| announcing.lease == task.lease);
        if is_here && is_pending { None } else { Some(is_here) }
    }

    /// Whether something is to be announced that is not what the master is being told.
    pub(crate) fn announces_beside(&self, told: Option<Announcement>) -> bool {
        self.announcing.is_some_and(|announcing| Some(announcing) != told)
    }

    /// A task cannot be done here: it leaves the desk, and the master is told why.
    pub(crate) fn complain(&mut self, task: &Task, complaint: &Complaint) {
        if self.tasks.remove(&place(task)).is_some() {
            self.complaints.push(complaint.word(task));
        }
    }

    /// What the master is to be told of tasks that cannot be done here.
    pub(crate) fn complaints(&self) -> Vec<proto::Complaint> {
        self.complaints.clone()
    }

    /// The master has heard of these.
    pub(crate) fn heard_complaints(&mut self, told: &[proto::Complaint]) {
        self.complaints.retain(|complaint| !told.contains(complaint));
    }

    /// The master has heard `told`: finished tasks leave the desk.
    pub(crate) fn heard(&mut self, told: &[proto::Progress]) {
        self.tasks.retain(|(_, lease), _| !told.iter().any(|word| word.pushed && word.lease == lease.0));
    }

    /// The tasks whose records are still to be read, the lowest first.
    pub(crate) fn unread(&self) -> Vec<Arc<Task>> {
        let unread = self.tasks.values().filter(|on_desk| self.lacks_records(on_desk));
        unread.map(|on_desk| on_desk.task.clone()).collect()
    }

    /// Whether some task lacks its records.
    pub(crate) fn is_reading(&self) -> bool {
        self.tasks.values().any(|on_desk| self.lacks_records(on_desk))
    }

    /// Whether records are to be read for a task: nobody computes one that is finished, or whose sum is kept to be pushed.
    fn lacks_records(&self, on_desk: &OnDesk) -> bool {
        on_desk.records.is_none() && !on_desk.is_finished && !self.is_computed(&on_desk.task)
    }

    pub(crate) fn was_read(&mut self, task: &Task, records: Vec<MicrobatchRecords>) {
        if let Some(on_desk) = self.tasks.get_mut(&place(task)) {
            on_desk.records = Some(Arc::new(records));
        }
    }

    /// The lowest task of the present history that is to be computed, whose records are there and which need not wait.
    pub(crate) fn ready(&self) -> Option<Ready> {
        let is_present = |task: &Task| rewind_of(task).is_none_or(|rewind| self.is_present(rewind));
        let unfinished = self.tasks.values().filter(|on_desk| {
            let task = &on_desk.task;
            let is_to_do = !on_desk.is_finished && !self.is_computed(task);
            is_to_do && on_desk.records.is_some() && is_present(task) && !self.must_wait(task)
        });
        let next = unfinished.min_by_key(|on_desk| place(&on_desk.task))?;
        Some(Ready { task: next.task.clone(), records: next.records.clone()? })
    }

    /// A sum was pushed, as far as `taken` says. Returns how many tasks that has finished.
    pub(crate) fn pushed(&mut self, of: NodeOf, taken: Taken, routing: &Routing) -> u64 {
        let is_taken = taken.lacking(routing).is_empty() && of.rewind == routing.rewind();
        self.kept.pushed(of, taken, routing);
        let is_it = |on_desk: &&OnDesk| !on_desk.is_finished && NodeOf::of(&on_desk.task) == Some(of);
        let tasks: Vec<Arc<Task>> = self
            .tasks
            .values()
            .filter(is_it)
            .filter(|_| is_taken)
            .map(|on_desk| on_desk.task.clone())
            .collect();
        tasks.iter().for_each(|task| self.finished(task));
        tasks.len() as u64
    }

    /// So many of its microbatches are computed (in asynchronous jobs: applied).
    pub(crate) fn advanced(&mut self, task: &Task, microbatches: u32) {
        if let Some(on_desk) = self.tasks.get_mut(&place(task)) {
            on_desk.microbatches = microbatches;
        }
    }

    pub(crate) fn finished(&mut self, task: &Task) {
        if let Some(on_desk) = self.tasks.get_mut(&place(task)) {
            on_desk.is_finished = true;
            on_desk.records = on_desk.records.take().map(|_| Arc::new(Vec::new()));
        }
    }
}

fn place(task: &Task) -> (u64, LeaseId) {
    (task.work.order(), task.lease)
}

fn rewind_of(task: &Task) -> Option<Rewind> {
    match task.work {
        Work::Node { rewind, .. } => Some(rewind),
        Work::Run { .. } => None,
    }
}

#[cfg(test)]
mod tests;
