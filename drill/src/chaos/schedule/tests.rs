//! The plan of faults, over many seeds.

use super::*;
use crate::chaos::timed_fault::{Direction, Partition};
use clap::ValueEnum;
use std::collections::BTreeSet;

fn settings(seed: u64, has_copies: bool) -> ScheduleSettings {
    let (trainers, pservers) = (Bounds { min: 2, max: 4 }, Bounds { min: 2, max: 3 });
    ScheduleSettings {
        seed,
        ttl: Duration::from_secs(1),
        trainers,
        pservers,
        has_copies,
        is_hard: false,
        kinds: Kinds::of(&[]),
    }
}

fn state() -> TargetState {
    let names = |role: &str, count: u32| (0..count).map(|at| format!("{role}-{at}")).collect();
    TargetState {
        trainers: names("trainer", 3),
        pservers: names("pserver", 2),
        is_whole: true,
        is_master_here: true,
        is_ending: false,
    }
}

/// Everything that is due in `seconds`, asked every 20 ms, with when. The job looks as `state` says of what was done.
fn play(
    schedule: &mut Schedule,
    seconds: u64,
    mut state: impl FnMut(&[(Duration, Injection)]) -> TargetState,
) -> Vec<(Duration, Injection)> {
    let mut done = Vec::new();
    for now in (0..seconds * 50).map(|tick| Duration::from_millis(tick * 20)) {
        let injections = schedule.due(now, &state(&done));
        done.extend(injections.into_iter().map(|injection| (now, injection)));
    }
    done
}

/// After which pservers may be lost.
fn is_loss(injection: &Injection) -> bool {
    match injection {
        Injection::Kill(role, _) => *role == Role::Pserver,
        Injection::Inject(fault) => is_out_of_sight(fault),
        _ => false,
    }
}

/// A pserver that something is wrong with, or a master that may not see any.
fn is_out_of_sight(fault: &TimedFault) -> bool {
    fault.role == Role::Pserver
        || fault.role == Role::Master
            && matches!(fault.impairment, Impairment::Partitioned(_) | Impairment::Throttled(_))
}

fn word(impairment: &Impairment) -> &'static str {
    match impairment {
        Impairment::Paused => "freeze",
        Impairment::MemoryLimited => "starve",
        Impairment::Partitioned(_) => "partition",
        Impairment::Throttled(_) => "slow",
        Impairment::DiskFull => "fill",
    }
}

fn all_kinds(settings: ScheduleSettings) -> ScheduleSettings {
    ScheduleSettings { kinds: Kind::value_variants().iter().copied().collect(), ..settings }
}

#[test]
fn the_same_seed_strikes_the_same_and_another_seed_otherwise() {
    let run = |seed| play(&mut Schedule::new(settings(seed, true), Duration::ZERO), 20, |_| state());
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_few_runs_meet_every_kind_of_fault_on_every_role() {
    let run =
        |seed| play(&mut Schedule::new(all_kinds(settings(seed, true)), Duration::ZERO), 30, |_| state());
    let done: Vec<(Duration, Injection)> = (0..4).flat_map(run).collect();
    let kind = |injection: &Injection| match injection {
        Injection::Kill(role, _) => format!("kill {role}"),
        Injection::Inject(fault) => format!("{} {}", word(&fault.impairment), fault.role),
        Injection::Recover(fault) => format!("end {} {}", word(&fault.impairment), fault.role),
        Injection::Leave(_) => "leave".to_owned(),
        Injection::Scale(role, _) => format!("scale {role}"),
        Injection::Migrate(_) => "migrate".to_owned(),
    };
    let kinds: BTreeSet<String> = done.iter().map(|(_, injection)| kind(injection)).collect();
    let lasting = ["freeze", "starve", "partition", "slow"];
    let words = lasting.iter().flat_map(|word| [(*word).to_owned(), format!("end {word}")]);
    let words: Vec<String> = words.chain(["kill".to_owned()]).collect();
    let roles = ["trainer", "pserver", "master"];
    let expected = roles.iter().flat_map(|role| words.iter().map(move |word| format!("{word} {role}")));
    let others = ["leave", "scale trainer", "scale pserver", "migrate", "fill master", "end fill master"];
    let expected: BTreeSet<String> = expected.chain(others.map(str::to_owned)).collect();
    assert_eq!(kinds, expected);
}

#[test]
fn what_lasts_ends_in_its_time_and_its_host_is_not_struck_meanwhile() {
    for seed in 0..50 {
        let mut schedule = Schedule::new(all_kinds(settings(seed, seed % 2 == 0)), Duration::ZERO);
        let mut done = play(&mut schedule, 15, |_| state());
        done.extend(schedule.recover_all().into_iter().map(|injection| (Duration::MAX, injection)));
        assert_eq!(schedule.recover_all(), [], "nothing ends twice");
        let (mut impaired, mut is_full) = (BTreeSet::new(), false);
        for (at, injection) in &done {
            let what = format!("seed {seed} at {at:?}: {injection:?}");
            match injection {
                Injection::Inject(TimedFault { impairment: Impairment::DiskFull, .. }) => {
                    assert!(!std::mem::replace(&mut is_full, true), "{what}");
                }
                Injection::Recover(TimedFault { impairment: Impairment::DiskFull, .. }) => {
                    assert!(std::mem::replace(&mut is_full, false), "{what}");
                }
                Injection::Inject(fault) => {
                    assert!(impaired.insert((fault.role, fault.name.clone())), "{what}");
                    assert!((5..=40).contains(&fault.tenths), "{what}");
                }
                Injection::Recover(fault) => {
                    assert!(impaired.remove(&(fault.role, fault.name.clone())), "{what}");
                }
                Injection::Kill(role, name) => {
                    assert!(!impaired.contains(&(*role, name.clone())), "{what}");
                }
                _ => {}
            }
        }
        assert!(impaired.is_empty() && !is_full, "{impaired:?}");
    }
}

#[test]
fn a_spell_lasts_as_long_as_it_says() {
    let ttl = Duration::from_secs(1);
    let done = play(&mut Schedule::new(all_kinds(settings(5, false)), Duration::ZERO), 30, |_| state());
    let mut ended = 0;
    for (at, injection) in &done {
        let Injection::Recover(fault) = injection else { continue };
        let begun =
            done.iter().rev().find(|(began, other)| began < at && *other == Injection::Inject(fault.clone()));
        let lasted = *at - begun.unwrap().0;
        assert!(lasted >= fault.lasts(ttl) && lasted <= fault.lasts(ttl) + ttl / 50, "{fault:?} {lasted:?}");
        ended += 1;
    }
    assert!(ended > 10);
}

#[test]
fn with_copies_a_pserver_is_struck_only_while_all_are_there_and_within_reach() {
    for seed in 0..50 {
        let mut schedule = Schedule::new(all_kinds(settings(seed, true)), Duration::ZERO);
        // After a loss, redundancy takes two seconds to come back.
        let mut lost_at = None;
        let mut out_of_sight = 0;
        let done = play(&mut schedule, 30, |done| {
            lost_at = done.iter().rev().find(|(_, injection)| is_loss(injection)).map(|(at, _)| *at);
            let now = done.last().map_or(Duration::ZERO, |(at, _)| *at);
            TargetState { is_whole: lost_at.is_none_or(|at| now >= at + Duration::from_secs(2)), ..state() }
        });
        let mut last_loss: Option<Duration> = None;
        for (at, injection) in &done {
            match injection {
                Injection::Recover(fault) if is_out_of_sight(fault) => out_of_sight -= 1,
                injection if is_loss(injection) => {
                    assert_eq!(out_of_sight, 0, "seed {seed} at {at:?}");
                    assert!(last_loss.is_none_or(|last| *at >= last + Duration::from_secs(2)), "seed {seed}");
                    last_loss = Some(*at);
                    out_of_sight += i32::from(matches!(injection, Injection::Inject(_)));
                }
                _ => {}
            }
        }
        assert!(last_loss.is_some(), "seed {seed}");
    }
}

#[test]
fn partitions_are_one_way_and_both_ways_from_one_and_from_all() {
    let mut met = BTreeSet::new();
    for seed in 0..50 {
        let partitions = ScheduleSettings { kinds: Kinds::of(&[Kind::Partition]), ..settings(seed, false) };
        for (_, injection) in play(&mut Schedule::new(partitions, Duration::ZERO), 20, |_| state()) {
            let Injection::Inject(TimedFault {
                impairment: Impairment::Partitioned(partition),
                role,
                name,
                ..
            }) = injection
            else {
                continue;
            };
            let Partition { direction, peers, is_isolation } = &partition;
            let pairs = partition.pairs(&name);
            assert!(pairs.iter().all(|(from, to)| from != to && (*from == name || *to == name)), "{pairs:?}");
            assert_eq!(pairs.len(), peers.len() * if *direction == Direction::Both { 2 } else { 1 });
            assert_eq!(pairs.iter().any(|(from, _)| *from == name), *direction != Direction::Inbound);
            assert_eq!(pairs.iter().any(|(_, to)| *to == name), *direction != Direction::Outbound);
            assert_eq!(
                peers.len(),
                if *is_isolation { 5 } else { 1 },
                "three trainers, two pservers, a master"
            );
            let from = if *is_isolation { "all" } else { peers[0].split('-').next().unwrap_or_default() };
            met.insert(format!("{role} {direction:?} {from}"));
        }
    }
    let among = |role: &str, peers: &[&str]| {
        let directions = ["Both", "Outbound", "Inbound"];
        let of = |peer: &&str| directions.map(|direction| format!("{role} {direction} {peer}"));
        peers.iter().flat_map(of).collect::<Vec<_>>()
    };
    let expected = [
        among("trainer", &["all", "master", "pserver"]),
        among("pserver", &["all", "master", "pserver", "trainer"]),
        among("master", &["all", "pserver", "trainer"]),
    ];
    assert_eq!(met, expected.concat().into_iter().collect());
}

#[test]
fn kinds_that_need_privileges_are_played_only_if_they_are_named() {
    let done = play(&mut Schedule::new(settings(4, true), Duration::ZERO), 30, |_| state());
    let is_privileged = |injection: &Injection| match injection {
        Injection::Inject(fault) => matches!(
            fault.impairment,
            Impairment::Partitioned(_) | Impairment::Throttled(_) | Impairment::DiskFull
        ),
        _ => false,
    };
    assert!(!done.iter().any(|(_, injection)| is_privileged(injection)) && done.len() > 20);
}

#[test]
fn only_the_kinds_that_were_asked_for_are_played() {
    let kinds = Kinds::of(&[Kind::Kill, Kind::Leave]);
    let done =
        play(&mut Schedule::new(ScheduleSettings { kinds, ..settings(4, true) }, Duration::ZERO), 30, |_| {
            state()
        });
    assert!(done.iter().all(|(_, injection)| matches!(injection, Injection::Kill(..) | Injection::Leave(_))));
    assert!(done.iter().any(|(_, injection)| matches!(injection, Injection::Leave(_))) && done.len() > 20);
}

#[test]
fn the_only_pserver_is_not_struck_where_copies_are_promised() {
    let alone = || TargetState { pservers: vec!["pserver-0".to_owned()], ..state() };
    let done = play(&mut Schedule::new(settings(1, true), Duration::ZERO), 30, |_| alone());
    assert!(!done.iter().any(|(_, injection)| is_loss(injection)));
    let done = play(&mut Schedule::new(settings(1, false), Duration::ZERO), 30, |_| alone());
    assert!(done.iter().any(|(_, injection)| is_loss(injection)), "where none are, anything may happen");
}

#[test]
fn without_copies_few_pservers_are_lost_and_hard_chaos_strikes_where_copies_are_missing() {
    let broken = || TargetState { is_whole: false, ..state() };
    let losses = |settings| {
        let done = play(&mut Schedule::new(settings, Duration::ZERO), 60, |_| broken());
        done.iter().filter(|(_, injection)| is_loss(injection)).count()
    };
    for seed in 0..20 {
        assert_eq!(losses(settings(seed, false)), LOSSES_MAX as usize);
        assert_eq!(losses(settings(seed, true)), 0);
        assert_eq!(losses(ScheduleSettings { is_hard: true, ..settings(seed, true) }), LOSSES_MAX as usize);
    }
}

#[test]
fn near_its_end_a_job_loses_no_pserver_and_no_run_is_struck_for_ever() {
    let ending = || TargetState { is_ending: true, ..state() };
    for seed in 0..20 {
        let done = play(&mut Schedule::new(settings(seed, false), Duration::ZERO), 90, |_| ending());
        assert!(
            !done
                .iter()
                .any(|(_, injection)| is_loss(injection) || matches!(injection, Injection::Migrate(_)))
        );
        let struck = done.iter().filter(|(_, injection)| !matches!(injection, Injection::Recover(_))).count();
        assert_eq!(struck, INJECTIONS_MAX as usize);
    }
}

#[test]
fn an_absent_master_is_neither_struck_nor_asked_for_anything() {
    let away = || TargetState { is_master_here: false, ..state() };
    let done = play(&mut Schedule::new(all_kinds(settings(1, true)), Duration::ZERO), 30, |_| away());
    let is_asked = |injection: &Injection| match injection {
        Injection::Scale(..) | Injection::Migrate(_) => true,
        Injection::Kill(role, _) => *role == Role::Master,
        Injection::Inject(fault) => fault.role == Role::Master,
        _ => false,
    };
    assert!(!done.iter().any(|(_, injection)| is_asked(injection)));
    assert!(!done.is_empty());
}
