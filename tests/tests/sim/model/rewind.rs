//! Traces about going back: numbers 1, 7 and 9, late words to restarted pservers, restoring twice.

use super::trace::{A, ASYNC, B, SYNC, needs};
use shoal_tests::model::{Fault, Rule, Rules, Script, Shape};

/// Trace 1. A late push from before a rewind reaches a block that was redone one step further than another.
fn late_push_across_a_rewind(rules: Rules) -> Script {
    let mut s = Script::begin(SYNC, rules);
    s.train(0, 0);
    s.compute(0, 1);
    let late = s.push_late(0, 1, B);
    s.crash(0);
    s.lose(0, 0);
    s.tell_all();
    s.compute(1, 0);
    s.push(1, 0, B);
    s.crash_trainer(0);
    s.crash_trainer(1);
    s.arrive(&late);
    s
}

#[test]
fn a_late_push_from_before_a_rewind_is_refused() {
    needs(Rule::RewindFence, Fault::CannotFinish, late_push_across_a_rewind);
    needs(Rule::RewindFence, Fault::Mixed, late_push_across_a_rewind);
}

/// Trace 1, second form. A metric that is not restored yet answers for its old history, and the others run ahead.
fn answer_of_a_block_not_yet_restored(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { metric: true, ..SYNC }, rules);
    s.train(0, 0);
    s.train(0, 1);
    s.crash(0);
    s.lose(0, 1);
    s.tell(2);
    s.inform();
    s.train(1, 0);
    s.train(1, 1);
    s.tell(1);
    s.crash_trainer(0);
    s.crash_trainer(1);
    s
}

#[test]
fn a_block_that_is_not_yet_restored_answers_nothing() {
    needs(Rule::RewindFence, Fault::CannotFinish, answer_of_a_block_not_yet_restored);
}

/// Trace 7. The follower of a restored primary still has the old history and its mark.
fn follower_from_before_a_rewind(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { followers: 1, ..SYNC }, rules);
    s.copy(A, 2);
    for step in 0..2 {
        s.compute(0, step);
        s.push(0, step, A);
        s.push(0, step, B);
        s.follow(A, 2);
        s.follow(A, 2);
        s.push(0, step, A);
    }
    s.crash(1);
    s.lose(1, 0);
    s.tell(0);
    s.crash(0);
    s.lose(0, 0);
    s.crash_trainer(0);
    s
}

#[test]
fn a_rewind_leaves_no_follower_of_the_old_history() {
    needs(Rule::RewindRemovesCopies, Fault::CannotFinish, follower_from_before_a_rewind);
}

/// Trace 9. A second loss, after which only the lost block would go back.
fn loss_in_mid_rewind(rules: Rules) -> Script {
    let mut s = Script::begin(SYNC, rules);
    s.crash(0);
    s.lose(0, 1);
    s.tell_all();
    s.train(0, 0);
    s.train(0, 1);
    s.crash(1);
    s.lose(1, 1);
    s
}

#[test]
fn a_loss_during_a_rewind_takes_all_blocks_back_again() {
    needs(Rule::RewindRestoresAll, Fault::CannotFinish, loss_in_mid_rewind);
}

/// A late slice for the process that was there before makes its successor lead with an initial state.
fn slice_for_an_earlier_life(rules: Rules) -> Script {
    let mut s = Script::begin(ASYNC, rules);
    s.name(1);
    let late = s.tell_late(0);
    s.train(0, 0);
    s.crash(0);
    s.restart(0);
    s.arrive(&late);
    s.train(0, 1);
    s
}

#[test]
fn a_slice_for_an_earlier_life_is_ignored() {
    needs(Rule::SlicesNameIncarnations, Fault::TwoWriters, slice_for_an_earlier_life);
}

/// Any newer slice reaches a block that was restored and has moved on.
fn second_slice_of_a_term(rules: Rules) -> Script {
    let mut s = Script::begin(SYNC, rules);
    s.train(0, 0);
    s.name(3);
    s.tell(0);
    s
}

#[test]
fn a_block_is_restored_once_per_term() {
    needs(Rule::RestoreOncePerTerm, Fault::Gone, second_slice_of_a_term);
}
