//! Tests of what is counted of trainers that are lost: each rule by its name, then any sequence of calls.

#![allow(clippy::single_range_in_vec_init, reason = "one stretch of several that there might be")]

use super::*;
use proptest::prelude::*;

#[path = "suspects/naming_tests.rs"]
mod naming;

const NOW: Duration = Duration::from_secs(9);
const EVER: u64 = u64::MAX;

fn all(places: Range<u64>) -> Vec<Range<u64>> {
    vec![places]
}
fn nobody(_: &BTreeSet<&str>) -> bool {
    false
}
fn word(lease: u64, microbatches: u32) -> Progress {
    Progress { lease: LeaseId(lease), microbatches, pushed: false, waits: false }
}

/// Trainer `who` is given places, says that it has done so many of them, and dies. Returns what is named by that.
fn lost(suspects: &mut Suspects, who: u64, places: Range<u64>, computed: u32, care: Care) -> Option<Blame> {
    given(suspects, who, places, computed, care);
    dies(suspects, who, "")
}
fn judged(suspects: &mut Suspects, now: Duration) -> Vec<Blame> {
    suspects.bury(now);
    suspects.judge(0, &all)
}
fn dies(suspects: &mut Suspects, who: u64, how: &str) -> Option<Blame> {
    suspects.lose(Incarnation(who), EVER, &all, None);
    suspects.ended(Incarnation(who), how);
    let mut named = judged(suspects, NOW);
    assert!(named.len() <= 1, "{named:?}");
    named.pop()
}
fn given(suspects: &mut Suspects, who: u64, places: Range<u64>, computed: u32, care: Care) {
    suspects.given(Incarnation(who), &format!("t{who}"), LeaseId(who), places, care, NOW);
    suspects.hear(Incarnation(who), &[word(who, computed)], NOW);
}
/// So many trainers compute something elsewhere, and live.
fn survive(suspects: &mut Suspects, trainers: Range<u64>) {
    for who in trainers {
        given(suspects, who, 1000..1001, 1, Care::None);
        suspects.leaves(Incarnation(who));
    }
}
/// Three are lost over a stretch, where others live.
fn suspected(places: Range<u64>) -> Suspects {
    let mut suspects = Suspects::default();
    survive(&mut suspects, 100..110);
    for who in 1..=3 {
        assert_eq!(lost(&mut suspects, who, places.clone(), 0, Care::None), None);
    }
    suspects
}

#[test]
fn three_losses_make_what_they_have_in_common_suspect() {
    let mut suspects = Suspects::default();
    for (who, places, computed) in [(1, 0..8, 2), (2, 4..8, 0), (3, 4..6, 0)] {
        assert_eq!(suspects.places(LOSSES), []);
        lost(&mut suspects, who, places, computed, Care::None);
    }
    assert_eq!((suspects.places(LOSSES), suspects.places(1)), (vec![4..6], vec![2..8]));
    let cares: Vec<Care> = (3..7).map(|place| suspects.care(place)).collect();
    assert_eq!(cares, [Care::None, Care::Alone, Care::Alone, Care::None]);
    suspects.advance(5);
    assert_eq!(suspects.places(LOSSES), [4..6], "its rest is not done");
    suspects.advance(6);
    assert_eq!(suspects.places(LOSSES), []);
}

#[test]
fn one_loss_more_names_the_microbatch_and_another_the_record() {
    let mut suspects = suspected(4..6);
    assert_eq!(lost(&mut suspects, 4, 5..6, 0, Care::Alone), None);
    assert_eq!((suspects.care(4), suspects.care(5)), (Care::Alone, Care::Careful));
    given(&mut suspects, 5, 5..6, 0, Care::Careful);
    for record in [70, 71] {
        suspects.announces(Incarnation(5), LeaseId(5), Some(record));
    }
    let blame = dies(&mut suspects, 5, "signal 6").unwrap();
    assert_eq!((blame.place, blame.record), (5, Some(71)));
    assert_eq!(blame.trainers, ["t1", "t2", "t3", "t4", "t5"]);
    assert!(blame.why.contains("5 trainers") && blame.why.contains("the last, t5"), "{}", blame.why);
    assert!(blame.why.contains("this record alone") && blame.why.contains("signal 6"), "{}", blame.why);
    // Nobody is told of twice with the same record, and all with another.
    let mut again = |who, record| {
        given(&mut suspects, who, 5..6, 0, Care::Careful);
        suspects.announces(Incarnation(who), LeaseId(who), Some(record));
        dies(&mut suspects, who, "").unwrap().trainers
    };
    assert_eq!(again(6, 71), ["t6"]);
    assert_eq!(again(7, 80).len(), 7);
}

/// Nearly one in two is lost wherever it computes: five in a row at one place say nothing of it, eleven do.
#[test]
fn where_trainers_are_lost_everywhere_more_must_be_lost_over_one_place_to_name_it() {
    let mut suspects = suspected(5..6);
    for who in 200..210 {
        lost(&mut suspects, who, 2000 + who..2001 + who, 0, Care::None);
    }
    lost(&mut suspects, 4, 5..6, 0, Care::Alone);
    let mut named = |who| {
        given(&mut suspects, who, 5..6, 0, Care::Careful);
        suspects.announces(Incarnation(who), LeaseId(who), Some(70));
        dies(&mut suspects, who, "").is_some()
    };
    let after = (5..20).find(|who| named(*who));
    assert_eq!(after, Some(11));
    // Where nothing is known of other places, for the job has only begun, five are enough.
    let mut suspects = Suspects::default();
    let after = (1..20).find(|who| {
        given(&mut suspects, *who, 5..6, 0, Care::Careful);
        suspects.announces(Incarnation(*who), LeaseId(*who), Some(70));
        dies(&mut suspects, *who, "").is_some()
    });
    assert_eq!(after, Some(5));
}

#[test]
fn what_only_kills_together_is_named_as_a_whole() {
    let mut suspects = suspected(5..6);
    lost(&mut suspects, 4, 5..6, 0, Care::Alone);
    given(&mut suspects, 5, 5..6, 0, Care::Careful);
    suspects.announces(Incarnation(5), LeaseId(5), Some(70));
    suspects.announces(Incarnation(5), LeaseId(5), None);
    let blame = dies(&mut suspects, 5, "").unwrap();
    assert_eq!((blame.record, blame.trainers.len()), (None, 5));
    assert!(blame.why.contains("each record alone having done no harm"), "{}", blame.why);
}

#[test]
fn who_announces_nothing_names_the_microbatch_at_the_third_time() {
    let mut suspects = suspected(5..6);
    lost(&mut suspects, 4, 5..6, 0, Care::Alone);
    let blames = [5, 6, 7].map(|who| lost(&mut suspects, who, 5..6, 0, Care::Careful));
    assert_eq!((&blames[0], &blames[1]), (&None, &None));
    assert_eq!(blames[2].as_ref().unwrap().record, None);
}

#[test]
fn twenty_that_leave_hand_back_or_are_late_count_nothing() {
    let mut suspects = Suspects::default();
    for who in 1..=20 {
        given(&mut suspects, who, 0..4, 1, Care::None);
        match who % 3 {
            0 => drop(suspects.leaves(Incarnation(who))),
            // Its lease has expired: it knows of it no more, or goes on with it, and lives.
            1 => drop(suspects.hear(Incarnation(who), &[], NOW)),
            _ => drop(suspects.hear(Incarnation(who), &[word(who, 2)], NOW)),
        }
        if who % 3 == 0 || who % 3 == 1 {
            assert_eq!(dies(&mut suspects, who, ""), None);
        }
    }
    assert_eq!((suspects.places(LOSSES), suspects.losses.len()), (vec![], 0));
}

#[test]
fn who_speaks_again_was_not_lost() {
    let mut suspects = suspected(0..2);
    assert!(suspects.hear(Incarnation(2), &[word(2, 0)], NOW) && !suspects.hear(Incarnation(2), &[], NOW));
    assert_eq!(suspects.places(LOSSES), []);
    lost(&mut suspects, 4, 0..2, 0, Care::None);
    assert_eq!(suspects.places(LOSSES), [0..2]);
}

#[test]
fn who_lost_its_name_counts_once_it_has_been_silent_for_long_enough() {
    let (mut suspects, at) = (Suspects::default(), Duration::from_secs);
    for who in 1..=4 {
        given(&mut suspects, who, 0..2, 0, Care::None);
        suspects.supersede(Incarnation(who), at(who));
    }
    suspects.speaks(Incarnation(2));
    assert_eq!((suspects.next_deadline(), suspects.due(at(0))), (Some(at(1)), vec![]));
    let due = suspects.due(at(4));
    assert_eq!(due, [1, 3, 4].map(Incarnation));
    for who in due {
        suspects.lose(who, EVER, &all, None);
    }
    assert_eq!((suspects.places(LOSSES), suspects.next_deadline()), (vec![0..2], None));
}

#[test]
fn only_what_a_trainer_was_computing_counts() {
    let lost = |progress: &[Progress], until, lacking: &dyn Fn(Range<u64>) -> Vec<Range<u64>>| {
        let mut suspects = Suspects::default();
        suspects.given(Incarnation(1), "a", LeaseId(1), 0..4, Care::None, NOW);
        suspects.given(Incarnation(1), "a", LeaseId(2), 8..12, Care::None, NOW);
        suspects.hear(Incarnation(1), progress, NOW);
        suspects.lose(Incarnation(1), until, lacking, None);
        suspects.losses.first().map(|loss| loss.places.clone())
    };
    let both = |first, second| [word(1, first), word(2, second)];
    assert_eq!(lost(&both(1, 0), EVER, &all), Some(1..4), "from where it was");
    assert_eq!(lost(&both(4, 1), EVER, &all), Some(9..12), "the first is computed");
    let pushed = Progress { pushed: true, ..word(1, 0) };
    assert_eq!(lost(&[pushed, word(2, 0)], EVER, &all), Some(8..12));
    let waits = Progress { waits: true, ..word(1, 0) };
    assert_eq!(lost(&[waits, word(2, 0)], EVER, &all), Some(8..12));
    assert_eq!(lost(&both(4, 0), 8, &all), None, "nobody could begin the second");
    assert_eq!(lost(&both(4, 4), EVER, &all), None, "all is computed");
    assert_eq!(lost(&[word(2, 0)], EVER, &all), Some(8..12), "it does not know the first");
    let second = |places: Range<u64>| if places.start < 8 { vec![] } else { vec![10..11] };
    assert_eq!(lost(&both(0, 0), EVER, &second), Some(10..11), "what is lacking");
}

#[test]
fn a_suspect_place_goes_to_who_was_not_lost_with_it_while_there_is_somebody() {
    let suspects = suspected(0..2);
    let somebody = |lost: &BTreeSet<&str>| !lost.contains("t9");
    assert!(!suspects.may_have("t1", 0, NOW, &somebody) && suspects.may_have("t1", 0, NOW, &nobody));
    assert!(suspects.may_have("t9", 0, NOW, &somebody) && suspects.may_have("t1", 2, NOW, &somebody));
}

#[test]
fn nobody_has_a_suspect_place_while_it_is_not_known_whether_another_is_lost_with_it() {
    let mut suspects = suspected(0..2);
    given(&mut suspects, 4, 1..2, 0, Care::Alone);
    assert!(suspects.is_occupied(Incarnation(4)) && !suspects.is_occupied(Incarnation(5)));
    assert!(suspects.may_have("t5", 1, NOW, &nobody), "it lives, and is late");
    assert!(!suspects.may_have("t5", 1, 2 * NOW, &nobody), "it is silent");
    suspects.supersede(Incarnation(4), Duration::from_secs(1));
    assert!(!suspects.may_have("t5", 1, NOW, &nobody) && suspects.may_have("t5", 0, NOW, &nobody));
    suspects.lose(Incarnation(4), EVER, &all, None);
    assert!(suspects.may_have("t5", 1, NOW, &nobody));
    given(&mut suspects, 5, 1..2, 1, Care::Careful);
    assert!(!suspects.is_occupied(Incarnation(5)), "it is computed");
}

proptest! {
    #[test]
    fn whatever_happens_only_the_lost_are_counted_and_memory_is_bounded(
        calls in proptest::collection::vec((0u8..9, 0u64..12, 0u64..6, 1u64..5), 0..400)
    ) {
        let mut suspects = Suspects::default();
        // Who was lost and has not spoken since.
        let mut silent = BTreeSet::new();
        for (number, (call, who, place, count)) in calls.into_iter().enumerate() {
            let (trainer, lease) = (Incarnation(who), LeaseId(number as u64));
            match call {
                0 | 1 if !silent.contains(&trainer) => {
                    let care = suspects.care(place);
                    let places = if care == Care::None { place..place + count } else { place..place + 1 };
                    suspects.given(trainer, &format!("t{}", who % 5), lease, places, care, NOW);
                }
                2 => {
                    silent.remove(&trainer);
                    suspects.hear(trainer, &[], NOW);
                }
                3 => {
                    silent.remove(&trainer);
                    suspects.leaves(trainer);
                }
                4 => suspects.supersede(trainer, Duration::from_secs(number as u64)),
                5 => {
                    let leases: Vec<LeaseId> = suspects.hands.get(&trainer)
                        .into_iter().flat_map(|hand| &hand.held).map(|held| held.lease).collect();
                    leases.into_iter().for_each(|lease| suspects.announces(trainer, lease, Some(count)));
                }
                6 => suspects.advance(place / 3),
                // It has computed all that it has.
                8 => {
                    silent.remove(&trainer);
                    let held = suspects.hands.get(&trainer).into_iter().flat_map(|hand| &hand.held);
                    let words: Vec<Progress> = held.map(|held| word(held.lease.0, held.count() as u32)).collect();
                    (0..40).for_each(|number| given(&mut suspects, 900 + number, 90..91, 1, Care::None));
                    suspects.hear(trainer, &words, NOW);
                }
                _ => {
                    let care = suspects.hands.get(&trainer).and_then(|hand| {
                        hand.held.iter().min_by_key(|held| (held.places.start, held.lease)).map(|held| held.care)
                    });
                    if care.is_some() {
                        silent.insert(trainer);
                    }
                    let now = Duration::from_secs(number as u64);
                    suspects.lose(trainer, EVER, &all, (count > 1).then_some(now + Duration::from_secs(count * place)));
                }
            }
            for blame in judged(&mut suspects, Duration::from_secs(number as u64)) {
                let dead: Vec<&Loss> = suspects.at(blame.place).filter(|loss| loss.is_dead()).collect();
                prop_assert!(dead.len() >= 5 && dead.iter().any(|loss| loss.care == Care::Careful));
                let is_dead = |name: &String| dead.iter().any(|loss| loss.name == *name);
                prop_assert!(!blame.trainers.is_empty() && blame.trainers.iter().all(is_dead));
            }
            let dead_next = suspects.losses.iter().filter_map(|loss| loss.dead_from).min();
            prop_assert!(dead_next.is_none_or(|from| from > Duration::from_secs(number as u64)));
            let counted: Vec<Incarnation> = suspects.losses.iter().map(|loss| loss.trainer).collect();
            let distinct: BTreeSet<Incarnation> = counted.iter().copied().collect();
            prop_assert!(counted.len() == distinct.len() && distinct.is_subset(&silent));
            for place in 0..12 {
                let is_suspect = suspects.places(LOSSES).iter().any(|places| places.contains(&place));
                prop_assert_eq!(is_suspect, suspects.at(place).count() >= LOSSES);
                prop_assert_eq!(is_suspect, suspects.care(place) > Care::None);
            }
            prop_assert!(suspects.places(LOSSES).is_sorted_by(|one, next| one.end <= next.start));
        }
    }
}
