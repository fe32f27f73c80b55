//! The losses that a training program counts in a parameter named "loss" with the rule `Sum`: sums over the records of
//! each step, or of each epoch; and where they are read: at the pservers of a job under way, in the model of one that is done.

use crate::at_rest::AtRest;
use crate::journal::Begun;
use anyhow::Context;
use shoal_runtime::cluster::plan::EpochShape;
use shoal_runtime::cluster::{BlockId, JobSettings, Rule, Step};
use shoal_runtime::host::rpc::Dial;
use shoal_runtime::wire::proto::StatusReply;
use std::path::Path;

/// Sums that are read of a job under way: 4 MiB.
const READ_MAX: usize = 1 << 20;

/// The parameter that is looked at.
pub const NAME: &str = "loss";

/// Summed losses, and what divides them.
#[derive(Clone, Debug)]
pub struct Losses {
    sums: Vec<f32>,
    shape: EpochShape,
    is_by_step: bool,
}

impl Losses {
    /// One sum for each step, or one for each epoch; none where it is neither.
    pub fn new(sums: Vec<f32>, shape: EpochShape, epochs: u64) -> Option<Losses> {
        let count = sums.len() as u64;
        let is_by_step = count == shape.steps() * epochs;
        (is_by_step || count == epochs).then_some(Losses { sums, shape, is_by_step })
    }

    /// Mean loss per record over half an epoch before `step`, or of the epoch before it.
    pub fn before(&self, step: u64) -> Option<f64> {
        if self.is_by_step {
            let window = (self.shape.steps() / 2).max(1);
            return self.mean(step.saturating_sub(window), step);
        }
        let epoch = (step / self.shape.steps().max(1)).checked_sub(1)?;
        let records = self.shape.positions(self.shape.microbatches().checked_sub(1)?).end;
        Some(f64::from(*self.sums.get(epoch as usize)?) / records as f64)
    }

    /// Mean losses per record of a model that has made `made` steps, each with the steps that were applied then: of every step or,
    /// where the whole job has more, of at most `points` stretches of steps; of every epoch where there is one sum for each. A stretch
    /// or an epoch that is not over is left out.
    pub fn curve(&self, points: u64, made: u64) -> Vec<(u64, f64)> {
        let steps = self.sums.len() as u64;
        if !self.is_by_step {
            let ends = (1..=steps).map(|epoch| epoch * self.shape.steps()).take_while(|step| *step <= made);
            return ends.filter_map(|step| Some((step, self.before(step)?))).collect();
        }
        let stretch = steps.div_ceil(points.max(1)).max(1);
        let ends = (1..=steps.div_ceil(stretch)).map(|end| (end * stretch).min(steps));
        let ends = ends.take_while(|step| *step <= made);
        ends.filter_map(|end| Some((end, self.mean((end - 1) / stretch * stretch, end)?))).collect()
    }

    /// Mean loss per record of the steps `from..to`.
    fn mean(&self, from: u64, to: u64) -> Option<f64> {
        let records = |step: u64| -> u64 {
            let slots = 0..self.shape.tree(Step(step)).present();
            slots
                .map(|slot| self.shape.positions(self.shape.microbatch(Step(step), slot)))
                .map(|positions| positions.end - positions.start)
                .sum()
        };
        let sum: f64 = self.sums.get(from as usize..to as usize)?.iter().map(|loss| f64::from(*loss)).sum();
        let count: u64 = (from..to).map(records).sum();
        (count > 0).then(|| sum / count as f64)
    }
}

/// What a job has counted up to the version that its status names; none where it counts none, or is not synchronous.
///
/// # Errors
/// A pserver that does not answer, or has gone on from that version.
pub async fn at_pservers(status: &StatusReply, dial: &dyn Dial) -> anyhow::Result<Option<Losses>> {
    let job = AtRest::of_job(status, dial)?;
    let settings = JobSettings::try_from(status.settings.clone().unwrap_or_default())?;
    let parameters = &job.declaration.parameters;
    let Some(at) =
        parameters.iter().position(|one| one.name == NAME && one.rule == Rule::Sum && one.table.is_none())
    else {
        return Ok(None);
    };
    let count = parameters[at].elements() as usize;
    if count > READ_MAX || !settings.is_sync() {
        return Ok(None);
    }
    let pieces_in = |block: BlockId| {
        let pieces = job.layout.block(block).into_iter().flat_map(|block| &block.pieces);
        pieces.filter(|piece| piece.parameter == at)
    };
    let blocks: Vec<BlockId> =
        job.blocks().into_iter().filter(|block| pieces_in(*block).next().is_some()).collect();
    let mut sums = vec![0.0; count];
    let read = job.read(&blocks, |copy, _| {
        let words = copy.parameters.as_chunks::<4>().0;
        for piece in pieces_in(BlockId(copy.block)) {
            let here = words.get(piece.range.clone()).context("a block is shorter than its layout")?;
            let sums = &mut sums[piece.first as usize..][..piece.range.len()];
            sums.iter_mut().zip(here).for_each(|(sum, word)| *sum = f32::from_le_bytes(*word));
        }
        Ok(())
    });
    read.await?;
    let epochs = status.settings.as_ref().map_or(0, |settings| settings.epochs);
    Ok(Losses::new(sums, settings.shape().training(), epochs))
}

/// What the program of a run that is done has counted, by the run's model; none where it has counted nothing.
pub fn in_model(model: &Path, begun: &Begun) -> Option<Losses> {
    let bytes = std::fs::read(model).ok()?;
    let model = safetensors::SafeTensors::deserialize(&bytes).ok()?;
    let tensor = model.tensor(NAME).ok().filter(|tensor| tensor.dtype() == safetensors::Dtype::F32)?;
    let sums = bytemuck::pod_collect_to_vec::<u8, f32>(tensor.data());
    if begun.microbatch_records == 0 || begun.microbatches_per_step == 0 {
        return None;
    }
    let shape = EpochShape::new(begun.records, begun.microbatch_records, begun.microbatches_per_step);
    Losses::new(sums, shape, begun.epochs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 records in steps of two microbatches of three, from lanes of four and three: 6, 6, 5, 3.
    fn losses(sums: &[f32]) -> Option<Losses> {
        Losses::new(sums.to_vec(), EpochShape::new(20, 3, 2), 2)
    }

    #[test]
    fn sums_of_steps_are_divided_by_the_records_of_those_steps() {
        let losses = losses(&[6.0, 12.0, 18.0, 4.0, 6.0, 6.0, 6.0, 2.0]).unwrap();
        assert_eq!(losses.before(0), None);
        assert_eq!(
            (losses.before(1), losses.before(2), losses.before(3)),
            (Some(1.0), Some(1.5), Some(30.0 / 11.0))
        );
        assert_eq!((losses.before(4), losses.before(8)), (Some(22.0 / 8.0), Some(1.0)));
        assert_eq!(losses.before(9), None, "there is no such step");
    }

    #[test]
    fn the_curve_has_a_point_for_each_step_or_stretch_of_steps_or_epoch() {
        let by_step = losses(&[6.0, 12.0, 18.0, 4.0, 6.0, 6.0, 6.0, 2.0]).unwrap();
        let curve = by_step.curve(100, 8);
        assert_eq!(curve.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((curve[0].1, curve[1].1), (1.0, 2.0));
        let short = by_step.curve(3, 8);
        assert_eq!(short, [(3, 36.0 / 17.0), (6, 16.0 / 15.0), (8, 8.0 / 8.0)]);
        assert_eq!(by_step.curve(3, 7), short[..2], "the last stretch is not over");
        assert_eq!(by_step.curve(100, 5), curve[..5], "no step that was not made");
        let by_epoch = losses(&[60.0, 20.0]).unwrap();
        assert_eq!(by_epoch.curve(1, 8), [(4, 3.0), (8, 1.0)]);
        assert_eq!(by_epoch.curve(1, 7), [(4, 3.0)]);
    }

    #[test]
    fn sums_of_epochs_are_known_when_the_epoch_is_over() {
        let losses = losses(&[60.0, 20.0]).unwrap();
        let before = [3, 4, 7, 8].map(|step| losses.before(step));
        assert_eq!(before, [None, Some(3.0), Some(3.0), Some(1.0)]);
    }

    #[test]
    fn what_is_neither_is_no_loss() {
        assert!(losses(&[1.0]).is_none() && losses(&[1.0; 3]).is_none());
    }
}
