//! Decisions over all blocks: a block that waits for one, and the scalar block that makes them.

use super::*;
use crate::block::primary::PlacedCopy;
use shoal_runtime::cluster::decisions::{LossScale, NonFinite};
use shoal_runtime::cluster::{Decision, Decisions, Partial};

const ROOT: Node = Node { level: 1, index: 0 };

fn decisions() -> Decisions {
    Decisions {
        clip_norm: Some(1.0),
        non_finite: NonFinite::Skip { in_a_row_max: 2 },
        loss_scale: Some(LossScale { initial: 4.0, growth_interval: 100 }),
    }
}

/// The tests' parameters, the metric's block 1, and the scalar block 2.
fn deciding() -> Declaration {
    declaration().deciding(decisions())
}

fn partial(sum_of_squares: f64) -> Partial {
    Partial { sum_of_squares, is_finite: true, weight: 2 }
}

/// Both other blocks tell of a step.
fn tell(scalars: &mut Block, step: u64, sum_of_squares: f64) -> Result<PartialsOutcome, Refusal> {
    let partials = [(BlockId(0), partial(sum_of_squares)), (BlockId(1), partial(0.0))];
    scalars.tell_partials(Rewind(1), Step(step), &partials, 2)
}

fn decision(scalars: &Block, step: u64) -> Option<Decision> {
    let bytes = scalars.decided(Rewind(1), Step(step)).unwrap()?;
    Decision::from_values(&values(&bytes))
}

#[test]
fn a_step_is_applied_when_it_is_decided_and_as_it_is() {
    let job = job(8, 2);
    let mut block = block_of(&job, &deciding(), BlockId(0));
    let before = current(&block);
    let outcome = push(&mut block, 0, ROOT, 2, &[3.0, 4.0, 0.0, 0.0, 0.0, 0.0]).unwrap();
    assert_eq!((outcome, block.published()), (PushOutcome::Whole { replaced: 0 }, Version(0)));
    let (rewind, step, told) = block.undecided().unwrap();
    assert_eq!((rewind, step, told), (Rewind(1), Step(0), partial(25.0)));
    let made = Decision { factor: 0.5, ..decisions().initial() };
    // Of another history, of another step: nothing it waits for.
    block.decide(Rewind(2), Step(0), made);
    block.decide(Rewind(1), Step(1), made);
    assert_eq!(block.published(), Version(0));
    block.decide(Rewind(1), Step(0), made);
    assert_eq!((block.published(), block.undecided()), (Version(1), None));
    // "plain" is SGD at a rate of 0.1: the mean 1.5, halved.
    assert!((current(&block)[0] - (before[0] - 0.075)).abs() < 1e-6);
    let late = push(&mut block, 0, ROOT, 2, &[3.0, 4.0, 0.0, 0.0, 0.0, 0.0]).unwrap();
    assert_eq!(late, PushOutcome::Late);
}

#[test]
fn a_skipped_step_makes_a_version_and_changes_nothing() {
    let mut block = block_of(&job(8, 2), &deciding(), BlockId(0));
    let before = state(&block);
    let words = words(&[f32::NAN, 1.0, 1.0, 1.0, 1.0, 1.0]);
    let arriving = NodeGradient {
        step: Step(0),
        node: ROOT,
        weight: 2,
        gradient: Gradient::Words(words.clone(), Precision::F32),
    };
    block.shape.check_values(&words, false, "a step that may be skipped").unwrap();
    block.push(Rewind(1), arriving).unwrap();
    assert!(!block.undecided().unwrap().2.is_finite);
    block.decide(Rewind(1), Step(0), Decision { is_skipped: true, ..decisions().initial() });
    let after = state(&block);
    assert_eq!(after.name.version, Version(1));
    assert_eq!((after.parameters, after.slots), (before.parameters, before.slots));
}

#[test]
fn the_scalar_block_decides_when_all_others_have_told_and_keeps_what_it_decided() {
    let job = delayed(job(40, 2), 1);
    let mut scalars = block_of(&job, &deciding(), BlockId(2));
    let one = scalars.tell_partials(Rewind(1), Step(0), &[(BlockId(0), partial(1.0))], 2).unwrap();
    assert_eq!((one, decision(&scalars, 0)), (PartialsOutcome::Taken, None));
    assert_eq!(tell(&mut scalars, 0, 1.0).unwrap(), PartialsOutcome::Decided);
    // sqrt(1) / 2 records / scale 4: below the limit.
    assert_eq!(decision(&scalars, 0).map(|made| (made.norm, made.factor)), Some((0.125, 0.25)));
    for step in 1..6 {
        assert_eq!(tell(&mut scalars, step, 6400.0).unwrap(), PartialsOutcome::Decided);
    }
    let made = decision(&scalars, 5).unwrap();
    assert!((made.norm - 10.0).abs() < 1e-5 && (made.factor * 4.0 - 0.1).abs() < 1e-6, "{made:?}");
    // As many as states are kept: three before the newest, with a delay of 1.
    assert_eq!([2, 3, 4, 5].map(|step| decision(&scalars, step).is_some()), [true; 4]);
    assert_eq!(scalars.decided(Rewind(1), Step(1)).unwrap_err().kind, RefusalKind::StepGone);
    // Told again, it changes nothing.
    assert_eq!(tell(&mut scalars, 5, 6400.0).unwrap(), PartialsOutcome::Taken);
    assert_eq!(decision(&scalars, 5), Some(made));
}

#[test]
fn two_results_of_one_block_for_one_step_that_differ_are_refused() {
    let mut scalars = block_of(&job(8, 2), &deciding(), BlockId(2));
    scalars.tell_partials(Rewind(1), Step(0), &[(BlockId(0), partial(1.0))], 2).unwrap();
    let undecided = tell(&mut scalars, 0, 2.0).unwrap_err();
    tell(&mut scalars, 0, 1.0).unwrap();
    let decided = tell(&mut scalars, 0, 2.0).unwrap_err();
    assert_eq!([undecided.kind, decided.kind], [RefusalKind::Nondeterministic; 2]);
    assert_eq!(tell(&mut scalars, 0, 1.0).unwrap(), PartialsOutcome::Taken);
}

#[test]
fn what_is_of_another_history_or_too_early_is_not_taken() {
    let mut scalars = block_of(&job(8, 2), &deciding(), BlockId(2));
    let told = [(BlockId(0), partial(1.0)), (BlockId(1), partial(0.0))];
    for (rewind, step) in [(0, 0), (2, 0), (1, 1)] {
        let before = digest(&scalars);
        assert_eq!(
            scalars.tell_partials(Rewind(rewind), Step(step), &told, 2).unwrap(),
            PartialsOutcome::NotHere
        );
        assert_eq!((digest(&scalars), scalars.decided(Rewind(rewind), Step(step)).unwrap()), (before, None));
    }
}

#[test]
fn a_decision_is_told_when_the_copies_have_it() {
    let job = job(8, 2);
    let follower = Incarnation(9);
    let copy = PlacedCopy { pserver: follower, fill: Fill(1), is_in_sync: true };
    let placement = Placement { copies: vec![copy], ..alone(1) };
    let terms = Arc::new(BlockSettings::new(&job, 16));
    let mut scalars = Block::new(shape_of(&deciding(), BlockId(2)), terms, placement, ME);
    scalars.restore_initial(Term(1));
    let name =
        |version| Some(Cursor { name: StateName { term: Term(1), version: Version(version) }, filled: None });
    scalars.follow(follower, Fill(1), Term(1), name(0), usize::MAX);
    assert_eq!(tell(&mut scalars, 0, 1.0).unwrap(), PartialsOutcome::Decided);
    assert_eq!(decision(&scalars, 0), None, "its copy lacks it");
    scalars.follow(follower, Fill(1), Term(1), name(1), usize::MAX);
    assert!(decision(&scalars, 0).is_some());
}

#[test]
fn more_skipped_steps_in_a_row_than_are_allowed_end_the_job() {
    let mut scalars = block_of(&job(40, 2), &deciding(), BlockId(2));
    let broken = [(BlockId(0), Partial { is_finite: false, ..partial(0.0) }), (BlockId(1), partial(0.0))];
    for step in 0..2 {
        assert_eq!(
            scalars.tell_partials(Rewind(1), Step(step), &broken, 2).unwrap(),
            PartialsOutcome::Decided
        );
        assert!(decision(&scalars, step).unwrap().is_skipped);
    }
    assert_eq!(scalars.tell_partials(Rewind(1), Step(2), &broken[..1], 2).unwrap(), PartialsOutcome::Taken);
    let before = format!("{scalars:?}");
    let refusal = scalars.tell_partials(Rewind(1), Step(2), &broken, 2).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::JobFailed);
    assert!(refusal.to_string().contains("step 2") && refusal.to_string().contains("learning rate"));
    assert_eq!(format!("{scalars:?}"), before, "a refused word is not kept");
}
