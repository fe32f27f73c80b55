//! A gradient sum whose summands are on the device: nothing is added up before the update, which is given the tree.

use super::DeviceError;
use super::area::Words;
use super::batch::Operand;
use crate::kernel::sum::{Half, Single, Word};
use shoal_runtime::cluster::precision::round_bf16;
use shoal_runtime::cluster::{BlockId, Precision};
use shoal_runtime::host::cuda::Memory;
use std::sync::Arc;

/// Sums that wait for another, at most: as `WAITING` in `kernels/update.cu`.
const WAITING_MAX: u32 = 24;

/// A tree of sums of two: its leaves, in an order in which each sum comes after what it is of.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    leaves: Vec<Leaf>,
    /// Sums that wait for another while it is added up, at most.
    waiting: u32,
    precision: Precision,
}

#[derive(Clone, Debug, PartialEq)]
struct Leaf {
    words: Words,
    /// Once it is there, how often the two newest sums become one.
    joins: u32,
}

impl Tree {
    /// These values alone, of which everything is rounded as `precision` says.
    pub fn of(words: Words, precision: Precision) -> Tree {
        Tree { leaves: vec![Leaf { words, joins: 0 }], waiting: 0, precision }
    }

    /// The sum of the two; none where the device could not add it up at once.
    pub fn join(&self, other: &Tree) -> Option<Tree> {
        let (first, second) = if self.waiting >= other.waiting && !self.is_leaf() || other.is_leaf() {
            (self, other)
        } else {
            (other, self)
        };
        let waits_for_second = if second.is_leaf() { 0 } else { 1 + second.waiting };
        let waiting = first.waiting.max(waits_for_second);
        let mut leaves = [&first.leaves[..], &second.leaves[..]].concat();
        if let Some(last) = leaves.last_mut() {
            last.joins += 1;
        }
        (waiting <= WAITING_MAX).then_some(Tree { leaves, waiting, precision: self.precision })
    }

    fn is_leaf(&self) -> bool {
        self.leaves.len() == 1
    }

    /// Values of each leaf.
    pub fn elements(&self) -> usize {
        self.leaves.first().map_or(0, |leaf| leaf.words.elements())
    }

    /// Bytes of all leaves.
    pub(super) fn bytes(&self) -> u64 {
        4 * (self.leaves.len() * self.elements()) as u64
    }

    /// Returns true if all leaves are in host memory, so that [`bring`](Self::bring) does not wait. Otherwise asks the device for the
    /// missing ones, which signals `block` on arrival.
    pub fn ask(&self, block: BlockId) -> bool {
        // All of them, not until the first that is not here.
        self.leaves.iter().filter(|leaf| !leaf.words.ask(block)).count() == 0
    }

    /// Adds it up here. Waits for the device, unless all leaves are here.
    ///
    /// # Errors
    /// The device has failed.
    pub fn bring(&self) -> Result<Vec<f32>, DeviceError> {
        let mut waiting: Vec<Vec<f32>> = Vec::new();
        for leaf in &self.leaves {
            let bytes = leaf.words.bring()?;
            let words = bytes.as_chunks::<4>().0.iter().map(|word| Single::read(*word));
            let mut sum: Vec<f32> = match self.precision {
                Precision::F32 => words.collect(),
                Precision::Bf16 => words.map(round_bf16).collect(),
            };
            for _ in 0..leaf.joins {
                let other = waiting.pop().unwrap_or_default();
                let both: fn(f32, f32) -> f32 = match self.precision {
                    Precision::F32 => Single::sum,
                    Precision::Bf16 => Half::sum,
                };
                sum.iter_mut().zip(other).for_each(|(sum, other)| *sum = both(*sum, other));
            }
            waiting.push(sum);
        }
        Ok(waiting.pop().unwrap_or_default())
    }

    /// As the kernel is given it.
    pub(super) fn operands(&self) -> Vec<Operand> {
        let operand = |leaf: &Leaf| Operand { address: leaf.words.address(), is_half: 0, joins: leaf.joins };
        self.leaves.iter().map(operand).collect()
    }

    /// Whether leaves and sums are rounded.
    pub(super) fn rounds(&self) -> bool {
        self.precision == Precision::Bf16
    }

    /// What the leaves lie in.
    pub(super) fn memories(&self) -> impl Iterator<Item = Arc<Memory>> + '_ {
        self.leaves.iter().map(|leaf| leaf.words.memory())
    }
}
