//! Ends, their meanings and what they cost: by tables, and by properties over all codes and signals.

use super::Meaning::{
    Displaced, Failed, Hopeless, Killed, Left, OutOfMemory, Preempted, Refused, Unreached, Unstarted,
};
use super::*;
use proptest::prelude::*;
use std::time::Duration;

const LIFE: Life = Life {
    role: Role::Trainer,
    part: Part::Worked,
    is_first: false,
    was_told: false,
    was_killed: false,
    has_left: false,
    is_alone: false,
};
const LATER: Life = Life { part: Part::NeverJoined, ..LIFE };
const NEW: Life = Life { is_first: true, ..LATER };
const TOLD: Life = Life { was_told: true, ..LIFE };
const GONE: Life = Life { has_left: true, ..LIFE };
const PSERVER: Life = Life { role: Role::Pserver, ..LIFE };
const MASTER: Life = Life { role: Role::Master, has_left: true, ..LIFE };

use End::{Exited, Signalled};

/// Each end of a life, what it means, and what is said of it.
const ENDS: &[(End, Life, Meaning, &str)] = &[
    (Exited(0), TOLD, Left, "exit code 0"),
    (Signalled(15), TOLD, Left, "signal 15 (SIGTERM)"),
    (Exited(143), TOLD, Left, "signal 15 (SIGTERM)"),
    (Signalled(9), TOLD, Preempted, "signal 9 (SIGKILL)"),
    (Exited(0), GONE, Preempted, "from elsewhere, and has left"),
    (Exited(0), NEW, Failed, "never joined it: is it a training program"),
    (Exited(0), Life { part: Part::Joined, ..LIFE }, Failed, "has done nothing for it"),
    (Exited(0), LIFE, Failed, "the job is not done: does the program end by itself?"),
    (Exited(0), PSERVER, Preempted, "exit code 0"),
    (Exited(0), Life { was_told: true, ..PSERVER }, Left, "exit code 0"),
    (Exited(3), LIFE, Unreached, "its master has not answered"),
    (Exited(3), NEW, Unreached, "its master has not answered"),
    (Exited(3), PSERVER, Failed, "exit code 3"),
    (Exited(3), MASTER, Failed, "exit code 3"),
    (End::Displaced(Displacement::Preempted), LIFE, Displaced, "its preemption"),
    (End::Displaced(Displacement::Evicted), NEW, Displaced, "its eviction"),
    (End::Displaced(Displacement::NodeLost), PSERVER, Displaced, "its node"),
    (End::OutOfMemory, LIFE, OutOfMemory, "its limit of memory"),
    (End::OutOfMemory, NEW, OutOfMemory, "its limit of memory"),
    (End::Unstarted, NEW, Hopeless, "could not be started"),
    (End::Unstarted, LIFE, Unstarted, "could not be started"),
    (Exited(0), MASTER, Preempted, "from elsewhere"),
    (Exited(1), LIFE, Failed, "ended with exit code 1"),
    (Exited(1), TOLD, Failed, "ended with exit code 1"),
    (Exited(1), NEW, Failed, "ended with exit code 1"),
    (Exited(2), NEW, Hopeless, "called wrongly"),
    (Exited(5), LATER, Refused, "exit code 5: the master has not let it into the job"),
    (Exited(5), NEW, Refused, "has not let it into the job"),
    (Exited(5), Life { is_alone: true, ..NEW }, Failed, "has not let it into the job"),
    (Exited(5), LIFE, Failed, "ended with exit code 5"),
    (Exited(5), Life { role: Role::Pserver, ..LATER }, Failed, "ended with exit code 5"),
    (Exited(2), LATER, Failed, "called wrongly"),
    (Exited(127), LATER, Failed, "is not there"),
    (Exited(2), LIFE, Failed, "exit code 2"),
    (Exited(125), NEW, Failed, "exit code 125"),
    (Exited(126), NEW, Hopeless, "cannot be executed"),
    (Exited(127), NEW, Hopeless, "is not there"),
    (Exited(127), LIFE, Failed, "is not there"),
    (Exited(128), NEW, Failed, "exit code 128"),
    (
        Exited(137),
        LIFE,
        Preempted,
        "exit code 137, which is signal 9 (SIGKILL): from elsewhere: perhaps out of memory",
    ),
    (Exited(139), LIFE, Failed, "exit code 139, which is signal 11 (SIGSEGV): it crashed"),
    (Exited(143), LIFE, Preempted, "signal 15 (SIGTERM): from elsewhere"),
    (Exited(255), NEW, Failed, "exit code 255"),
    (Signalled(9), LIFE, Preempted, "perhaps out of memory"),
    (Signalled(9), NEW, Preempted, "perhaps out of memory"),
    (Signalled(9), PSERVER, Preempted, "perhaps out of memory"),
    (Signalled(15), LIFE, Preempted, "from elsewhere"),
    (Signalled(2), LIFE, Preempted, "from elsewhere"),
    (Signalled(1), LIFE, Preempted, "from elsewhere"),
    (Signalled(11), LIFE, Failed, "it crashed"),
    (Signalled(4), LIFE, Failed, "it crashed"),
    (Signalled(6), LIFE, Failed, "it aborted"),
    (Signalled(13), LIFE, Failed, "somebody who had gone"),
    (Signalled(24), LIFE, Failed, "processor time"),
    (Signalled(25), LIFE, Failed, "larger than its limit"),
    (Signalled(9), Life { was_killed: true, ..LIFE }, Killed, "SIGKILL"),
    (Signalled(15), Life { was_killed: true, ..TOLD }, Killed, "SIGTERM"),
];

#[test]
fn each_end_has_its_meaning_and_its_sentence() {
    for (end, life, means, says) in ENDS.iter().copied() {
        assert_eq!(meaning(end, life), means, "{end} of {life:?}");
        let said = sentence("trainer-0", end, life, "");
        assert!(said.starts_with("trainer-0 ended with ") && said.contains(says), "{said}");
    }
}

#[test]
fn the_master_is_told_of_trainers_that_end_without_a_word_and_what_to_make_of_it() {
    let table = [
        (Signalled(6), LIFE, Some("signal 6 (SIGABRT): it aborted")),
        (Exited(139), LIFE, Some("exit code 139, which is signal 11 (SIGSEGV): it crashed")),
        (Exited(1), LIFE, Some("exit code 1")),
        (Signalled(9), LIFE, Some("signal 9 (SIGKILL): from elsewhere: perhaps out of memory")),
        (Signalled(15), LIFE, Some("")),
        (Exited(0), TOLD, Some("")),
        (Signalled(9), Life { was_killed: true, ..TOLD }, Some("")),
        (Signalled(9), Life { was_killed: true, ..LIFE }, None),
        (Exited(1), GONE, None),
        (Exited(1), NEW, None),
        (Signalled(6), PSERVER, None),
    ];
    for (end, life, told) in table {
        let word = word_to_master("trainer-0", end, life, "");
        let is_so = match (&word, told) {
            (Some(word), Some(told)) => word.starts_with(told) && word.is_empty() == told.is_empty(),
            (word, told) => word.is_none() && told.is_none(),
        };
        assert!(is_so, "{end} of {life:?}: {word:?}");
    }
}

#[test]
fn a_process_that_ran_out_of_memory_says_so() {
    let log = "registered\nmemory allocation of 4096 bytes failed\n\n";
    let said = sentence("pserver-1", Signalled(6), PSERVER, log);
    assert!(said.ends_with("out of memory: memory allocation of 4096 bytes failed"), "{said}");
    assert!(sentence("x", Signalled(6), LIFE, "assertion failed").ends_with("it aborted"));
}

#[test]
fn the_record_has_a_word_for_each_end() {
    assert_eq!((Exited(0).word(true), Exited(0).word(false)), ("left", "ended"));
    assert_eq!((Signalled(15).word(true), Signalled(15).word(false)), ("left", "killed"));
    assert_eq!((Exited(1).word(true), Signalled(9).word(false)), ("killed", "killed"));
}

proptest! {
    /// Whoever ends by itself before the job is done is no success, whatever the code.
    #[test]
    fn no_trainer_that_nobody_told_ends_well(code in 0i32..256, signal in 1i32..65, part in 0usize..3) {
        let life = Life { part: [Part::NeverJoined, Part::Joined, Part::Worked][part], ..LIFE };
        for end in [Exited(code), Signalled(signal)] {
            prop_assert!(meaning(end, life) > Killed, "{end}");
            prop_assert!(meaning(end, life) < Hopeless, "{end}");
            prop_assert!(meaning(end, Life { is_first: true, ..life }) > Killed, "{end}");
        }
    }
}

const PAUSES: Pauses = Pauses { unit: Duration::from_millis(50), most: Duration::from_secs(1) };

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn an_end_costs_what_it_means() {
    let is_over_after = |role, meaning| {
        let account = Account::of(role, meaning)?;
        let mut strikes = Strikes::default();
        (1..100).find(|second| {
            strikes.strike(PAUSES, 0, at(second * 1000));
            strikes.is_over(account.limit())
        })
    };
    let table = [
        (Role::Trainer, Left, None),
        (Role::Trainer, Killed, None),
        (Role::Trainer, Displaced, None),
        (Role::Trainer, Preempted, Some(20)),
        (Role::Trainer, Unreached, Some(20)),
        (Role::Trainer, Refused, None),
        (Role::Trainer, OutOfMemory, Some(8)),
        (Role::Trainer, Failed, Some(8)),
        (Role::Trainer, Unstarted, None),
        (Role::Pserver, Unstarted, None),
        (Role::Pserver, Left, None),
        (Role::Pserver, Killed, None),
        (Role::Pserver, Displaced, None),
        (Role::Pserver, Preempted, Some(20)),
        (Role::Pserver, Unreached, Some(20)),
        (Role::Pserver, Failed, Some(20)),
        (Role::Master, Failed, Some(20)),
    ];
    for (role, meaning, after) in table {
        assert_eq!(is_over_after(role, meaning), after, "{role} {meaning:?}");
    }
}

#[test]
fn no_end_but_those_that_are_wanted_is_without_a_cost() {
    for role in Role::ALL {
        for meaning in [Displaced, Preempted, Unreached, Refused, OutOfMemory, Unstarted, Failed, Hopeless] {
            let account = Account::of(role, meaning).unwrap();
            assert!(account.holds_up(role), "{role} {meaning:?}");
            let mut strikes = Strikes::default();
            (0..2).for_each(|second| strikes.strike(PAUSES, 0, at(second * 1000)));
            assert!(
                !strikes.may_start(PAUSES, at(1049)) && strikes.may_start(PAUSES, at(1050)),
                "{role} {meaning:?}"
            );
        }
    }
}

#[test]
fn pauses_grow_up_to_the_longest() {
    let pauses: Vec<u128> =
        (0..8).chain([40, u32::MAX]).map(|count| PAUSES.after(count).as_millis()).collect();
    assert_eq!(pauses, [0, 0, 50, 150, 350, 750, 1000, 1000, 1000, 1000]);
}

#[test]
fn only_a_step_that_was_not_made_before_forgives() {
    let mut strikes = Strikes::default();
    strikes.strike(PAUSES, 9, at(0));
    strikes.see(2);
    strikes.see(9);
    assert_eq!(strikes.count, 1, "it went back and came again to where it was");
    strikes.strike(PAUSES, 4, at(1000));
    strikes.see(5);
    assert_eq!(strikes.count, 2, "at step 4 it had been at 9 before");
    strikes.see(10);
    assert_eq!(strikes.count, 0);
}

#[test]
fn what_strikes_many_at_once_strikes_twice_at_most() {
    let mut strikes = Strikes::default();
    (0..100).for_each(|_| strikes.strike(PAUSES, 0, at(1000)));
    assert_eq!(strikes.count, 2);
    strikes.strike(PAUSES, 0, at(1050));
    assert_eq!(strikes.count, 3);
}

proptest! {
    /// Whoever keeps processes and goes by `may_start` starts few in any time, however they end.
    #[test]
    fn processes_that_end_at_once_are_started_ever_more_slowly(unit in 1u64..2000, most in 1u64..60_000) {
        let pauses = Pauses { unit: at(unit), most: at(most) };
        let (mut strikes, mut now, mut started) = (Strikes::default(), at(0), 0u64);
        while now < at(100 * most) {
            if strikes.may_start(pauses, now) {
                started += 1;
                strikes.strike(pauses, 0, now);
            }
            now += at(most.div_ceil(50).max(1));
        }
        prop_assert!(started <= 150 + 2, "{started}");
    }
}
