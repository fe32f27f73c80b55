//! Tests of where a trainer works next: at the front, in its lane, in a new one, in what is left.

use super::*;

#[test]
fn a_trainer_goes_on_where_it_was_and_a_new_one_begins_beyond_where_others_go_on() {
    let mut runs = paced(1, 1);
    let said = applied(1, [17]);
    assert_eq!(take(&mut runs, B, 2, 1000, &said).unwrap().first, 18);
    assert_eq!(take(&mut runs, A, 2, 1000, &said).unwrap().first, 1);
    assert_eq!(take(&mut runs, B, 2, 1000, &said).unwrap().first, 26);
    let fresh = take(&mut runs, C, 3, 1000, &said).unwrap().first;
    assert_eq!(fresh, 50, "16 beyond where B goes on: B's part of half the window");
    assert_eq!(take(&mut runs, A, 3, 1000, &said).unwrap().first, 9);
}

#[test]
fn a_lane_is_as_long_as_its_trainer_is_fast() {
    let mut runs = paced(3, 1);
    let said = applied(32, []);
    assert_eq!(positions(&runs.lease(A, 2, 1, at(1000), &said)), [(32, 4)]);
    assert_eq!(positions(&runs.lease(B, 2, 1, at(1000), &said)), [(44, 12)], "8 are left to A");
    assert_eq!(positions(&runs.lease(C, 3, 1, at(1000), &said)), [(80, 1)], "24 are left to B");
}

#[test]
fn a_slow_trainer_has_no_lane_for_others_to_keep_out_of() {
    let mut runs = paced(10, 1);
    assert_eq!(take(&mut runs, A, 2, 1000, &applied(1, [17])).unwrap().first, 1);
    assert_eq!(runs.lanes.count(), 1);
    assert_eq!(take(&mut runs, C, 3, 1000, &applied(2, [17])).unwrap().first, 2);
}

#[test]
fn a_trainer_does_not_go_on_where_another_does() {
    let mut runs = paced(1, 1);
    let said = applied(1, [17]);
    let two = runs.lease(A, 2, 2, at(1000), &said);
    assert_eq!(positions(&two), [(1, 8), (9, 8)]);
    runs.progress(A, &[pushed(two[0]), pushed(two[1])], at(2000));
    assert_eq!(take(&mut runs, A, 2, 2000, &said).unwrap().first, 34, "B goes on at 18");
}

#[test]
fn a_trainer_goes_past_what_others_did_in_its_lane() {
    let mut runs = paced(1, 1);
    assert_eq!(
        take(&mut runs, A, 2, 1000, &applied(1, [17])).unwrap(),
        Grant { lease: LeaseId(3), first: 1, count: 8 }
    );
    assert_eq!(take(&mut runs, A, 2, 1000, &applied(1, [9, 10, 17])).unwrap().first, 11);
}

#[test]
fn what_is_free_at_the_front_comes_before_lanes_unless_somebody_goes_on_there() {
    let mut runs = paced(1, 1);
    let said = applied(1, [17]);
    assert_eq!(take(&mut runs, B, 2, 1000, &said).unwrap().first, 18, "A goes on at 1");
    runs.lose(A, &said);
    assert_eq!(take(&mut runs, B, 1, 1000, &said).unwrap().first, 1);
}

#[test]
fn when_the_front_goes_back_new_lanes_are_made_there() {
    let mut runs = paced(1, 1);
    take(&mut runs, A, 2, 1000, &applied(500, [])).unwrap();
    assert_eq!(take(&mut runs, C, 2, 1000, &nothing()).unwrap().first, 0);
    assert_eq!(take(&mut runs, B, 2, 1000, &applied(0, [17])).unwrap().first, 18, "its own");
    runs.lose(B, &nothing());
    assert_eq!(take(&mut runs, B, 2, 1000, &nothing()).unwrap().first, 17, "beyond C's");
}

#[test]
fn another_trainers_lane_is_taken_when_nothing_else_is_left() {
    let mut runs = Runs::new(course(1000), 2, TTL, LeaseId(1));
    assert_eq!(take(&mut runs, A, 1, 0, &nothing()).unwrap().first, 0);
    assert_eq!(take(&mut runs, B, 1, 0, &nothing()).unwrap().first, 1);
}
