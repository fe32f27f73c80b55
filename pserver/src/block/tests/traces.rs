//! Copies, one story at a time: the traces that broke earlier wordings of the rules, and what the rules say of each
//! word by itself.

use super::copies::{calm, follow, primary};
use super::world::{Message, World};
use super::*;
use shoal_runtime::cluster::CheckpointId;

/// A primary on pserver 0 and in-sync followers on the next `followers`.
fn followed_by(followers: usize) -> World {
    copies::followed_by(job(40, 1), followers)
}

fn block(world: &mut World, at: usize) -> &mut Block {
    world.hosts[at].block.as_mut().unwrap()
}

fn applied(is_published: bool) -> Option<PushOutcome> {
    Some(PushOutcome::Applied { replaced: 0, is_short: false, is_published })
}

#[test]
fn an_update_is_published_when_every_required_copy_has_it_and_not_before() {
    let mut world = followed_by(2);
    assert_eq!(world.push_root(0, 0), applied(false));
    // The same again is taken for held, the next step for too early, and nothing new is read.
    assert_eq!(world.push_root(0, 1), Some(PushOutcome::Held { replaced: 0 }));
    assert_eq!(world.push_root(0, 0), Some(PushOutcome::Busy));
    assert_eq!(read(block(&mut world, 0), 1), Reading::NotYet);
    for at in [1, 2] {
        assert_eq!(block(&mut world, 0).published(), Version(0));
        follow(&mut world, at, true);
        assert_eq!(block(&mut world, 0).published(), Version(0), "given is not had");
        follow(&mut world, at, true);
    }
    assert_eq!(block(&mut world, 0).published(), Version(1));
    assert_eq!(world.push_root(0, 1), Some(PushOutcome::Late));
}

/// With a delay the next step's gradients come before the version is published; they are held.
#[test]
fn an_update_waits_until_the_one_before_it_is_published() {
    let mut world = copies::followed_by(delayed(job(40, 1), 1), 1);
    assert_eq!(world.push_root(0, 0), applied(false));
    world.push_root(0, 0);
    let versions = |world: &mut World| (block(world, 0).version(), block(world, 0).published());
    assert_eq!(versions(&mut world), (Some(Version(1)), Version(0)));
    (0..2).for_each(|_| follow(&mut world, 1, true));
    assert_eq!(versions(&mut world), (Some(Version(2)), Version(1)));
}

/// A piece of what some copy lacks would be of a state that may never have been.
#[test]
fn a_piece_of_a_checkpoint_is_taken_once_its_version_is_published() {
    for version in [Some(Version(1)), None] {
        let mut world = followed_by(1);
        assert_eq!(world.push_root(0, 0), applied(false));
        let named = NamedCheckpoint { checkpoint: CheckpointId(1), version, since: None, named_at: 9 };
        block(&mut world, 0).name_checkpoint(Some(named));
        assert!(block(&mut world, 0).give_piece(CheckpointId(1)).is_none(), "{version:?}: a copy lacks it");
        (0..2).for_each(|_| follow(&mut world, 1, true));
        let piece = block(&mut world, 0).give_piece(CheckpointId(1)).unwrap();
        assert_eq!(piece.copy.name.version, Version(1));
    }
}

/// A block whose primary changes between the cut and the manifest: the one before may have supplied the piece.
#[test]
fn a_follower_that_leads_beyond_the_version_says_that_it_has_passed_it_and_one_that_leads_at_it_supplies_it()
{
    for (version, has_passed) in [(0, true), (1, false)] {
        let mut world = followed_by(1);
        let version = Some(Version(version));
        let named = NamedCheckpoint { checkpoint: CheckpointId(1), version, since: None, named_at: 9 };
        block(&mut world, 1).name_checkpoint(Some(named));
        world.push_root(0, 0);
        calm(&mut world);
        assert!(!block(&mut world, 1).has_passed(CheckpointId(1)), "it does not lead");
        world.crash(0);
        world.tell(1);
        assert_eq!(block(&mut world, 1).has_passed(CheckpointId(1)), has_passed);
        assert_eq!(block(&mut world, 1).give_piece(CheckpointId(1)).is_some(), !has_passed);
    }
}

/// Whoever writes the pieces of one checkpoint may ask while the next one is named already.
#[test]
fn a_piece_of_another_checkpoint_than_is_asked_for_stays_for_whoever_writes_that() {
    let mut world = followed_by(0);
    let named = |checkpoint, version| NamedCheckpoint {
        checkpoint: CheckpointId(checkpoint),
        version: Some(Version(version)),
        since: None,
        named_at: 9,
    };
    block(&mut world, 0).name_checkpoint(Some(named(4, 0)));
    assert!(block(&mut world, 0).give_piece(CheckpointId(4)).is_some());
    block(&mut world, 0).name_checkpoint(Some(named(5, 1)));
    assert_eq!(world.push_root(0, 0), applied(true));
    assert!(block(&mut world, 0).give_piece(CheckpointId(4)).is_none());
    let piece = block(&mut world, 0).give_piece(CheckpointId(5)).unwrap();
    assert_eq!(piece.copy.name.version, Version(1));
    assert!(block(&mut world, 0).give_piece(CheckpointId(5)).is_none(), "it is given once");
}

#[test]
fn the_version_before_is_there_after_a_promotion() {
    let mut world = followed_by(1);
    for _ in 0..3 {
        world.push_root(0, 0);
        calm(&mut world);
    }
    let before = [2, 3].map(|step| parameters(block(&mut world, 0), step));
    world.crash(0);
    world.tell(1);
    assert_eq!([2, 3].map(|step| parameters(block(&mut world, 1), step)), before);
    // So it is on a copy that was filled a moment ago.
    world.add(2);
    calm(&mut world);
    world.crash(1);
    world.tell(2);
    assert_eq!([2, 3].map(|step| parameters(block(&mut world, 2), step)), before);
}

#[test]
fn what_a_copy_has_said_under_another_fill_counts_for_nothing() {
    let mut world = followed_by(1);
    let old = world.cursor(1, true).unwrap();
    world.remove(1);
    world.add(1);
    world.tell(0);
    world.deliver(old);
    assert!(world.net.is_empty());
    assert_eq!(
        (block(&mut world, 0).is_admission_due(), block(&mut world, 0).ask_for()),
        (false, Vec::new())
    );
    world.tell(1);
    assert_eq!(block(&mut world, 1).cursor().unwrap().2, None, "it starts empty");
    calm(&mut world);
    assert!(world.is_heir(1));
}

#[test]
fn a_promoted_copy_publishes_nothing_more_until_the_others_of_its_promotion_have_it() {
    let mut world = followed_by(2);
    world.push_root(0, 0);
    follow(&mut world, 1, true);
    world.promote(1);
    world.tell(1);
    assert_eq!(state(block(&mut world, 1)).name.version, Version(1));
    assert_eq!(read(block(&mut world, 1), 1), Reading::NotYet);
    assert_eq!(world.push_root(1, 0), Some(PushOutcome::Busy));
    assert_eq!(world.push_root(1, 1), Some(PushOutcome::Held { replaced: 0 }));
    // The one that has nothing of it may be promoted instead, and nothing is lost.
    world.promote(2);
    world.tell(2);
    assert_eq!(world.push_root(2, 0), applied(false));
    calm(&mut world);
    assert_eq!(block(&mut world, 2).published(), Version(1));
}

#[test]
fn a_promoted_copy_serves_what_it_was_told_is_published_and_no_more() {
    let mut world = followed_by(2);
    world.push_root(0, 0);
    (0..2).for_each(|_| [1, 2].into_iter().for_each(|at| follow(&mut world, at, true)));
    assert_eq!(block(&mut world, 0).published(), Version(1));
    // The followers hold version 1 and have yet to hear that all do.
    world.crash(0);
    let heir = primary(&world);
    world.tell(heir);
    assert_eq!(block(&mut world, heir).published(), Version(0));
    assert!(matches!(read(block(&mut world, heir), 0), Reading::Parameters(..)));
    calm(&mut world);
    assert_eq!(block(&mut world, heir).published(), Version(1));
}

#[test]
fn a_deposed_primary_publishes_nothing_and_once_told_answers_nobody() {
    let mut world = followed_by(1);
    world.promote(1);
    world.tell(1);
    // It has not heard: it takes the push, and nobody says that he has it.
    assert_eq!(world.push_root(0, 0), applied(false));
    follow(&mut world, 1, true);
    assert_eq!(block(&mut world, 0).published(), Version(0));
    world.tell(0);
    assert_eq!(world.push_root(0, 0), Some(PushOutcome::Moved));
    assert_eq!(read(block(&mut world, 0), 0), Reading::Elsewhere);
    assert_eq!(block(&mut world, 0).ask_for(), Vec::new());
    assert!(matches!(block(&mut world, 0).standing(), Standing::Follower { .. }));
    assert_eq!(block(&mut world, 0).copy_at(Version(0), 0).unwrap_err().kind, RefusalKind::UnknownBlock);
}

#[test]
fn a_copy_whose_state_nothing_can_follow_says_so_until_it_is_filled_anew() {
    let mut world = followed_by(1);
    world.promote(1);
    world.tell(1);
    world.push_root(0, 0);
    world.tell(0);
    follow(&mut world, 0, true);
    let standing = block(&mut world, 0).standing();
    assert!(matches!(standing, Standing::Follower { is_broken: true, .. }), "{standing:?}");
    assert_eq!(block(&mut world, 0).cursor(), None, "it asks for nothing more");
    // It is still one that must have what is published: until the master takes it out nothing is.
    assert_eq!(world.push_root(1, 0), applied(false));
    assert_eq!(block(&mut world, 1).published(), Version(0));
    // Another change of primary does not mend it.
    world.promote(1);
    world.tell(0);
    assert_eq!(block(&mut world, 0).cursor(), None);
    calm(&mut world);
    assert!(world.is_heir(0) && block(&mut world, 1).published() == Version(1));
}

#[test]
fn a_copy_that_is_in_the_past_of_what_was_inherited_is_filled_and_not_broken() {
    let mut world = followed_by(1);
    world.add(2);
    calm_but_for_admission(&mut world);
    world.push_root(0, 0);
    follow(&mut world, 1, true);
    world.crash(0);
    (1..=2).for_each(|at| world.tell(at));
    assert_eq!(world.push_root(1, 0), applied(true));
    follow(&mut world, 2, true);
    assert_eq!(
        state(block(&mut world, 2)).name,
        StateName { term: world.document.term, version: Version(2) }
    );
    follow(&mut world, 2, true);
    assert_eq!(block(&mut world, 1).ask_for().len(), 1);
}

#[test]
fn a_broken_copy_is_told_nothing_about_what_is_published() {
    let mut world = followed_by(1);
    world.add(2);
    calm_but_for_admission(&mut world);
    // Copy 2 has an update that the heir has not; the heir publishes another in its place.
    world.push_root(0, 0);
    follow(&mut world, 2, true);
    world.crash(0);
    world.tell(1);
    world.tell(2);
    assert_eq!(world.push_root(1, 0), applied(true));
    follow(&mut world, 2, true);
    assert!(matches!(block(&mut world, 2).standing(), Standing::Follower { is_broken: true, .. }));
    assert_eq!(block(&mut world, 2).published(), Version(0));
}

/// Everybody hears the newest and holds the newest, and the primary has not been told.
fn calm_but_for_admission(world: &mut World) {
    (0..world.hosts.len()).for_each(|at| world.tell(at));
    (0..world.hosts.len()).for_each(|at| follow(world, at, true));
}

#[test]
fn what_belongs_to_an_older_history_is_not_there_after_a_restore() {
    let mut world = followed_by(1);
    world.push_root(0, 0);
    calm(&mut world);
    let late = world.cursor(1, true).unwrap();
    // Restored under the fill that it had, as a primary that stays may be.
    let restored = Placement {
        term: Term(50),
        rewind: Rewind(50),
        copies: Vec::new(),
        ..block(&mut world, 0).placement().clone()
    };
    let (me, block) = (world.hosts[0].me, block(&mut world, 0));
    block.place(restored, me);
    assert_eq!((block.wants_state(), block.published()), (Some((Term(50), Rewind(50))), Version(0)));
    assert_eq!(read(block, 0), Reading::NotYet);
    assert!(matches!(block.standing(), Standing::Nothing));
    block.restore_initial(Term(49));
    assert!(block.state.is_none(), "a late restore of another term");
    block.restore_initial(Term(50));
    assert_eq!(state(block).name, StateName { term: Term(50), version: Version(0) });
    let Message::Cursor { from, fill, term, cursor, .. } = late else { panic!() };
    assert_eq!(block.follow(from, fill, term, cursor, usize::MAX), News::NotHere);
    // Gradients and readers of the old history are told; those of a later one wait.
    let words = words(&[1.0; 6]);
    let arriving = NodeGradient {
        step: Step(0),
        node: Node::leaf(0),
        weight: 1,
        gradient: Gradient::Words(words.clone(), Precision::F32),
    };
    assert_eq!(block.push(Rewind(1), arriving.clone()), Ok(PushOutcome::Rewound));
    assert_eq!(block.push(Rewind(51), arriving), Ok(PushOutcome::Busy));
    assert_eq!(
        (block.read(Rewind(1), Step(0), &[]), block.read(Rewind(51), Step(0), &[])),
        (Reading::Elsewhere, Reading::NotYet)
    );
}

#[test]
fn a_restore_and_a_promotion_act_once_in_a_term() {
    let mut world = World::new(job(40, 2));
    world.push_node(0, 0, 1, 0);
    world.push_node(0, 0, 0, 0);
    let before = digest(block(&mut world, 0));
    block(&mut world, 0).restore_initial(Term(1));
    assert_eq!((block(&mut world, 0).wants_state(), digest(block(&mut world, 0))), (None, before));
    // Placed again under the same term, with a copy more: what is held stays. Under a new one it has to come again.
    let held = |world: &mut World| match block(world, 0).standing() {
        Standing::Primary { held, .. } => held.len(),
        other => panic!("{other:?}"),
    };
    world.add(1);
    world.tell(0);
    assert_eq!(held(&mut world), 1);
    world.promote(0);
    world.tell(0);
    assert_eq!((held(&mut world), block(&mut world, 0).published()), (0, Version(1)));
    // A word from before is not heard any more.
    let (me, now) = (world.hosts[0].me, block(&mut world, 0).placement().clone());
    let older = Placement { term: Term(1), primary: Incarnation(99), ..now.clone() };
    let other_fill = Placement { fill: Fill(77), term: Term(99), primary: Incarnation(99), ..now.clone() };
    for word in [older, other_fill] {
        block(&mut world, 0).place(word, me);
        assert_eq!(*block(&mut world, 0).placement(), now);
    }
}

#[test]
fn a_promoted_copy_without_a_state_is_not_restored() {
    let mut world = followed_by(0);
    world.add(1);
    world.tell(1);
    let promoted =
        Placement { term: Term(9), primary: world.hosts[1].me, ..block(&mut world, 1).placement().clone() };
    let me = world.hosts[1].me;
    block(&mut world, 1).place(promoted, me);
    block(&mut world, 1).restore_initial(Term(9));
    assert_eq!((block(&mut world, 1).wants_state(), block(&mut world, 1).state.is_none()), (None, true));
}

#[test]
fn a_retired_copy_answers_nobody_and_is_never_placed_again() {
    let mut world = followed_by(1);
    let (me, placement) = (world.hosts[0].me, block(&mut world, 0).placement().clone());
    let cursor = world.cursor(1, true).unwrap();
    let retired = block(&mut world, 0);
    retired.retire();
    retired.place(Placement { term: Term(99), rewind: Rewind(99), ..placement }, me);
    assert_eq!(
        (retired.wants_state(), retired.cursor(), retired.standing()),
        (None, None, Standing::Nothing)
    );
    assert_eq!(read(retired, 0), Reading::Elsewhere);
    assert_eq!(push(retired, 0, Node::leaf(0), 1, &[1.0; 6]), Ok(PushOutcome::Moved));
    let Message::Cursor { from, fill, term, cursor, .. } = cursor else { panic!() };
    assert_eq!(retired.follow(from, fill, term, cursor, usize::MAX), News::NotHere);
}
