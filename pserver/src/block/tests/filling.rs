//! How a filling copy comes to hold what its primary holds: whole, entry by entry, and however fast updates come.

use super::copies::calm;
use super::positions::push_position;
use super::world::{Message, World};
use super::*;
use crate::block::primary::LOG_MAX;

/// A primary, and a follower that has been told that it is one.
fn filling(job: JobSettings) -> World {
    let mut world = World::new(job);
    world.add(1);
    (0..2).for_each(|at| world.tell(at));
    world
}

/// What the primary has for the follower, which is said to it at once.
fn news(world: &mut World, room: bool) -> Option<News> {
    let cursor = world.cursor(1, room).unwrap();
    world.deliver(cursor);
    let Some(Message::News { news, .. }) = world.net.last().cloned() else { return None };
    let message = world.net.pop().unwrap();
    world.deliver(message);
    Some(news)
}

fn version(world: &World, at: usize) -> Option<u64> {
    let block = world.hosts[at].block.as_ref()?;
    block.state.as_ref().map(|state| state.version().0)
}

#[test]
fn a_copy_that_is_a_little_behind_is_given_entries_and_one_further_behind_the_state() {
    for (behind, is_whole) in [(1, false), (LOG_MAX, false), (LOG_MAX + 1, true)] {
        let mut world = filling(job(200, 1));
        news(&mut world, true);
        (0..behind).for_each(|_| assert!(world.push_root(0, 0).is_some()));
        let given = news(&mut world, true);
        assert_eq!(matches!(given, Some(News::Copy(_))), is_whole, "{behind} behind");
        while news(&mut world, true).is_some() {}
        assert_eq!(version(&world, 1), Some(behind as u64));
    }
}

#[test]
fn a_copy_that_is_being_filled_is_not_waited_for_and_one_that_is_near_is() {
    let applied = |is_published| Some(PushOutcome::Applied { replaced: 0, is_short: false, is_published });
    let mut world = filling(job(200, 1));
    assert_eq!(world.push_root(0, 0), applied(true));
    assert!(matches!(news(&mut world, true), Some(News::Copy(_))));
    (0..3).for_each(|_| assert_eq!(world.push_root(0, 0), applied(true)));
    assert!(matches!(news(&mut world, true), Some(News::Entry(_))));
    assert_eq!(world.push_root(0, 0), applied(false));
    // One that is given the state and asks for it again, because its answer was lost or too slow, is waited for too.
    let mut world = filling(job(200, 1));
    for is_published in [true, true, false] {
        assert_eq!(world.push_root(0, 0), applied(is_published));
        let cursor = world.cursor(1, true).unwrap();
        world.deliver(cursor);
    }
}

#[test]
fn without_room_a_copy_is_heard_and_given_nothing() {
    let mut world = filling(job(200, 1));
    assert_eq!(news(&mut world, false), None);
    news(&mut world, true);
    world.push_root(0, 0);
    assert_eq!(news(&mut world, false), None);
    assert_eq!((version(&world, 0), version(&world, 1)), (Some(1), Some(0)));
    assert!(matches!(news(&mut world, true), Some(News::Entry(_))));
    // Being level needs no room.
    assert_eq!(news(&mut world, false), None);
    let primary = world.hosts[0].block.as_ref().unwrap();
    assert!(primary.is_admission_due());
}

#[test]
fn an_entry_of_weight_zero_carries_nothing_and_makes_a_version() {
    let mut world = filling(job(200, 1));
    news(&mut world, true);
    let block = world.hosts[0].block.as_mut().unwrap();
    push(block, 0, Node::leaf(0), 0, &[3.0; 6]).unwrap();
    let Some(News::Entry(entry)) = news(&mut world, true) else { panic!() };
    assert_eq!((entry.weight, entry.encode_gradient().len(), entry.makes().version), (0, 0, Version(1)));
    assert_eq!(version(&world, 1), Some(1));
}

#[test]
fn entries_and_states_of_another_shape_are_refused_change_no_state_and_break_the_copy() {
    let mut world = filling(job(200, 1));
    news(&mut world, true);
    world.push_root(0, 0);
    let cursor = world.cursor(1, true).unwrap();
    world.deliver(cursor);
    let Some(Message::News { fill, term, published, news: News::Entry(entry), .. }) = world.net.pop() else {
        panic!()
    };
    let primary = state(world.hosts[0].block.as_ref().unwrap());
    let follower = world.hosts[1].block.as_mut().unwrap();
    let before = digest(follower);
    let short = Bytes::from_static(&[0; 20]);
    let other = |sum| News::Entry(Arc::new(Update { sum, ..Update::clone(&entry) }));
    let of = |bytes| Sum::Dense(DenseSum::unread(bytes, Precision::F32));
    let copy = |change: fn(&mut BlockCopy, Bytes)| {
        let mut copy = primary.clone();
        change(&mut copy, short.clone());
        News::Copy(Box::new(copy))
    };
    let wrong = [
        other(of(short.clone())),
        other(of(Bytes::new())),
        copy(|copy, short| copy.parameters = short),
        copy(|copy, short| copy.earlier = vec![short]),
        copy(|copy, short| copy.slots[1] = short),
        copy(|copy, _| drop(copy.slots.pop())),
    ];
    for news in wrong {
        let refusal = follower.hear(fill, term, published, news).unwrap_err();
        assert_eq!((refusal.kind, follower.cursor()), (RefusalKind::WrongShape, None));
        follower.hear(fill, term, published, News::Entry(Arc::clone(&entry))).unwrap();
        follower.role = Role::Follower { is_broken: false };
        assert_eq!(digest(follower), before, "nor does it take anything more");
    }
    // A state of another history, an older one, and an entry that follows another state are no faults.
    let other = |follows| News::Entry(Arc::new(Update { follows, ..Update::clone(&entry) }));
    let name = follower.state.as_ref().unwrap().name();
    let beside = [
        copy(|copy, _| copy.rewind = Rewind(9)),
        copy(|copy, _| copy.name.version = Version(0)),
        other(StateName { version: Version(1), ..name }),
        other(StateName { term: Term(0), ..name }),
    ];
    for news in beside {
        follower.hear(fill, term, Version(0), news).unwrap();
        assert_eq!(digest(follower), before);
    }
    follower.hear(fill, term, published, News::Entry(entry)).unwrap();
    assert_eq!(state(follower).parameters, primary.parameters);
}

#[test]
fn log_entries_are_let_go_when_everybody_has_them() {
    let entries = |world: &World| {
        let text = format!("{:?}", world.hosts[0].block.as_ref().unwrap().role);
        text.matches("Update {").count()
    };
    let mut world = filling(job(200, 1));
    news(&mut world, true);
    (0..3).for_each(|_| assert!(world.push_root(0, 0).is_some()));
    assert_eq!(entries(&world), 3);
    news(&mut world, true);
    news(&mut world, true);
    assert_eq!(entries(&world), 2);
    // A second copy that holds nothing yet needs none of them; one that is gone needs nothing.
    world.remove(1);
    world.tell(0);
    assert_eq!(entries(&world), 0);
    world.push_root(0, 0);
    assert_eq!(entries(&world), 0);
}

/// Rounds until the follower is in-sync, with `updates` tried between any two words.
fn rounds_until_in_sync(world: &mut World, updates: usize, update: fn(&mut World)) -> Option<usize> {
    (1..=60).find(|_| {
        let cursor = world.cursor(1, true);
        (0..updates).for_each(|_| update(world));
        cursor.into_iter().for_each(|cursor| world.deliver(cursor));
        (0..updates).for_each(|_| update(world));
        let waiting = std::mem::take(&mut world.net);
        waiting.into_iter().for_each(|message| world.deliver(message));
        (0..updates).for_each(|_| update(world));
        world.ask(0);
        let asked = std::mem::take(&mut world.net);
        asked.into_iter().for_each(|message| world.deliver(message));
        world.is_heir(1)
    })
}

#[test]
fn a_copy_becomes_level_however_fast_updates_come() {
    let position = |world: &mut World| {
        let next = version(world, 0).unwrap_or(0);
        push_position(world, 0, next, 0);
    };
    let root = |world: &mut World| assert!(world.push_root(0, 0).is_some());
    for updates in [0, 1, 2, 3, LOG_MAX - 1, LOG_MAX, LOG_MAX + 1, 5 * LOG_MAX] {
        for (job, update) in
            [(async_job(10_000, 2, false), position as fn(&mut World)), (job(10_000, 1), root)]
        {
            let mut world = filling(job);
            let rounds = rounds_until_in_sync(&mut world, updates, update);
            assert!(rounds.is_some(), "{updates} updates between any two words");
            let before = version(&world, 0);
            calm(&mut world);
            update(&mut world);
            assert!(version(&world, 0) > before, "updates go on");
        }
    }
}
