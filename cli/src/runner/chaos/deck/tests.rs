//! The plan of faults, over many seeds.

use super::*;
use std::collections::BTreeSet;

fn weather(seed: u64, has_copies: bool) -> Weather {
    let (trainers, pservers) = (Bounds { min: 2, max: 4 }, Bounds { min: 2, max: 3 });
    Weather {
        seed,
        ttl: Duration::from_secs(1),
        trainers,
        pservers,
        has_copies,
        is_hard: false,
        kinds: Kinds::of(&[]),
    }
}

fn sight() -> Sight {
    let names = |role: &str, count: u32| (0..count).map(|at| format!("{role}-{at}")).collect();
    Sight {
        trainers: names("trainer", 3),
        pservers: names("pserver", 2),
        is_whole: true,
        is_master_here: true,
        is_ending: false,
    }
}

/// Everything that is due in `seconds`, asked every 20 ms, with when. The job looks as `sight` says of what was done.
fn play(
    deck: &mut Deck,
    seconds: u64,
    mut sight: impl FnMut(&[(Duration, Strike)]) -> Sight,
) -> Vec<(Duration, Strike)> {
    let mut done = Vec::new();
    for now in (0..seconds * 50).map(|tick| Duration::from_millis(tick * 20)) {
        let strikes = deck.due(now, &sight(&done));
        done.extend(strikes.into_iter().map(|strike| (now, strike)));
    }
    done
}

fn is_loss(strike: &Strike) -> bool {
    matches!(strike, Strike::Kill(Role::Pserver, _) | Strike::Freeze(Role::Pserver, _, _))
}

#[test]
fn the_same_seed_strikes_the_same_and_another_seed_otherwise() {
    let run = |seed| play(&mut Deck::new(weather(seed, true), Duration::ZERO), 20, |_| sight());
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn ten_seconds_meet_every_kind_of_fault_on_every_role() {
    let mut deck = Deck::new(weather(3, true), Duration::ZERO);
    let done = play(&mut deck, 10, |_| sight());
    let kind = |strike: &Strike| match strike {
        Strike::Kill(role, _) => format!("kill {role}"),
        Strike::Freeze(role, _, _) => format!("freeze {role}"),
        Strike::Thaw(role, _) => format!("thaw {role}"),
        Strike::Leave(_) => "leave".to_owned(),
        Strike::Scale(role, _) => format!("scale {role}"),
        Strike::Migrate(_) => "migrate".to_owned(),
    };
    let kinds: BTreeSet<String> = done.iter().map(|(_, strike)| kind(strike)).collect();
    let roles = ["trainer", "pserver", "master"];
    let expected =
        roles.iter().flat_map(|role| ["kill", "freeze", "thaw"].map(|kind| format!("{kind} {role}")));
    let others = ["leave", "scale trainer", "scale pserver", "migrate"].map(str::to_owned);
    assert_eq!(kinds, expected.chain(others).collect());
}

#[test]
fn what_is_frozen_is_thawed_and_not_struck_meanwhile() {
    for seed in 0..50 {
        let mut deck = Deck::new(weather(seed, seed % 2 == 0), Duration::ZERO);
        let mut done = play(&mut deck, 15, |_| sight());
        done.extend(deck.calm().into_iter().map(|strike| (Duration::MAX, strike)));
        let mut frozen = BTreeSet::new();
        for (_, strike) in &done {
            match strike {
                Strike::Freeze(role, name, _) => assert!(frozen.insert((*role, name.clone())), "{strike:?}"),
                Strike::Thaw(role, name) => assert!(frozen.remove(&(*role, name.clone())), "{strike:?}"),
                Strike::Kill(role, name) => assert!(!frozen.contains(&(*role, name.clone())), "{strike:?}"),
                _ => {}
            }
        }
        assert!(frozen.is_empty(), "{frozen:?}");
    }
}

#[test]
fn with_copies_a_pserver_is_struck_only_while_all_are_there_and_awake() {
    for seed in 0..50 {
        let mut deck = Deck::new(weather(seed, true), Duration::ZERO);
        // After a loss, redundancy takes two seconds to come back.
        let mut lost_at = None;
        let mut frozen = 0;
        let done = play(&mut deck, 30, |done| {
            lost_at = done.iter().rev().find(|(_, strike)| is_loss(strike)).map(|(at, _)| *at);
            let now = done.last().map_or(Duration::ZERO, |(at, _)| *at);
            Sight { is_whole: lost_at.is_none_or(|at| now >= at + Duration::from_secs(2)), ..sight() }
        });
        let mut last_loss: Option<Duration> = None;
        for (at, strike) in &done {
            match strike {
                Strike::Thaw(Role::Pserver, _) => frozen -= 1,
                strike if is_loss(strike) => {
                    assert_eq!(frozen, 0, "seed {seed} at {at:?}");
                    assert!(last_loss.is_none_or(|last| *at >= last + Duration::from_secs(2)), "seed {seed}");
                    last_loss = Some(*at);
                    frozen += i32::from(matches!(strike, Strike::Freeze(..)));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn only_the_kinds_that_were_asked_for_are_played() {
    let kinds = Kinds::of(&[Kind::Kill, Kind::Leave]);
    let done = play(&mut Deck::new(Weather { kinds, ..weather(4, true) }, Duration::ZERO), 30, |_| sight());
    assert!(done.iter().all(|(_, strike)| matches!(strike, Strike::Kill(..) | Strike::Leave(_))));
    assert!(done.iter().any(|(_, strike)| matches!(strike, Strike::Leave(_))) && done.len() > 20);
}

#[test]
fn the_only_pserver_is_not_struck_where_copies_are_promised() {
    let alone = || Sight { pservers: vec!["pserver-0".to_owned()], ..sight() };
    let done = play(&mut Deck::new(weather(1, true), Duration::ZERO), 30, |_| alone());
    assert!(!done.iter().any(|(_, strike)| is_loss(strike)));
    let done = play(&mut Deck::new(weather(1, false), Duration::ZERO), 30, |_| alone());
    assert!(done.iter().any(|(_, strike)| is_loss(strike)), "where none are, anything may happen");
}

#[test]
fn without_copies_few_pservers_are_lost_and_hard_chaos_strikes_where_copies_are_missing() {
    let broken = || Sight { is_whole: false, ..sight() };
    let losses = |weather| {
        let done = play(&mut Deck::new(weather, Duration::ZERO), 60, |_| broken());
        done.iter().filter(|(_, strike)| is_loss(strike)).count()
    };
    for seed in 0..20 {
        assert_eq!(losses(weather(seed, false)), LOSSES_MAX as usize);
        assert_eq!(losses(weather(seed, true)), 0);
        assert_eq!(losses(Weather { is_hard: true, ..weather(seed, true) }), LOSSES_MAX as usize);
    }
}

#[test]
fn near_its_end_a_job_loses_no_pserver_and_no_run_is_struck_for_ever() {
    let ending = || Sight { is_ending: true, ..sight() };
    for seed in 0..20 {
        let done = play(&mut Deck::new(weather(seed, false), Duration::ZERO), 90, |_| ending());
        assert!(!done.iter().any(|(_, strike)| is_loss(strike) || matches!(strike, Strike::Migrate(_))));
        let struck = done.iter().filter(|(_, strike)| !matches!(strike, Strike::Thaw(..))).count();
        assert_eq!(struck, STRIKES_MAX as usize);
    }
}

#[test]
fn an_absent_master_is_neither_struck_nor_asked_for_anything() {
    let away = || Sight { is_master_here: false, ..sight() };
    let done = play(&mut Deck::new(weather(1, true), Duration::ZERO), 30, |_| away());
    let is_asked = |strike: &Strike| match strike {
        Strike::Scale(..) | Strike::Migrate(_) => true,
        Strike::Kill(role, _) | Strike::Freeze(role, _, _) => *role != Role::Trainer,
        _ => false,
    };
    assert!(!done.iter().any(|(_, strike)| is_asked(strike)));
    assert!(!done.is_empty());
}
