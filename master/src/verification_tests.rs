//! Checks as trainers and pservers meet them, and any order of what may happen.

use super::*;
use proptest::prelude::*;

const TTL: Duration = Duration::from_secs(1);
const A: Incarnation = Incarnation(1);
const B: Incarnation = Incarnation(2);
const C: Incarnation = Incarnation(3);

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Everything is verified.
fn whole() -> Verification {
    Verification::new(1, 1_000_000, TTL, Rewind(5), at(0))
}

fn told(lease: u64, (step, slot): Place, hash: u8) -> Verified {
    let (lease, step, hashes) = (LeaseId(lease), Step(step), vec![hash; 2 * HASH_BYTES]);
    Verified { lease, step, slot, rewind: Rewind(5), exclusions: 0, hashes }
}

fn hear(
    checks: &mut Verification,
    trainer: Incarnation,
    leases: &[u64],
    words: &[Verified],
    millis: u64,
) -> Option<Difference> {
    let has = |lease: LeaseId| leases.contains(&lease.0);
    checks.hear((trainer, &format!("t{}", trainer.0)), &has, false, words, at(millis))
}

fn wanted(checks: &Verification, trainer: Incarnation, is_alone: bool) -> Option<Place> {
    let (step, slot) = checks.wanted(trainer, is_alone, When::Present, &|_, _| true)?;
    Some((step.0, slot))
}

#[test]
fn another_trainer_computes_what_one_has_been_given_and_equal_hashes_settle_it() {
    let mut checks = whole();
    assert_eq!(checks.chosen(Step(0), 2..4), [2, 3]);
    checks.given(A, LeaseId(1), Step(0), &[2], at(0));
    assert_eq!((wanted(&checks, A, false), wanted(&checks, B, false)), (None, Some((0, 2))));
    checks.given(B, LeaseId(2), Step(0), &[2], at(0));
    assert_eq!(wanted(&checks, C, false), None, "two are enough");
    assert_eq!(hear(&mut checks, B, &[2], &[told(2, (0, 2), 7)], 1), None);
    assert_eq!(hear(&mut checks, B, &[2], &[told(2, (0, 2), 7)], 1), None, "the same word again");
    assert_eq!(checks.counters().verified, 0);
    assert!(checks.is_worth_waiting(at(2)));
    assert_eq!(hear(&mut checks, A, &[1], &[told(1, (0, 2), 7)], 2), None);
    assert_eq!(checks.counters(), Counters { verified: 1, given_up: 0 });
    assert!(!checks.is_worth_waiting(at(2)) && wanted(&checks, C, false).is_none());
}

#[test]
fn a_difference_is_found_whoever_tells_it_and_however_late() {
    let mut checks = whole();
    checks.given(A, LeaseId(1), Step(0), &[0], at(0));
    checks.given(B, LeaseId(2), Step(0), &[0], at(0));
    hear(&mut checks, A, &[1], &[told(1, (0, 0), 7)], 1);
    hear(&mut checks, B, &[2], &[told(2, (0, 0), 7)], 1);
    // Settled, and two steps behind; a third one computed it too.
    checks.advance(Step(2), at(2));
    let mut other = told(3, (0, 0), 7);
    other.hashes[HASH_BYTES] = 8;
    let difference = hear(&mut checks, C, &[], &[other], 3).unwrap();
    let trainers = ["t1".to_owned(), "t3".to_owned()];
    assert_eq!(difference, Difference { step: Step(0), slot: 0, hash: 1, trainers });
}

#[test]
fn a_step_that_no_job_has_overflows_nothing_and_is_waited_for_by_nobody() {
    let mut checks = whole();
    checks.advance(Step(100), at(0));
    for step in [u64::MAX, u64::MAX - KEPT_STEPS, u64::MAX - READABLE_STEPS] {
        assert_eq!(hear(&mut checks, A, &[], &[told(1, (step, 0), 7)], 1), None);
        assert_eq!(wanted(&checks, B, false), None);
    }
    assert_eq!(hear(&mut checks, A, &[], &[told(1, (100, 0), 7)], 1), None);
    assert!(hear(&mut checks, B, &[], &[told(2, (100, 0), 8)], 1).is_some(), "others are compared as ever");
}

#[test]
fn one_trainer_alone_computes_twice_and_its_own_calls_are_told_apart_by_their_leases() {
    let mut checks = whole();
    checks.given(A, LeaseId(1), Step(0), &[0], at(0));
    assert_eq!(wanted(&checks, A, true), Some((0, 0)));
    checks.given(A, LeaseId(2), Step(0), &[0], at(0));
    let words = [told(1, (0, 0), 7), told(2, (0, 0), 8)];
    assert_eq!(hear(&mut checks, A, &[1, 2], &words, 1).unwrap().trainers, ["t1", "t1"]);
}

#[test]
fn what_a_trainer_takes_with_it_or_does_not_know_of_is_wanted_again() {
    for is_lost in [true, false] {
        let mut checks = whole();
        checks.given(A, LeaseId(1), Step(0), &[0], at(0));
        checks.given(B, LeaseId(2), Step(0), &[0], at(0));
        if is_lost {
            checks.lose(B);
        } else {
            hear(&mut checks, B, &[], &[], 1);
        }
        assert_eq!((wanted(&checks, A, false), wanted(&checks, C, false)), (None, Some((0, 0))));
        // The one that had it first goes too: what it told stays.
        hear(&mut checks, A, &[1], &[told(1, (0, 0), 7)], 1);
        checks.lose(A);
        assert_eq!(wanted(&checks, C, false), Some((0, 0)));
        checks.given(C, LeaseId(3), Step(0), &[0], at(1));
        assert!(hear(&mut checks, C, &[3], &[told(3, (0, 0), 8)], 2).is_some());
    }
}

#[test]
fn a_trainer_that_computes_nothing_for_two_ttls_is_not_waited_for_and_its_late_word_counts() {
    let mut checks = whole();
    checks.given(A, LeaseId(1), Step(0), &[0], at(0));
    checks.given(B, LeaseId(2), Step(0), &[0], at(0));
    hear(&mut checks, B, &[2], &[], 1999);
    assert_eq!(wanted(&checks, C, false), None);
    checks.hear((A, "t1"), &|_| true, true, &[], at(1999));
    hear(&mut checks, A, &[1], &[], 2000);
    assert_eq!(wanted(&checks, C, false), None, "it gets on");
    hear(&mut checks, B, &[2], &[], 2000);
    assert_eq!(wanted(&checks, C, false), Some((0, 0)));
    hear(&mut checks, A, &[1], &[told(1, (0, 0), 7)], 2001);
    assert!(hear(&mut checks, B, &[2], &[told(2, (0, 0), 8)], 9000).is_some());
}

#[test]
fn what_was_computed_in_another_history_or_with_other_exclusions_is_not_compared() {
    let mut checks = whole();
    checks.given(A, LeaseId(1), Step(0), &[0], at(0));
    hear(&mut checks, A, &[1], &[told(1, (0, 0), 7)], 1);
    let elsewhere = Verified { rewind: Rewind(4), ..told(2, (0, 0), 8) };
    assert_eq!(hear(&mut checks, B, &[2], &[elsewhere], 1), None);
    let fewer = Verified { exclusions: 3, ..told(3, (0, 0), 8) };
    assert_eq!(hear(&mut checks, B, &[3], std::slice::from_ref(&fewer), 1), None, "the list has grown");
    assert_eq!(hear(&mut checks, A, &[1], &[told(1, (0, 0), 7)], 1), None, "an older list's is late");
    let other = Verified { lease: LeaseId(4), hashes: vec![9; 2 * HASH_BYTES], ..fewer };
    assert!(hear(&mut checks, A, &[4], &[other], 2).is_some());
    checks.go_back(Step(0), Rewind(9), at(3));
    assert_eq!(hear(&mut checks, A, &[1], &[told(1, (0, 0), 1), told(2, (0, 0), 2)], 3), None);
    assert!(!checks.is_worth_waiting(at(3)) && wanted(&checks, C, true).is_none());
}

#[test]
fn a_step_that_is_done_is_anybodys_until_its_parameters_are_gone_and_is_given_up_then() {
    let mut checks = whole();
    checks.given(A, LeaseId(1), Step(3), &[0], at(0));
    hear(&mut checks, A, &[1], &[told(1, (3, 0), 7)], 1);
    checks.advance(Step(3), at(1));
    assert_eq!(checks.wanted(B, false, When::Late, &|_, _| true), None, "it is the front");
    checks.advance(Step(4), at(1));
    assert_eq!(checks.wanted(A, false, When::Late, &|_, _| true), Some((Step(3), 0)), "its own too");
    assert_eq!(checks.wanted(A, false, When::Late, &|_, _| false), None, "one that is suspect is nobody's");
    assert!(checks.is_worth_waiting(at(2000)) && !checks.is_worth_waiting(at(2001)), "for a while");
    checks.advance(Step(5), at(2));
    assert_eq!(wanted(&checks, A, true), None);
    checks.advance(Step(8), at(3));
    assert_eq!(checks.counters(), Counters { verified: 0, given_up: 1 });
    assert!(checks.checks.is_empty() && checks.wanting.is_empty() && checks.expected_of.is_empty());
}

/// What may happen to the checks of a job of four steps of two slots.
#[derive(Clone, Debug)]
enum Happening {
    Ask { trainer: u64 },
    Node { trainer: u64 },
    Tell { trainer: u64, again: bool },
    Forget { trainer: u64 },
    Lose { trainer: u64 },
    Advance,
    GoBack,
    Pass,
}

fn happening() -> impl Strategy<Value = Happening> {
    let trainer = || 1u64..4;
    prop_oneof![
        4 => trainer().prop_map(|trainer| Happening::Ask { trainer }),
        3 => trainer().prop_map(|trainer| Happening::Node { trainer }),
        6 => (trainer(), any::<bool>()).prop_map(|(trainer, again)| Happening::Tell { trainer, again }),
        1 => trainer().prop_map(|trainer| Happening::Forget { trainer }),
        1 => trainer().prop_map(|trainer| Happening::Lose { trainer }),
        2 => Just(Happening::Advance),
        1 => Just(Happening::GoBack),
        1 => Just(Happening::Pass),
    ]
}

/// What is wanted follows from the checks, and none is kept for longer than it may be.
fn assert_sound(checks: &Verification) {
    for (place, check) in &checks.checks {
        let is_wanting = place.0 + READABLE_STEPS >= checks.front && check.wants_second();
        assert_eq!(checks.wanting.contains(place), is_wanting, "{place:?} {check:?}");
        assert!(place.0 + KEPT_STEPS >= checks.front || !check.expected.is_empty(), "{place:?}");
    }
}

proptest! {
    /// Whatever happens: of a program that is a function no difference is told; of one that lies in a trainer, it is as soon as that
    /// one and another have told of one place in one history; what is kept is bounded; two are expected of a place at most but for
    /// nodes that are leased again.
    #[test]
    fn a_function_never_differs_and_a_liar_is_found(
        happenings in proptest::collection::vec(happening(), 0..120), liar in 0u64..4
    ) {
        let mut checks = whole();
        let (mut now, mut next, mut front, mut rewind) = (0, 1, 0u64, 5u64);
        // Leases: trainer, place, rewind, whether it was told.
        let mut held: Vec<(u64, u64, Place, u64, bool)> = Vec::new();
        // By place and rewind, who has told.
        let mut heard: BTreeMap<(Place, u64), BTreeSet<u64>> = BTreeMap::new();
        for happening in happenings {
            now += 10;
            match happening {
                Happening::Ask { trainer } => {
                    let found = checks.wanted(Incarnation(trainer), false, When::Present, &|_, _| true);
                    if let Some((step, slot)) = found {
                        prop_assert!(step.0 + 1 >= front && step.0 <= front);
                        checks.given(Incarnation(trainer), LeaseId(next), step, &[slot], at(now));
                        held.push((next, trainer, (step.0, slot), rewind, false));
                        next += 1;
                    }
                }
                Happening::Node { trainer } => {
                    let slots = checks.chosen(Step(front), 0..2);
                    checks.given(Incarnation(trainer), LeaseId(next), Step(front), &slots, at(now));
                    held.extend(slots.iter().map(|slot| (next, trainer, (front, *slot), rewind, false)));
                    next += 1;
                }
                Happening::Tell { trainer, again } => {
                    let leases: Vec<u64> = held.iter().filter(|one| one.1 == trainer).map(|one| one.0).collect();
                    let ours = held.iter_mut().find(|one| one.1 == trainer && (again || !one.4));
                    let Some(one) = ours else { continue };
                    one.4 = true;
                    let (lease, _, place, of, _) = *one;
                    let hash = if trainer == liar { 100 } else { place.1 as u8 };
                    let word = Verified { rewind: Rewind(of), ..told(lease, place, hash) };
                    let differs = hear(&mut checks, Incarnation(trainer), &leases, &[word], now);
                    let is_remembered = place.0 + KEPT_STEPS >= front && of == rewind;
                    if of == rewind {
                        heard.entry((place, of)).or_default().insert(trainer);
                    }
                    let who = heard.get(&(place, of)).cloned().unwrap_or_default();
                    let has_liar = who.contains(&liar) && who.len() > 1;
                    // The first that told is what others are held against.
                    if let Some(differs) = differs {
                        prop_assert!(has_liar, "{differs:?}");
                        return Ok(());
                    }
                    prop_assert!(!(has_liar && is_remembered && who.len() == 2), "{who:?} at {place:?}");
                }
                Happening::Forget { trainer } => {
                    held.retain(|one| one.1 != trainer);
                    hear(&mut checks, Incarnation(trainer), &[], &[], now);
                }
                Happening::Lose { trainer } => {
                    held.retain(|one| one.1 != trainer);
                    checks.lose(Incarnation(trainer));
                }
                Happening::Advance => {
                    front += 1;
                    checks.advance(Step(front), at(now));
                }
                Happening::GoBack => {
                    (front, rewind) = (front.saturating_sub(2), rewind + 1);
                    checks.go_back(Step(front), Rewind(rewind), at(now));
                }
                Happening::Pass => now += 2500,
            }
            assert_sound(&checks);
        }
    }
}
