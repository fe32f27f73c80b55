//! Tests of the desk: which task is next, what the master is told, and how many more there is room for.

use super::*;
use crate::pending::tests::routing;
use crate::reduce::NodeSum;
use shoal_runtime::cluster::{Microbatch, Node};

fn node(lease: u64, step: u64, rewind: u64) -> Task {
    let work = Work::Node { step: Step(step), node: Node::leaf(lease as u32), rewind: Rewind(rewind) };
    let microbatches = vec![Microbatch { index: 0, slices: Vec::new() }];
    Task {
        lease: LeaseId(lease),
        work,
        microbatches,
        is_careful: false,
        verified: Vec::new(),
        is_second: false,
    }
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

fn unread(desk: &Desk) -> Vec<u64> {
    desk.unread().iter().map(|task| task.lease.0).collect()
}

#[test]
fn records_of_a_task_that_others_have_done_are_not_read() {
    let mut desk = Desk::new(&at(1), 0);
    desk.add(vec![node(1, 3, 1), node(2, 4, 1)]);
    assert_eq!(unread(&desk), [1, 2]);
    desk.published(Step(4));
    assert_eq!((unread(&desk), desk.is_reading()), (vec![2], true), "a task that somebody waits for is next");
    desk.finished(&node(2, 4, 1));
    assert_eq!((unread(&desk), desk.is_reading()), (vec![], false));
    assert_eq!(desk.progress().len(), 2, "the master has yet to hear of both");
}

#[test]
fn records_of_a_task_whose_sum_is_kept_are_read_once_it_is_lost() {
    let mut desk = Desk::new(&at(1), 0);
    keep(&mut desk, &node(1, 3, 1), 1);
    desk.add(vec![node(1, 3, 1), node(2, 4, 1)]);
    assert_eq!((unread(&desk), desk.is_reading()), (vec![2], true));
    desk.kept.forget(StepNode::of(&node(1, 3, 1)).unwrap());
    assert_eq!(unread(&desk), [1, 2]);
}

fn keep(desk: &mut Desk, task: &Task, elements: usize) {
    let values = vec![vec![0.0; elements]].into();
    let sum = Arc::new(NodeSum { values, weight: 1, ..NodeSum::default() });
    desk.kept.keep(StepNode::of(task).unwrap(), sum, Acks::by_none(1), &at(1));
}

#[test]
fn the_lowest_step_goes_first() {
    let desk = desk(1, vec![node(1, 4, 1), node(2, 3, 1), node(3, 3, 1)]);
    assert_eq!(next(&desk), Some(2));
}

#[test]
fn what_is_computed_takes_no_room_from_what_it_waits_for() {
    let mut desk = desk(1, vec![node(1, 4, 1), node(2, 3, 1), node(3, 3, 1)]);
    keep(&mut desk, &node(2, 3, 1), 1);
    assert_eq!((next(&desk), desk.room()), (Some(3), 0), "it is on its way");
    desk.waits = true;
    assert_eq!((next(&desk), desk.room()), (Some(3), 1));
    keep(&mut desk, &node(3, 3, 1), 1);
    assert_eq!((next(&desk), desk.room()), (None, 2), "two sums are due");
}

#[test]
fn what_is_due_holds_up_the_steps_that_read_it() {
    let mut desk = desk(1, vec![node(1, 3, 1)]);
    assert!(!desk.holds_up(Step(9)));
    keep(&mut desk, &node(1, 3, 1), 1);
    assert_eq!([3, 4].map(|step| desk.holds_up(Step(step))), [false, true]);
    desk.delay = 1;
    assert_eq!([4, 5].map(|step| desk.holds_up(Step(step))), [false, true]);
}

#[test]
fn where_sums_are_large_one_must_be_pushed_before_a_higher_one_is_computed_but_never_before_a_lower_one() {
    let mut desk = desk(1, vec![node(1, 3, 1), node(2, 3, 1), node(3, 3, 1)]);
    keep(&mut desk, &node(2, 3, 1), (32 << 20) + 1);
    desk.finished(&node(1, 3, 1));
    desk.waits = true;
    assert_eq!((next(&desk), desk.room()), (None, 2), "it asks for a lower one");
    desk.add(vec![node(0, 3, 1)]);
    desk.was_read(&node(0, 3, 1), Vec::new());
    assert_eq!(next(&desk), Some(0));
}

#[test]
fn what_is_computed_is_told_to_wait_once_there_is_no_room() {
    let waiting = |desk: &Desk| {
        desk.progress().iter().filter(|word| word.waits).map(|word| word.lease).collect::<Vec<_>>()
    };
    let mut desk = desk(1, vec![node(1, 3, 1), node(2, 3, 1), node(3, 3, 1)]);
    desk.waits = true;
    assert!(waiting(&desk).is_empty(), "nothing is computed");
    keep(&mut desk, &node(1, 3, 1), 1);
    keep(&mut desk, &node(2, 3, 1), 1);
    assert_eq!(waiting(&desk), [1, 2]);
    let told = desk.progress();
    assert!(!desk.has_pushed(&told));
    let mut acks = Acks::by_none(1);
    acks.held(shoal_runtime::cluster::BlockId(0), shoal_runtime::cluster::Term(1));
    assert_eq!(desk.pushed(StepNode::of(&node(1, 3, 1)).unwrap(), acks, &at(1)), 1);
    assert_eq!(waiting(&desk), [2]);
    assert!(desk.progress().iter().any(|word| (word.lease, word.pushed) == (1, true)));
    assert!(desk.has_pushed(&told) && !desk.has_pushed(&told[1..]) && !desk.has_pushed(&[]));
    desk.waits = false;
    assert!(waiting(&desk).is_empty(), "it is on its way");
}

#[test]
fn a_task_leased_once_more_takes_the_place_of_the_one_before_and_keeps_its_sum() {
    let mut desk = desk(1, vec![node(1, 3, 1)]);
    keep(&mut desk, &node(1, 3, 1), 1);
    let again = Task { lease: LeaseId(7), ..node(1, 3, 1) };
    desk.add(vec![again.clone()]);
    assert!(!has(&desk, &node(1, 3, 1)) && has(&desk, &again));
    assert_eq!(desk.progress()[0].microbatches, 1);
    desk.was_read(&again, Vec::new());
    assert_eq!(next(&desk), None);
}

/// Whoever cannot go on would be given the same again for ever, and everybody would wait for it.
#[test]
fn what_is_still_to_be_computed_stays_beside_what_is_leased_once_more() {
    for task in [node(1, 3, 1), run(1, 40)] {
        let mut desk = desk(1, vec![task.clone()]);
        let again = Task { lease: LeaseId(7), ..task.clone() };
        desk.add(vec![again.clone()]);
        assert!(has(&desk, &task) && has(&desk, &again));
        assert_eq!((next(&desk), desk.room()), (Some(1), 0));
    }
}

#[test]
fn what_others_have_published_is_done() {
    let mut desk = desk(1, vec![node(1, 3, 1), node(2, 4, 1)]);
    keep(&mut desk, &node(1, 3, 1), 1);
    desk.published(Step(4));
    assert_eq!(next(&desk), Some(2));
    assert_eq!(desk.progress().iter().map(|word| word.pushed).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn what_was_applied_before_it_was_leased_once_more_is_done_but_for_what_is_compared() {
    let task = node(1, 3, 1);
    let of = StepNode::of(&task).unwrap();
    let mut applied = Acks::by_none(1);
    applied.applied(shoal_runtime::cluster::BlockId(0));
    let mut desk = desk(1, vec![task.clone()]);
    keep(&mut desk, &task, 1);
    assert_eq!(desk.pushed(of, applied, &at(1)), 1);
    desk.heard(&desk.progress());
    let [again, second, next_step] = [7, 8, 9].map(|lease| Task { lease: LeaseId(lease), ..task.clone() });
    let second = Task { is_second: true, ..second };
    let work = Work::Node { step: Step(4), node: Node::leaf(0), rewind: Rewind(1) };
    desk.add(vec![again, second, Task { work, ..next_step }]);
    let told = |desk: &Desk| {
        desk.progress().iter().map(|word| (word.lease, word.pushed, word.microbatches)).collect::<Vec<_>>()
    };
    assert_eq!(told(&desk), [(7, true, 1), (8, false, 0), (9, false, 0)]);
    // The job goes back: all of it is to be done again.
    desk.follow(&at(2));
    desk.add(vec![node(1, 3, 2)]);
    assert_eq!(told(&desk), [(1, false, 0)]);
}

#[test]
fn a_task_tells_that_the_steps_before_the_open_ones_are_published() {
    let mut desk = desk(1, vec![]);
    let sum = Arc::new(NodeSum { values: vec![vec![0.0]].into(), weight: 1, ..NodeSum::default() });
    let of = |step| StepNode { step: Step(step), node: Node::leaf(0), rewind: Rewind(1) };
    for step in 3..5 {
        desk.kept.keep(of(step), sum.clone(), Acks::by_none(1), &at(1));
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

#[test]
fn what_is_announced_waits_for_its_answer_and_for_nobody_once_the_task_is_gone() {
    let task = node(1, 3, 1);
    let mut desk = desk(1, vec![task.clone()]);
    desk.announce(&task, Some(7));
    let told = desk.announcing;
    assert_eq!((desk.is_announced(&task), desk.announces_beside(told)), (None, false));
    assert!(desk.announces_beside(None), "the master is being told something else");
    desk.heard_announcement(None);
    assert_eq!(desk.is_announced(&task), None);
    desk.heard_announcement(told);
    assert_eq!(desk.is_announced(&task), Some(true));
    desk.announce(&task, None);
    desk.heard_announcement(told);
    assert_eq!(desk.is_announced(&task), None, "an older one was heard");
    desk.published(Step(4));
    assert_eq!(desk.is_announced(&task), Some(false), "somebody has done it");
    desk.forget_leases();
    assert_eq!(desk.is_announced(&task), Some(false));
}
