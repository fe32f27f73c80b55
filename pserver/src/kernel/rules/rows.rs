//! The update rules over rows of tables: one update's constants, then row after row in place.
//!
//! A row's own arithmetic is the dense rule's. What decays with time decays here for the updates since the row's last
//! one, by one multiplication with a power: the bits depend on how many there were, never on when they are made up for.

use super::adam::{Moments, adam};
use super::ftrl::{Penalties, ftrl};
use super::{Pass, adagrad, descent, statistics};
use shoal_runtime::cluster::Rule;

/// One update of rows of one table.
#[derive(Clone, Copy, Debug)]
pub struct RowPass {
    rule: Rule,
    pass: Pass,
    moments: Option<Moments>,
}

impl RowPass {
    /// The constants of an update by a rule that is of tables.
    pub fn new(rule: Rule, pass: Pass) -> RowPass {
        let moments = match rule {
            Rule::Adam { beta1, beta2, epsilon } | Rule::LazyAdam { beta1, beta2, epsilon } => {
                Some(Moments::new(pass, beta1, beta2, epsilon))
            }
            _ => None,
        };
        RowPass { rule, pass, moments }
    }

    /// Updates one row, whose last update was `missed` updates before the one before this. `values` holds its gradient
    /// sum and is worked in; `slots` has [`Rule::row_slots`] elements.
    pub fn run(&self, missed: u64, row: &mut [f32], slots: &mut [f32], values: &mut [f32]) {
        let (pass, dimension) = (self.pass, row.len());
        assert!(values.len() == dimension && slots.len() == self.rule.row_slots(dimension));
        match (self.rule, self.moments) {
            (Rule::Momentum { momentum }, _) => {
                fade(slots, momentum, missed);
                descent::momentum(pass, momentum, row, values, slots);
            }
            (Rule::Adagrad { epsilon }, _) => adagrad::adagrad(pass, epsilon, row, values, slots),
            (Rule::RowwiseAdagrad { epsilon }, _) => {
                adagrad::rowwise(pass, epsilon, row, values, &mut slots[0]);
            }
            (Rule::Adam { beta1, beta2, .. }, Some(moments)) => {
                let (first, second) = slots.split_at_mut(dimension);
                fade(first, beta1, missed);
                fade(second, beta2, missed);
                adam(pass, moments, row, values, first, second);
            }
            (Rule::LazyAdam { .. }, Some(moments)) => {
                let (first, second) = slots.split_at_mut(dimension);
                adam(pass, moments, row, values, first, second);
            }
            (Rule::Ftrl { l1, l2, beta }, _) => {
                let (linear, squares) = slots.split_at_mut(dimension);
                ftrl(pass, Penalties { l1, l2, beta }, row, values, linear, squares);
            }
            (Rule::Sum, _) => statistics::sum(row, values, slots),
            (Rule::Sgd, _) => descent::sgd(pass, row, values),
            (rule, _) => unreachable!("a table is not declared with {rule:?}"),
        }
        row.copy_from_slice(values);
    }
}

/// What is left of a slot after so many updates without a gradient.
fn fade(slots: &mut [f32], decay: f32, missed: u64) {
    if missed > 0 {
        let left = libm::pow(f64::from(decay), missed as f64) as f32;
        slots.iter_mut().for_each(|slot| *slot *= left);
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{WEIGHT, gradient_sum};
    use super::*;

    const DIMENSION: usize = 5;
    const UPDATES: u64 = 1500;
    const RATE: f32 = 0.02;
    const EPSILON: f32 = 1e-3;
    const BETAS: [f32; 2] = [0.9, 0.99];

    /// What a reference keeps of a row, exactly.
    #[derive(Default)]
    struct Exact {
        a: [f64; DIMENSION],
        b: [f64; DIMENSION],
    }

    /// One row at one update: its gradients, or none where its key does not occur.
    type Reference = fn(&mut Exact, u64, &mut [f64; DIMENSION], Option<&[f64; DIMENSION]>);

    /// Gaps of 0 to 40 updates.
    fn occurs(update: u64) -> bool {
        update % 41 == 3 || libm::sin(update as f64 * 0.37) > 0.2 && update / 60 % 3 != 1
    }

    /// Runs a row and its reference over gradients that depend on the value. The largest difference relative to the
    /// distance travelled.
    fn error(rule: Rule, reference: Reference) -> f64 {
        let mut row: [f32; DIMENSION] = std::array::from_fn(|element| element as f32 * 0.3 - 0.7);
        let first = row.map(f64::from);
        let (mut exact, mut state) = (first, Exact::default());
        let mut slots = vec![0.0; rule.row_slots(DIMENSION)];
        let (mut worst, mut travel, mut last) = (0.0f64, 0.0f64, None);
        for update in 1..=UPDATES {
            if !occurs(update) {
                reference(&mut state, update, &mut exact, None);
                continue;
            }
            let mut sums: [f32; DIMENSION] =
                std::array::from_fn(|element| gradient_sum(update, element, 0.3 * exact[element]));
            let means = sums.map(|sum| f64::from(sum) / f64::from(WEIGHT));
            reference(&mut state, update, &mut exact, Some(&means));
            let pass = Pass { weight: WEIGHT, rate: RATE, scale: 1.0, weight_decay: 0.0, update };
            let missed = last.map_or(0, |last| update - last - 1);
            RowPass::new(rule, pass).run(missed, &mut row, &mut slots, &mut sums);
            last = Some(update);
            for ((ours, theirs), first) in row.iter().zip(&exact).zip(&first) {
                worst = worst.max((f64::from(*ours) - theirs).abs());
                travel = travel.max((theirs - first).abs());
            }
        }
        assert!(travel > 0.1, "nothing moved: {travel}");
        worst / travel
    }

    fn rate() -> f64 {
        f64::from(RATE)
    }

    #[test]
    fn rows_by_sgd_follow_their_reference() {
        let worst = error(Rule::Sgd, |_, _, w, g| {
            for (w, g) in w.iter_mut().zip(g.into_iter().flatten()) {
                *w -= rate() * g;
            }
        });
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn rows_by_momentum_follow_their_reference_whose_velocity_decays_all_the_time() {
        let worst = error(Rule::Momentum { momentum: BETAS[0] }, |exact, _, w, g| {
            exact.a.iter_mut().for_each(|v| *v *= f64::from(BETAS[0]));
            for ((w, v), g) in w.iter_mut().zip(&mut exact.a).zip(g.into_iter().flatten()) {
                *v += g;
                *w -= rate() * *v;
            }
        });
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn rows_by_adagrad_follow_their_reference() {
        let worst = error(Rule::Adagrad { epsilon: EPSILON }, |exact, _, w, g| {
            for ((w, s), g) in w.iter_mut().zip(&mut exact.a).zip(g.into_iter().flatten()) {
                *s += g * g;
                *w -= rate() * g / (libm::sqrt(*s) + f64::from(EPSILON));
            }
        });
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn rows_by_rowwise_adagrad_follow_their_reference() {
        let worst = error(Rule::RowwiseAdagrad { epsilon: EPSILON }, |exact, _, w, g| {
            let Some(g) = g else { return };
            exact.a[0] += g.iter().map(|g| g * g).sum::<f64>() / DIMENSION as f64;
            for (w, g) in w.iter_mut().zip(g) {
                *w -= rate() * g / (libm::sqrt(exact.a[0]) + f64::from(EPSILON));
            }
        });
        assert!(worst < 2e-5, "{worst}");
    }

    /// Adam's change from both moments at update `t`.
    fn change(first: f64, second: f64, t: u64) -> f64 {
        let correction = |beta: f32| 1.0 - libm::pow(f64::from(beta), t as f64);
        let deviation = libm::sqrt(second / correction(BETAS[1])) + f64::from(EPSILON);
        rate() * (first / correction(BETAS[0])) / deviation
    }

    fn take(exact: &mut Exact, element: usize, g: f64) {
        let [b1, b2] = BETAS.map(f64::from);
        exact.a[element] = b1 * exact.a[element] + (1.0 - b1) * g;
        exact.b[element] = b2 * exact.b[element] + (1.0 - b2) * g * g;
    }

    #[test]
    fn rows_by_adam_follow_their_reference_whose_moments_decay_all_the_time() {
        let rule = Rule::Adam { beta1: BETAS[0], beta2: BETAS[1], epsilon: EPSILON };
        let worst = error(rule, |exact, t, w, g| {
            for element in 0..DIMENSION {
                take(exact, element, g.map_or(0.0, |g| g[element]));
                if g.is_some() {
                    w[element] -= change(exact.a[element], exact.b[element], t);
                }
            }
        });
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn rows_by_lazy_adam_follow_their_reference_whose_moments_rest() {
        let rule = Rule::LazyAdam { beta1: BETAS[0], beta2: BETAS[1], epsilon: EPSILON };
        let worst = error(rule, |exact, t, w, g| {
            let Some(g) = g else { return };
            for element in 0..DIMENSION {
                take(exact, element, g[element]);
                w[element] -= change(exact.a[element], exact.b[element], t);
            }
        });
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn rows_by_ftrl_follow_their_reference() {
        const L1: f64 = 0.0625;
        const L2: f64 = 0.25;
        let rule = Rule::Ftrl { l1: L1 as f32, l2: L2 as f32, beta: 1.0 };
        let worst = error(rule, |exact, _, w, g| {
            for ((w, (z, n)), g) in
                w.iter_mut().zip(exact.a.iter_mut().zip(&mut exact.b)).zip(g.into_iter().flatten())
            {
                if *z == 0.0 && *n == 0.0 {
                    *z = -(*w * (1.0 / rate() + L2) + L1.copysign(*w));
                }
                let sigma = (libm::sqrt(*n + g * g) - libm::sqrt(*n)) / rate();
                *z += g - sigma * *w;
                *n += g * g;
                let shrunk = *z - L1.copysign(*z);
                *w = if z.abs() <= L1 { 0.0 } else { -shrunk / ((1.0 + libm::sqrt(*n)) / rate() + L2) };
            }
        });
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn rows_of_counters_add_up() {
        let pass = Pass { weight: 7.0, rate: 0.0, scale: 1.0, weight_decay: 0.0, update: 9 };
        let (mut row, mut remainders) = ([4.0, 0.5, 16_777_216.0], [0.0; 3]);
        for _ in 0..3 {
            RowPass::new(Rule::Sum, pass).run(3, &mut row, &mut remainders, &mut [3.0, -0.25, 1.0]);
        }
        assert_eq!(row.map(f64::from), [13.0, -0.25, 16_777_220.0]);
        assert_eq!(remainders, [0.0, 0.0, -1.0], "one more than can be told yet");
    }

    #[test]
    fn a_row_whose_key_occurs_in_every_update_is_as_a_dense_parameter() {
        for rule in super::super::reference::EVERY_RULE.into_iter().filter(Rule::is_of_tables) {
            let (mut row, mut slots) = ([0.5f32, -1.0, 0.25], vec![0.0; rule.row_slots(3)]);
            let (mut dense, mut dense_slots) = (row, vec![vec![0.0; 3]; rule.slots().len()]);
            for update in 1..=50 {
                let sums: [f32; 3] = std::array::from_fn(|element| gradient_sum(update, element, 0.1));
                let pass = Pass { weight: WEIGHT, rate: RATE, scale: 0.5, weight_decay: 0.01, update };
                RowPass::new(rule, pass).run(0, &mut row, &mut slots, &mut sums.clone());
                let mut values = sums;
                let mut borrowed: Vec<&mut [f32]> = dense_slots.iter_mut().map(Vec::as_mut_slice).collect();
                super::super::run(rule, pass, &dense, &mut values, &mut borrowed);
                dense = values;
            }
            assert_eq!(row.map(f32::to_bits), dense.map(f32::to_bits), "{rule:?}");
            assert_eq!(slots, dense_slots.concat(), "{rule:?}");
        }
    }
}
