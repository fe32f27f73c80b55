//! Leases whose gradients wait for room at pservers.

use super::*;

/// A trainer says that a task is computed, and whether its gradient waits for room.
fn computed(grant: &Grant, waits: bool) -> Progress {
    Progress { waits, ..done(grant.lease, grant.node.width()) }
}

#[test]
fn a_task_that_waits_for_room_never_expires_while_its_trainer_says_so() {
    let mut leases = leases();
    let grant = take(&mut leases, A, 1, 0).unwrap();
    for millis in [1000, 2500, 4000, 5500] {
        leases.progress(A, &[computed(&grant, true)], at(millis));
        leases.expire(at(millis + 1500), &nothing());
        assert!(free(&leases, 0).is_empty(), "at {millis}");
    }
    leases.expire(at(7100), &nothing());
    assert_eq!(free(&leases, 0), [grant.node], "nothing was heard of it for its time to live");
}

#[test]
fn what_waits_for_room_is_given_to_nobody_else() {
    let mut leases = leases();
    let grant = take(&mut leases, A, 1, 0).unwrap();
    take(&mut leases, A, 1, 0);
    leases.progress(A, &[computed(&grant, true)], at(100));
    assert_eq!(take(&mut leases, B, 3, 1500), None);
    assert_eq!(leases.next_late(at(1500)), None);
}

#[test]
fn a_task_that_finds_room_is_late_like_any_other() {
    let mut leases = leases();
    let grant = take(&mut leases, A, 1, 0).unwrap();
    take(&mut leases, A, 1, 0);
    leases.progress(A, &[computed(&grant, true)], at(100));
    leases.progress(A, &[computed(&grant, false)], at(1000));
    assert_eq!(take(&mut leases, B, 3, 1000), None, "its time begins anew");
    assert!(leases.next_late(at(1000)).is_some());
    assert_eq!(take(&mut leases, B, 3, 1400).map(|grant| grant.node), Some(node(2, 1)));
    leases.expire(at(2600), &nothing());
    assert_eq!(leases.counters().expired, 1);
}

#[test]
fn what_a_silent_trainer_waited_with_is_free_again() {
    let mut leases = leases();
    let grant = take(&mut leases, A, 1, 0).unwrap();
    leases.progress(A, &[computed(&grant, true)], at(100));
    leases.lose(A, &nothing());
    assert_eq!(free(&leases, 0), [grant.node]);
}

#[test]
fn what_is_pushed_waits_for_nothing() {
    let mut leases = leases();
    let grant = take(&mut leases, A, 1, 0).unwrap();
    leases.progress(A, &[Progress { pushed: true, ..computed(&grant, true) }], at(100));
    leases.progress(A, &[computed(&grant, true)], at(1000));
    leases.expire(at(1700), &nothing());
    assert_eq!(free(&leases, 0), [grant.node], "blocks lack it, and nobody renews it");
}
