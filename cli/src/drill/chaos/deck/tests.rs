//! The plan of faults, over many seeds.

use super::*;
use crate::drill::chaos::spell::{Cut, Way};
use clap::ValueEnum;
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

/// After which pservers may be lost.
fn is_loss(strike: &Strike) -> bool {
    match strike {
        Strike::Kill(role, _) => *role == Role::Pserver,
        Strike::Begin(spell) => is_out_of_sight(spell),
        _ => false,
    }
}

/// A pserver that something is wrong with, or a master that may not see any.
fn is_out_of_sight(spell: &Spell) -> bool {
    spell.role == Role::Pserver
        || spell.role == Role::Master && matches!(spell.ill, Ill::Cut(_) | Ill::Slow(_))
}

fn word(ill: &Ill) -> &'static str {
    match ill {
        Ill::Frozen => "freeze",
        Ill::Starved => "starve",
        Ill::Cut(_) => "cut",
        Ill::Slow(_) => "slow",
        Ill::Full => "fill",
    }
}

fn all_kinds(weather: Weather) -> Weather {
    Weather { kinds: Kind::value_variants().iter().copied().collect(), ..weather }
}

#[test]
fn the_same_seed_strikes_the_same_and_another_seed_otherwise() {
    let run = |seed| play(&mut Deck::new(weather(seed, true), Duration::ZERO), 20, |_| sight());
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_few_runs_meet_every_kind_of_fault_on_every_role() {
    let run = |seed| play(&mut Deck::new(all_kinds(weather(seed, true)), Duration::ZERO), 30, |_| sight());
    let done: Vec<(Duration, Strike)> = (0..4).flat_map(run).collect();
    let kind = |strike: &Strike| match strike {
        Strike::Kill(role, _) => format!("kill {role}"),
        Strike::Begin(spell) => format!("{} {}", word(&spell.ill), spell.role),
        Strike::End(spell) => format!("end {} {}", word(&spell.ill), spell.role),
        Strike::Leave(_) => "leave".to_owned(),
        Strike::Scale(role, _) => format!("scale {role}"),
        Strike::Migrate(_) => "migrate".to_owned(),
    };
    let kinds: BTreeSet<String> = done.iter().map(|(_, strike)| kind(strike)).collect();
    let lasting = ["freeze", "starve", "cut", "slow"];
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
        let mut deck = Deck::new(all_kinds(weather(seed, seed % 2 == 0)), Duration::ZERO);
        let mut done = play(&mut deck, 15, |_| sight());
        done.extend(deck.calm().into_iter().map(|strike| (Duration::MAX, strike)));
        assert_eq!(deck.calm(), [], "nothing ends twice");
        let (mut ill, mut is_full) = (BTreeSet::new(), false);
        for (at, strike) in &done {
            let what = format!("seed {seed} at {at:?}: {strike:?}");
            match strike {
                Strike::Begin(Spell { ill: Ill::Full, .. }) => {
                    assert!(!std::mem::replace(&mut is_full, true), "{what}");
                }
                Strike::End(Spell { ill: Ill::Full, .. }) => {
                    assert!(std::mem::replace(&mut is_full, false), "{what}");
                }
                Strike::Begin(spell) => {
                    assert!(ill.insert((spell.role, spell.name.clone())), "{what}");
                    assert!((5..=40).contains(&spell.tenths), "{what}");
                }
                Strike::End(spell) => assert!(ill.remove(&(spell.role, spell.name.clone())), "{what}"),
                Strike::Kill(role, name) => assert!(!ill.contains(&(*role, name.clone())), "{what}"),
                _ => {}
            }
        }
        assert!(ill.is_empty() && !is_full, "{ill:?}");
    }
}

#[test]
fn a_spell_lasts_as_long_as_it_says() {
    let ttl = Duration::from_secs(1);
    let done = play(&mut Deck::new(all_kinds(weather(5, false)), Duration::ZERO), 30, |_| sight());
    let mut ended = 0;
    for (at, strike) in &done {
        let Strike::End(spell) = strike else { continue };
        let begun =
            done.iter().rev().find(|(began, other)| began < at && *other == Strike::Begin(spell.clone()));
        let lasted = *at - begun.unwrap().0;
        assert!(lasted >= spell.lasts(ttl) && lasted <= spell.lasts(ttl) + ttl / 50, "{spell:?} {lasted:?}");
        ended += 1;
    }
    assert!(ended > 10);
}

#[test]
fn with_copies_a_pserver_is_struck_only_while_all_are_there_and_within_reach() {
    for seed in 0..50 {
        let mut deck = Deck::new(all_kinds(weather(seed, true)), Duration::ZERO);
        // After a loss, redundancy takes two seconds to come back.
        let mut lost_at = None;
        let mut out_of_sight = 0;
        let done = play(&mut deck, 30, |done| {
            lost_at = done.iter().rev().find(|(_, strike)| is_loss(strike)).map(|(at, _)| *at);
            let now = done.last().map_or(Duration::ZERO, |(at, _)| *at);
            Sight { is_whole: lost_at.is_none_or(|at| now >= at + Duration::from_secs(2)), ..sight() }
        });
        let mut last_loss: Option<Duration> = None;
        for (at, strike) in &done {
            match strike {
                Strike::End(spell) if is_out_of_sight(spell) => out_of_sight -= 1,
                strike if is_loss(strike) => {
                    assert_eq!(out_of_sight, 0, "seed {seed} at {at:?}");
                    assert!(last_loss.is_none_or(|last| *at >= last + Duration::from_secs(2)), "seed {seed}");
                    last_loss = Some(*at);
                    out_of_sight += i32::from(matches!(strike, Strike::Begin(_)));
                }
                _ => {}
            }
        }
        assert!(last_loss.is_some(), "seed {seed}");
    }
}

#[test]
fn cuts_are_one_way_and_both_ways_from_one_and_from_all() {
    let mut met = BTreeSet::new();
    for seed in 0..50 {
        let partitions = Weather { kinds: Kinds::of(&[Kind::Partition]), ..weather(seed, false) };
        for (_, strike) in play(&mut Deck::new(partitions, Duration::ZERO), 20, |_| sight()) {
            let Strike::Begin(Spell { ill: Ill::Cut(cut), role, name, .. }) = strike else { continue };
            let Cut { way, peers, is_isolation } = &cut;
            let pairs = cut.pairs(&name);
            assert!(pairs.iter().all(|(from, to)| from != to && (*from == name || *to == name)), "{pairs:?}");
            assert_eq!(pairs.len(), peers.len() * if *way == Way::Both { 2 } else { 1 });
            assert_eq!(pairs.iter().any(|(from, _)| *from == name), *way != Way::In);
            assert_eq!(pairs.iter().any(|(_, to)| *to == name), *way != Way::Out);
            assert_eq!(
                peers.len(),
                if *is_isolation { 5 } else { 1 },
                "three trainers, two pservers, a master"
            );
            let from = if *is_isolation { "all" } else { peers[0].split('-').next().unwrap_or_default() };
            met.insert(format!("{role} {way:?} {from}"));
        }
    }
    let among = |role: &str, peers: &[&str]| {
        let ways = ["Both", "Out", "In"];
        let of = |peer: &&str| ways.map(|way| format!("{role} {way} {peer}"));
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
    let done = play(&mut Deck::new(weather(4, true), Duration::ZERO), 30, |_| sight());
    let is_privileged = |strike: &Strike| match strike {
        Strike::Begin(spell) => matches!(spell.ill, Ill::Cut(_) | Ill::Slow(_) | Ill::Full),
        _ => false,
    };
    assert!(!done.iter().any(|(_, strike)| is_privileged(strike)) && done.len() > 20);
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
        let struck = done.iter().filter(|(_, strike)| !matches!(strike, Strike::End(_))).count();
        assert_eq!(struck, STRIKES_MAX as usize);
    }
}

#[test]
fn an_absent_master_is_neither_struck_nor_asked_for_anything() {
    let away = || Sight { is_master_here: false, ..sight() };
    let done = play(&mut Deck::new(all_kinds(weather(1, true)), Duration::ZERO), 30, |_| away());
    let is_asked = |strike: &Strike| match strike {
        Strike::Scale(..) | Strike::Migrate(_) => true,
        Strike::Kill(role, _) => *role == Role::Master,
        Strike::Begin(spell) => spell.role == Role::Master,
        _ => false,
    };
    assert!(!done.iter().any(|(_, strike)| is_asked(strike)));
    assert!(!done.is_empty());
}
