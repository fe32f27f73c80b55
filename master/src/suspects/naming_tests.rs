//! Tests of what losses name, and when: the dead, weighed once.

use super::*;

/// Three are suspected by silence, a fourth and a fifth fall silent alone with it, the fifth having announced a record.
fn silent_five() -> Suspects {
    let mut suspects = Suspects::default();
    for who in 1..=5 {
        let care = suspects.care(5);
        given(&mut suspects, who, 5..6, 0, care);
        suspects.announces(Incarnation(who), LeaseId(who), Some(70).filter(|_| care == Care::Careful));
        suspects.lose(Incarnation(who), EVER, &all, Some(who as u32 * NOW));
    }
    suspects
}

#[test]
fn silence_names_nothing_before_it_is_death_and_nobody_is_given_the_place_meanwhile() {
    let mut suspects = silent_five();
    for dead in 0..5 {
        assert_eq!((judged(&mut suspects, dead * NOW), suspects.awaits(5)), (vec![], true));
        assert!(!suspects.may_have("t9", 5, NOW, &nobody) && suspects.may_have("t9", 6, NOW, &nobody));
        assert_eq!(suspects.next_deadline(), Some((dead + 1) * NOW));
    }
    let named = judged(&mut suspects, 5 * NOW);
    assert_eq!((named[0].record, named[0].trainers.len(), named.len()), (Some(70), 5, 1));
    assert!(suspects.may_have("t9", 5, NOW, &nobody) && suspects.next_deadline().is_none());
    assert_eq!(judged(&mut suspects, 6 * NOW), [], "it is told of once");
}

#[test]
fn who_speaks_before_its_silence_is_death_names_nothing_and_the_place_is_given_out_again() {
    let mut suspects = silent_five();
    suspects.speaks(Incarnation(3));
    assert!(!suspects.awaits(5) && suspects.may_have("t9", 5, NOW, &nobody));
    assert_eq!(judged(&mut suspects, 9 * NOW), []);
    // Another that had it so: the four before it, long dead, name the record with it.
    given(&mut suspects, 6, 5..6, 0, Care::Careful);
    suspects.announces(Incarnation(6), LeaseId(6), Some(70));
    assert_eq!(dies(&mut suspects, 6, "").unwrap().trainers, ["t1", "t2", "t4", "t5", "t6"]);
}

#[test]
fn who_says_that_it_leaves_after_a_silence_was_not_lost() {
    let mut suspects = silent_five();
    assert!(suspects.leaves(Incarnation(2)) && !suspects.leaves(Incarnation(2)));
    assert_eq!((suspects.at(5).count(), judged(&mut suspects, 9 * NOW)), (4, vec![]));
}

#[test]
fn four_dead_name_nothing_however_few_are_lost_elsewhere() {
    let mut suspects = silent_five();
    survive(&mut suspects, 100..1000);
    suspects.ended(Incarnation(5), "signal 9");
    assert_eq!((judged(&mut suspects, 3 * NOW), suspects.awaits(5)), (vec![], true));
    suspects.speaks(Incarnation(4));
    assert_eq!((judged(&mut suspects, 9 * NOW), suspects.awaits(5)), (vec![], false));
}

/// Nearly one in two is lost elsewhere: what was chance when it happened is not named because it gets better elsewhere.
#[test]
fn a_loss_is_weighed_once_and_then_only_a_newer_one_names() {
    let mut suspects = Suspects::default();
    for who in 200..210 {
        lost(&mut suspects, who, 2000 + who..2001 + who, 0, Care::None);
    }
    let dies_with = |suspects: &mut Suspects, who, record| {
        let care = suspects.care(5);
        given(suspects, who, 5..6, 0, care);
        suspects.announces(Incarnation(who), LeaseId(who), Some(record).filter(|_| care == Care::Careful));
        dies(suspects, who, "")
    };
    for who in 1..=5 {
        assert_eq!(dies_with(&mut suspects, who, 70), None);
    }
    survive(&mut suspects, 1000..1200);
    assert_eq!(judged(&mut suspects, 9 * NOW), []);
    // Its own record, and not theirs.
    assert_eq!(dies_with(&mut suspects, 6, 71).unwrap().record, Some(71));
    assert_eq!(judged(&mut suspects, 9 * NOW), []);
}

#[test]
fn what_no_block_lacks_any_more_is_not_named() {
    let mut suspects = silent_five();
    suspects.bury(9 * NOW);
    assert_eq!(suspects.judge(0, &|_| Vec::new()), []);
    assert_eq!(judged(&mut suspects, 9 * NOW), []);
}

#[test]
fn whose_end_is_told_or_whose_name_is_taken_is_dead_sooner() {
    let mut suspects = silent_five();
    suspects.ended(Incarnation(5), "signal 9");
    (1..=3).for_each(|who| suspects.supersede(Incarnation(who), NOW / 2));
    assert_eq!(suspects.next_deadline(), Some(NOW / 2));
    assert_eq!((judged(&mut suspects, NOW), suspects.next_deadline()), (vec![], Some(4 * NOW)));
    suspects.ended(Incarnation(4), "signal 6");
    let named = judged(&mut suspects, NOW);
    assert!(named[0].why.contains("the last, t5, while") && named[0].why.contains("signal 9"), "{named:?}");
}
