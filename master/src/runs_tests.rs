//! Tests of the lease machine of asynchronous jobs: each rule by its name, then speeds, then any interleaving.

use super::*;
use crate::fixture::course;
use proptest::prelude::*;
use std::cell::Cell;

#[path = "runs_alone_tests.rs"]
mod alone;
#[path = "runs_lane_tests.rs"]
mod lane;
#[path = "runs_model_tests.rs"]
mod model;
#[path = "runs_speed_tests.rs"]
mod speed;

const TTL: Duration = Duration::from_millis(1600);
const A: Incarnation = Incarnation(1);
const B: Incarnation = Incarnation(2);
const C: Incarnation = Incarnation(3);

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The pservers' word: what every block has applied; nothing while some block is unheard. Counts what it is asked.
struct Said {
    applied: Option<Ledger>,
    asked: Cell<u64>,
}

impl Said {
    fn of(ledger: &Ledger) -> Said {
        Said { applied: Some(ledger.clone()), asked: Cell::new(0) }
    }
}

impl Lacking for Said {
    fn front(&self) -> Option<u64> {
        self.applied.as_ref().map(Ledger::low)
    }
    fn lacking(&self, range: Range<u64>) -> Option<Range<u64>> {
        assert!(!range.is_empty(), "nothing was asked");
        self.asked.set(self.asked.get() + 1);
        match &self.applied {
            Some(applied) => applied.missing(range).next(),
            None => Some(range),
        }
    }
}

/// Every block has applied what is below `low`, and these positions.
fn applied(low: u64, beyond: impl IntoIterator<Item = u64>) -> Said {
    let mut ledger = Ledger::from_parts(low, []).unwrap();
    beyond.into_iter().for_each(|position| assert!(ledger.insert(position)));
    Said::of(&ledger)
}
fn nothing() -> Said {
    applied(0, [])
}
fn unheard() -> Said {
    Said { applied: None, asked: Cell::new(0) }
}

/// A job of 1000 microbatches. Dispatched 64 at a time: two trainers make lanes of 16 and, once their pace is known,
/// runs of 8.
fn runs() -> Runs {
    Runs::new(course(1000), 64, TTL, LeaseId(1))
}
/// One run for one of `live` trainers, if there is any.
fn take(runs: &mut Runs, trainer: Incarnation, live: u32, millis: u64, said: &Said) -> Option<Grant> {
    runs.lease(trainer, live, 1, at(millis), said).first().copied()
}
fn positions(grants: &[Grant]) -> Vec<(u64, u32)> {
    grants.iter().map(|grant| (grant.first, grant.count)).collect()
}
fn computed(grant: Grant, microbatches: u32) -> Progress {
    Progress { lease: grant.lease, microbatches, pushed: false, waits: false }
}
fn pushed(grant: Grant) -> Progress {
    Progress { lease: grant.lease, microbatches: grant.count, pushed: true, waits: false }
}
/// Two trainers whose paces are as `fast` to `slow`; their first runs are pushed at a second: 0 by A, 17 by B.
fn paced(fast: u64, slow: u64) -> Runs {
    let mut runs = runs();
    for (trainer, pace) in [(A, slow), (B, fast)] {
        let first = runs.lease(trainer, 2, 1, at(1000 - 900 / pace), &nothing())[0];
        runs.progress(trainer, &[pushed(first)], at(1000));
    }
    runs
}

#[test]
fn progress_renews_a_lease_and_heartbeats_without_progress_do_not() {
    let mut runs = paced(1, 1);
    let lease = take(&mut runs, A, 2, 1000, &applied(32, [])).unwrap();
    assert_eq!(lease.count, 8);
    runs.progress(A, &[computed(lease, 1)], at(2000));
    runs.progress(A, &[computed(lease, 1)], at(2500));
    runs.progress(A, &[computed(lease, 0)], at(2600));
    runs.progress(B, &[computed(lease, 8)], at(2700));
    runs.progress(B, &[pushed(lease)], at(2700));
    assert_eq!(runs.next_deadline(), Some(at(3600)), "the same word again is no progress, nor is another's");
    runs.progress(A, &[computed(lease, 2)], at(2800));
    assert_eq!(runs.next_deadline(), Some(at(4400)), "and so it does not count for it either");
    runs.expire(at(4399), &nothing());
    assert_eq!(runs.in_hand(A), 1);
    runs.expire(at(4400), &nothing());
    assert_eq!((runs.in_hand(A), runs.counters().expired), (0, 1));
}

#[test]
fn who_finds_out_late_that_it_cannot_do_a_position_has_said_so_all_the_same() {
    let mut runs = runs();
    let first = take(&mut runs, A, 2, 0, &nothing()).unwrap();
    runs.expire(TTL, &nothing());
    assert!(runs.refuse(A, first.lease, first.first, TTL, &nothing()));
    let others_go_first = runs.lease(A, 2, 2, TTL, &nothing());
    assert!(others_go_first.iter().all(|grant| grant.first > first.first), "{others_go_first:?}");
    for place in [1000, u64::MAX] {
        assert!(!runs.refuse(A, first.lease, place, TTL, &nothing()), "there is no position {place}");
    }
    assert!(!runs.refuse(A, first.lease, first.first, TTL, &applied(1, [])), "somebody has done it");
}

#[test]
fn progress_on_a_run_renews_those_that_wait_behind_it_and_none_before_it() {
    let mut runs = paced(1, 1);
    let two = runs.lease(A, 2, 2, at(1000), &applied(32, []));
    runs.progress(A, &[computed(two[0], 1)], at(2000));
    runs.expire(at(3599), &nothing());
    assert_eq!(runs.in_hand(A), 2, "the second was not its turn yet");
    runs.progress(A, &[computed(two[1], 1)], at(3599));
    runs.expire(at(3600), &nothing());
    assert_eq!(runs.in_hand(A), 1, "it has passed the first by");
    assert_eq!(runs.next_deadline(), Some(at(5199)));
}

#[test]
fn what_was_pushed_is_quiet_until_the_lease_ends_and_a_trainers_word_is_no_proof() {
    let mut runs = runs();
    let first = take(&mut runs, A, 1, 0, &nothing()).unwrap();
    runs.progress(A, &[computed(first, 1)], at(100));
    runs.progress(A, &[pushed(first)], at(200));
    let behind = take(&mut runs, A, 1, 300, &nothing()).unwrap();
    runs.progress(A, &[pushed(first), computed(behind, 0)], at(900));
    runs.progress(A, &[computed(first, 1)], at(900));
    assert_eq!((runs.next_deadline(), runs.in_hand(A)), (Some(at(1800)), 1), "pushing was progress, once");
    assert_ne!(take(&mut runs, B, 2, 1799, &nothing()).unwrap().first, first.first);
    runs.expire(at(1800), &nothing());
    runs.progress(A, &[pushed(first)], at(1801));
    assert_eq!(take(&mut runs, C, 3, 1802, &nothing()).unwrap().first, first.first);
    assert_eq!((runs.counters().leased_again, runs.counters().expired), (1, 1));
    runs.expire(at(1900), &nothing());
    assert_eq!(runs.in_hand(A), 0, "what waited behind it was not renewed by the word again");
}

#[test]
fn what_every_block_has_applied_ends_without_being_counted_as_expired() {
    let mut runs = runs();
    let first = take(&mut runs, A, 1, 0, &nothing()).unwrap();
    runs.expire(TTL, &applied(0, [first.first]));
    assert_eq!((runs.in_hand(A), runs.counters().expired), (0, 0));
}

#[test]
fn nothing_at_or_beyond_the_windows_end_or_the_jobs_is_leased() {
    for (jobs, window) in [(1000, 5), (5, 1000)] {
        let mut runs = Runs::new(course(jobs), window, TTL, LeaseId(1));
        let mut leased = BTreeSet::new();
        for trainer in 1..20 {
            let grants = runs.lease(Incarnation(trainer), 1, 4, at(0), &nothing());
            leased.extend(grants.iter().flat_map(|grant| grant.first..grant.first + u64::from(grant.count)));
        }
        assert_eq!(leased, (0..5).collect());
    }
    let mut runs = Runs::new(course(1000), 5, TTL, LeaseId(1));
    let said = applied(3, [4, 5, 7]);
    let leased: Vec<_> =
        (1..9).filter_map(|trainer| take(&mut runs, Incarnation(trainer), 9, 0, &said)).collect();
    assert_eq!(positions(&leased), [(3, 1), (6, 1)], "the window begins at what some block lacks");
}

/// Four positions train, three evaluate what they made, and so on.
#[test]
fn an_evaluation_begins_when_all_training_before_it_is_applied_and_training_goes_on_when_it_is() {
    let mut runs = Runs::new(Course::new(8, 4, 3), 1000, TTL, LeaseId(1));
    let mut leased = |said: &Said| {
        let mut all = BTreeSet::new();
        for trainer in 1..20 {
            let grants = runs.lease(Incarnation(trainer), 1, 4, at(0), said);
            all.extend(grants.iter().flat_map(|grant| grant.first..grant.first + u64::from(grant.count)));
        }
        all
    };
    for (low, stretch) in [(0, 0..4), (4, 4..7), (7, 7..11), (11, 11..14)] {
        assert_eq!(leased(&applied(low, [])), stretch.clone().collect());
        let but_the_first = applied(low, stretch.start + 1..stretch.end);
        assert_eq!(leased(&but_the_first), BTreeSet::new(), "{stretch:?}: its first is not applied");
    }
}

#[test]
fn a_hand_back_is_leased_again_at_once_and_so_is_what_a_lost_trainer_held() {
    let mut runs = runs();
    let held = take(&mut runs, A, 2, 0, &nothing()).unwrap();
    runs.hand_back(A, &nothing());
    let again = take(&mut runs, B, 2, 0, &nothing()).unwrap();
    assert_eq!((again.first, runs.counters().handed_back, runs.counters().expired), (held.first, 1, 0));
    runs.lose(B, &nothing());
    assert_eq!(take(&mut runs, A, 2, 0, &nothing()).unwrap().first, held.first);
    assert_eq!((runs.counters().handed_back, runs.counters().expired), (1, 1));
    assert_eq!((runs.counters().leased, runs.counters().leased_again), (3, 2));
}

#[test]
fn a_trainer_that_is_gone_leaves_no_lane_and_no_pace_behind() {
    let mut runs = paced(1, 1);
    runs.lose(A, &nothing());
    runs.hand_back(B, &nothing());
    assert!(runs.workers.is_empty() && runs.lanes.count() == 0);
    assert_eq!(take(&mut runs, A, 1, 1000, &applied(32, [])).unwrap().count, 1, "it begins anew");
}

#[test]
fn a_grant_whose_reply_was_lost_is_free_again_when_its_trainer_does_not_know_it() {
    let mut runs = runs();
    let lost = take(&mut runs, A, 2, 0, &nothing()).unwrap();
    let known = take(&mut runs, A, 2, 0, &nothing()).unwrap();
    let others = take(&mut runs, B, 2, 0, &nothing()).unwrap();
    runs.forget_unknown(A, &[computed(known, 0), computed(others, 0)], &nothing());
    assert_eq!((runs.in_hand(A), runs.in_hand(B)), (1, 1), "another's leases are not its to forget");
    assert_eq!(take(&mut runs, C, 3, 0, &nothing()).unwrap().first, lost.first);
    assert_eq!(runs.counters().expired, 0);
}

#[test]
fn while_some_block_is_unheard_nothing_is_leased_and_what_is_in_hand_stays_leased() {
    let mut runs = runs();
    let held = take(&mut runs, A, 2, 0, &nothing()).unwrap();
    assert_eq!(runs.lease(B, 2, 4, at(0), &unheard()), []);
    assert!(!runs.is_done(&unheard()));
    runs.progress(A, &[computed(held, 1)], at(1000));
    runs.expire(at(2599), &unheard());
    assert_eq!(runs.in_hand(A), 1);
    runs.expire(at(2600), &unheard());
    assert_eq!((runs.in_hand(A), runs.counters().expired), (0, 1), "unheard blocks lack everything");
}

#[test]
fn what_a_block_comes_to_lack_again_is_free_again_but_for_what_is_in_hand() {
    let mut runs = Runs::new(course(1000), 8, TTL, LeaseId(1));
    let held = take(&mut runs, A, 1, 0, &applied(100, [])).unwrap();
    assert_eq!(held.first, 100);
    let restored = applied(97, [98]);
    let leased: Vec<_> =
        (2..20).filter_map(|trainer| take(&mut runs, Incarnation(trainer), 1, 0, &restored)).collect();
    let mut leased: Vec<u64> = leased.iter().flat_map(|g| g.first..g.first + u64::from(g.count)).collect();
    leased.sort_unstable();
    assert_eq!(leased, [97, 99, 101, 102, 103, 104]);
    assert_eq!(runs.in_hand(A), 1);
}

#[test]
fn what_was_searched_is_searched_again_when_a_blocks_term_has_changed_or_the_front_is_free() {
    let mut runs = Runs::new(course(1000), 8, TTL, LeaseId(1));
    let take_all = |runs: &mut Runs, said: &Said| {
        let leased = (1..20).filter_map(|trainer| take(runs, Incarnation(trainer), 1, 0, said));
        leased.map(|grant| grant.first).collect::<BTreeSet<u64>>()
    };
    assert_eq!(take(&mut runs, A, 1, 0, &applied(100, [])).unwrap().first, 100);
    assert_eq!(take_all(&mut runs, &applied(100, 101..108)), [].into());
    runs.relack();
    assert_eq!(take_all(&mut runs, &applied(100, [101, 102, 105, 107])), [103, 104, 106].into());
    assert_eq!(take_all(&mut runs, &applied(94, 101..108)), (94..100).collect(), "although nobody said so");
}

#[test]
fn what_a_late_push_has_applied_is_not_leased_again() {
    let mut runs = runs();
    assert_eq!(positions(&runs.lease(A, 1, 2, at(0), &nothing())), [(0, 1), (1, 1)]);
    runs.lose(A, &nothing());
    let said = applied(0, [0, 2]);
    assert_eq!(positions(&runs.lease(B, 1, 2, at(0), &said)), [(1, 1), (3, 1)]);
}

#[test]
fn leases_below_the_front_are_let_go_of_in_hand_or_not() {
    let mut runs = Runs::new(course(1000), 8, TTL, LeaseId(1));
    for low in 0..200 {
        let grant = take(&mut runs, A, 1, low, &applied(low, [])).unwrap();
        assert_eq!(grant.first, low);
        if low % 2 == 0 {
            runs.progress(A, &[pushed(grant)], at(low));
        }
        assert_eq!((runs.leases.len(), runs.by_first.len(), runs.by_renewal.len()), (1, 1, 1));
    }
    assert_eq!(runs.leased_before.ranges().count(), 0);
}

#[test]
fn an_idle_trainer_gets_no_copy_of_what_a_slow_one_holds() {
    let mut runs = Runs::new(course(1000), 1, TTL, LeaseId(1));
    assert!(take(&mut runs, A, 2, 0, &nothing()).is_some());
    assert_eq!(runs.lease(B, 2, 4, at(1599), &nothing()), []);
    assert_eq!(runs.counters().speculative, 0);
}

#[test]
fn a_first_run_is_one_microbatch_and_later_ones_are_fair_by_speed_up_to_a_small_constant() {
    let mut runs = paced(4, 1);
    assert_eq!(runs.leased_before.ranges().count(), 1, "two first runs, of one");
    let said = applied(32, []);
    let (slow, fast) = (take(&mut runs, A, 2, 1000, &said), take(&mut runs, B, 2, 1000, &said));
    assert_eq!(
        (slow.unwrap().count, fast.unwrap().count),
        (3, 12),
        "a fifth of a quarter of the window, and the rest"
    );
    let mut alone = Runs::new(course(100_000), 10_000, TTL, LeaseId(1));
    let first = take(&mut alone, A, 1, 0, &nothing()).unwrap();
    alone.progress(A, &[pushed(first)], at(10));
    assert_eq!(take(&mut alone, A, 1, 10, &applied(1, [])).unwrap().count, 16);
}

#[test]
fn waiting_without_work_does_not_make_a_trainer_slow() {
    let mut runs = paced(1, 1);
    let later = take(&mut runs, A, 2, 50_000, &applied(32, [])).unwrap();
    runs.progress(A, &[computed(later, 1)], at(50_900));
    runs.progress(A, &[pushed(later)], at(57_200));
    assert_eq!(take(&mut runs, A, 2, 57_200, &applied(40, [])).unwrap().count, 8);
}

#[test]
fn a_trainer_has_computed_no_more_than_its_run_has() {
    let mut runs = paced(1, 1);
    let run = take(&mut runs, A, 2, 1000, &applied(32, [])).unwrap();
    runs.progress(A, &[Progress { microbatches: u32::MAX, ..pushed(run) }], at(8200));
    assert_eq!(take(&mut runs, A, 2, 8200, &applied(40, [])).unwrap().count, 8);
}

#[test]
fn a_trainer_has_two_runs_in_hand_and_one_if_it_is_slow_or_the_window_narrow() {
    let said = applied(32, []);
    let mut even = paced(2, 1);
    assert_eq!(
        (even.lease(A, 2, 9, at(1000), &said).len(), even.lease(B, 2, 1, at(1000), &said).len()),
        (2, 1)
    );
    assert_eq!(
        (even.lease(A, 2, 9, at(1000), &said).len(), even.lease(B, 2, 9, at(1000), &said).len()),
        (0, 1)
    );
    let mut uneven = paced(10, 1);
    assert_eq!(
        (uneven.lease(A, 2, 9, at(1000), &said).len(), uneven.lease(B, 2, 9, at(1000), &said).len()),
        (1, 2)
    );
    let mut narrow = Runs::new(course(1000), 16, TTL, LeaseId(1));
    assert_eq!(narrow.lease(A, 5, 9, at(0), &nothing()).len(), 1);
    assert_eq!(narrow.lease(B, 4, 9, at(0), &nothing()).len(), 2);
}

#[test]
fn leases_are_counted_on_from_the_first_that_was_asked_for() {
    let mut runs = Runs::new(course(10), 10, TTL, LeaseId(7 << 40));
    let ids: Vec<u64> = runs.lease(A, 1, 2, at(0), &nothing()).iter().map(|grant| grant.lease.0).collect();
    assert_eq!(ids, [7 << 40, (7 << 40) + 1]);
}

#[test]
fn a_job_is_done_when_no_block_lacks_anything_and_not_when_it_comes_to_lack_again() {
    let mut runs = Runs::new(course(10), 4, TTL, LeaseId(1));
    assert!(!runs.is_done(&applied(9, [])) && runs.is_done(&applied(10, [])));
    assert_eq!(runs.lease(A, 1, 4, at(0), &applied(10, [])), []);
    assert_eq!(take(&mut runs, A, 1, 0, &applied(9, [])).unwrap().first, 9);
}

#[test]
fn what_a_lease_leaves_is_leased_again_before_anything_beyond_and_only_once() {
    let mut runs = Runs::new(course(1000), 64, TTL, LeaseId(1));
    let first_of = |runs: &mut Runs, trainer| {
        take(runs, Incarnation(trainer), 1, 0, &nothing()).map(|grant| (grant.first, grant.count))
    };
    let all: Vec<_> = (10..74).map_while(|trainer| first_of(&mut runs, trainer)).collect();
    assert_eq!(all.iter().map(|(_, count)| count).sum::<u32>(), 64, "the whole window");
    assert_eq!(first_of(&mut runs, 99), None);
    // The 3rd and the 6th end, what blocks lack of them is free; what they have of the 9th is not.
    let said = applied(0, [all[8].0]);
    for trainer in [15, 18, 12] {
        runs.lose(Incarnation(trainer), &said);
    }
    let mut again = Vec::new();
    while let Some(grant) = take(&mut runs, Incarnation(100 + again.len() as u64), 1, 0, &said) {
        again.push((grant.first, grant.count));
    }
    assert_eq!(again, [all[2], all[5]]);
}
