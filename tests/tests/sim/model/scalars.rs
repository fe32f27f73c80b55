//! Traces about decisions over all blocks: numbers 17, 18 and 19, decisions and partials that come late or are lost.

use super::trace::{A, B, S, SYNC, needs, needs_either};
use shoal_tests::model::{Fault, Rule, Rules, Script, Shape};

/// A sync job of two blocks and the scalar block, which is on pserver 2.
const DECIDED: Shape = Shape { blocks: 3, scalars: true, pservers: 4, ..SYNC };

/// Step 0 is with both blocks, and nothing is decided.
fn undecided(shape: Shape, rules: Rules) -> Script {
    let mut s = Script::begin(shape, rules);
    s.train(0, 0);
    s
}

#[test]
fn nothing_is_applied_before_it_is_decided() {
    needs(Rule::AppliedAsDecided, Fault::Undecided, |rules| undecided(DECIDED, rules));
}

/// Trace 17. A's partial is late; the job goes back; it meets B's new one.
fn late_partial_across_a_rewind(rules: Rules) -> Script {
    let mut s = undecided(DECIDED, rules);
    let late = s.partial_late(A);
    s.crash(1);
    s.lose(1, 0);
    s.tell_all();
    s.compute(1, 0);
    s.push(1, 0, B);
    s.partial(B);
    s.arrive(&late);
    s
}

#[test]
fn a_late_partial_from_before_a_rewind_is_refused() {
    needs(Rule::PartialsFenced, Fault::Mixed, late_partial_across_a_rewind);
}

/// What was decided before a rewind reaches B after it.
fn late_decision_across_a_rewind(rules: Rules) -> Script {
    let mut s = undecided(DECIDED, rules);
    s.partial(A);
    let late = s.partial_unanswered(B);
    s.crash(0);
    s.lose(0, 0);
    s.tell_all();
    s.compute(1, 0);
    s.push(1, 0, B);
    s.arrive(&late);
    s
}

#[test]
fn a_late_decision_from_before_a_rewind_is_refused() {
    needs(Rule::DecisionsFenced, Fault::Mixed, late_decision_across_a_rewind);
}

/// Trace 18. The scalar block's primary decides and dies, and its follower has heard of nothing.
fn death_of_who_decided(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { followers: 1, ..DECIDED }, rules);
    s.copy(S, 3);
    s.train(0, 0);
    s.partial(A);
    s.partial(B);
    s.crash(2);
    s.lose(2, 0);
    s
}

#[test]
fn a_decision_is_told_when_it_is_published() {
    needs(Rule::DecisionTellsPublished, Fault::CannotFinish, death_of_who_decided);
}

/// The scalar block's primary dies with A's partial.
fn death_of_who_collected(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { followers: 1, ..DECIDED }, rules);
    s.copy(S, 3);
    s.train(0, 0);
    s.partial(A);
    s.crash(2);
    s.lose(2, 0);
    s
}

#[test]
fn a_partial_is_sent_again_until_its_decision_comes() {
    needs(Rule::PartialSentAgain, Fault::CannotFinish, death_of_who_collected);
}

/// Trace 19. B's partial for step 1 goes out before its follower has step 0, and B's primary dies.
fn death_of_who_is_two_decisions_ahead(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { followers: 1, delay: 1, ..DECIDED }, rules);
    s.copy(B, 3);
    s.compute(0, 0);
    s.compute(0, 1);
    for step in 0..2 {
        for block in [A, B] {
            s.push(0, step, block);
        }
        s.partial(A);
        s.partial(B);
    }
    s.crash(1);
    s.lose(1, 0);
    s
}

#[test]
fn decisions_are_kept_or_none_is_asked_for_ahead_of_the_copies() {
    let rules = [Rule::DecisionsKept, Rule::PartialWhenPublished];
    needs_either(rules, Fault::CannotFinish, death_of_who_is_two_decisions_ahead);
}

/// B is not told the decision, and whoever is to tell it was filled and then promoted.
fn promotion_of_a_filled_scalar_block(rules: Rules) -> Script {
    let mut s = undecided(Shape { followers: 1, ..DECIDED }, rules);
    s.partial(B);
    let lost = s.partial_late(A);
    s.arrive_unanswered(&lost);
    s.copy(S, 3);
    s.crash(2);
    s.lose(2, 0);
    s
}

#[test]
fn a_decision_is_on_followers() {
    needs(Rule::PreviousOnFollowers, Fault::CannotFinish, promotion_of_a_filled_scalar_block);
}
