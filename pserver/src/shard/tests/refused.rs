//! Copies that cannot take their primary's entry or state: they report it, and take nothing more.

use super::copies::{OTHER, copies, follow, name, pair};
use super::*;
use shoal_runtime::wire::proto::followed_block::News as Wire;
use std::collections::BTreeMap;

/// An alteration that makes a copy refuse, and `true` if it alters a state, `false` for an entry.
type Spoilt = (fn(&mut proto::FollowedBlock), bool);

fn with_copy(said: &mut proto::FollowedBlock, spoil: fn(&mut proto::BlockCopy)) {
    let Some(Wire::Copy(copy)) = &mut said.news else { panic!("{said:?}") };
    spoil(copy);
}

fn with_entry(said: &mut proto::FollowedBlock, spoil: fn(&mut proto::LogEntry)) {
    let Some(Wire::Entry(entry)) = &mut said.news else { panic!("{said:?}") };
    spoil(entry);
}

/// Before, such a copy asked for the same for ever, and the master took it for healthy.
#[test]
fn a_copy_that_cannot_take_what_its_primary_gives_is_broken_at_once_and_the_others_go_on() {
    let spoilt: [Spoilt; 5] = [
        (|said| with_entry(said, |entry| entry.gradient.truncate(23)), false),
        (|said| with_entry(said, |entry| entry.gradient.truncate(20)), false),
        (|said| with_entry(said, |entry| entry.follows = None), false),
        (|said| with_copy(said, |copy| copy.parameters.truncate(20)), true),
        (|said| with_copy(said, |copy| copy.name = None), true),
    ];
    for (at, (spoil, is_state)) in spoilt.into_iter().enumerate() {
        let (leader, follower) = pair();
        if !is_state {
            follow(&leader, &follower);
        }
        both(&leader, 0, ROOT);
        let right = leader.follow_now(OTHER, &follower.following_now(ME).unwrap()).unwrap();
        let mut wrong = right.clone();
        spoil(wrong.iter_mut().find(|said| said.block == 0).unwrap());
        let before = copies(&follower);
        let mut others = wrong.clone();
        others.iter_mut().for_each(|said| said.fill += 1);
        follower.hear_now(others).unwrap();
        assert_eq!(copies(&follower), before, "{at}: what is given to another fill breaks nothing");
        follower.hear_now(wrong).unwrap_err();
        follower.hear_now(right).unwrap();
        let said: BTreeMap<_, _> = copies(&follower)
            .into_iter()
            .flat_map(|copy| copy.blocks.into_iter().map(move |block| (block, (copy.name, copy.is_broken))))
            .collect();
        let held = (!is_state).then(|| name(0).into());
        assert_eq!(said, [(0, (held, true)), (1, (Some(name(1).into()), false))].into(), "{at}");
        assert_eq!(follower.following_now(ME).unwrap()[0].blocks, [1], "{at}: it asks for nothing more");
    }
}

#[test]
fn the_report_of_a_broken_copy_may_not_wait() {
    let (leader, follower) = pair();
    follow(&leader, &follower);
    push(&leader, 0, ROOT, &[(0, &[1.0; 6])]).unwrap();
    let mut given = leader.follow_now(OTHER, &follower.following_now(ME).unwrap()).unwrap();
    with_entry(&mut given[0], |entry| entry.gradient.truncate(20));
    let urgent = follower.urgent();
    follower.hear_now(given).unwrap_err();
    assert!(urgent.has_changed());
}
