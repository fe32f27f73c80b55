//! The definition of what is decided over all blocks, written once more: of one step, with everything in one place.

use super::{Sums, Trained};
use crate::sim::program::Program;
use shoal_runtime::cluster::layout::{BlockLayout, BucketOf};
use shoal_runtime::cluster::{Declaration, Layout, Rule};
use shoal_trainer_sdk::{Decisions, NonFinite};

/// The scale that a program multiplies its gradients with, at a version.
pub(super) fn loss_scale(trained: &[Trained], program: Program) -> f32 {
    // Declared last.
    let last = trained.last().filter(|_| program.decisions.is_some());
    last.map_or(1.0, |decisions| decisions.values[3])
}

/// A step of no record, or an evaluation: nothing is decided.
pub(super) fn go_by(declaration: &Declaration, trained: &mut [Trained]) {
    if declaration.decisions().is_some() {
        let state = &mut trained.last_mut().expect("a job has parameters").values;
        (state[0], state[1]) = (1.0, 0.0);
    }
}

/// Decides over one step's gradient sums and notes it. What the mean is multiplied with; none if the step is skipped.
pub(super) fn decide(
    declaration: &Declaration,
    trained: &mut [Trained],
    sums: &Sums,
    weight: u64,
    loss_scale: f32,
) -> Option<f32> {
    if weight == 0 {
        // Every record of the step is left out: no rule runs.
        go_by(declaration, trained);
        return None;
    }
    let Some(decisions) = declaration.decisions() else { return Some(1.0) };
    let state = &mut trained.last_mut().expect("a job has parameters").values;
    let rows = sums.rows.iter().flatten().flat_map(|(_, (_, sum))| sum);
    if sums.dense.iter().flatten().chain(rows).all(|sum| sum.is_finite()) {
        let norm = (total(declaration, sums).sqrt() / weight as f64 / f64::from(loss_scale)) as f32;
        Some(go_on(decisions, state, norm, loss_scale))
    } else {
        assert!(matches!(decisions.non_finite, NonFinite::Skip { .. }));
        let halved = if decisions.loss_scale.is_some() { state[3].min(loss_scale / 2.0) } else { 1.0 };
        let (skipped, clipped, in_a_row) = (state[5] + 1.0, state[6], state[7] + 1.0);
        *state = vec![1.0, 1.0, f32::INFINITY, halved, 0.0, skipped, clipped, in_a_row];
        None
    }
}

fn go_on(decisions: Decisions, state: &mut Vec<f32>, norm: f32, loss_scale: f32) -> f32 {
    let clip = match decisions.clip_norm {
        Some(most) if most / (norm + 1e-6) < 1.0 => most / (norm + 1e-6),
        _ => 1.0,
    };
    let (mut scale, mut steady) = (state[3], state[4] + 1.0);
    if let Some(growing) = decisions.loss_scale
        && steady >= growing.growth_interval as f32
    {
        (scale, steady) = (scale * 2.0, 0.0);
    }
    let clipped = state[6] + if clip < 1.0 { 1.0 } else { 0.0 };
    let (factor, skipped) = (clip / loss_scale, state[5]);
    *state = vec![factor, 0.0, norm, scale, steady, skipped, clipped, 0.0];
    factor
}

/// The sum of squares: per block in 32 lanes by the place among its trained elements, lanes in pairs, then blocks in order.
fn total(declaration: &Declaration, sums: &Sums) -> f64 {
    let mut total = 0.0;
    let decided = |block: &BlockLayout| block.is_pushed && !block.is_metric;
    for (_, block) in Layout::new(declaration).iter().filter(|(_, block)| decided(block)) {
        let (mut lanes, mut place) = ([0.0f64; 32], 0);
        for piece in &block.pieces {
            if declaration.parameters[piece.parameter].rule == Rule::Sum {
                continue;
            }
            for element in 0..piece.range.len() {
                let sum = f64::from(sums.dense[piece.parameter][piece.first as usize + element]);
                lanes[place % 32] += sum * sum;
                place += 1;
            }
        }
        if let Some(BucketOf { parameter, number }) = block.bucket {
            let table = declaration.parameters[parameter].table.unwrap_or_default();
            let is_trained = declaration.parameters[parameter].rule != Rule::Sum;
            let own = |key: &u64| is_trained && table.bucket_of(*key) == number;
            let rows = sums.rows[parameter].iter().filter(|(key, _)| own(key));
            for sum in rows.flat_map(|(_, (_, sum))| sum).map(|sum| f64::from(*sum)) {
                lanes[place % 32] += sum * sum;
                place += 1;
            }
        }
        total += fold(&lanes);
    }
    total
}

fn fold(lanes: &[f64]) -> f64 {
    match lanes {
        [lane] => *lane,
        _ => {
            let (left, right) = lanes.split_at(lanes.len() / 2);
            let pairs: Vec<f64> = left.iter().zip(right).map(|(left, right)| left + right).collect();
            fold(&pairs)
        }
    }
}
