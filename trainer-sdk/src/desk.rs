//! The desk of one trainer: the tasks in hand, how far each is, and what the master must still be told. Pure state
//! behind one lock that is never held across an await.

use crate::chunks::MicrobatchRecords;
use shoal_runtime::cluster::{LeaseId, Step, Task};
use shoal_runtime::wire::proto;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tasks in hand at a time: one being computed, one whose records are read meanwhile.
pub(crate) const IN_HAND: u32 = 2;

/// Tasks in order of step, so that the lowest step is always done first: nobody waits for a later one while an
/// earlier one lacks a worker.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    tasks: BTreeMap<(Step, LeaseId), OnDesk>,
    /// Set when there will be no more tasks: the job is done, or the trainer was asked to leave.
    pub(crate) is_closed: bool,
}

#[derive(Debug)]
struct OnDesk {
    task: Arc<Task>,
    records: Option<Arc<Vec<MicrobatchRecords>>>,
    microbatches: u32,
    is_finished: bool,
    /// How often a block had no room for it.
    put_off: u32,
}

/// A task whose records are in memory.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) task: Arc<Task>,
    pub(crate) records: Arc<Vec<MicrobatchRecords>>,
}

impl Desk {
    pub(crate) fn add(&mut self, tasks: Vec<Task>) {
        for task in tasks {
            // Leased once more: the lease before it has expired.
            self.tasks.retain(|_, old| {
                old.put_off == 0 || (old.task.step, old.task.node) != (task.step, task.node)
            });
            let task = Arc::new(task);
            let on_desk = OnDesk { task, records: None, microbatches: 0, is_finished: false, put_off: 0 };
            self.tasks.insert((on_desk.task.step, on_desk.task.lease), on_desk);
        }
    }

    /// How many more tasks may be asked for. One that was put off waits for a lower one, which may be anybody's to do:
    /// so there is room until this trainer has that one.
    pub(crate) fn room(&self) -> u32 {
        let in_hand =
            self.tasks.values().filter(|task| !task.is_finished && task.put_off == 0).count() as u32;
        if self.is_closed { 0 } else { IN_HAND.saturating_sub(in_hand) }
    }

    /// What the master is to be told.
    pub(crate) fn progress(&self) -> Vec<proto::Progress> {
        let word = |on_desk: &OnDesk| proto::Progress {
            lease: on_desk.task.lease.0,
            microbatches: on_desk.microbatches,
            pushed: on_desk.is_finished,
        };
        self.tasks.values().map(word).collect()
    }

    /// The master has heard `told`: finished tasks leave the desk.
    pub(crate) fn heard(&mut self, told: &[proto::Progress]) {
        self.tasks.retain(|(_, lease), _| !told.iter().any(|word| word.pushed && word.lease == lease.0));
    }

    /// The lowest task whose records are still to be read.
    pub(crate) fn unread(&self) -> Option<Arc<Task>> {
        self.tasks.values().find(|on_desk| on_desk.records.is_none()).map(|on_desk| on_desk.task.clone())
    }

    pub(crate) fn was_read(&mut self, task: &Task, records: Vec<MicrobatchRecords>) {
        if let Some(on_desk) = self.tasks.get_mut(&(task.step, task.lease)) {
            on_desk.records = Some(Arc::new(records));
        }
    }

    /// The unfinished task of the lowest step whose records are there; of these the one put off least often.
    pub(crate) fn ready(&self) -> Option<Ready> {
        let unfinished =
            self.tasks.values().filter(|on_desk| !on_desk.is_finished && on_desk.records.is_some());
        let next = unfinished.min_by_key(|on_desk| (on_desk.task.step, on_desk.put_off))?;
        Some(Ready { task: next.task.clone(), records: next.records.clone()? })
    }

    /// Some block has no room for it until a lower node is there: others go first, and then it is done again.
    pub(crate) fn put_off(&mut self, task: &Task) {
        if let Some(on_desk) = self.tasks.get_mut(&(task.step, task.lease)) {
            on_desk.put_off += 1;
        }
    }

    pub(crate) fn computed(&mut self, task: &Task, microbatches: u32) {
        if let Some(on_desk) = self.tasks.get_mut(&(task.step, task.lease)) {
            on_desk.microbatches = microbatches;
        }
    }

    pub(crate) fn finished(&mut self, task: &Task) {
        if let Some(on_desk) = self.tasks.get_mut(&(task.step, task.lease)) {
            on_desk.is_finished = true;
            on_desk.records = on_desk.records.take().map(|_| Arc::new(Vec::new()));
        }
    }
}
