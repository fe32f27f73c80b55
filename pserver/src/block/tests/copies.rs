//! Copies of one block under any interleaving of pushes, words between copies, placements, promotions, restores and
//! deaths, with messages lost, repeated and late: `witness` judges after each, and calm must bring everything level.

use super::world::{PSERVERS, World};
use super::*;
use proptest::prelude::*;

/// One thing that happens: which, to whom, and a number to choose with.
pub(super) type Happening = (u8, usize, usize);

pub(super) fn happenings(count: usize) -> impl Strategy<Value = Vec<Happening>> {
    proptest::collection::vec((0u8..60, 0..PSERVERS, 0usize..1000), 0..count)
}

/// Whatever is not a push.
pub(super) fn happen(world: &mut World, (what, at, pick): Happening) {
    match what {
        0..=9 => follow(world, at, pick % 6 != 0),
        10..=12 => world.net.extend(world.cursor(at, pick % 3 != 0)),
        13..=17 => {
            if let Some(index) = chosen(world, pick) {
                let message = world.net.remove(index);
                world.deliver(message);
            }
        }
        18 | 19 => {
            if let Some(index) = chosen(world, pick) {
                world.deliver(world.net[index].clone());
            }
        }
        20 => {
            if let Some(index) = chosen(world, pick) {
                world.net.remove(index);
            }
        }
        21..=23 => world.tell(at),
        24 => world.net.push(world.word_to(at)),
        25 | 26 if world.is_heir(at) => world.promote(at),
        27 | 28 => world.add(at),
        29 if pick % 2 == 0 => world.remove(at),
        30..=33 => world.ask(at),
        34 | 35 if pick % 2 == 0 => world.crash(at),
        36 if pick % 12 == 0 => world.rewind(at),
        37 => world.choose_heir(Some(at).filter(|at| pick % 3 > 0 && world.is_heir(*at))),
        _ => {}
    }
}

/// Any message that is on its way; often the newest.
fn chosen(world: &World, pick: usize) -> Option<usize> {
    let last = world.net.len().checked_sub(1)?;
    Some(if pick.is_multiple_of(2) { last } else { pick % (last + 1) })
}

/// A follower's word and the news arrive at once.
pub(super) fn follow(world: &mut World, at: usize, room: bool) {
    if let Some(cursor) = world.cursor(at, room) {
        let waiting = world.net.len();
        world.deliver(cursor);
        if world.net.len() > waiting
            && let Some(news) = world.net.pop()
        {
            world.deliver(news);
        }
    }
}

/// A primary on pserver 0 and in-sync followers on the next `followers`.
pub(super) fn followed_by(job: JobSettings, followers: usize) -> World {
    let mut world = World::new(job);
    (1..=followers).for_each(|at| world.add(at));
    calm(&mut world);
    assert!((1..=followers).all(|at| world.is_heir(at)));
    world
}

/// The pserver that the master's document calls the primary.
pub(super) fn primary(world: &World) -> usize {
    world.hosts.iter().position(|host| host.me == world.document.primary).unwrap()
}

/// Everybody hears the newest, follows, asks and is admitted; copies that cannot go on are filled again.
pub(super) fn calm(world: &mut World) {
    if world.document.heir.is_some() {
        world.choose_heir(None);
    }
    for _ in 0..30 {
        for at in 0..PSERVERS {
            world.tell(at);
        }
        if level(world).is_some() {
            return;
        }
        for at in 0..PSERVERS {
            follow(world, at, true);
        }
        let waiting = world.net.len();
        for at in 0..PSERVERS {
            world.ask(at);
        }
        for ask in world.net.split_off(waiting) {
            world.deliver(ask);
        }
        for at in 0..PSERVERS {
            let standing = world.hosts[at].block.as_ref().map(Block::standing);
            if matches!(standing, Some(Standing::Follower { is_broken: true, .. })) {
                world.add(at);
            }
        }
    }
}

/// What all copies hold, if they are in-sync and all of it is published.
fn level(world: &World) -> Option<StateName> {
    let leader = world.hosts[primary(world)].block.as_ref()?;
    let name = leader.state.as_ref()?.name();
    let is_level = |(pserver, (fill, is_in_sync)): (&Incarnation, &(Fill, bool))| {
        let host = world.hosts.iter().find(|host| host.me == *pserver)?;
        let block = host.block.as_ref().filter(|block| block.placement.fill == *fill && *is_in_sync)?;
        (block.state.as_ref()?.name() == name).then_some(())
    };
    let all = world.document.copies.iter().all(|copy| is_level(copy).is_some());
    (all && leader.published() == name.version).then_some(name)
}

pub(super) fn assert_level(world: &World) -> StateName {
    level(world).unwrap_or_else(|| panic!("{:?} {:?}", world.document, world.hosts))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_happens_what_was_published_is_kept_and_calm_makes_all_copies_level(
        happenings in happenings(300), followers in 0..PSERVERS
    ) {
        let mut world = followed_by(job(200, 1), followers);
        for (what, at, pick) in happenings {
            match what {
                40..=55 => world.push_root(primary(&world), 0),
                56 => world.push_root(primary(&world), 1),
                57 | 58 => world.push_root(at, 0),
                _ => {
                    happen(&mut world, (what, at, pick));
                    None
                }
            };
        }
        calm(&mut world);
        let before = assert_level(&world);
        for more in 1..=3 {
            world.push_root(primary(&world), 0);
            calm(&mut world);
            prop_assert_eq!(assert_level(&world).version.0, before.version.0 + more);
        }
        // What comes late changes nothing any more.
        for message in std::mem::take(&mut world.net) {
            world.deliver(message);
        }
        prop_assert_eq!(assert_level(&world).version.0, before.version.0 + 3);
    }

    #[test]
    fn bits_do_not_depend_on_who_led_followed_died_or_was_promoted(
        happenings in happenings(120), records in 1u64..20, slots in 1u32..5, followers in 0..PSERVERS, delay in 0u32..3,
        gradients in proptest::sample::select(Precision::ALL.to_vec())
    ) {
        let job = JobSettings { gradients, ..delayed(job(records, slots), delay) };
        let mut world = followed_by(job.clone(), followers);
        for (what, at, pick) in happenings {
            let back = (pick % 9) as u64 % (2 + u64::from(delay));
            let level = (pick % 3) as u8;
            match what {
                40..=54 => world.push_node(primary(&world), back, level, pick as u32),
                55..=58 => world.push_node(at, back, level, pick as u32),
                _ => {
                    happen(&mut world, (what, at, pick));
                    None
                }
            };
        }
        calm(&mut world);
        let undisturbed = undisturbed(&world);
        while assert_level(&world).version < job.last_version() {
            for back in (0..=u64::from(delay)).rev() {
                world.push_node(primary(&world), back, u8::MAX, 0);
            }
            calm(&mut world);
        }
        let mut ever = std::collections::BTreeSet::new();
        for (name, found) in world.witness.ever() {
            let expected = &undisturbed[name.version.0 as usize];
            prop_assert_eq!(&found.parameters, &expected.parameters);
            prop_assert!(found.slots.is_empty() || found.slots == expected.slots);
            ever.insert(name.version);
        }
        prop_assert_eq!(ever.len(), undisturbed.len());
    }
}

/// Every version of the block of a job without followers, deaths and repetitions.
fn undisturbed(world: &World) -> Vec<BlockCopy> {
    let terms = Arc::new(BlockSettings::new(&world.job, 16));
    let mut block = Block::new(Arc::clone(&world.shape), terms, alone(1), ME);
    block.restore_initial(Term(1));
    let epoch = world.job.shape().training();
    let mut versions = vec![state(&block)];
    for step in 0..world.job.steps() {
        let root = epoch.tree(Step(step)).root();
        let (weight, gradient) = node_gradient(&world.job, step, root).unwrap();
        push(&mut block, step, root, weight, &gradient).unwrap();
        versions.push(state(&block));
    }
    versions
}
