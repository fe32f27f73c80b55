//! When a job goes back: what was leased is void, what was complete is not, and nobody is told before it is written.

use super::*;

fn rewinds(job: &Job) -> Vec<Rewind> {
    job.document().blocks.iter().map(|block| block.rewind).collect()
}

#[test]
fn a_rewind_voids_every_lease_and_tasks_carry_the_new_rewind_number() {
    let (mut job, [p0, _], a) = training();
    job.publish_everywhere(1, 1);
    let before = only_task(job.call(a, 1, &[], 1));
    let first_rewind = work(&before).2;
    assert_eq!((step(&before), vec![first_rewind; 5]), (Step(1), rewinds(&job)));
    let p1 = job.pserver("p1", 2, 2).unwrap();
    let rewind = Rewind(job.document().routing_version);
    assert_eq!(rewinds(&job), [rewind; 5]);
    assert_eq!(job.job.as_ref().unwrap().dispatch.in_hand(a), 0);
    assert_eq!((job.front(), job.records_trained()), (Step(0), 0));
    assert_eq!(job.call(a, 2, &[knows(&before)], 3), LeaseOutcome::Wait);
    job.publish(p0, 0, 4);
    assert_eq!(job.call(a, 3, &[knows(&before)], 4), LeaseOutcome::Wait, "p1 is unheard of in this history");
    job.publish(p1, 0, 5);
    let again = only_task(job.call(a, 4, &[knows(&before)], 5));
    assert_eq!(work(&again), (Step(0), node(3, 0), rewind));
    assert!(rewind > first_rewind && again.lease > before.lease);
}

#[test]
fn words_of_the_history_before_do_not_count_in_the_new_one() {
    let (mut job, [p0, _], a) = training();
    let of_old = job.standing(p0, 7);
    let p1 = job.pserver("p1", 2, 2).unwrap();
    job.publish(p1, 0, 3);
    job.say(p0, of_old, 3);
    assert_eq!((job.front(), job.call(a, 1, &[], 3)), (Step(0), LeaseOutcome::Wait));
}

#[test]
fn a_job_that_was_restored_late_in_its_history_goes_on_from_there() {
    let (mut job, [p0, _], a) = training();
    job.publish_everywhere(3, 1);
    let p1 = job.pserver("p1", 2, 2).unwrap();
    job.publish(p0, 2, 3);
    job.publish(p1, 2, 3);
    assert_eq!(job.front(), Step(2));
    assert_eq!(step(&only_task(job.call(a, 1, &[], 4))), Step(2));
}

#[test]
fn nothing_is_leased_before_every_block_was_heard_of_under_its_term() {
    let mut job = waiting(2);
    let [p0, p1] = ["p0", "p1"].map(|name| job.pserver(name, 1, 0).unwrap());
    let a = job.trainer("a", 1, 0).unwrap();
    job.publish(p0, 0, 0);
    let (mut all, mut call) = (job.standing(p1, 0), 0);
    let last = all.pop().unwrap();
    let of_other_terms = [Term(0), Term(last.term.0 + 1)].map(|term| progress(last.blocks[0].0, term, 0));
    all.extend(of_other_terms);
    let mut ask = |job: &mut Job| {
        call += 1;
        job.call(a, call, &[], 0)
    };
    assert_eq!(ask(&mut job), LeaseOutcome::Wait);
    job.say(p1, all, 0);
    assert_eq!(ask(&mut job), LeaseOutcome::Wait);
    job.say(p0, vec![last.clone()], 0);
    assert_eq!(ask(&mut job), LeaseOutcome::Wait, "p0 does not lead that block");
    job.say(p1, vec![last], 0);
    only_task(ask(&mut job));
}

#[test]
fn an_end_is_told_only_once_it_is_written() {
    let (mut job, [p0, p1], a) = training();
    let steps = job.settings().steps();
    job.publish(p0, steps, 1);
    let word = job.word(p1, steps);
    job.hear(p1, word, 2).unwrap();
    assert_eq!((job.phase(), job.call(a, 1, &[], 2)), (Phase::Training, LeaseOutcome::Wait));
    let named = job.decide(at(2)).unwrap();
    assert_eq!((named.end.clone(), named.named.map(|named| named.version.0)), (None, Some(steps)));
    job.adopt(named, at(2));
    assert!(write_checkpoint(&mut job.machine, at(2)));
    let kept = job.decide(at(2)).unwrap();
    assert_eq!((kept.end.clone(), kept.checkpoints.len()), (None, 1));
    job.adopt(kept, at(2));
    let document = job.decide(at(2)).unwrap();
    assert_eq!(document.end, Some(End::Done));
    assert_eq!(job.phase(), Phase::Training, "decided is not written");
    job.adopt(document, at(3));
    assert_eq!((job.phase(), job.call(a, 2, &[], 3)), (Phase::Done, LeaseOutcome::Done));
    job.lose_pserver(p0);
    job.lose_pserver(p1);
    assert_eq!(job.decide(at(99_000)), None, "what has ended does not change");
}

#[test]
fn a_job_that_was_complete_while_its_rewind_was_being_written_is_not_done() {
    let (mut job, [p0, p1], a) = training();
    let steps = job.settings().steps();
    job.lose_pserver(p1);
    job.settle(0);
    let (first, last) = (job.word(p0, steps), job.word(p1, steps));
    job.report(p0, first.clone(), 1000).unwrap();
    job.hear(p0, first, 2000).unwrap();
    let rewinding = job.decide(at(2000)).unwrap();
    assert!(rewinding.blocks.iter().all(|block| block.rewind.0 == rewinding.routing_version));
    job.hear(p1, last, 3000).unwrap();
    assert_eq!(job.front(), Step(steps), "the lost pserver has spoken after all");
    job.adopt(rewinding, at(3000));
    job.settle(3000);
    assert_eq!((job.phase(), job.front(), &job.document().end), (Phase::Training, Step(0), &None));
    job.publish_everywhere(0, 3001);
    assert_eq!(step(&only_task(job.call(a, 1, &[], 3001))), Step(0));
    job.publish_everywhere(steps, 3002);
    assert_eq!(job.phase(), Phase::Done);
}

#[test]
fn a_failure_is_written_down_and_lasts_over_a_change_of_masters() {
    let (mut job, [p0, _], a) = training();
    for failure in ["block 3: no", "and then another, before the first was written"] {
        job.hear(p0, PserverWord { failure: failure.into(), ..PserverWord::default() }, 1).unwrap();
    }
    job.settle(1);
    assert_eq!(job.document().end, Some(End::Failed("block 3: no".into())));
    job.restart("m2", 10);
    assert_eq!(job.phase(), Phase::Failed("block 3: no".into()));
    assert_eq!(job.lease(a, 1, 1, at(10)), LeaseOutcome::Failed("block 3: no".into()));
}

#[test]
fn a_block_whose_pserver_comes_back_in_time_takes_nobody_back() {
    let (mut job, [p0, p1], _) = training();
    let before = job.document().blocks.clone();
    job.publish(p0, 1, 1000);
    job.pass(TTL_MILLIS + 1);
    assert_eq!(job.pservers.get(p1).unwrap().state, State::Lost);
    job.publish(p1, 1, TTL_MILLIS + 100);
    job.publish(p0, 1, TTL_MILLIS + 100);
    assert_eq!((job.front(), &job.document().blocks), (Step(1), &before));
    // A second silence has a patience of its own.
    job.publish(p0, 1, 3000);
    job.pass(2 * TTL_MILLIS + 100);
    assert_eq!(job.pservers.get(p1).unwrap().state, State::Lost);
    assert_eq!(job.document().blocks, before);
    job.publish(p0, 1, 4000);
    job.pass(3 * TTL_MILLIS + 99);
    assert_eq!(job.document().blocks, before);
    job.pass(3 * TTL_MILLIS + 100);
    assert_ne!(job.document().blocks, before);
}

#[test]
fn a_master_that_heard_nobody_for_long_waits_for_the_others_of_the_first_that_it_hears() {
    let (mut job, [p0, p1], _) = training();
    let before = job.document().blocks.clone();
    let silence = 10 * TTL_MILLIS;
    job.pass(silence);
    assert_eq!(job.pservers.live_count(), 0);
    job.publish(p1, 0, silence);
    job.publish(p0, 0, silence + TTL_MILLIS - 1);
    job.publish(p1, 0, silence + TTL_MILLIS - 1);
    job.pass(silence + 2 * TTL_MILLIS - 2);
    assert_eq!(job.document().blocks, before, "nobody goes back for a cable of the master's");
}

#[test]
fn with_nobody_to_restore_to_a_lost_job_waits_and_goes_on_with_the_first_who_comes() {
    let (mut job, [p0, p1], _) = training();
    job.lose_pserver(p0);
    job.lose_pserver(p1);
    job.settle(1);
    job.pass(50_000);
    assert_eq!((job.phase(), job.blocks_of(p0).len() + job.blocks_of(p1).len()), (Phase::Training, 5));
    let fresh = job.pserver("p7", 1, 60_000).unwrap();
    job.pass(60_000 + TTL_MILLIS - 1);
    assert_eq!(job.blocks_of(fresh).len(), 0, "others may come");
    job.pserver("p7", 1, 60_000 + TTL_MILLIS - 1).unwrap();
    job.pass(60_000 + TTL_MILLIS);
    assert_eq!(job.blocks_of(fresh).len(), 5, "one fewer than wanted, but patience is over");
}
