//! The desk of one trainer: the tasks in hand, how far each is, what the master must still be told, and the sums of
//! finished tasks. Pure state behind one lock that is never held across an await.

use crate::chunks::MicrobatchRecords;
use crate::complaint::Complaint;
use crate::kept::Kept;
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
    /// Sums of finished tasks.
    pub(crate) kept: Kept,
    /// Set when there will be no more tasks: the job is done, or the trainer was asked to leave.
    pub(crate) is_closed: bool,
    /// What the master has yet to hear of.
    complaints: Vec<proto::Complaint>,
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
    /// An empty desk under the routing that came with joining, in a job of this delay.
    pub(crate) fn new(routing: &Routing, delay: u64) -> Desk {
        let (tasks, rewind, kept) = (BTreeMap::new(), routing.rewind(), Kept::default());
        Desk { tasks, rewind, delay, kept, is_closed: false, complaints: Vec::new() }
    }

    pub(crate) fn add(&mut self, tasks: Vec<Task>) {
        for task in tasks {
            if let Work::Node { step, rewind, .. } = task.work {
                if rewind < self.rewind {
                    continue;
                }
                // The front is no further back, and all before it is applied.
                self.kept.published(Step(step.0.saturating_sub(1 + self.delay)));
            }
            // Leased once more: the lease before it has expired.
            self.tasks.retain(|_, old| old.put_off == 0 || old.task.work != task.work);
            let task = Arc::new(task);
            let on_desk = OnDesk { task, records: None, microbatches: 0, is_finished: false, put_off: 0 };
            self.tasks.insert(place(&on_desk.task), on_desk);
        }
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

    /// How many more tasks may be asked for. One that was put off waits for a lower one, which may be anybody's to do:
    /// so there is room until this trainer has that one, whatever it has of later steps.
    pub(crate) fn room(&self) -> u32 {
        let unfinished = || self.tasks.values().filter(|task| !task.is_finished);
        let waits = unfinished().filter(|task| task.put_off > 0).map(|task| task.task.work.order()).min();
        let counts =
            |task: &&OnDesk| task.put_off == 0 && waits.is_none_or(|at| task.task.work.order() <= at);
        let in_hand = unfinished().filter(counts).count() as u32;
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
        let unread = self.tasks.values().filter(|on_desk| on_desk.records.is_none());
        unread.map(|on_desk| on_desk.task.clone()).collect()
    }

    /// Whether some unfinished task lacks its records.
    pub(crate) fn is_reading(&self) -> bool {
        self.tasks.values().any(|on_desk| !on_desk.is_finished && on_desk.records.is_none())
    }

    pub(crate) fn was_read(&mut self, task: &Task, records: Vec<MicrobatchRecords>) {
        if let Some(on_desk) = self.tasks.get_mut(&place(task)) {
            on_desk.records = Some(Arc::new(records));
        }
    }

    /// The lowest unfinished task of the present history whose records are there; of one step the one put off least
    /// often.
    pub(crate) fn ready(&self) -> Option<Ready> {
        let is_present = |task: &Task| rewind_of(task).is_none_or(|rewind| self.is_present(rewind));
        let unfinished = self
            .tasks
            .values()
            .filter(|on_desk| !on_desk.is_finished && on_desk.records.is_some() && is_present(&on_desk.task));
        let next = unfinished.min_by_key(|on_desk| (on_desk.task.work.order(), on_desk.put_off))?;
        Some(Ready { task: next.task.clone(), records: next.records.clone()? })
    }

    /// Some block has no room for it until a lower node is there: others go first, and then it is done again.
    pub(crate) fn put_off(&mut self, task: &Task) {
        if let Some(on_desk) = self.tasks.get_mut(&place(task)) {
            on_desk.put_off += 1;
        }
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
mod tests {
    use super::*;
    use crate::pending::tests::routing;
    use shoal_runtime::cluster::{Microbatch, Node};

    fn node(lease: u64, step: u64, rewind: u64) -> Task {
        let work = Work::Node { step: Step(step), node: Node::leaf(lease as u32), rewind: Rewind(rewind) };
        let microbatches = vec![Microbatch { index: 0, slices: Vec::new() }];
        Task { lease: LeaseId(lease), work, microbatches }
    }
    fn run(lease: u64, first: u64) -> Task {
        Task { work: Work::Run { first }, ..node(lease, 0, 0) }
    }
    fn at(rewind: u64) -> Routing {
        routing(rewind, &[(0, rewind, rewind)])
    }
    fn desk(rewind: u64, tasks: Vec<Task>) -> Desk {
        let mut desk = Desk::new(&at(rewind), 0);
        desk.add(tasks.clone());
        tasks.iter().for_each(|task| desk.was_read(task, Vec::new()));
        desk
    }
    fn has(desk: &Desk, task: &Task) -> bool {
        desk.tasks.contains_key(&place(task))
    }
    fn next(desk: &Desk) -> Option<u64> {
        desk.ready().map(|ready| ready.task.lease.0)
    }

    #[test]
    fn a_task_of_an_older_history_is_dropped_and_one_of_a_newer_waits_for_its_routing() {
        let mut desk = desk(5, vec![node(1, 9, 4), node(2, 9, 5), node(3, 2, 8)]);
        assert_eq!((next(&desk), desk.progress().len(), desk.room()), (Some(2), 2, 0));
        desk.follow(&at(8));
        assert_eq!(next(&desk), Some(3));
        assert!(!has(&desk, &node(2, 9, 5)) && desk.room() == 1);
        assert_eq!(desk.progress().iter().map(|word| word.lease).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_finished_task_of_an_older_history_is_told_to_nobody() {
        let mut desk = desk(5, vec![node(1, 9, 5)]);
        desk.finished(&node(1, 9, 5));
        desk.follow(&at(6));
        assert!(desk.progress().is_empty());
    }

    #[test]
    fn a_run_survives_the_restore_of_a_block() {
        let mut desk = desk(1, vec![run(1, 40), run(2, 8)]);
        desk.follow(&at(9));
        assert_eq!((next(&desk), desk.room()), (Some(2), 0));
    }

    #[test]
    fn records_are_waited_for_while_an_unfinished_task_lacks_them() {
        let mut desk = Desk::new(&at(1), 0);
        assert!(!desk.is_reading(), "there is no task");
        desk.add(vec![node(1, 3, 1)]);
        assert!(desk.is_reading());
        desk.was_read(&node(1, 3, 1), Vec::new());
        assert!(!desk.is_reading());
    }

    #[test]
    fn the_lowest_step_goes_first_and_of_one_step_what_was_put_off_least() {
        let mut desk = desk(1, vec![node(1, 4, 1), node(2, 3, 1), node(3, 3, 1)]);
        assert_eq!(next(&desk), Some(2));
        desk.put_off(&node(2, 3, 1));
        assert_eq!(next(&desk), Some(3));
        desk.finished(&node(3, 3, 1));
        // What lies beyond the one that waits takes no room from what it waits for.
        assert_eq!((next(&desk), desk.room()), (Some(2), 2));
    }

    #[test]
    fn a_task_leased_once_more_takes_the_place_of_the_one_put_off() {
        let mut desk = desk(1, vec![node(1, 3, 1)]);
        desk.put_off(&node(1, 3, 1));
        let again = Task { lease: LeaseId(7), ..node(1, 3, 1) };
        desk.add(vec![again.clone()]);
        assert!(!has(&desk, &node(1, 3, 1)) && has(&desk, &again));
    }

    #[test]
    fn a_task_tells_that_the_steps_before_the_open_ones_are_published() {
        use crate::origin::NodeOf;
        use crate::reduce::NodeSum;
        use crate::taken::Taken;
        let mut desk = desk(1, vec![]);
        let sum = Arc::new(NodeSum { values: vec![vec![0.0]], weight: 1, ..NodeSum::default() });
        let of = |step| NodeOf { step: Step(step), node: Node::leaf(0), rewind: Rewind(1) };
        for step in 3..5 {
            desk.kept.keep(of(step), sum.clone(), Taken::by_none(1), &at(1));
        }
        desk.add(vec![node(1, 4, 1)]);
        assert!(desk.kept.has(of(3)), "steps 3 and 4 are open");
        desk.add(vec![node(2, 5, 1)]);
        assert!(!desk.kept.has(of(3)) && desk.kept.has(of(4)), "steps 4 and 5 are open");
    }

    #[test]
    fn told_tasks_leave_the_desk_only_when_they_are_pushed() {
        let mut desk = desk(1, vec![node(1, 3, 1), node(2, 3, 1)]);
        desk.finished(&node(1, 3, 1));
        let told = desk.progress();
        desk.finished(&node(2, 3, 1));
        desk.heard(&told);
        assert!(!has(&desk, &node(1, 3, 1)) && has(&desk, &node(2, 3, 1)));
    }
}
