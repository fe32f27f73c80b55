//! Two shards, one with the primaries and one with the followers: what they say to one another and to the master.

use super::*;
use crate::block::primary::PlacedCopy;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::routing::PserverAddress;
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::{Declaration, Fill, Parameter, Rule, StateName};
use shoal_runtime::wire::proto::followed_block::News as Wire;

/// The pserver with the followers.
pub(super) const OTHER: Incarnation = Incarnation(2);

pub(super) fn name(version: u64) -> StateName {
    StateName { term: Term(3), version: Version(version) }
}

/// The primary of a block that is followed by `OTHER`.
fn leading(fill: u64, is_in_sync: bool) -> Placement {
    Placement { copies: vec![PlacedCopy { pserver: OTHER, fill: Fill(fill), is_in_sync }], ..alone(3) }
}

/// A copy that follows.
fn behind(fill: u64) -> Placement {
    Placement { fill: Fill(fill), ..alone(3) }
}

/// Blocks 0 and 1 led by one shard, whose followers on the other are empty.
pub(super) fn pair() -> (Arc<Shard>, Arc<Shard>) {
    let (leader, follower) = (empty(job(50, 2), 16, ME), empty(job(50, 2), 16, OTHER));
    host(&leader, assigned(1, 4, [(0, leading(4, false)), (1, leading(4, false))]));
    follower.assign_now(assigned(1, 4, [(0, behind(4)), (1, behind(4))])).unwrap();
    (leader, follower)
}

/// The follower says how it stands and takes in what follows, which is returned.
pub(super) fn follow(leader: &Arc<Shard>, follower: &Arc<Shard>) -> Vec<proto::FollowedBlock> {
    let followed = leader.follow_now(OTHER, &follower.following_now(ME).unwrap()).unwrap();
    follower.hear_now(followed.clone()).unwrap();
    followed
}

fn admissions(leader: &Arc<Shard>) -> Vec<(u32, u64, u64)> {
    let admissions = leader.whole_standing().unwrap().2;
    assert!(admissions.iter().all(|asked| asked.pserver == OTHER.0));
    admissions.iter().map(|asked| (asked.block, asked.fill, asked.term)).collect()
}

/// The pserver's own word of its followers.
pub(super) fn copies(follower: &Arc<Shard>) -> Vec<proto::CopyProgress> {
    let (progress, copies, admissions) = follower.whole_standing().unwrap();
    assert!(progress.is_empty() && admissions.is_empty());
    copies
}

#[test]
fn copies_that_stand_alike_speak_and_are_reported_together() {
    let (leader, follower) = pair();
    let group = |name: Option<StateName>| {
        let name = name.map(Into::into);
        proto::FollowedBlocks { blocks: vec![0, 1], term: 3, fill: 4, name, filled: 0 }
    };
    let standing = |name: Option<StateName>| {
        let name = name.map(Into::into);
        proto::CopyProgress { blocks: vec![0, 1], fill: 4, name, is_broken: false }
    };
    assert_eq!(follower.following_now(ME).unwrap(), [group(None)]);
    assert_eq!(copies(&follower), [standing(None)]);
    follow(&leader, &follower);
    assert_eq!(follower.following_now(ME).unwrap(), [group(Some(name(0)))]);
    assert_eq!(copies(&follower), [standing(Some(name(0)))]);
    push(&leader, 0, ROOT, &[(1, &[1.0])]).unwrap();
    follow(&leader, &follower);
    let names = follower.following_now(ME).unwrap();
    let names: Vec<_> =
        names.iter().map(|group| (group.blocks[0], StateName::from(group.name.unwrap()))).collect();
    assert_eq!(names, [(0, name(0)), (1, name(1))]);
    assert_eq!(follower.following_now(Incarnation(9)).unwrap(), []);
}

#[test]
fn what_is_taken_in_is_counted_and_told() {
    let (leader, follower) = pair();
    let mut held = follower.told(Kind::Standing);
    let copies = follow(&leader, &follower);
    assert!(held.has_changed() && copies.iter().all(|said| matches!(said.news, Some(Wire::Copy(_)))));
    // Six elements of parameters and two slots, and a counter of one with its remainder.
    let counters = follower.counters();
    assert_eq!((counters.fills, counters.entries, counters.bytes_followed), (2, 0, 4 * (3 * 6 + 2)));
    held.mark_heard();
    both(&leader, 0, ROOT);
    let entries = follow(&leader, &follower);
    assert!(held.has_changed() && entries.iter().all(|said| matches!(said.news, Some(Wire::Entry(_)))));
    let counters = follower.counters();
    assert_eq!((counters.fills, counters.entries, counters.bytes_followed), (2, 2, 4 * (3 * 6 + 2 + 7)));
}

#[test]
fn a_level_copy_is_asked_for_with_its_fill_and_term_until_it_is_in_sync() {
    let (leader, follower) = pair();
    let mut told = leader.urgent();
    follow(&leader, &follower);
    assert!(!told.has_changed() && admissions(&leader).is_empty());
    assert_eq!(follow(&leader, &follower), []);
    assert!(told.has_changed(), "a report is due");
    let asked = [(0, 4, 3), (1, 4, 3)];
    assert_eq!(admissions(&leader), asked);
    told.mark_heard();
    follow(&leader, &follower);
    assert!(!told.has_changed(), "it was asked for");
    // Until the answer comes it is asked for again, and required.
    assert_eq!(admissions(&leader), asked);
    both(&leader, 0, ROOT);
    assert_eq!(leader.whole_standing().unwrap().0[0].version, 0);
    leader.assign_now(assigned(1, 5, [(0, leading(4, true)), (1, leading(4, true))])).unwrap();
    assert!(admissions(&leader).is_empty());
    follow(&leader, &follower);
    told.mark_heard();
    assert_eq!(follow(&leader, &follower), []);
    assert!(told.has_changed(), "it was published");
    assert_eq!(leader.whole_standing().unwrap().0[0].version, 1);
}

#[test]
fn followers_are_told_when_there_may_be_something_for_them() {
    let (leader, follower) = pair();
    let mut logged = leader.told(Kind::Logged);
    both(&leader, 0, Node::leaf(0));
    assert!(!logged.has_changed());
    both(&leader, 0, ROOT);
    assert!(logged.has_changed());
    logged.mark_heard();
    leader.assign_now(assigned(1, 5, [(0, leading(4, true)), (1, leading(4, true))])).unwrap();
    assert!(logged.has_changed());
    // What is published only once the copies have it is told to the master then, and not before.
    follow(&leader, &follower);
    follow(&leader, &follower);
    let published = leader.told(Kind::Published);
    logged.mark_heard();
    both(&leader, 1, ROOT);
    assert!(logged.has_changed() && !published.has_changed());
}

#[test]
fn an_heir_is_named_beside_what_is_to_be_admitted() {
    let (leader, follower) = pair();
    (0..2).for_each(|_| drop(follow(&leader, &follower)));
    let heir = Placement { heir: Some(OTHER), ..leading(4, true) };
    let mut told = leader.told(Kind::Published);
    leader.assign_now(assigned(1, 5, [(0, heir), (1, leading(4, false))])).unwrap();
    assert!(told.has_changed(), "a report is due");
    let asked = leader.whole_standing().unwrap().2;
    let asked: Vec<_> =
        asked.iter().map(|asked| (asked.block, asked.fill, asked.term, asked.is_heir)).collect();
    assert_eq!(asked, [(0, 4, 3, true), (1, 4, 3, false)]);
    assert_eq!(both(&leader, 0, ROOT)[1], PushOutcome::Busy);
    // It is named when what was on its way is there, and the report is due then.
    let (leader, follower) = pair();
    (0..2).for_each(|_| drop(follow(&leader, &follower)));
    leader.assign_now(assigned(1, 5, [(0, leading(4, true)), (1, leading(4, true))])).unwrap();
    both(&leader, 0, ROOT);
    let heir = Placement { heir: Some(OTHER), ..leading(4, true) };
    leader.assign_now(assigned(1, 6, [(0, heir.clone()), (1, heir)])).unwrap();
    assert!(leader.whole_standing().unwrap().2.is_empty());
    follow(&leader, &follower);
    told = leader.told(Kind::Published);
    follow(&leader, &follower);
    assert!(told.has_changed());
    assert_eq!(leader.whole_standing().unwrap().2.len(), 2);
}

#[test]
fn words_for_others_are_passed_over() {
    let (leader, follower) = pair();
    let following = follower.following_now(ME).unwrap();
    let other = |change: fn(&mut proto::FollowedBlocks)| {
        let mut other = following.clone();
        other.iter_mut().for_each(change);
        leader.follow_now(OTHER, &other).unwrap()
    };
    assert_eq!(other(|group| group.fill = 3), []);
    assert_eq!(other(|group| group.term = 2), []);
    assert_eq!(other(|group| group.blocks = vec![7]), []);
    assert_eq!(leader.follow_now(Incarnation(9), &following).unwrap(), []);
    assert_eq!(empty(job(50, 2), 16, ME).follow_now(OTHER, &following).unwrap(), []);
    let followed = leader.follow_now(OTHER, &following).unwrap();
    let before = digest(&follower);
    let heard = |change: fn(&mut proto::FollowedBlock)| {
        let mut other = followed.clone();
        other.iter_mut().for_each(change);
        follower.hear_now(other).unwrap();
        follower.whole_standing().unwrap().1[0].name.map(StateName::from)
    };
    assert_eq!(heard(|said| said.fill = 5), None);
    assert_eq!(heard(|said| said.term = 2), None);
    assert_eq!(heard(|said| said.block = 7), None);
    assert_eq!(heard(|_| {}), Some(name(0)));
    assert_ne!(digest(&follower), before);
    empty(job(50, 2), 16, OTHER).hear_now(followed).unwrap();
}

#[test]
fn a_broken_copy_is_reported_and_speaks_no_more() {
    let (leader, follower) = pair();
    follow(&leader, &follower);
    let news = Some(Wire::IsBroken(true));
    let broken = proto::FollowedBlock { block: 1, term: 3, fill: 4, published: 0, news };
    follower.hear_now(vec![broken]).unwrap();
    let said: Vec<_> = copies(&follower).iter().map(|copy| (copy.blocks.clone(), copy.is_broken)).collect();
    assert_eq!(said, [(vec![0], false), (vec![1], true)]);
    assert_eq!(follower.following_now(ME).unwrap()[0].blocks, [0]);
}

#[test]
fn primaries_are_followed_where_the_assignment_says_they_are() {
    let at =
        |who: u64, address: &str| PserverAddress { incarnation: Incarnation(who), address: address.into() };
    let led_by = |who| Placement { primary: Incarnation(who), ..behind(4) };
    let follower = empty(job(50, 2), 16, OTHER);
    assert!(follower.channels().unwrap().is_empty());
    let mut assignment = assigned(1, 4, [(0, led_by(1)), (1, led_by(9))]);
    assignment.pservers = vec![at(1, "a:1"), at(2, "me:2"), at(5, "other:5")];
    follower.assign_now(assignment).unwrap();
    let channels: Vec<_> = follower.channels().unwrap().into_iter().collect();
    let channel = Channel { primary: Incarnation(1), number: 0 };
    assert_eq!(channels, [(channel, String::from("a:1"))]);
    assert_eq!(follower.following_now(Incarnation(9)).unwrap()[0].blocks, [1]);
    // Nobody follows itself, or a copy that is its own.
    let leader = empty(job(50, 2), 16, ME);
    let mut assignment = assigned(1, 4, [(0, leading(4, false))]);
    assignment.pservers = vec![at(1, "a:1"), at(2, "b:2")];
    host(&leader, assignment);
    assert!(leader.channels().unwrap().is_empty() && leader.following_now(ME).unwrap().is_empty());
}

#[test]
fn followers_that_are_promoted_give_out_what_they_hold() {
    let (leader, follower) = pair();
    for step in 0..3 {
        both(&leader, step, ROOT);
        while !follow(&leader, &follower).is_empty() {}
    }
    let promoted = |fill| Placement { term: Term(6), primary: OTHER, ..behind(fill) };
    follower.assign_now(assigned(1, 6, [(0, promoted(4)), (1, promoted(4))])).unwrap();
    let progress = follower.whole_standing().unwrap().0;
    assert_eq!((progress[0].term, progress[0].version), (6, 3));
    let ids = [BlockId(0), BlockId(1)];
    let read = |shard: &Shard| shard.read_state(Version(3), &ids, 0).unwrap();
    assert_eq!(read(&follower), read(&leader));
    both(&follower, 3, ROOT);
    assert_eq!(follower.whole_standing().unwrap().0[0].version, 4);
    // The one that led before is told, and follows.
    let demoted = Placement { term: Term(6), primary: OTHER, ..alone(3) };
    leader.assign_now(assigned(1, 6, [(0, demoted.clone()), (1, demoted)])).unwrap();
    assert_eq!(both(&leader, 3, ROOT), [PushOutcome::Moved; 2]);
    assert_eq!(StateName::from(leader.following_now(OTHER).unwrap()[0].name.unwrap()), name(3));
}

#[test]
fn a_follower_is_given_as_much_at_a_time_as_a_message_may_have() {
    let parameter = |at: usize| {
        let name = format!("w{at}");
        Parameter::new(
            &name,
            &[1 << 17],
            Rule::Momentum { momentum: 0.5 },
            Schedule::constant(0.1),
            Initial::Zeros,
        )
    };
    let declaration = Declaration { parameters: (0..9).map(parameter).collect(), block_elements: 1 << 17 };
    let hosting = |placement: Placement| {
        let all = (0..9).map(|block| (block, placement.clone()));
        Assignment { declaration: declaration.clone(), ..assigned(1, 4, all) }
    };
    let (leader, follower) = (empty(job(50, 2), 16, ME), empty(job(50, 2), 16, OTHER));
    host(&leader, hosting(leading(4, false)));
    follower.assign_now(hosting(behind(4))).unwrap();
    let given = || follow(&leader, &follower).iter().map(|said| said.block).collect::<Vec<_>>();
    // A copy is 1 MiB of parameters and velocity: eight are more than 8 MiB with all that is around them.
    assert_eq!(given(), Vec::from_iter(0..8));
    // Those that are level are only heard.
    assert_eq!(given(), [8]);
    assert_eq!(admissions(&leader).iter().map(|asked| asked.0).collect::<Vec<_>>(), Vec::from_iter(0..8));
    assert_eq!(given(), [0; 0]);
    assert_eq!(admissions(&leader).len(), 9);
    let entries = vec![0.0f32; 9 << 17];
    let gradients: Vec<(u32, &[f32])> =
        entries.chunks(1 << 17).zip(0..).map(|(values, at)| (at, values)).collect();
    push(&leader, 0, ROOT, &gradients).unwrap();
    assert_eq!((given(), given()), (Vec::from_iter(0..9), vec![]));
}

/// What a follower says of these blocks.
fn words(follower: &Shard, blocks: &[u32]) -> Vec<proto::FollowedBlocks> {
    let ids: Vec<BlockId> = blocks.iter().map(|block| BlockId(*block)).collect();
    grouped(&follower.following_of(ME, &ids).unwrap())
}

fn given(leader: &Shard, led: Option<Led>) -> Vec<proto::FollowedBlock> {
    led.unwrap().news(leader).unwrap().encode()
}

fn blocks(given: &[proto::FollowedBlock]) -> Vec<u32> {
    given.iter().map(|said| said.block).collect()
}

#[test]
fn in_a_session_only_what_an_answer_was_about_is_said_and_nothing_is_given_twice_before() {
    let (leader, follower) = pair();
    let copies = given(&leader, leader.lead(OTHER, 0, 5, 0, &words(&follower, &[0, 1])));
    assert_eq!(blocks(&copies), [0, 1]);
    follower.hear_now(copies).unwrap();
    let mut open = leader.lead(OTHER, 0, 5, 1, &words(&follower, &[0, 1])).unwrap();
    assert_eq!(open.news(&leader).unwrap().encode(), []);
    push(&leader, 0, ROOT, &[(0, &[1.0; 6])]).unwrap();
    let entry = open.news(&leader).unwrap().encode();
    assert_eq!(blocks(&entry), [0]);
    // What comes meanwhile waits until the follower has said what has become of it.
    push(&leader, 0, ROOT, &[(1, &[1.0])]).unwrap();
    assert_eq!(blocks(&open.news(&leader).unwrap().encode()), [1]);
    follower.hear_now(entry).unwrap();
    let again = given(&leader, leader.lead(OTHER, 0, 5, 2, &words(&follower, &[0])));
    assert_eq!(blocks(&again), [1], "an answer of which nothing is said has gone to nobody");
    follower.hear_now(again).unwrap();
    assert_eq!(given(&leader, leader.lead(OTHER, 0, 5, 3, &words(&follower, &[1]))), []);
    let standing = leader.whole_standing().unwrap();
    assert!(standing.0.iter().all(|group| group.version == 1) && admissions(&leader).len() == 2);
}

/// The network may bring it again, after what was answered to it: whatever the second answer gives goes to nobody.
#[test]
fn a_request_that_comes_twice_holds_nothing_up() {
    let (leader, follower) = pair();
    let first = words(&follower, &[0, 1]);
    let copies = given(&leader, leader.lead(OTHER, 0, 5, 0, &first));
    follower.hear_now(copies).unwrap();
    push(&leader, 0, ROOT, &[(0, &[1.0; 6])]).unwrap();
    assert_eq!(given(&leader, leader.lead(OTHER, 0, 5, 0, &first)).len(), 2, "they hold nothing, it says");
    let entry = given(&leader, leader.lead(OTHER, 0, 5, 1, &words(&follower, &[1])));
    assert_eq!(blocks(&entry), [0]);
}

#[test]
fn a_request_of_a_session_that_is_not_known_or_out_of_turn_is_not_heard() {
    let (leader, follower) = pair();
    let lead = |id, number| leader.lead(OTHER, 0, id, number, &words(&follower, &[0, 1]));
    assert!(lead(5, 1).is_none(), "there is none");
    let mut overtaken = lead(5, 0).unwrap();
    assert!(lead(6, 1).is_none() && lead(5, 2).is_none(), "another, and one that has missed a request");
    assert_eq!(blocks(&given(&leader, lead(6, 0))), [0, 1]);
    assert_eq!(overtaken.news(&leader).unwrap().encode(), [], "nobody waits for it any more");
    assert!(lead(5, 1).is_none());
    // Other copies may be held: whoever has no request open begins again.
    drop(overtaken);
    leader.assign_now(assigned(1, 5, [(0, leading(4, false)), (1, leading(4, false))])).unwrap();
    assert!(lead(6, 1).is_none());
}

#[test]
fn what_is_said_before_the_primary_has_learnt_of_it_is_looked_at_again_once_it_has() {
    let (leader, follower) = pair();
    let later = |placement: Placement| Placement { fill: Fill(5), ..placement };
    follower.assign_now(assigned(1, 5, [(0, later(behind(4)))])).unwrap();
    let mut open = leader.lead(OTHER, 0, 5, 0, &words(&follower, &[0])).unwrap();
    assert_eq!(open.news(&leader).unwrap().encode(), [], "no copy of that fill is known");
    leader.assign_now(assigned(1, 5, [(0, leading(5, false))])).unwrap();
    assert_eq!(open.news(&leader).unwrap().encode().iter().map(|said| said.fill).collect::<Vec<_>>(), [5]);
}
