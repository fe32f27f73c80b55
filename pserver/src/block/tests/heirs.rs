//! Handing over: a primary that has an heir takes nothing more, and names it once nobody is ahead of anybody.

use super::copies::{calm, follow, followed_by, primary};
use super::positions::push_position;
use super::world::{Host, World};
use super::*;

fn block(world: &mut World, at: usize) -> &mut Block {
    world.hosts[at].block.as_mut().unwrap()
}

/// The primary is told that pserver 1 is to take over.
fn choose(world: &mut World) {
    world.choose_heir(Some(1));
    world.tell(0);
}

/// What pserver 0 asks of the master arrives there.
fn ask(world: &mut World) {
    world.ask(0);
    for asked in std::mem::take(&mut world.net) {
        world.deliver(asked);
    }
}

/// All copies hear the newest and follow until there is nothing more.
fn settle(world: &mut World) {
    let pservers = 0..world.hosts.len();
    pservers.clone().for_each(|at| world.tell(at));
    for _ in 0..10 {
        pservers.clone().for_each(|at| follow(world, at, true));
    }
}

#[test]
fn a_primary_with_an_heir_takes_nothing_more_and_leaves_no_copy_broken() {
    let mut world = followed_by(job(40, 2), 2);
    world.push_node(0, 0, 1, 0);
    choose(&mut world);
    assert_eq!(world.push_node(0, 0, 0, 0), Some(PushOutcome::Busy));
    assert_eq!(world.push_node(0, 1, 0, 0), Some(PushOutcome::Held { replaced: 0 }));
    assert_eq!((block(&mut world, 0).hand_over(), block(&mut world, 0).is_admission_due()), (None, false));
    settle(&mut world);
    assert!(block(&mut world, 0).is_admission_due());
    assert_eq!(world.push_node(0, 0, 0, 0), Some(PushOutcome::Busy));
    assert_eq!(world.push_node(0, 1, 0, 0), Some(PushOutcome::Late));
    ask(&mut world);
    assert_eq!(primary(&world), 1);
    settle(&mut world);
    let is_broken = |host: &Host| {
        matches!(host.block.as_ref().map(Block::standing), Some(Standing::Follower { is_broken: true, .. }))
    };
    assert!(!world.hosts.iter().any(is_broken));
    assert!(matches!(world.push_node(1, 0, 1, 0), Some(PushOutcome::Applied { .. })));
    settle(&mut world);
    assert_eq!(block(&mut world, 1).published(), Version(2));
}

#[test]
fn nobody_is_handed_over_to_who_is_not_in_sync() {
    let mut world = followed_by(job(40, 1), 0);
    world.add(1);
    choose(&mut world);
    settle(&mut world);
    assert_eq!((block(&mut world, 0).hand_over(), block(&mut world, 0).ask_for().len()), (None, 1));
    ask(&mut world);
    world.tell(0);
    ask(&mut world);
    assert_eq!(primary(&world), 1);
    assert_eq!(block(&mut world, 1).hand_over(), None, "a follower hands nothing over");
}

#[test]
fn a_primary_whose_heir_is_taken_back_goes_on() {
    let mut world = followed_by(job(40, 1), 1);
    choose(&mut world);
    world.ask(0);
    let late = std::mem::take(&mut world.net);
    world.choose_heir(None);
    world.tell(0);
    assert!(matches!(world.push_root(0, 0), Some(PushOutcome::Applied { .. })));
    late.into_iter().for_each(|asked| world.deliver(asked));
    assert_eq!(primary(&world), 0, "what it asked for before is not meant any more");
    calm(&mut world);
    assert_eq!(block(&mut world, 0).published(), Version(1));
}

#[test]
fn positions_that_are_known_are_answered_while_a_block_is_handed_over() {
    let mut world = followed_by(async_job(40, 2, false), 1);
    push_position(&mut world, 0, 3, 0);
    choose(&mut world);
    assert_eq!(push_position(&mut world, 0, 3, 0), Some(PushOutcome::Held { replaced: 0 }));
    assert_eq!(push_position(&mut world, 0, 4, 0), Some(PushOutcome::Busy));
    settle(&mut world);
    assert_eq!(push_position(&mut world, 0, 3, 0), Some(PushOutcome::Late));
    assert_eq!(push_position(&mut world, 0, 4, 0), Some(PushOutcome::Busy));
    ask(&mut world);
    settle(&mut world);
    assert_eq!(push_position(&mut world, 1, 3, 0), Some(PushOutcome::Late));
}

#[test]
fn a_copy_is_admitted_only_with_all_that_its_primary_inherited() {
    let mut world = followed_by(job(40, 1), 2);
    world.add(3);
    [0, 3].into_iter().for_each(|at| world.tell(at));
    // Copy 3 is filled with version 0 and has not said so; version 1 is published without it.
    follow(&mut world, 3, true);
    world.push_root(0, 0);
    (0..2).for_each(|_| [1, 2].into_iter().for_each(|at| follow(&mut world, at, true)));
    assert_eq!(block(&mut world, 0).published(), Version(1));
    world.crash(0);
    let heir = primary(&world);
    [heir, 3].into_iter().for_each(|at| world.tell(at));
    assert_eq!(block(&mut world, heir).published(), Version(0), "it was told of no more");
    let cursor = world.cursor(3, true).unwrap();
    world.deliver(cursor);
    assert!(!block(&mut world, heir).is_admission_due() && block(&mut world, heir).ask_for().is_empty());
    follow(&mut world, 3, true);
    follow(&mut world, 3, true);
    assert_eq!(block(&mut world, heir).ask_for().len(), 1);
}
