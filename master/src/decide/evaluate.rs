//! Judges an evaluation: its values become part of the document, and what lies beyond it is open. Pure.
//!
//! Once every block has applied it, so that it is of the present history whoever is lost from now on; where the best
//! checkpoint is kept, once the one at this evaluation is durable.

use super::Seen;
use crate::document::{Document, Evaluation, Value};
use shoal_runtime::cluster::{BlockId, Layout};
use std::collections::BTreeMap;

/// Sums of blocks that hold metrics: of which evaluation, and what.
pub type Sums = BTreeMap<BlockId, (u64, Vec<f32>)>;

/// Judges the next evaluation if it is whole.
pub(super) fn judge(next: &mut Document, seen: &Seen<'_>) {
    let number = next.evaluations.len() as u64;
    if number >= next.job.course().evaluations() || next.judged().last.is_some() {
        return;
    }
    let version = next.version_after(number);
    let is_applied = seen.front.is_some_and(|front| front >= version);
    let is_kept = || next.checkpoints.iter().any(|kept| kept.version == version);
    if !is_applied || (next.keeps_best() && !is_kept()) {
        return;
    }
    if let Some(values) = values(next, number, seen.sums) {
        next.evaluations.push(Evaluation { values });
    }
}

/// The value of each metric; none while sums are missing.
fn values(document: &Document, number: u64, sums: &Sums) -> Option<Vec<Value>> {
    let declaration = document.declaration.as_ref()?;
    let mut whole: Vec<Vec<f32>> =
        declaration.parameters.iter().map(|p| vec![0.0; p.elements() as usize]).collect();
    for (id, block) in Layout::new(declaration).iter().filter(|(_, block)| block.is_metric) {
        let (_, sums) = sums.get(&id).filter(|(of, sums)| *of == number && sums.len() == block.elements)?;
        block.scatter(sums, &mut whole);
    }
    let value = |declared: shoal_runtime::cluster::metric::Declared<'_>| {
        Value(declared.metric.value(&whole[declared.parameter]))
    };
    Some(declaration.metrics().map(value).collect())
}
