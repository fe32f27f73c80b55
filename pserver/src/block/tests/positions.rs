//! Asynchronous jobs: a position takes effect once in a block, whoever leads it, and what is said of it is true of every
//! copy that may lead next.

use super::copies::{assert_level, calm, follow, followed_by, happen, happenings, primary};
use super::world::{Message, PSERVERS, World};
use super::*;
use proptest::prelude::*;

fn gradient(position: u64) -> Bytes {
    let value = |element: u64| libm::sinf((position * 13 + element) as f32) * 3.0;
    words(&(0..6).map(value).collect::<Vec<f32>>())
}

/// Pushes a position to a pserver, computed from `back` versions before its newest, and judges the answer.
pub(super) fn push_position(world: &mut World, at: usize, position: u64, back: u64) -> Option<PushOutcome> {
    let block = world.hosts[at].block.as_mut()?;
    let rewind = block.placement.rewind;
    let name = block.state.as_ref().map(State::name);
    let unknown = match &block.role {
        Role::Primary(primary) => primary.inherited.is_some_and(|name| block.published < name.version),
        _ => false,
    };
    let is_handing_over = block.placement.heir.is_some();
    let version = Version(name.map_or(0, |name| name.version.0.saturating_sub(back)));
    let words = gradient(position);
    let weight = u64::from(!position.is_multiple_of(5));
    let before = (block.published, name);
    let arriving = PositionGradient {
        position,
        version,
        weight,
        gradient: Gradient::Words(words.clone(), Precision::F32),
    };
    let outcome = block.push_position(rewind, arriving);
    let (published, after) = (block.published, block.state.as_ref().map(State::name));
    let said = block.has_published(rewind, position);
    let is_primary = matches!(block.role, Role::Primary(_));
    world.look();
    let Some((name, after)) = name.zip(after).filter(|_| is_primary) else {
        assert!(matches!(outcome, PushOutcome::Moved | PushOutcome::Busy) && !said);
        return Some(outcome);
    };
    let in_published =
        |published| world.witness.content(world.witness.ancestor(after, published)).ledger.contains(position);
    let was_applied = world.witness.content(name).ledger.contains(position);
    let is_full = is_handing_over || name.version.0 - before.0.0 >= 8;
    let expected = if unknown || (!was_applied && is_full) {
        PushOutcome::Busy
    } else if in_published(before.0) {
        PushOutcome::Late
    } else if was_applied {
        PushOutcome::Held { replaced: 0 }
    } else {
        PushOutcome::Applied { replaced: 0, is_short: false, is_published: in_published(published) }
    };
    assert_eq!(outcome, expected, "position {position} at {name}, published {}", before.0);
    assert_eq!(said, !unknown && in_published(published));
    let made = u64::from(matches!(outcome, PushOutcome::Applied { .. }));
    assert_eq!(after.version.0 - name.version.0, made, "an update for what is applied, none for the rest");
    Some(outcome)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn whatever_happens_every_position_is_applied_once_and_answers_speak_of_what_is_published(
        happenings in happenings(300), scale_by_staleness in any::<bool>(), followers in 0..PSERVERS
    ) {
        let mut world = followed_by(async_job(10, 2, scale_by_staleness), followers);
        let positions = world.job.positions();
        for (what, at, pick) in happenings {
            let (position, back) = (pick as u64 % positions, pick as u64 % 4);
            let leader = primary(&world);
            match what {
                40..=56 => push_position(&mut world, leader, position, back),
                57 | 58 => push_position(&mut world, at, position, back),
                _ => {
                    happen(&mut world, (what, at, pick));
                    None
                }
            };
        }
        calm(&mut world);
        for position in (0..positions).rev() {
            let at = primary(&world);
            push_position(&mut world, at, position, 0);
            calm(&mut world);
            prop_assert_eq!(push_position(&mut world, at, position, 0), Some(PushOutcome::Late));
        }
        let name = assert_level(&world);
        prop_assert_eq!(name.version, world.job.last_version());
        prop_assert!(world.witness.content(name).ledger.is_full(positions));
    }
}

fn held() -> Option<PushOutcome> {
    Some(PushOutcome::Held { replaced: 0 })
}

/// A primary on pserver 0 and an in-sync follower on pserver 1.
fn followed() -> World {
    followed_by(async_job(100, 2, false), 1)
}

#[test]
fn already_applied_is_said_only_of_what_every_copy_has() {
    let mut world = followed();
    push_position(&mut world, 0, 5, 0);
    // It is in the primary's ledger, and would be gone with the primary.
    assert_eq!(push_position(&mut world, 0, 5, 0), held());
    let block = world.hosts[0].block.as_ref().unwrap();
    assert!(!block.has_published(Rewind(1), 5));
    let Standing::Primary { published, ledger, .. } = block.standing() else { panic!() };
    assert_eq!((published, ledger), (Version(0), Default::default()));
    follow(&mut world, 1, true);
    assert_eq!(push_position(&mut world, 0, 5, 0), held());
    follow(&mut world, 1, true);
    assert_eq!(push_position(&mut world, 0, 5, 0), Some(PushOutcome::Late));
    let block = world.hosts[0].block.as_ref().unwrap();
    assert!(block.has_published(Rewind(1), 5) && !block.has_published(Rewind(1), 4));
    assert!(!block.has_published(Rewind(0), 5) && !block.has_published(Rewind(2), 5));
    let Standing::Primary { ledger, .. } = block.standing() else { panic!() };
    assert!(ledger.contains(5) && !ledger.contains(4));
}

#[test]
fn a_promoted_copy_answers_nothing_until_what_it_inherited_is_published() {
    let mut world = followed();
    world.add(2);
    calm(&mut world);
    push_position(&mut world, 0, 5, 0);
    follow(&mut world, 1, true);
    world.promote(1);
    world.tell(1);
    for position in [5, 6] {
        assert_eq!(push_position(&mut world, 1, position, 0), Some(PushOutcome::Busy));
    }
    let block = world.hosts[1].block.as_ref().unwrap();
    assert_eq!((block.standing(), block.has_published(Rewind(1), 5)), (Standing::Nothing, false));
    // Parameters are given out all the same: those that are known to be published.
    assert!(matches!(block.read_newest(&[]), (Reading::Parameters(_, Version(0)), Rewind(1))));
    calm(&mut world);
    assert_eq!(push_position(&mut world, 1, 5, 0), Some(PushOutcome::Late));
    let Standing::Primary { ledger, .. } = world.hosts[1].block.as_ref().unwrap().standing() else {
        panic!()
    };
    assert!(ledger.contains(5) && !ledger.contains(6));
}

#[test]
fn updates_that_wait_for_copies_are_bounded_and_each_is_given_as_an_entry() {
    let mut world = followed();
    let applied = |outcome| matches!(outcome, Some(PushOutcome::Applied { is_published: false, .. }));
    assert!((0..8).all(|position| applied(push_position(&mut world, 0, position, 0))));
    assert_eq!(push_position(&mut world, 0, 8, 0), Some(PushOutcome::Busy));
    // What is there already is still known.
    assert_eq!(push_position(&mut world, 0, 3, 0), held());
    for made in 1..=8 {
        let cursor = world.cursor(1, true).unwrap();
        world.deliver(cursor);
        let message = world.net.pop().unwrap();
        assert!(matches!(message, Message::News { news: News::Entry(_), .. }));
        world.deliver(message);
        assert_eq!(state(world.hosts[1].block.as_ref().unwrap()).name.version, Version(made));
    }
    follow(&mut world, 1, true);
    assert!(applied(push_position(&mut world, 0, 8, 0)));
}

#[test]
fn gradients_of_an_older_history_are_refused_and_followers_refer_elsewhere() {
    let mut world = followed();
    let words = gradient(3);
    let arriving = PositionGradient {
        position: 3,
        version: Version(0),
        weight: 1,
        gradient: Gradient::Words(words.clone(), Precision::F32),
    };
    let primary = world.hosts[0].block.as_mut().unwrap();
    let before = digest(primary);
    assert_eq!(primary.push_position(Rewind(0), arriving.clone()), PushOutcome::Rewound);
    assert_eq!(primary.push_position(Rewind(2), arriving.clone()), PushOutcome::Busy);
    assert_eq!(digest(primary), before);
    let follower = world.hosts[1].block.as_mut().unwrap();
    assert_eq!(follower.push_position(Rewind(1), arriving.clone()), PushOutcome::Moved);
    assert_eq!(follower.read_newest(&[]).0, Reading::Elsewhere);
    follower.retire();
    assert_eq!(follower.push_position(Rewind(1), arriving), PushOutcome::Moved);
    assert_eq!(follower.read_newest(&[]).0, Reading::Elsewhere);
}

#[test]
fn the_rate_is_that_of_the_step_that_updates_would_make_and_falls_with_staleness() {
    for scales in [false, true] {
        let mut world = World::new(async_job(100, 2, scales));
        // Two positions make a step; the rate is 0.1 and falls to 0.7 of it every other step.
        let cases =
            [(0, 0.1), (0, 0.1), (1, 0.1), (3, 0.1), (2, 0.07), (0, 0.07), (5, 0.07), (0, 0.07), (1, 0.049)];
        for (at, (staleness, rate)) in cases.into_iter().enumerate() {
            let before = current(world.hosts[0].block.as_ref().unwrap());
            let scale = if scales { 1.0 / (1.0 + staleness as f32) } else { 1.0 };
            let block = world.hosts[0].block.as_mut().unwrap();
            let words = words(&[4.0; 6]);
            let version = Version((at as u64).saturating_sub(staleness));
            let arriving = PositionGradient {
                position: at as u64,
                version,
                weight: 2,
                gradient: Gradient::Words(words.clone(), Precision::F32),
            };
            block.push_position(Rewind(1), arriving);
            let after = current(world.hosts[0].block.as_ref().unwrap());
            let moved = before[0] - after[0];
            assert!((moved - 2.0 * rate * scale).abs() < 1e-5, "update {at}: {moved} of {rate} x {scale}");
        }
    }
}
