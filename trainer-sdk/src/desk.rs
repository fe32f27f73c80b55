//! The desk of one trainer: the tasks in hand, how far each is, what the master must still be told, and the sums of
//! finished tasks. Pure state behind one lock that is never held across an await.

use crate::acks::Acks;
use crate::chunks::MicrobatchRecords;
use crate::complaint::Complaint;
use crate::kept::KeptSums;
use crate::origin::StepNode;
use shoal_runtime::cluster::{LeaseId, Rewind, Routing, Step, Task, Verified, Work};
use shoal_runtime::wire::proto;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tasks in hand at a time: one being computed, one whose records are read meanwhile.
pub(crate) const IN_HAND: u32 = 2;
/// Microbatches whose hashes one call to the master carries at most: of many parameters they are 16 KiB each.
const VERIFIED_PER_CALL: usize = 64;

/// Tasks in order of step (of position, in asynchronous jobs), so that the lowest is always done first: nobody waits
/// for a later one while an earlier one lacks a worker.
#[derive(Debug)]
pub(crate) struct Desk {
    tasks: BTreeMap<(u64, LeaseId), OnDesk>,
    /// The history that the routing is of. Tasks of an older one are worth nothing; tasks of a newer one wait until
    /// the routing of that one is there.
    rewind: Rewind,
    /// The first step of this history that some block may yet lack: tasks of earlier ones are done, whoever is leased them.
    published: Step,
    /// The job's delay: how many steps right before it the parameters that a step reads may lack.
    delay: u64,
    /// Sums of computed tasks.
    pub(crate) kept: KeptSums,
    /// Whether the lowest due sum has been waiting for room at some pserver.
    pub(crate) waits: bool,
    /// Set when there will be no more tasks: the job is done, or the trainer was asked to leave.
    pub(crate) is_closed: bool,
    /// Complaints that no answer of the master's has confirmed yet.
    complaints: Vec<proto::Complaint>,
    /// Hashes of microbatches that are computed twice, which no answer of the master's has confirmed yet.
    verified: Vec<proto::Verified>,
    /// The part of a careful task that is computed once the master has heard of it; `None`: nothing is to be announced.
    pub(crate) announcing: Option<Announcement>,
}

/// The part of a task that is computed next.
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
        let (tasks, rewind, published, kept) =
            (BTreeMap::new(), routing.rewind(), Step(0), KeptSums::default());
        let (waits, is_closed, announcing) = (false, false, None);
        let (complaints, verified) = (Vec::new(), Vec::new());
        Desk { tasks, rewind, published, delay, kept, waits, is_closed, complaints, verified, announcing }
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
            // Done, and the master has yet to hear of it. What is computed a second time is compared with the first, and not pushed.
            let is_done = |of: StepNode| of.step < self.published && self.is_present(of.rewind);
            let is_finished = !task.is_second && StepNode::of(&task).is_some_and(is_done);
            let task = Arc::new(task);
            let microbatches = if is_computed || is_finished { task.microbatches.len() as u32 } else { 0 };
            let on_desk = OnDesk { task, records: None, microbatches, is_finished };
            self.tasks.insert(place(&on_desk.task), on_desk);
        }
    }

    /// Finishes the tasks of steps before `step`, which every block has published: they are done, whoever did them.
    pub(crate) fn published(&mut self, step: Step) {
        self.published = self.published.max(step);
        self.kept.published(step);
        let is_done = |task: &Task| StepNode::of(task).is_some_and(|of| of.step < step);
        let done: Vec<Arc<Task>> =
            self.tasks.values().map(|on_desk| on_desk.task.clone()).filter(|task| is_done(task)).collect();
        done.iter().for_each(|task| self.finished(task));
    }

    /// Follows a newer routing. When all blocks have gone back, what was done since is worth nothing: it is dropped
    /// without a word, for the master knows of no lease of before.
    pub(crate) fn follow(&mut self, routing: &Routing) {
        if !self.is_present(routing.rewind()) {
            (self.rewind, self.published) = (routing.rewind(), Step(0));
        }
        self.tasks
            .retain(|_, on_desk| rewind_of(&on_desk.task).is_none_or(|rewind| rewind >= routing.rewind()));
        self.kept.follow(routing);
        self.verified.retain(|verified| verified.rewind >= routing.rewind().0);
    }

    /// Whether work of this rewind number still counts.
    pub(crate) fn is_present(&self, rewind: Rewind) -> bool {
        rewind == self.rewind
    }

    /// Drops all tasks. A master of a later term has taken over and knows none of their leases: it leases again what blocks
    /// lack, the lowest step first, and must find room for it.
    pub(crate) fn forget_leases(&mut self) {
        self.tasks.clear();
    }

    /// How many more tasks may be asked for. While the lowest due sum is refused for room, tasks that must wait as well do not
    /// count: only the node that covers the lowest missing slot makes room, and it may be leased to nobody yet.
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

    /// Whether the task's sum is computed, and kept for blocks that lack it.
    fn is_computed(&self, task: &Task) -> bool {
        StepNode::of(task).is_some_and(|of| self.kept.has_due(of))
    }

    /// Whether this task may begin only once a kept sum is pushed: too many sums would wait otherwise.
    fn must_wait(&self, task: &Task) -> bool {
        let Some((due, of)) = self.kept.due().zip(StepNode::of(task)) else { return false };
        let is_below = (of.step, of.node.first()) < (due.of.step, due.of.node.first());
        !(is_below || self.kept.has_room())
    }

    /// Whether the parameters that `step` reads lack a sum that this trainer has yet to push.
    pub(crate) fn holds_up(&self, step: Step) -> bool {
        self.kept.due().is_some_and(|due| due.of.step.0 + self.delay < step.0)
    }

    /// How far each task is, for the master.
    pub(crate) fn progress(&self) -> Vec<proto::Progress> {
        let word = |on_desk: &OnDesk| proto::Progress {
            lease: on_desk.task.lease.0,
            microbatches: on_desk.microbatches,
            pushed: on_desk.is_finished,
            waits: self.waits && !on_desk.is_finished && self.is_computed(&on_desk.task),
        };
        self.tasks.values().map(word).collect()
    }

    /// Whether a task of which the master was `told` that it waits for room is pushed now.
    pub(crate) fn has_pushed(&self, told: &[proto::Progress]) -> bool {
        let waited =
            |on_desk: &OnDesk| told.iter().any(|word| word.waits && word.lease == on_desk.task.lease.0);
        self.tasks.values().any(|on_desk| on_desk.is_finished && waited(on_desk))
    }

    /// Notes for the next call to the master what is computed next of a task: a record alone; `None`: all that the task has.
    pub(crate) fn announce(&mut self, task: &Task, record: Option<u64>) {
        self.announcing = Some(Announcement { lease: task.lease, record });
    }

    /// The master has answered a call that carried the announcement `told`; `None`: it carried none.
    pub(crate) fn heard_announcement(&mut self, told: Option<Announcement>) {
        self.announcing.take_if(|announcing| Some(*announcing) == told);
    }

    /// `Some(true)`: the master has heard what is computed next of a task. `Some(false)`: the task has left the desk, or is
    /// finished. `None`: no answer has come yet.
    pub(crate) fn is_announced(&self, task: &Task) -> Option<bool> {
        let is_here = self.tasks.get(&place(task)).is_some_and(|on_desk| !on_desk.is_finished);
        let is_pending = self.announcing.is_some_and(|announcing| announcing.lease == task.lease);
        if is_here && is_pending { None } else { Some(is_here) }
    }

    /// Whether there is an announcement other than `told`, which a call under way carries.
    pub(crate) fn announces_beside(&self, told: Option<Announcement>) -> bool {
        self.announcing.is_some_and(|announcing| Some(announcing) != told)
    }

    /// Takes a task that cannot be done here off the desk, and notes why for the master.
    pub(crate) fn complain(&mut self, task: &Task, complaint: &Complaint) {
        if self.tasks.remove(&place(task)).is_some() {
            self.complaints.push(complaint.word(task));
        }
    }

    /// Why tasks cannot be done here, for the master.
    pub(crate) fn complaints(&self) -> Vec<proto::Complaint> {
        self.complaints.clone()
    }

    /// The master has answered a call that carried the complaints `told`: they are dropped.
    pub(crate) fn heard_complaints(&mut self, told: &[proto::Complaint]) {
        self.complaints.retain(|complaint| !told.contains(complaint));
    }

    /// Notes the hashes of a computation for the master.
    pub(crate) fn tell(&mut self, verified: Option<&Verified>) {
        self.verified.extend(verified.map(proto::Verified::from));
    }

    /// Hashes for the master, as many as go with one call; the others wait for the next.
    pub(crate) fn verified(&self) -> Vec<proto::Verified> {
        self.verified.iter().take(VERIFIED_PER_CALL).cloned().collect()
    }

    /// The master has answered a call that carried these hashes.
    pub(crate) fn heard_verified(&mut self, told: &[proto::Verified]) {
        self.verified.retain(|verified| !told.contains(verified));
    }

    /// The master has answered a call that carried `told`: tasks that it says are pushed leave the desk.
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

    /// Notes which blocks have acknowledged a sum. Returns how many tasks that has finished.
    pub(crate) fn pushed(&mut self, of: StepNode, acks: Acks, routing: &Routing) -> u64 {
        let is_taken = acks.lacking(routing).is_empty() && of.rewind == routing.rewind();
        let is_applied = acks.is_applied() && self.is_present(of.rewind);
        self.kept.pushed(of, acks, routing);
        let is_it = |on_desk: &&OnDesk| !on_desk.is_finished && StepNode::of(&on_desk.task) == Some(of);
        let tasks: Vec<Arc<Task>> = self
            .tasks
            .values()
            .filter(is_it)
            .filter(|_| is_taken)
            .map(|on_desk| on_desk.task.clone())
            .collect();
        tasks.iter().for_each(|task| self.finished(task));
        if is_applied {
            self.published = self.published.max(of.step.next());
        }
        tasks.len() as u64
    }

    /// Notes how many of a task's microbatches are computed (in asynchronous jobs: applied).
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
