//! Steps that evaluate: who takes part in what, what lies beyond an evaluation, rates that follow from one.

use super::*;
use crate::block::evaluate::Verdicts;
use crate::block::primary::PlacedCopy;
use shoal_runtime::cluster::{Better, Evaluated, Metric, Period};

const ROOT: Node = Node { level: 1, index: 0 };
const TRAINED: [f32; 6] = [3.0, 4.0, 0.5, 1.0, -2.0, 1.0];
/// The block of the metric, behind the learnt ones and the counter.
const METRIC: BlockId = BlockId(2);

/// Steps: two that train, two that evaluate, and so on.
fn evaluated(job: JobSettings) -> JobSettings {
    JobSettings { evaluated: Some(Evaluated { records: 4, every: Period::Steps(2), outputs: None }), ..job }
}

fn measured() -> Declaration {
    let mut declaration = declaration();
    declaration.parameters.push(Parameter::metric("metric", Metric::Mean { better: Better::Larger }));
    declaration
}

fn evaluate(block: &mut Block, step: u64, weight: u64, sums: &[f32]) -> PushOutcome {
    let words = words(sums);
    block.shape.check_values(&words, true, "an evaluation").unwrap();
    let arriving = NodeGradient {
        step: Step(step),
        node: ROOT,
        weight,
        gradient: Gradient::Words(words.clone(), Precision::F32),
    };
    block.push(block.placement.rewind, arriving).unwrap()
}

fn judged(judged: u64, rates: &[(u64, f32)]) -> Verdicts {
    Verdicts { judged, rates: rates.to_vec() }
}

#[test]
fn who_takes_no_part_is_given_no_values_and_keeps_what_it_has() {
    let (job, declaration) = (evaluated(job(8, 2)), measured());
    let mut learnt = block_of(&job, &declaration, BlockId(0));
    let mut metric = block_of(&job, &declaration, METRIC);
    let words = words(&TRAINED);
    assert_eq!(learnt.shape.check_values(&words, true, "").unwrap_err().kind, RefusalKind::WrongShape);
    assert_eq!(metric.shape.check_values(&words[..2], false, "").unwrap_err().kind, RefusalKind::WrongShape);
    for step in 0..2 {
        push(&mut learnt, step, ROOT, 2, &TRAINED).unwrap();
        push(&mut metric, step, ROOT, 0, &[]).unwrap();
    }
    let before = state(&learnt);
    for (step, sums) in [(2, [1.0, 2.0]), (3, [0.5, 2.0])] {
        evaluate(&mut learnt, step, 0, &[]);
        evaluate(&mut metric, step, 2, &sums);
    }
    let after = state(&learnt);
    assert_eq!((after.parameters, after.slots), (before.parameters, before.slots));
    assert_eq!((learnt.published(), metric.published()), (Version(4), Version(4)));
    assert_eq!(current(&metric), [1.5, 4.0]);
    assert_eq!(metric.evaluated().unwrap().number, 0);
    assert_eq!(learnt.evaluated(), None);
}

#[test]
fn nothing_beyond_an_evaluation_is_taken_before_it_is_judged_and_sums_begin_anew_in_the_next() {
    let mut metric = block_of(&evaluated(job(8, 2)), &measured(), METRIC);
    for step in 0..2 {
        push(&mut metric, step, ROOT, 0, &[]).unwrap();
    }
    evaluate(&mut metric, 2, 2, &[1.0, 2.0]);
    assert_eq!(metric.evaluated(), None, "it is not whole");
    evaluate(&mut metric, 3, 2, &[1.0, 2.0]);
    let sums = metric.evaluated().unwrap().sums;
    assert_eq!(values(&sums), [2.0, 4.0]);
    assert_eq!(push(&mut metric, 4, ROOT, 0, &[]).unwrap(), PushOutcome::Busy);
    metric.learn(&judged(1, &[]));
    assert_eq!(metric.evaluated(), None, "the next one is still to come");
    for step in 4..6 {
        push(&mut metric, step, ROOT, 0, &[]).unwrap();
    }
    assert_eq!(current(&metric), [2.0, 4.0], "training leaves them");
    evaluate(&mut metric, 6, 2, &[7.0, 2.0]);
    assert_eq!(current(&metric), [7.0, 2.0]);
    // All of its records are left out: it is of nothing, and says so.
    evaluate(&mut metric, 7, 0, &[0.0, 0.0]);
    metric.learn(&judged(2, &[]));
    for step in 8..10 {
        push(&mut metric, step, ROOT, 0, &[]).unwrap();
    }
    evaluate(&mut metric, 10, 0, &[0.0, 0.0]);
    assert_eq!(current(&metric), [0.0, 0.0]);
}

/// The learnt parameters of an undisturbed job with these verdicts, after so many steps, and of one that trains alone.
fn trained(job: &JobSettings, verdicts: &Verdicts, steps: u64) -> Vec<f32> {
    let mut block = block_of(job, &measured(), BlockId(0));
    block.learn(verdicts);
    for step in 0..steps {
        match job.shape().evaluates(Step(step)) {
            true => assert!(matches!(evaluate(&mut block, step, 0, &[]), PushOutcome::Applied { .. })),
            false => assert!(push(&mut block, step, ROOT, 2, &TRAINED).is_ok()),
        }
    }
    current(&block)
}

#[test]
fn schedules_and_corrections_count_steps_that_train_and_rates_fall_after_the_evaluation_that_says_so() {
    let plain = job(8, 2);
    let all = judged(9, &[]);
    assert_eq!(trained(&evaluated(plain.clone()), &all, 8), trained(&plain, &all, 4));
    let lowered = judged(9, &[(0, 0.5)]);
    assert_eq!(
        trained(&evaluated(plain.clone()), &lowered, 4),
        trained(&evaluated(plain.clone()), &all, 4),
        "the rate holds from the next step on"
    );
    let before = trained(&evaluated(plain.clone()), &all, 4);
    let (full, half) = (trained(&evaluated(plain.clone()), &all, 5), trained(&evaluated(plain), &lowered, 5));
    // "plain" is SGD.
    let moved = |after: &[f32]| before[0] - after[0];
    assert!((moved(&half) - 0.5 * moved(&full)).abs() < 1e-6 && moved(&full) > 0.1);
}

#[test]
fn a_follower_makes_the_same_sums_and_is_told_the_rate() {
    let job = evaluated(job(8, 2));
    let all = [
        (METRIC, 2, &[5.0, 2.0][..], &[][..]),
        // Of no record: there is nothing to be added up.
        (METRIC, 0, &[5.0, 2.0], &[]),
        (BlockId(0), 0, &[], &TRAINED),
    ];
    for (id, evaluated, sums, gradient) in all {
        let follower = Incarnation(2);
        let copies = vec![PlacedCopy { pserver: follower, fill: Fill(1), is_in_sync: true }];
        let placement = Placement { copies, ..alone(1) };
        let terms = Arc::new(BlockSettings::new(&job, 16));
        let mut leader = Block::new(shape_of(&measured(), id), Arc::clone(&terms), placement.clone(), ME);
        leader.restore_initial(Term(1));
        leader.learn(&judged(9, &[(0, 0.25)]));
        // It has heard of no verdict.
        let mut copy = Block::new(shape_of(&measured(), id), terms, placement, follower);
        let mut follow = |leader: &mut Block| {
            for _ in 0..2 {
                let (_, _, cursor) = copy.cursor().unwrap();
                let news = leader.follow(follower, Fill(1), Term(1), cursor, usize::MAX);
                copy.hear(Fill(1), Term(1), leader.published(), news).unwrap();
            }
            let (_, _, cursor) = copy.cursor().unwrap();
            leader.follow(follower, Fill(1), Term(1), cursor, usize::MAX);
            assert_eq!(current(&copy), current(leader));
        };
        follow(&mut leader);
        let weight = |values: &[f32]| if values.is_empty() { 0 } else { 2 };
        for step in 0..6 {
            if job.shape().evaluates(Step(step)) {
                evaluate(&mut leader, step, evaluated, sums);
            } else {
                push(&mut leader, step, ROOT, weight(gradient), gradient).unwrap();
            }
            follow(&mut leader);
        }
        assert_eq!(leader.published(), Version(6));
    }
}

#[test]
fn positions_of_an_evaluation_add_up_in_any_order_and_nothing_beyond_it_is_taken() {
    // 8 microbatches train, 4 evaluate, 8 train, 4 evaluate.
    let every = Period::Epochs(1);
    let job = JobSettings {
        evaluated: Some(Evaluated { records: 4, every, outputs: None }),
        epochs: 2,
        ..async_job(8, 2, false)
    };
    let mut metric = block_of(&job, &measured(), METRIC);
    let mut give = |position: u64, sums: &[f32]| {
        let words = words(sums);
        let arriving = PositionGradient {
            position,
            version: Version(0),
            weight: 1,
            gradient: Gradient::Words(words.clone(), Precision::F32),
        };
        let outcome = metric.push_position(Rewind(1), arriving);
        (outcome, current(&metric), metric.evaluated().is_some())
    };
    for position in 0..8 {
        give(position, &[]);
    }
    for (position, sum) in [(10, 4.0), (8, 1.0), (11, 8.0)] {
        give(position, &[sum, 1.0]);
    }
    assert_eq!(give(12, &[]).0, PushOutcome::Busy);
    let (_, sums, is_whole) = give(9, &[2.0, 1.0]);
    assert_eq!((sums, is_whole), (vec![15.0, 4.0], true));
}
