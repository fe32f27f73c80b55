//! Traces about delayed gradients: numbers 11, 12 and 22, a checkpoint that carries too little.

use super::trace::{A, B, ONE_TWICE, SYNC, needs, needs_either};
use shoal_tests::model::{Fault, Rule, Rules, Script, Shape};

/// Steps read the version before the one that they are applied to.
const DELAYED: Shape = Shape { delay: 1, ..SYNC };

/// Trace 11. A at 3, B at 1, and the only trainer that has B's gradient of step 1 dies.
fn loss_of_a_delayed_gradient(rules: Rules) -> Script {
    let mut s = Script::begin(DELAYED, rules);
    s.train(0, 0);
    s.compute(0, 1);
    s.compute(0, 2);
    s.push(0, 1, A);
    s.push(0, 2, A);
    s.crash_trainer(0);
    s
}

/// Trace 11 on a follower: A's primary dies as well.
fn loss_of_a_delayed_gradient_and_a_primary(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { followers: 1, ..DELAYED }, rules);
    s.copy(A, 2);
    for step in 0..3 {
        s.compute(0, step);
        s.push(0, step, A);
        s.follow(A, 2);
        s.follow(A, 2);
        if step == 0 {
            s.push(0, step, B);
        }
    }
    s.crash_trainer(0);
    s.crash(0);
    s.lose(0, 0);
    s
}

/// Trace 11 on a copy that is filled then: A moves.
fn loss_of_a_delayed_gradient_and_a_move(rules: Rules) -> Script {
    let mut s = loss_of_a_delayed_gradient(rules);
    s.copy(A, 2);
    s.hand_over(A, 2);
    s.tell_all();
    s.drop_copy(A, 0);
    s
}

#[test]
fn as_many_earlier_states_are_kept_as_a_lost_gradient_needs() {
    needs(Rule::EarlierStatesKept, Fault::CannotFinish, loss_of_a_delayed_gradient);
    needs(Rule::EarlierStatesKept, Fault::CannotFinish, loss_of_a_delayed_gradient_and_a_primary);
    needs(Rule::PreviousOnFollowers, Fault::CannotFinish, loss_of_a_delayed_gradient_and_a_primary);
    needs(Rule::PreviousOnFollowers, Fault::CannotFinish, loss_of_a_delayed_gradient_and_a_move);
}

/// Step 2 reads version 1, which a checkpoint at 2 has to carry.
fn restore_under_delay(rules: Rules) -> Script {
    let mut s = Script::begin(DELAYED, rules);
    s.name(2);
    s.tell_all();
    s.train(0, 0);
    s.train(0, 1);
    s.supply(A);
    s.supply(B);
    s.commit();
    s.crash(0);
    s.lose(0, 0);
    s
}

#[test]
fn a_checkpoint_carries_the_states_that_its_next_steps_read() {
    needs(Rule::PiecesCarryEarlier, Fault::CannotFinish, restore_under_delay);
}

/// Trace 12. The first follower has versions 1 and 2, the second none, and two primaries die.
fn promotion_two_versions_ahead(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { delay: 1, ..ONE_TWICE }, rules);
    s.copy(A, 1);
    s.copy(A, 2);
    for step in 0..2 {
        s.compute(0, step);
        s.push(0, step, A);
        s.follow(A, 1);
    }
    s.crash(0);
    s.lose(0, 0);
    s.tell(1);
    s.inform();
    s.push(0, 0, A);
    s.crash(1);
    s.lose(1, 0);
    s
}

#[test]
fn a_promoted_copy_serves_what_it_was_told_of_or_is_one_update_ahead_at_most() {
    needs_either([Rule::OneUnpublished, Rule::PromotedServesTold], Fault::Gone, promotion_two_versions_ahead);
}

/// Trace 22. Step 1 is short; half of step 2 comes while the block is at 1.
fn half_a_step_beside_a_short_one(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { blocks: 1, slots: 2, short: Some(1), ..DELAYED }, rules);
    s.train(0, 0);
    s.compute(0, 1);
    s.compute_nodes(0, 2, 1);
    s.push(0, 2, A);
    s.push(0, 1, A);
    s
}

#[test]
fn absence_belongs_to_the_step_of_the_node() {
    needs(Rule::AbsenceByStep, Fault::Incomplete, half_a_step_beside_a_short_one);
}
