//! One Adam update from two gradients: the pserver's kernels, and its blocks, against plain loops.
//!
//! All are on one thread, over 16 Mi elements. Ours walks them in the stretches in which a block does, the limits in blocks of
//! 1 MiB. A sum and Adam read five arrays and write three, Adam alone reads four and writes three. The gradients of ours lie at an odd address, as they do in a message; those of the limits are plain f32.

use anyhow::ensure;
use bytes::Bytes;
use shoal_benches::measure::in_turn;
use shoal_benches::report::Row;
use shoal_pserver::block::shape::{BlockShape, NodeGradient, STRETCH};
use shoal_pserver::block::sum::Came;
use shoal_pserver::block::{Block, Placement, PushOutcome, Terms};
use shoal_pserver::kernel::rules::{self, Pass};
use shoal_pserver::kernel::sum::{Word, add_right_words};
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::layout::BLOCK_ELEMENTS_MAX;
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::{
    Declaration, Fill, Incarnation, JobId, JobSettings, Layout, Mode, Node, Parameter, Rewind, Rule, Step,
    Term,
};
use std::hint::black_box;
use std::sync::Arc;

const ELEMENTS: usize = 16 << 20;
const ME: Incarnation = Incarnation(1);
const BLOCK: usize = BLOCK_ELEMENTS_MAX as usize;
const WEIGHT: u64 = 48;
const RATE: f32 = 0.001;
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

/// Whole blocks: both checks of each push, the copy that holds the first gradient, the merge, Adam, publication.
/// No locks, no wire.
struct Blocks {
    step: Step,
    blocks: Vec<(Arc<BlockShape>, Block)>,
    gradients: [Message; 2],
}

impl Blocks {
    fn new(elements: usize) -> anyhow::Result<Blocks> {
        let rate = Schedule::constant(RATE);
        let parameter = Parameter::new("w", &[elements as u64], Rule::ADAM, rate, Initial::Zeros);
        let declaration = Declaration { parameters: vec![parameter], block_elements: 0 };
        declaration.check()?;
        let (layout, settings) = (Layout::new(&declaration), settings());
        let terms = Arc::new(Terms::new(&settings, 16));
        let block = |(id, layout)| {
            let shape = Arc::new(BlockShape::new(id, layout, &declaration, 7));
            let placement = Placement {
                fill: Fill(1),
                term: Term(1),
                rewind: Rewind(1),
                primary: ME,
                copies: Vec::new(),
                heir: None,
                origin: None,
            };
            let mut block = Block::new(Arc::clone(&shape), Arc::clone(&terms), placement, ME);
            block.restore_initial(Term(1));
            (shape, block)
        };
        let blocks: Vec<(Arc<BlockShape>, Block)> = layout.iter().map(block).collect();
        let gradients = [1, 2].map(|seed| Message::new(&gradient(seed, elements)));
        Ok(Blocks { step: Step(0), blocks, gradients })
    }

    /// Every block gets the left slot's gradient, then every block the right one's.
    fn update(&mut self) -> anyhow::Result<()> {
        let step = self.step;
        for (slot, gradient) in self.gradients.iter().enumerate() {
            let mut bytes = gradient.0.slice(1..);
            for (shape, block) in &mut self.blocks {
                let own = bytes.split_to(4 * shape.elements);
                let node = Node::leaf(slot as u32);
                shape.check_values(&own, false, node)?;
                let arriving = NodeGradient { step, node, weight: WEIGHT / 2, came: Came::Words(own) };
                let outcome = block.push(Rewind(1), arriving)?;
                let is_published = matches!(outcome, PushOutcome::Applied { is_published: true, .. });
                ensure!(is_published == (slot == 1), "a block applied a step too early or not at all");
            }
        }
        self.step = step.next();
        Ok(())
    }
}

/// A job of two microbatches a step and more steps than any run measures.
fn settings() -> JobSettings {
    JobSettings {
        job: JobId("roofline".into()),
        seed: 7,
        epochs: 1,
        microbatch_records: 1,
        microbatches_per_step: 2,
        shuffle_run: 1,
        records: 1 << 20,
        manifest_fingerprint: [0; 32],
        lease_ttl_millis: 1000,
        mode: Mode::SYNC,
        warm_start: None,
        evaluated: None,
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

/// A gradient as it lies in a message: little-endian words at an odd address.
struct Message(Bytes);

impl Message {
    fn new(values: &[f32]) -> Message {
        let mut bytes = Vec::with_capacity(1 + 4 * values.len());
        bytes.push(0);
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        Message(bytes.into())
    }

    fn words(&self) -> &[Word] {
        self.0[1..].as_chunks().0
    }
}

/// Values in -1..1 that differ from element to element (the multiplier is Knuth's, TAOCP 3.3.4).
fn gradient(seed: u32, elements: usize) -> Vec<f32> {
    let value =
        |index: u32| (index ^ (seed << 28)).wrapping_mul(2_654_435_761) as i32 as f32 / (1u32 << 31) as f32;
    (0..elements as u32).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
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
