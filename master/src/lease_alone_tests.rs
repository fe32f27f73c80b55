//! Tests of slots that are leased by themselves.

#![allow(clippy::single_range_in_vec_init, reason = "one stretch of several that there might be")]

use super::*;

fn anybody(_: u64) -> bool {
    true
}
/// Slots 2 and 3 of the front are withheld.
fn withheld() -> Leases {
    let mut leases = leases();
    leases.withhold(std::iter::once(2..4).collect(), std::iter::once(2..4).collect());
    leases
}
fn alone(leases: &mut Leases, trainer: Incarnation, millis: u64) -> Option<Grant> {
    leases.lease_alone(trainer, 2, at(millis), &anybody)
}

#[test]
fn withheld_slots_are_in_no_share_and_go_out_one_at_a_time_to_who_has_nothing_else_to_compute() {
    let mut leases = withheld();
    let mut shares = Vec::new();
    while let Some(grant) = take(&mut leases, A, 1, TTL.as_millis() as u64).filter(|grant| grant.step.0 == 0)
    {
        shares.push(grant);
    }
    let slots: Vec<u32> = shares.iter().flat_map(|grant| grant.node.first()..grant.node.end()).collect();
    assert!(slots.len() == 6 && !slots.contains(&2) && !slots.contains(&3), "{slots:?}");
    assert_eq!(alone(&mut leases, A, 2000), None, "it has something to compute");
    let first = alone(&mut leases, B, 2000).unwrap();
    assert_eq!((first.step, first.node), (Step(0), node(0, 2)));
    assert_eq!(leases.lease_alone(C, 2, at(2000), &|place| place != 3), None, "it may not have that one");
    let second = alone(&mut leases, C, 2000).unwrap();
    assert_eq!(second.node, node(0, 3));
    leases.lose(B, &nothing());
    assert_eq!(alone(&mut leases, B, 2001).map(|grant| grant.node), Some(node(0, 2)));
    assert_eq!(free(&leases, 0), []);
}

#[test]
fn a_sum_that_waits_for_room_and_records_that_are_read_ahead_are_nothing_to_compute() {
    let mut leases = withheld();
    let first = take(&mut leases, A, 2, 0).unwrap();
    take(&mut leases, A, 2, 0).filter(|grant| grant.step.0 == 1).unwrap();
    leases.progress(A, &[Progress { waits: true, ..done(first.lease, 4) }], at(1));
    assert_eq!(alone(&mut leases, A, 1).map(|grant| grant.node), Some(node(0, 2)));
}

#[test]
fn nobody_helps_with_a_slot_that_is_leased_by_itself() {
    let mut leases = withheld();
    let held = alone(&mut leases, A, 0).unwrap();
    let held_up_to = |held: Node, slot| held.first() <= slot && slot < held.end();
    let late = 3 * TTL.as_millis() as u64 / 4;
    for _ in 0..20 {
        let Some(given) = take(&mut leases, B, 2, late).filter(|grant| grant.step.0 == 0) else { continue };
        assert!(!held_up_to(given.node, 2) && !held_up_to(given.node, 3), "{given:?}");
        leases.progress(B, &[Progress { pushed: true, ..done(given.lease, 8) }], at(late));
    }
    leases.attend(A, held.lease, at(late));
    assert_eq!(leases.next_deadline(), Some(at(late) + TTL), "an announcement renews it");
}

#[test]
fn only_withheld_slots_of_the_front_go_out() {
    let mut leases = leases();
    leases.withhold(vec![8..9, 17..18], vec![]);
    assert_eq!(alone(&mut leases, A, 0), None);
    leases.advance(Step(1), at(1));
    assert_eq!(alone(&mut leases, A, 1).map(|grant| (grant.step, grant.node)), Some((Step(1), node(0, 0))));
    leases.rewind(Step(0), at(2));
    assert_eq!(nodes(&take(&mut leases, A, 1, 2).into_iter().collect::<Vec<_>>()), [(0, node(3, 0))]);
}

#[test]
fn no_more_than_three_have_a_slot_at_a_time_and_nobody_helps_where_one_was_lost() {
    let helpers = |unhelped: Vec<Range<u64>>| {
        let mut leases = leases();
        leases.withhold(vec![], unhelped);
        let mut holders: Vec<Node> = take(&mut leases, A, 1, 0).into_iter().map(|grant| grant.node).collect();
        for helper in 2..12 {
            let late = helper * TTL.as_millis() as u64 / 2;
            let given = take(&mut leases, Incarnation(helper), 1, late).filter(|grant| grant.step.0 == 0);
            holders.extend(given.map(|grant| grant.node));
        }
        (0..8).map(|slot| holders.iter().filter(|node| node.covers(Node::leaf(slot))).count()).max().unwrap()
    };
    assert_eq!(helpers(vec![]), 3);
    assert_eq!(helpers(vec![0..8]), 1);
}
