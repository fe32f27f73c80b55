//! The losses that a training program counts in a parameter named "loss" with the rule `Sum`: sums over the records of
//! each step, or of each epoch. Pure.

use shoal_runtime::cluster::Step;
use shoal_runtime::cluster::plan::EpochShape;

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

    /// Mean losses per record, each with the steps that were applied then: of every step or, where these are more, of at most
    /// `points` stretches of steps; of every epoch where there is one sum for each.
    pub fn curve(&self, points: u64) -> Vec<(u64, f64)> {
        let steps = self.sums.len() as u64;
        if !self.is_by_step {
            let ends = (1..=steps).map(|epoch| epoch * self.shape.steps());
            return ends.filter_map(|step| Some((step, self.before(step)?))).collect();
        }
        let stretch = steps.div_ceil(points.max(1)).max(1);
        let ends = (1..=steps.div_ceil(stretch)).map(|end| (end * stretch).min(steps));
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
        let curve = by_step.curve(100);
        assert_eq!(curve.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((curve[0].1, curve[1].1), (1.0, 2.0));
        let short = by_step.curve(3);
        assert_eq!(short, [(3, 36.0 / 17.0), (6, 16.0 / 15.0), (8, 8.0 / 8.0)]);
        let by_epoch = losses(&[60.0, 20.0]).unwrap();
        assert_eq!(by_epoch.curve(1), [(4, 3.0), (8, 1.0)]);
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
