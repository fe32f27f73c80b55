//! Traces about a change of primary, planned or not: numbers 8 and 13, copies that are ahead, behind, or elsewhere.

use super::trace::{A, ASYNC, ONE, ONE_TWICE, needs};
use shoal_tests::model::{Fault, Rule, Rules, Script, Shape};

/// Trace 8. The primary dies when one of two followers has its update.
fn promotion_of_the_furthest(rules: Rules) -> Script {
    let mut s = Script::begin(ONE_TWICE, rules);
    s.copy(A, 1);
    s.copy(A, 2);
    s.compute(0, 0);
    s.push(0, 0, A);
    s.follow(A, 1);
    s.crash(0);
    s.lose(0, 0);
    s.tell(1);
    s.inform();
    s.push(0, 0, A);
    s
}

#[test]
fn a_promoted_copy_publishes_more_only_when_all_in_sync_copies_hold_it() {
    needs(Rule::PromotedWaits, Fault::Gone, promotion_of_the_furthest);
}

/// Trace 13. A retry comes while nobody has acknowledged.
fn retry_before_an_acknowledgement(shape: Shape) -> impl Fn(Rules) -> Script {
    move |rules| {
        let mut s = Script::begin(shape, rules);
        s.copy(A, 1);
        s.compute(0, 0);
        s.push(0, 0, A);
        s.push(0, 0, A);
        s.crash(0);
        s
    }
}

#[test]
fn applied_speaks_of_the_published_version() {
    needs(Rule::AppliedMeansPublished, Fault::Gone, retry_before_an_acknowledgement(ONE));
    let asynchronous = Shape { followers: 1, ..ASYNC };
    needs(Rule::AppliedMeansPublished, Fault::Gone, retry_before_an_acknowledgement(asynchronous));
}

/// Of two followers the one without the update is promoted, and writes another under the same version.
fn divergent_past(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { followers: 2, ..ASYNC }, rules);
    s.copy(A, 1);
    s.copy(A, 2);
    s.compute(0, 0);
    s.push(0, 0, A);
    s.follow(A, 1);
    s.crash(0);
    s.lose(0, 1);
    s.tell_all();
    s.train(1, 1);
    s.follow(A, 1);
    s.push(1, 1, A);
    s
}

#[test]
fn an_entry_of_the_right_version_and_another_past_is_not_appended() {
    needs(Rule::EntriesNamePredecessor, Fault::Gone, divergent_past);
}

/// The primary dies while its only follower is being filled.
fn death_during_a_fill(rules: Rules) -> Script {
    let mut s = Script::begin(ONE, rules);
    s.train(0, 0);
    s.add(A, 1);
    s.tell_all();
    s.crash(0);
    s.lose(0, 0);
    s
}

#[test]
fn only_in_sync_copies_are_promoted() {
    needs(Rule::OnlyInSyncPromoted, Fault::Gone, death_during_a_fill);
}

/// What the predecessor published is not known to be published where a third copy asks for admission.
fn admission_below_the_promotion(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { pservers: 4, ..ONE_TWICE }, rules);
    s.copy(A, 1);
    s.copy(A, 2);
    s.add(A, 3);
    s.tell_all();
    s.follow(A, 3);
    s.compute(0, 0);
    s.push(0, 0, A);
    s.follow(A, 1);
    s.follow(A, 2);
    let (first, second) = (s.follow_late(A, 1), s.follow_late(A, 2));
    s.lose(0, 0);
    s.arrive(&first);
    s.arrive(&second);
    s.ask(1, 1);
    s.tell(1);
    s.tell(3);
    let _late = s.follow_unanswered(A, 3);
    s.admit(A, 1);
    s
}

#[test]
fn a_promoted_primary_admits_only_what_holds_all_that_it_was_promoted_with() {
    needs(Rule::AdmissionCoversPromotion, Fault::Gone, admission_below_the_promotion);
}

/// A move to a follower that is behind another one, and the loss of the new primary.
fn move_past_a_copy_ahead(rules: Rules) -> Script {
    let mut s = Script::begin(ONE, rules);
    s.copy(A, 1);
    s.copy(A, 2);
    s.follow(A, 1);
    s.compute(0, 0);
    s.push(0, 0, A);
    s.follow(A, 1);
    s.hand_over(A, 2);
    s.tell_all();
    s.follow(A, 0);
    s.follow(A, 1);
    s.crash(2);
    s.lose(2, 0);
    s
}

#[test]
fn a_planned_change_of_primary_leaves_no_copy_ahead() {
    needs(Rule::HandOverDrained, Fault::SingleLoss, move_past_a_copy_ahead);
}

/// A gradient is held by a primary that dies; nobody else has it.
fn death_of_a_primary_that_holds(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { trainers: 1, ..ONE }, rules);
    s.copy(A, 1);
    s.compute(0, 0);
    s.push(0, 0, A);
    s.crash(0);
    s
}

#[test]
fn a_held_gradient_is_pushed_again_under_a_new_term() {
    needs(Rule::HeldIsPushedAgain, Fault::CannotFinish, death_of_a_primary_that_holds);
}
