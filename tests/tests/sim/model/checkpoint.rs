//! Traces about checkpoints, ledgers, the end, and two masters: numbers 10, 14, 15, 20 and 21.

use super::trace::{A, ASYNC, B, SYNC, needs};
use shoal_tests::model::{Fault, Rule, Rules, Script, Shape};

/// Trace 10. Step 1 is named when all blocks are at 2 and have let go of it at 3.
fn name_too_late(rules: Rules) -> Script {
    let mut s = Script::begin(SYNC, rules);
    (0..3).for_each(|step| s.train(0, step));
    s.name(1);
    s.tell_all();
    s
}

#[test]
fn a_checkpoint_that_was_named_too_late_is_abandoned() {
    needs(Rule::PassedIsAbandoned, Fault::CannotFinish, name_too_late);
}

/// Trace 14. "All applied" arrives after the block was lost and restored empty.
fn ledger_of_a_lost_block(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { blocks: 2, ..ASYNC }, rules);
    (0..4).for_each(|unit| s.train(0, unit));
    let late = s.ask_ledger_late(B);
    s.crash(1);
    s.lose(1, 1);
    s.tell_all();
    s.arrive(&late);
    s
}

#[test]
fn a_ledger_answer_counts_while_its_term_is_current() {
    needs(Rule::LedgerFencedByTerm, Fault::CannotFinish, ledger_of_a_lost_block);
}

/// Trace 15. A push of the first epoch arrives again in the second.
fn push_of_a_finished_epoch(rules: Rules) -> Script {
    let mut s = Script::begin(ASYNC, rules);
    s.compute(0, 0);
    let push = s.push_late(0, 0, A);
    s.arrive_again(&push);
    s.train(0, 1);
    s.train(0, 2);
    s.arrive(&push);
    s
}

#[test]
fn a_push_of_a_finished_epoch_does_not_apply_again() {
    needs(Rule::PositionsAbsolute, Fault::Twice, push_of_a_finished_epoch);
}

/// Trace 20. All pieces are there, the job goes back, and then the manifest is committed.
fn commit_after_a_rewind(rules: Rules) -> Script {
    let mut s = Script::begin(SYNC, rules);
    s.name(2);
    s.tell_all();
    s.train(0, 0);
    s.train(0, 1);
    s.supply(A);
    s.supply(B);
    s.crash(0);
    s.lose(0, 0);
    s.commit();
    s
}

#[test]
fn a_manifest_of_an_old_history_is_not_committed() {
    needs(Rule::CommitNeedsRewind, Fault::OldManifest, commit_after_a_rewind);
}

/// A piece holds an update that dies with the primary; the next checkpoint does not have it.
fn piece_of_an_unpublished_state(rules: Rules) -> Script {
    let mut s = Script::begin(Shape { followers: 1, ..ASYNC }, rules);
    s.copy(A, 1);
    s.train(0, 0);
    for number in 1..3 {
        s.name(number);
        s.tell_all();
        s.supply(A);
        s.commit();
        s.crash(0);
        s.lose(0, 0);
    }
    s
}

#[test]
fn a_durable_checkpoint_never_holds_less_than_the_one_before() {
    needs(Rule::PiecesArePublished, Fault::OldManifest, piece_of_an_unpublished_state);
}

/// Two masters and a block with one follower.
const TWO_MASTERS: Shape = Shape { blocks: 1, masters: 2, followers: 1, ..SYNC };

/// Trace 21. A deposed master names a checkpoint in the document that it remembers.
fn name_by_a_deposed_master(rules: Rules) -> Script {
    let mut s = Script::begin(TWO_MASTERS, rules);
    s.copy(A, 1);
    s.elect(1);
    s.lose(0, 0);
    s.tell_all();
    s.train(0, 0);
    s.lead(0);
    s.name(3);
    s.lead(1);
    s
}

#[test]
fn a_deposed_master_changes_nothing() {
    needs(Rule::SwapsCompare, Fault::Gone, name_by_a_deposed_master);
}

/// Trace 21, second form. A deposed master tells what it remembers.
fn slice_of_a_deposed_master(rules: Rules) -> Script {
    let mut s = Script::begin(TWO_MASTERS, rules);
    s.elect(1);
    s.copy(A, 1);
    s.compute(0, 0);
    s.push(0, 0, A);
    s.follow(A, 1);
    s.follow(A, 1);
    s.ask(0, 1);
    s.lead(0);
    s.tell(1);
    s.lead(1);
    s
}

#[test]
fn a_deposed_master_is_not_obeyed() {
    needs(Rule::SlicesInOrder, Fault::Gone, slice_of_a_deposed_master);
}

/// Everything is applied and published, and the trainers are sent home before the last checkpoint is durable.
fn loss_after_the_end(rules: Rules) -> Script {
    let mut s = Script::begin(SYNC, rules);
    (0..4).for_each(|step| s.train(0, step));
    s.end();
    s.tell_all();
    s.crash(0);
    s
}

#[test]
fn trainers_stay_until_the_last_checkpoint_is_durable() {
    needs(Rule::DoneAfterDurable, Fault::CannotFinish, loss_after_the_end);
}
