//! Traces about exclusions: numbers 16, 20 and 21, lists that come late, a record that rots.

use super::trace::{A, ASYNC, B, SYNC, needs, needs_either};
use shoal_tests::model::{Fault, Rule, Rules, Script, Shape};

/// Trace 16. A push with the record reaches B, which has not heard, when A has applied the step without it.
fn push_with_the_record(rules: Rules) -> Script {
    let mut s = Script::begin(SYNC, rules);
    s.compute(0, 0);
    let late = s.push_late(0, 0, B);
    s.exclude(0);
    s.tell(0);
    s.inform();
    s.compute(1, 0);
    s.push(1, 0, A);
    s.arrive(&late);
    s
}

#[test]
fn an_exclusion_takes_all_blocks_back() {
    needs(Rule::ExclusionRewinds, Fault::Excluded, push_with_the_record);
}

/// A sync job with a durable checkpoint at 2; a later one is left to be named.
fn saved_at_2(rules: Rules) -> Script {
    let mut s = Script::begin(SYNC, rules);
    s.name(2);
    s.tell_all();
    s.train(0, 0);
    s.train(0, 1);
    s.supply(A);
    s.supply(B);
    s.commit();
    s
}

/// A master that has asked nobody hears that step 2 cannot be read; then a pserver dies.
fn exclusion_by_who_knows_nothing(rules: Rules) -> Script {
    let mut s = saved_at_2(rules);
    s.elect(0);
    s.exclude(2);
    s.tell_all();
    s.train(0, 0);
    s.train(0, 1);
    s.crash(0);
    s.lose(0, 0);
    s
}

#[test]
fn a_step_of_the_newest_checkpoint_is_not_excluded_from() {
    needs(Rule::ExclusionNotOfApplied, Fault::Undone, exclusion_by_who_knows_nothing);
}

/// Trace 20. Were it excluded from, the checkpoint must go.
#[test]
fn a_manifest_beyond_an_exclusion_does_not_bring_the_record_back() {
    let back = |rules| {
        let broken = exclusion_by_who_knows_nothing(rules).finish();
        broken.iter().any(|violation| violation.fault == Fault::Excluded)
    };
    let undone = Rules::without(Rule::ExclusionNotOfApplied);
    assert!(!back(undone), "the record is back though the manifest was dropped");
    assert!(back(undone.nor(Rule::ExclusionDropsManifests)), "the record is not back");
}

/// Trace 20, second form. All pieces at 2 are there, step 1 is excluded, and then the manifest is committed.
fn commit_after_an_exclusion(rules: Rules) -> Script {
    let mut s = Script::begin(SYNC, rules);
    s.name(2);
    s.tell_all();
    s.train(0, 0);
    s.ask_ledgers();
    s.train(0, 1);
    s.supply(A);
    s.supply(B);
    s.exclude(1);
    s.commit();
    s
}

#[test]
fn a_manifest_with_an_excluded_record_is_not_committed() {
    needs(Rule::CommitNeedsRewind, Fault::Excluded, commit_after_an_exclusion);
}

/// Trace 21. A deposed master names a checkpoint in the document that it remembers, in which nothing is excluded.
fn name_by_who_does_not_know(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { masters: 2, ..SYNC }, rules);
    s.elect(1);
    s.exclude(0);
    s.tell_all();
    s.train(0, 0);
    s.lead(0);
    s.name(3);
    s.lead(1);
    s
}

#[test]
fn a_deposed_master_does_not_take_an_exclusion_back() {
    needs(Rule::SwapsCompare, Fault::Excluded, name_by_who_does_not_know);
}

/// A trainer learns the rewind number that an exclusion made, and not what is excluded.
fn list_behind_the_routes(rules: Rules) -> Script {
    let mut s = Script::begin(SYNC, rules);
    s.exclude(0);
    s.tell_all();
    s.compute(0, 0);
    s.push(0, 0, A);
    s
}

/// The other node of the step is computed by a trainer that has learned it.
fn list_behind_one_of_two(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { slots: 2, ..SYNC }, rules);
    s.exclude(0);
    s.tell_all();
    s.compute_nodes(0, 0, 1);
    s.push(0, 0, A);
    s.inform();
    s.compute_nodes(1, 0, 2);
    s.push(1, 0, A);
    s
}

#[test]
fn an_exclusion_list_comes_with_the_rewind_number_or_is_asked_for() {
    needs_either([Rule::ListWithRewind, Rule::ListFencesPushes], Fault::Excluded, list_behind_the_routes);
    needs_either([Rule::ListWithRewind, Rule::ListFencesPushes], Fault::Mixed, list_behind_one_of_two);
}

/// Async: a push with the record reaches a block that has heard.
fn push_with_an_old_list(rules: Rules) -> Script {
    let mut s = Script::begin(ASYNC, rules);
    s.compute(0, 0);
    let late = s.push_late(0, 0, A);
    s.exclude(0);
    s.tell_all();
    s.arrive(&late);
    s
}

#[test]
fn a_block_that_was_told_of_an_exclusion_takes_no_push_from_before_it() {
    needs(Rule::ListFencesPushes, Fault::Excluded, push_with_an_old_list);
}

/// Step 3 cannot be read, nor can steps 1 and 2, which have to be done again.
fn record_that_rots(rules: Rules) -> Script {
    let mut s = Script::begin(SYNC, rules);
    s.name(1);
    s.tell_all();
    s.train(0, 0);
    s.supply(A);
    s.supply(B);
    s.commit();
    s.train(0, 1);
    s.train(0, 2);
    s.ask_ledgers();
    s.rot();
    s.exclude(3);
    s
}

#[test]
fn what_is_excluded_from_a_step_can_be_excluded_from_an_earlier_one() {
    needs(Rule::ExcludedEarlier, Fault::CannotFinish, record_that_rots);
}

/// Blocks said that all steps are applied, the job went back, and the answers are late.
fn front_from_before_a_rewind(rules: Rules) -> Script {
    let mut s = Script::begin(SYNC, rules);
    (0..4).for_each(|step| s.train(0, step));
    let late = [s.ask_ledger_late(A), s.ask_ledger_late(B)];
    s.crash(0);
    s.lose(0, 0);
    s.tell_all();
    late.iter().for_each(|answer| s.arrive(answer));
    s.rot();
    s
}

#[test]
fn what_is_applied_is_known_by_answers_of_the_present_term() {
    needs(Rule::LedgerFencedByTerm, Fault::CannotFinish, front_from_before_a_rewind);
}
