//! The update rules, one pass each: old parameters and the step's gradient sum in, new parameters out.
//!
//! On entry `values` holds the gradient sum of the root, on return the new parameters: the buffer of the sum is the
//! buffer that is published. The mean is taken here and nowhere else, by one division. Every operation is a plain
//! IEEE f32 operation in the order written; a rule must never see a step of weight 0, nor the slots of another rule.

mod adagrad;
mod adam;
mod constants;
mod decide;
mod descent;
mod ftrl;
#[cfg(test)]
mod reference;
mod rows;
mod statistics;

use super::width::{Loop, Width};
use adam::Moments;
pub use constants::Constants;
use ftrl::Penalties;
pub use rows::RowPass;
use shoal_runtime::cluster::Rule;

/// What one update of a stretch of a parameter needs beside its buffers.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Records (or tokens) in the sum; positive.
    pub weight: f32,
    /// The learning rate.
    pub rate: f32,
    /// What the learning rate is multiplied with for this update alone: less than 1 for a stale gradient.
    pub scale: f32,
    /// How much of the parameter is added to the mean gradient; AdamW takes it off the parameter instead.
    pub weight_decay: f32,
    /// Number of the update that makes the new version, from 1. Bias corrections are functions of it.
    pub update: u64,
}

impl Pass {
    #[inline(always)]
    fn mean(&self, sum: f32) -> f32 {
        sum / self.weight
    }
    /// The mean with its L2 part.
    #[inline(always)]
    fn gradient(&self, sum: f32, parameter: f32) -> f32 {
        self.mean(sum) + self.weight_decay * parameter
    }
    fn scaled_rate(&self) -> f32 {
        self.scale * self.rate
    }
}

/// Runs `rule` once. All buffers have the same length; `slots` are those that [`Rule::slots`] names, in its order.
pub fn run(rule: Rule, pass: Pass, parameters: &[f32], values: &mut [f32], slots: &mut [&mut [f32]]) {
    Width::widest().run(Update { rule, pass, parameters, values, slots });
}

struct Update<'a, 'b> {
    rule: Rule,
    pass: Pass,
    parameters: &'a [f32],
    values: &'a mut [f32],
    slots: &'a mut [&'b mut [f32]],
}

impl Loop for Update<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        run_here(self.rule, self.pass, self.parameters, self.values, self.slots);
    }
}

#[inline(always)]
fn run_here(rule: Rule, pass: Pass, parameters: &[f32], values: &mut [f32], slots: &mut [&mut [f32]]) {
    assert!(parameters.len() == values.len() && slots.iter().all(|slot| slot.len() == parameters.len()));
    match rule {
        Rule::Sgd => {
            let [] = own(rule, slots);
            descent::sgd(pass, parameters, values);
        }
        Rule::Momentum { momentum } => {
            let [velocity] = own(rule, slots);
            descent::momentum(pass, momentum, parameters, values, velocity);
        }
        Rule::Nesterov { momentum } => {
            let [velocity] = own(rule, slots);
            descent::nesterov(pass, momentum, parameters, values, velocity);
        }
        Rule::Adagrad { epsilon } => {
            let [squares] = own(rule, slots);
            adagrad::adagrad(pass, epsilon, parameters, values, squares);
        }
        Rule::Adam { beta1, beta2, epsilon } => {
            let [first, second] = own(rule, slots);
            adam::adam(pass, Moments::new(pass, beta1, beta2, epsilon), parameters, values, first, second);
        }
        Rule::AdamW { beta1, beta2, epsilon } => {
            let [first, second] = own(rule, slots);
            adam::adamw(pass, Moments::new(pass, beta1, beta2, epsilon), parameters, values, first, second);
        }
        Rule::AmsGrad { beta1, beta2, epsilon } => {
            let [first, second, largest] = own(rule, slots);
            let moments = Moments::new(pass, beta1, beta2, epsilon);
            adam::amsgrad(pass, moments, parameters, values, [first, second, largest]);
        }
        Rule::Ftrl { l1, l2, beta } => {
            let [linear, squares] = own(rule, slots);
            ftrl::ftrl(pass, Penalties { l1, l2, beta }, parameters, values, linear, squares);
        }
        Rule::Ema { decay } => {
            let [] = own(rule, slots);
            statistics::ema(pass, decay, parameters, values);
        }
        Rule::Sum => {
            let [remainder] = own(rule, slots);
            statistics::sum(parameters, values, remainder);
        }
        Rule::Metric { .. } => {
            let [] = own(rule, slots);
            statistics::metric(parameters, values);
        }
        Rule::RowwiseAdagrad { .. } | Rule::LazyAdam { .. } => {
            unreachable!("{rule:?} is of tables, a dense parameter is not declared with it")
        }
        Rule::Decide(decisions) => {
            let [remainders] = own(rule, slots);
            decide::decide(decisions, parameters, values, remainders);
        }
    }
}

/// The slots of one rule: exactly as many as it names.
fn own<'a, 'b, const N: usize>(rule: Rule, slots: &'a mut [&'b mut [f32]]) -> &'a mut [&'b mut [f32]; N] {
    let came = slots.len();
    slots.try_into().unwrap_or_else(|_| unreachable!("{rule:?} has {:?}, {came} slots came", rule.slots()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reference::{ELEMENTS, EVERY_RULE, gradient_sum, start};
    use shoal_runtime::cluster::permutation::mix;
    use std::ops::Range;

    /// One update of the elements of `range`, with slots that are not zero: new values, then slots, as bits.
    fn updated(rule: Rule, weight_decay: f32, range: Range<usize>) -> Vec<Vec<u32>> {
        let mut values: Vec<f32> = range.clone().map(|e| gradient_sum(3, e, 0.2)).collect();
        let slot = |s: usize| range.clone().map(|e| 0.1 + 0.01 * (s + e) as f32).collect::<Vec<f32>>();
        let mut slots: Vec<Vec<f32>> = (0..rule.slots().len()).map(slot).collect();
        let mut borrowed: Vec<&mut [f32]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
        let pass = Pass { weight: 7.0, rate: 0.01, scale: 0.5, weight_decay, update: 3 };
        run(rule, pass, &start()[range], &mut values, &mut borrowed);
        let all = std::iter::once(values).chain(slots);
        all.map(|buffer| buffer.iter().map(|x| x.to_bits()).collect()).collect()
    }

    #[test]
    fn an_update_does_not_depend_on_how_its_parameter_is_cut_whatever_the_rule() {
        for rule in EVERY_RULE {
            let whole = updated(rule, 0.1, 0..ELEMENTS);
            for cut in 1..ELEMENTS {
                let (left, right) = (updated(rule, 0.1, 0..cut), updated(rule, 0.1, cut..ELEMENTS));
                let joined: Vec<Vec<u32>> =
                    left.into_iter().zip(right).map(|(l, r)| [l, r].concat()).collect();
                assert_eq!(joined, whole, "{rule:?} cut at {cut}");
            }
        }
    }

    /// Any finite bits: subnormal, huge, of both signs.
    fn finite(draw: usize) -> f32 {
        let value = f32::from_bits(mix(draw as u64) as u32);
        if value.is_finite() { value } else { draw as f32 }
    }

    #[test]
    fn every_width_makes_the_bits_of_one_element_at_a_time_whatever_the_length_and_the_rule() {
        let pass = Pass { weight: 7.0, rate: 0.01, scale: 0.5, weight_decay: 0.1, update: 3 };
        for (width, rule) in Width::all().flat_map(|width| EVERY_RULE.map(|rule| (width, rule))) {
            for length in (0..70).chain([1000]) {
                let buffers = 2 + rule.slots().len();
                let buffer = |b: usize| (0..length).map(|e| finite(1000 * b + e)).collect::<Vec<f32>>();
                let mut whole: Vec<Vec<f32>> = (0..buffers).map(buffer).collect();
                let mut single = whole.clone();
                let [parameters, values, slots @ ..] = whole.as_mut_slice() else { unreachable!() };
                let slots = &mut slots.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>();
                width.run(Update { rule, pass, parameters, values, slots });
                let [parameters, values, slots @ ..] = single.as_mut_slice() else { unreachable!() };
                for e in 0..length {
                    let slots = &mut slots.iter_mut().map(|slot| &mut slot[e..=e]).collect::<Vec<_>>();
                    run_here(rule, pass, &parameters[e..=e], &mut values[e..=e], slots);
                }
                for (whole, single) in whole.iter().flatten().zip(single.iter().flatten()) {
                    let is_same = whole.to_bits() == single.to_bits() || whole.is_nan() && single.is_nan();
                    assert!(is_same, "{rule:?} at {width:?}, {length} elements: {whole:e}, {single:e}");
                }
            }
        }
    }

    #[test]
    fn no_two_rules_make_the_same_values_of_the_same_state() {
        let made: Vec<Vec<u32>> =
            EVERY_RULE.iter().map(|rule| updated(*rule, 0.1, 0..ELEMENTS)[0].clone()).collect();
        for (at, ours) in made.iter().enumerate() {
            for (other, theirs) in made.iter().enumerate().skip(at + 1) {
                assert_ne!(ours, theirs, "{:?} and {:?}", EVERY_RULE[at], EVERY_RULE[other]);
            }
        }
    }
}
