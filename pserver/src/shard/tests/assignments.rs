//! Assignments: newer ones are obeyed as a whole, others change nothing.

use super::*;
use crate::block::Standing;
use shoal_runtime::cluster::Fill;

#[test]
fn the_same_assignment_again_or_an_older_one_changes_nothing_and_a_newer_one_keeps_what_stays() {
    let shard = shard();
    both(&shard, 0, ROOT);
    let before = digest(&shard);
    for older in [assignment(3, &[0, 1]), assignment(2, &[0]), assignment(3, &[])] {
        shard.assign_now(older).unwrap();
        assert_eq!(digest(&shard), before);
    }
    shard.assign_now(assignment(4, &[0, 1])).unwrap();
    assert_eq!(shard.routing_version(), (1, 4));
    let progress = shard.whole_standing().unwrap().0;
    assert_eq!((progress[0].blocks.len(), progress[0].version), (2, 1));
}

#[test]
fn an_assignment_of_a_block_that_was_not_declared_is_refused() {
    assert!(empty(job(5, 2), 16, ME).assign_now(assignment(1, &[0, 2])).is_err());
}

#[test]
fn an_assignment_that_is_refused_changes_none_of_the_blocks_that_it_names() {
    let shard = shard();
    let before = digest(&shard);
    let moved = |primary| Placement { term: Term(4), primary: Incarnation(primary), ..alone(3) };
    let refusal = shard.assign_now(assigned(1, 4, [(0, moved(9)), (2, moved(9))])).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::OutOfRange);
    assert_eq!(digest(&shard), before);
}

#[test]
fn a_deposed_masters_assignment_changes_nothing_and_a_later_masters_is_obeyed() {
    let shard = shard();
    let of = |master_term, routing_version| assigned(master_term, routing_version, [(0, alone(3))]);
    shard.assign_now(of(3, 5)).unwrap();
    let before = digest(&shard);
    shard.assign_now(of(2, 9)).unwrap();
    shard.assign_now(of(4, 5)).unwrap();
    assert_eq!(digest(&shard), before);
    shard.assign_now(of(4, 6)).unwrap();
    assert_eq!(shard.routing_version(), (4, 6));
}

#[test]
fn what_an_assignment_does_not_name_is_dropped_and_whoever_has_it_in_hand_finds_nothing() {
    let shard = shard();
    let in_hand = Arc::clone(shard.hosting().unwrap().block(BlockId(0)).unwrap());
    let (assigned, logged, published) =
        (shard.assigned(), shard.told(Kind::Logged), shard.told(Kind::Published));
    shard.assign_now(assignment(4, &[1])).unwrap();
    assert!([assigned, logged, published].iter().all(|told| told.has_changed()));
    assert_eq!(in_hand.locked().standing(), Standing::Nothing);
    let outcomes = push(&shard, 0, ROOT, &[(0, &[1.0; 6]), (1, &[1.0])]).unwrap();
    assert!(matches!(outcomes[..], [PushOutcome::Moved, PushOutcome::Applied { .. }]));
}

#[test]
fn a_copy_that_is_added_again_starts_empty_and_a_late_drop_does_not_touch_it() {
    let shard = shard();
    both(&shard, 0, ROOT);
    let in_hand = Arc::clone(shard.hosting().unwrap().block(BlockId(0)).unwrap());
    let again = Placement { fill: Fill(6), primary: Incarnation(9), ..alone(3) };
    shard.assign_now(assigned(1, 6, [(0, again), (1, alone(3))])).unwrap();
    let copies = shard.whole_standing().unwrap().1;
    assert_eq!((copies[0].fill, copies[0].name), (6, None));
    assert_eq!(in_hand.locked().standing(), Standing::Nothing);
    let before = digest(&shard);
    shard.assign_now(assignment(5, &[1])).unwrap();
    assert_eq!(digest(&shard), before);
}

#[test]
fn an_assignment_names_what_is_to_be_restored_once() {
    let shard = empty(job(5, 2), 16, ME);
    let follower = Placement { primary: Incarnation(9), ..alone(3) };
    shard.assign_now(assigned(1, 3, [(0, alone(3)), (1, follower)])).unwrap();
    let unrestored = || {
        let unrestored = shard.unrestored().unwrap();
        unrestored
            .iter()
            .map(|(hosted, term, origin)| (hosted.shape.id.0, term.0, origin.is_some()))
            .collect::<Vec<_>>()
    };
    assert_eq!(unrestored(), [(0, 3, false)]);
    assert!(shard.whole_standing().unwrap().0.is_empty(), "nothing is said of it until then");
    let (published, logged) = (shard.told(Kind::Published), shard.told(Kind::Logged));
    let restore = |hosted: &Arc<Hosted>, term| {
        shard.with(hosted, |block| block.restore_initial(term)).unwrap();
    };
    let (hosted, term, _) = shard.unrestored().unwrap().remove(0);
    restore(&hosted, term);
    assert!(published.has_changed() && logged.has_changed());
    assert_eq!(unrestored(), []);
    // A rewind wants it again, and what was held of the old history is gone.
    push(&shard, 0, Node::leaf(0), &[(0, &[1.0; 6])]).unwrap();
    shard.assign_now(assigned(1, 7, [(0, alone(7))])).unwrap();
    assert_eq!(unrestored(), [(0, 7, false)]);
    restore(&hosted, term);
    assert_eq!(unrestored(), [(0, 7, false)], "a restore in hand since before is of no use");
}

#[test]
fn a_new_life_begins_with_nothing() {
    let shard = shard();
    both(&shard, 0, ROOT);
    let in_hand = Arc::clone(shard.hosting().unwrap().block(BlockId(0)).unwrap());
    let assigned = shard.assigned();
    shard.begin_anew(Incarnation(8)).unwrap();
    assert!(assigned.has_changed());
    assert_eq!((shard.incarnation(), shard.routing_version()), (Incarnation(8), (0, 0)));
    assert_eq!(in_hand.locked().standing(), Standing::Nothing);
    assert_eq!(both(&shard, 1, ROOT), [PushOutcome::Moved; 2]);
    assert_eq!(shard.whole_standing().unwrap(), Standings::default());
    // Assignments are for the new life: its copies lead where it is named, and count from the beginning.
    shard.assign_now(assignment(3, &[0])).unwrap();
    assert!(shard.unrestored().unwrap().is_empty());
    let mine = Placement { primary: Incarnation(8), ..alone(4) };
    host(&shard, super::assigned(1, 4, [(0, mine)]));
    assert_eq!(shard.whole_standing().unwrap().0[0].version, 0);
}
