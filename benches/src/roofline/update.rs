//! One Adam update from two gradients: the pserver's kernels, and its blocks, against plain loops.
//!
//! All are on one thread, over 16 Mi elements. Ours walks them in the stretches in which a block does, the limits in blocks of
//! 1 MiB. A sum and Adam read five arrays and write three, Adam alone reads four and writes three. The gradients of ours lie at an odd address, as they do in a message; those of the limits are plain f32.

use crate::measure::in_turn;
use crate::paths::blocks::{Blocks, Message, RATE, WEIGHT, gradient};
use crate::report::Row;
use shoal_pserver::block::shape::STRETCH;
use shoal_pserver::kernel::rules::{self, Pass};
use shoal_pserver::kernel::sum::add_right_words;
use shoal_runtime::cluster::Rule;
use shoal_runtime::cluster::layout::BLOCK_ELEMENTS_MAX;
use std::hint::black_box;

const ELEMENTS: usize = 16 << 20;
const BLOCK: usize = BLOCK_ELEMENTS_MAX as usize;
const BETA1: f32 = 0.9;
const BETA2: f32 = 0.999;
const EPSILON: f32 = 1e-8;

pub(crate) fn rows(rounds: u32) -> anyhow::Result<Vec<Row>> {
    let amount = ELEMENTS as f64 / 1e6;
    let row = |name, measured: Vec<[f64; 2]>| Row::against_limit(name, "M params/s", amount, &measured);
    let mut plain = Plain::new(ELEMENTS);
    let mut kernels = Kernels::new(ELEMENTS);
    let against_same =
        in_turn(rounds, [&mut || kernels.update(), &mut || plain.update(adam_as_in_the_paper)])?;
    let against_adam = in_turn(rounds, [&mut || kernels.update(), &mut || plain.adam(adam_as_in_the_paper)])?;
    let against_folded = in_turn(rounds, [&mut || kernels.update(), &mut || plain.update(adam_folded)])?;
    drop(kernels);
    let mut blocks = Blocks::new(ELEMENTS)?;
    let of_blocks = in_turn(rounds, [&mut || blocks.update(), &mut || plain.update(adam_as_in_the_paper)])?;
    Ok(vec![
        row("kernels sum + Adam / same divisions", against_same),
        row("kernels sum + Adam / Adam alone", against_adam),
        row("kernels sum + Adam / folded divisions", against_folded),
        row("blocks, 2 pushes + Adam / same divisions", of_blocks),
    ])
}

/// The kernels alone, called as a block calls them, without its buffers' coming and going.
struct Kernels {
    updates: u64,
    parameters: Vec<f32>,
    /// The left gradient on entry, the new parameters on return.
    values: Vec<f32>,
    first: Vec<f32>,
    second: Vec<f32>,
    right: Message,
}

impl Kernels {
    fn new(elements: usize) -> Kernels {
        let zeros = || vec![0.0; elements];
        let values = gradient(1, elements);
        let right = Message::new(&gradient(2, elements));
        Kernels { updates: 0, parameters: zeros(), values, first: zeros(), second: zeros(), right }
    }

    fn update(&mut self) -> anyhow::Result<()> {
        self.updates += 1;
        let rule = Rule::Adam { beta1: BETA1, beta2: BETA2, epsilon: EPSILON };
        let pass =
            Pass { weight: WEIGHT as f32, rate: RATE, scale: 1.0, weight_decay: 0.0, update: self.updates };
        let moments = self.first.chunks_mut(STRETCH).zip(self.second.chunks_mut(STRETCH));
        let sums = self.values.chunks_mut(STRETCH).zip(self.right.words().chunks(STRETCH));
        for ((parameters, (values, right)), (first, second)) in
            self.parameters.chunks(STRETCH).zip(sums).zip(moments)
        {
            add_right_words(values, right);
            rules::run(rule, pass, parameters, values, &mut [first, second]);
        }
        // What was published is the next step's parameters; the old ones serve as its left gradient.
        std::mem::swap(&mut self.parameters, &mut self.values);
        black_box(&self.parameters);
        Ok(())
    }
}

/// The limit: two plain loops, all in place.
struct Plain {
    updates: u64,
    parameters: Vec<f32>,
    sum: Vec<f32>,
    first: Vec<f32>,
    second: Vec<f32>,
    right: Vec<f32>,
}

/// Parameters, gradient sum, first and second moment, bias corrections.
type PlainAdam = fn(&mut [f32], &[f32], &mut [f32], &mut [f32], [f32; 2]);

impl Plain {
    fn new(elements: usize) -> Plain {
        let zeros = || vec![0.0; elements];
        let (sum, right) = (gradient(1, elements), gradient(2, elements));
        Plain { updates: 0, parameters: zeros(), sum, first: zeros(), second: zeros(), right }
    }

    /// The sum as it lies.
    fn adam(&mut self, adam: PlainAdam) -> anyhow::Result<()> {
        let corrections = self.corrections();
        adam(&mut self.parameters, &self.sum, &mut self.first, &mut self.second, corrections);
        black_box(&self.parameters);
        Ok(())
    }

    fn corrections(&mut self) -> [f32; 2] {
        self.updates += 1;
        [BETA1, BETA2].map(|beta| (1.0 - libm::pow(f64::from(beta), self.updates as f64)) as f32)
    }

    fn update(&mut self, adam: PlainAdam) -> anyhow::Result<()> {
        let corrections = self.corrections();
        let moments = self.first.chunks_mut(BLOCK).zip(self.second.chunks_mut(BLOCK));
        let sums = self.sum.chunks_mut(BLOCK).zip(self.right.chunks(BLOCK));
        for ((parameters, (sum, right)), (first, second)) in
            self.parameters.chunks_mut(BLOCK).zip(sums).zip(moments)
        {
            for (sum, right) in sum.iter_mut().zip(right) {
                *sum += *right;
            }
            adam(parameters, sum, first, second, corrections);
        }
        black_box(&self.parameters);
        Ok(())
    }
}

/// Kingma and Ba 2015, algorithm 1: the divisions of the pserver's rule.
fn adam_as_in_the_paper(
    parameters: &mut [f32],
    sum: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    [correction1, correction2]: [f32; 2],
) {
    let moments = first.iter_mut().zip(second);
    for ((parameter, sum), (first, second)) in parameters.iter_mut().zip(sum).zip(moments) {
        let gradient = *sum / WEIGHT as f32;
        *first = BETA1 * *first + (1.0 - BETA1) * gradient;
        *second = BETA2 * *second + (1.0 - BETA2) * (gradient * gradient);
        let deviation = (*second / correction2).sqrt() + EPSILON;
        *parameter -= (RATE * (*first / correction1)) / deviation;
    }
}

/// The same up to rounding, with one division left: what a rule could do that was free in its bits.
fn adam_folded(
    parameters: &mut [f32],
    sum: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    [correction1, correction2]: [f32; 2],
) {
    let (share, rate, scale) = (1.0 / WEIGHT as f32, RATE / correction1, 1.0 / correction2);
    let moments = first.iter_mut().zip(second);
    for ((parameter, sum), (first, second)) in parameters.iter_mut().zip(sum).zip(moments) {
        let gradient = *sum * share;
        *first = BETA1 * *first + (1.0 - BETA1) * gradient;
        *second = BETA2 * *second + (1.0 - BETA2) * (gradient * gradient);
        *parameter -= (rate * *first) / ((*second * scale).sqrt() + EPSILON);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_pserver::block::Block;
    use shoal_runtime::cluster::Version;

    /// More than one block, and not a whole number of them.
    const FEW: usize = BLOCK + 1000;

    #[test]
    fn kernels_blocks_and_the_plain_loops_make_the_same_first_step_bit_by_bit() {
        let (mut kernels, mut plain) = (Kernels::new(FEW), Plain::new(FEW));
        let mut blocks = Blocks::new(FEW).unwrap();
        kernels.update().unwrap();
        plain.update(adam_as_in_the_paper).unwrap();
        blocks.update().unwrap();
        assert_eq!(kernels.parameters, plain.parameters);
        let published = |block: &Block| block.copy_at(Version(1), 0).unwrap().parameters;
        let bytes: Vec<u8> = blocks.blocks.iter().flat_map(|(_, block)| published(block).to_vec()).collect();
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
        assert_eq!(values, plain.parameters);
    }

    #[test]
    fn folded_divisions_differ_by_rounding_only() {
        let (mut folded, mut plain) = (Plain::new(FEW), Plain::new(FEW));
        for _ in 0..20 {
            folded.update(adam_folded).unwrap();
            plain.update(adam_as_in_the_paper).unwrap();
        }
        let errors = folded.parameters.iter().zip(&plain.parameters).map(|(a, b)| (a - b).abs());
        assert!(errors.fold(0.0, f32::max) < 1e-6);
        assert!(plain.parameters.iter().any(|parameter| parameter.abs() > 0.01));
    }
}
