//! Sums on the device and on the processor: a trainer's local reduction, and the trees that one update adds up.

use super::Arguments;
use super::raw::Raw;
use anyhow::{Context as _, ensure};
use shoal_pserver::device::batch::{Addresses, Operand, PieceUpdate, Tables};
use shoal_pserver::device::{IMAGES, self_test};
use shoal_pserver::kernel::rules::Pass;
use shoal_runtime::cluster::Rule;
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::cluster::precision::{bf16_from_bytes, bf16_to_bytes, round_bf16};
use shoal_runtime::host::cuda::{Context, Reduction};

/// The last is more than one launch has threads.
const LENGTHS: [usize; 5] = [1, 3, 1021, 65_537, 1_100_003];
/// Elements of a tree's leaves.
const LEAF: usize = 4099;
const LEAVES_MAX: u64 = 64;

/// Runs all of it.
///
/// # Errors
/// Other bits, or a device that fails.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    println!("\nsums there and here: numbers whose bits are the same");
    let context = Context::open(arguments.device)?;
    for image in Reduction::IMAGES {
        match Reduction::with_code(&context, &[image]) {
            Ok(reduction) => {
                let compared = reduce(&context, &reduction, arguments.updates)?;
                println!("{:<12} {:<60} {compared:>10}", image.name, "a trainer's local reduction");
            }
            Err(why) => println!("{:<12} not compared: {why}", image.name),
        }
    }
    let raw = Raw::open(arguments.device, 64 << 20)?;
    for image in IMAGES {
        let name = image.name;
        if ![0, context.capability()?.0].contains(&image.major) {
            continue;
        }
        let function = raw.function(image.code)?;
        let mut compared = 0;
        for number in 0..arguments.updates {
            let tree = Tree::drawn(number);
            let ours = tree.sum();
            let theirs = tree.sum_there(&raw, |tables, at| raw.launch(function, tables, at))?;
            let differs = |(ours, theirs): (&f32, &f32)| !self_test::is_same(*ours, *theirs);
            if let Some(at) = ours.iter().zip(&theirs).position(differs) {
                let (ours, theirs, leaves) = (ours[at], theirs[at], tree.leaves.len());
                anyhow::bail!("tree {number} of {leaves} leaves: {theirs:e} by {name}, here {ours:e}");
            }
            compared += ours.len();
        }
        println!("{name:<12} {:<60} {compared:>10}", format!("trees of 1 to {LEAVES_MAX} gradients"));
    }
    Ok(())
}

/// What is rounded to bf16, and what is not, of leaves and sums of two.
fn settled(value: f32, is_rounded: bool) -> f32 {
    if is_rounded { round_bf16(value) } else { value + 0.0 }
}

fn reduce(context: &std::sync::Arc<Context>, reduction: &Reduction, rounds: u64) -> anyhow::Result<usize> {
    let mut compared = 0;
    for elements in LENGTHS {
        let memory = context.allocate("sums", 8 * elements.next_multiple_of(64))?;
        let [left, right] = [0, 4 * elements.next_multiple_of(64)].map(|at| memory.slice(at, elements));
        let rounded = elements / 2;
        let settle = |values: &[f32]| -> Vec<f32> {
            values.iter().enumerate().map(|(at, value)| settled(*value, at < rounded)).collect()
        };
        let first = self_test::values(1, elements);
        left.write(&first)?;
        reduction.settle(&[(left, rounded)])?;
        let mut sum = settle(&first);
        for round in 0..rounds {
            // Those before the last are small, so that no infinity hides what comes after it.
            let mut values = self_test::values(2 + round, elements);
            values.iter_mut().for_each(|value| *value = value.clamp(-1e30, 1e30));
            right.write(&values)?;
            reduction.settle(&[(right, rounded)])?;
            reduction.add(&[(left, right, rounded)])?;
            let both = sum.iter().zip(settle(&values)).map(|(left, right)| left + right).collect::<Vec<_>>();
            sum = settle(&both);
        }
        let there = left.read()?;
        let is_same = |(ours, theirs): (&f32, &f32)| self_test::is_same(*ours, *theirs);
        ensure!(sum.iter().zip(&there).all(is_same), "sums of {elements} elements have other bits there");
        compared += elements;
        let at = mix(elements as u64) as usize % elements;
        let mut values = vec![0.0; elements];
        right.write(&values)?;
        ensure!(reduction.find_non_finite(right)?.is_none(), "zeros are finite");
        values[at..].fill(f32::NAN);
        right.write(&values)?;
        ensure!(reduction.find_non_finite(right)? == Some(at), "element {at} of {elements} is not found");
    }
    Ok(compared)
}

/// A tree of gradients as an update is told of it.
struct Tree {
    /// Values as they travel, whether they are halves, and how often the two newest become one once it is there.
    leaves: Vec<(Vec<f32>, bool, u32)>,
    rounds: bool,
}

impl Tree {
    fn drawn(number: u64) -> Tree {
        let draw = |of: u64| mix(number << 16 | of);
        let (rounds, count) = (draw(1).is_multiple_of(2), 1 + draw(2) % LEAVES_MAX);
        let mut waiting = 0;
        let leaves = (0..count).map(|leaf| {
            let is_half = rounds && draw(100 + leaf).is_multiple_of(2);
            let values: Vec<f32> = self_test::values(number * LEAVES_MAX + leaf, LEAF);
            let values = values.into_iter().map(|value| value.clamp(-1e30, 1e30));
            let values = values.map(|value| if is_half { round_bf16(value) } else { value }).collect();
            // As many as there are to join, at most; at the end all.
            let joins = if leaf + 1 == count { waiting } else { waiting.min(draw(200 + leaf) as u32 % 3) };
            waiting = waiting + 1 - joins;
            // No more than the kernel has room for.
            if waiting > 24 {
                waiting = 1;
                return (values, is_half, 24);
            }
            (values, is_half, joins)
        });
        let leaves = leaves.collect();
        Tree { leaves, rounds }
    }

    fn sum(&self) -> Vec<f32> {
        let mut waiting: Vec<Vec<f32>> = Vec::new();
        for (values, _, joins) in &self.leaves {
            let mut sum: Vec<f32> = values.iter().map(|value| settled(*value, self.rounds)).collect();
            for _ in 0..*joins {
                let other = waiting.pop().unwrap_or_default();
                sum.iter_mut().zip(other).for_each(|(sum, other)| {
                    let both = *sum + other;
                    *sum = if self.rounds { round_bf16(both) } else { both };
                });
            }
            waiting.push(sum);
        }
        waiting.pop().unwrap_or_default()
    }

    /// The same by an update that adds it to zeros.
    fn sum_there(
        &self,
        raw: &Raw,
        launch: impl FnOnce(&Tables, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<f32>> {
        let stride = (4 * LEAF as u64).next_multiple_of(256);
        raw.write(0, &vec![0; 4 * LEAF])?;
        let mut operands = Vec::new();
        for (number, (values, is_half, joins)) in self.leaves.iter().enumerate() {
            let at = stride * (1 + number as u64);
            match is_half {
                true => {
                    let halves: Vec<u8> = values.iter().flat_map(|value| bf16_to_bytes(*value)).collect();
                    debug_assert!(
                        halves.as_chunks::<2>().0.iter().all(|half| bf16_from_bytes(*half).is_finite())
                    );
                    raw.write(at, &halves)?;
                }
                false => raw.write(at, bytemuck::cast_slice(values))?,
            }
            operands.push(Operand { address: raw.address + at, is_half: (*is_half).into(), joins: *joins });
        }
        // Zero less minus the sum: the sum.
        let pass = Pass { weight: 1.0, rate: -1.0, scale: 1.0, weight_decay: 0.0, update: 1 };
        // Pieces that begin and end anywhere.
        let ends = [0, 1, 7, LEAF / 2, LEAF - 2, LEAF];
        let pieces = ends.windows(2).filter_map(|ends| PieceUpdate::new(ends[0]..ends[1], Rule::Sgd, pass));
        let (mut tables, pieces) = (Tables::default(), pieces.collect::<Vec<_>>());
        tables.add(
            Addresses { parameters: raw.address, next: raw.address, slots: [0; 3] },
            &operands,
            self.rounds,
            &pieces,
        );
        let mut written = vec![0; tables.bytes()];
        tables.write(&mut written);
        let at = stride * (1 + LEAVES_MAX);
        raw.write(at, &written)?;
        launch(&tables, at)?;
        raw.read(0, 4 * LEAF).map(|bytes| bytemuck::pod_collect_to_vec(&bytes)).context("reading a sum")
    }
}
