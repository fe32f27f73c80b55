//! Traces about copies: numbers 2 to 6, fills and admissions, questions and answers that come late.

use super::trace::{A, ASYNC, B, ONE, ONE_TWICE, SYNC, ends_well, needs};
use shoal_tests::model::{Fault, Rule, Rules, Script, Shape};

/// Trace 2. B is at 1 and its step-0 gradient is lost to A, when B's primary dies.
fn death_of_the_primary_ahead(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { followers: 1, ..SYNC }, rules);
    s.copy(B, 2);
    s.compute(0, 0);
    s.push(0, 0, B);
    s.follow(B, 2);
    s.follow(B, 2);
    s.crash_trainer(0);
    s.crash(1);
    s.lose(1, 0);
    s
}

/// Trace 2, second form. B moves instead.
fn move_of_the_block_ahead(rules: Rules) -> Script {
    let mut s = Script::begin(SYNC, rules);
    s.compute(0, 0);
    s.push(0, 0, B);
    s.crash_trainer(0);
    s.copy(B, 2);
    s.hand_over(B, 2);
    s.tell_all();
    s.drop_copy(B, 1);
    s
}

#[test]
fn followers_carry_the_previous_state() {
    needs(Rule::PreviousOnFollowers, Fault::CannotFinish, death_of_the_primary_ahead);
    needs(Rule::PreviousOnFollowers, Fault::CannotFinish, move_of_the_block_ahead);
}

/// Trace 3. A metric at 0 moves from the pserver that has not answered to the one that has.
fn move_between_two_answers(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { metric: true, ..SYNC }, rules);
    s.compute(0, 0);
    s.push(0, 0, A);
    s.crash_trainer(0);
    s.ask(1, 1);
    s.ask_all(1, 0);
    s.copy(B, 0);
    s.hand_over(B, 0);
    s.tell_all();
    s.drop_copy(B, 1);
    s.tell_all();
    s.ask_all(1, 1);
    s.ask_all(1, 2);
    s.compute_asked(1);
    s.push(1, 1, A);
    s.crash_trainer(1);
    s
}

#[test]
fn a_step_begins_when_every_block_is_published_not_every_pserver() {
    needs(Rule::PublishedPerBlock, Fault::CannotFinish, move_between_two_answers);
}

/// Trace 4. A copy is removed and added again; the primary hears of the second only.
fn acknowledgement_of_an_earlier_fill(rules: Rules) -> Script {
    let mut s = Script::begin(ONE, rules);
    s.copy(A, 1);
    s.compute(0, 0);
    s.push(0, 0, A);
    s.follow(A, 1);
    s.follow(A, 1);
    s.ask(0, 1);
    s.lose(1, 0);
    s.add(A, 1);
    s.tell(1);
    s.tell(0);
    s.admit(A, 0);
    s
}

#[test]
fn an_acknowledgement_is_for_one_fill() {
    needs(Rule::AcksByFill, Fault::Gone, acknowledgement_of_an_earlier_fill);
}

/// Trace 5. A request for admission arrives after its copy was added again.
fn admission_of_an_earlier_fill(rules: Rules) -> Script {
    let mut s = Script::begin(ONE, rules);
    s.add(A, 1);
    s.tell_all();
    s.follow(A, 1);
    s.follow(A, 1);
    let late = s.admit_late(A, 0);
    s.lose(1, 0);
    s.add(A, 1);
    s.tell(0);
    s.arrive(&late);
    s.train(0, 0);
    s
}

/// Trace 5, second form. It arrives after a promotion.
fn admission_of_an_earlier_term(rules: Rules) -> Script {
    let mut s = Script::begin(ONE_TWICE, rules);
    s.copy(A, 1);
    s.add(A, 2);
    s.tell_all();
    s.follow(A, 2);
    s.follow(A, 2);
    let late = s.admit_late(A, 0);
    s.lose(0, 0);
    s.tell_all();
    s.train(0, 0);
    s.arrive(&late);
    s
}

#[test]
fn an_admission_names_fill_term_and_primary() {
    needs(Rule::AdmissionFenced, Fault::Gone, admission_of_an_earlier_fill);
    needs(Rule::AdmissionFenced, Fault::Gone, admission_of_an_earlier_term);
}

/// Trace 6. The slice that dropped a copy arrives after the copy was added again.
fn late_drop(rules: Rules) -> Script {
    let mut s = Script::begin(ONE, rules);
    s.copy(A, 1);
    s.lose(1, 0);
    let late = s.tell_late(1);
    s.copy(A, 1);
    s.compute(0, 0);
    s.push(0, 0, A);
    s.follow(A, 1);
    s.follow(A, 1);
    s.ask(0, 1);
    s.arrive(&late);
    s
}

#[test]
fn a_late_drop_does_not_touch_a_copy_that_was_added_later() {
    needs(Rule::SlicesInOrder, Fault::Gone, late_drop);
}

/// The primary publishes between asking for an admission and the admission.
fn publication_before_an_admission(rules: Rules) -> Script {
    let mut s = Script::begin(ONE, rules);
    s.add(A, 1);
    s.tell_all();
    s.follow(A, 1);
    s.follow(A, 1);
    let late = s.admit_late(A, 0);
    s.train(0, 0);
    s.arrive(&late);
    s
}

#[test]
fn a_copy_is_required_from_before_its_admission_is_asked() {
    needs(Rule::RequiredBeforeAsked, Fault::Gone, publication_before_an_admission);
}

/// A question that a copy asked long ago arrives again, when its answer is not kept any more.
fn late_question(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { followers: 1, ..ASYNC }, rules);
    s.copy(A, 1);
    s.compute(0, 0);
    s.push(0, 0, A);
    s.follow(A, 1);
    s.follow(A, 1);
    s.hand_over(A, 1);
    s.tell_all();
    let late = s.follow_late(A, 0);
    s.train(0, 1);
    s.arrive_again(&late);
    s.follow(A, 0);
    for unit in 2..4 {
        s.train(0, unit);
        s.follow(A, 0);
        s.follow(A, 0);
    }
    s.arrive(&late);
    s.crash(1);
    s.lose(1, 0);
    s
}

#[test]
fn a_copy_is_filled_afresh_for_its_present_state_only() {
    needs(Rule::DivergedIsPresent, Fault::SingleLoss, late_question);
}

/// A new copy is filled from a follower that lags. Names make this harmless: what does not fit is not appended.
fn fill_from_a_lagging_follower(rules: Rules) -> Script {
    let mut s = Script::begin(ONE_TWICE, rules);
    s.copy(A, 1);
    s.compute(0, 0);
    s.push(0, 0, A);
    s.add(A, 2);
    s.tell_all();
    s.fill_from(A, 2, 1);
    s.follow(A, 1);
    s.follow(A, 1);
    s.push(0, 0, A);
    s.follow(A, 2);
    s.admit(A, 0);
    s.crash(0);
    s.lose(0, 1);
    s
}

#[test]
fn a_fill_from_a_lagging_follower_is_harmless_where_states_have_names() {
    ends_well(Rules::all(), fill_from_a_lagging_follower);
    ends_well(Rules::without(Rule::FillsFromPrimary), fill_from_a_lagging_follower);
}
