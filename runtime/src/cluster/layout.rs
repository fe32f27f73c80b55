//! The layout: how declared parameters are cut into blocks. A function of the declaration alone.

use super::parameter::{Declaration, Parameter};
use super::precision::bf16_to_bytes;
use super::{BlockId, Precision};
use std::ops::{Index, IndexMut, Range};

/// A stretch of one parameter inside a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the parameter in the declaration.
    pub parameter: usize,
    /// First element of the parameter.
    pub first: u64,
    /// Where the piece lies in the block, in elements.
    pub range: Range<usize>,
}

/// A hash bucket of an embedding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketOf {
    /// Index of the table in the declaration.
    pub parameter: usize,
    /// Which of its buckets.
    pub number: u32,
}

/// The unit of placement, update and movement: one or more pieces of dense parameters, side by side, or a bucket of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    /// In declaration order; of a bucket none.
    pub pieces: Vec<Piece>,
    /// The bucket that it is, if it is one.
    pub bucket: Option<BucketOf>,
    /// Elements of all pieces.
    pub elements: usize,
    /// Whether training steps read it (a block of metrics is not pulled).
    pub is_read_by_steps: bool,
    /// Whether it holds metrics: then evaluations alone add to it, otherwise they never do.
    pub is_metric: bool,
    /// Whether trainers push gradients to it: not to the scalar block, which holds what is decided over all others.
    pub is_pushed: bool,
    /// Whether all that is pushed to it are gradients of dense parameters: what a job may round. Never so of counters,
    /// metrics, running statistics (nor of parameters that share a block with one) and rows of tables.
    pub is_roundable: bool,
}

/// All blocks of a job; a [`BlockId`] is an index into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    blocks: Vec<BlockLayout>,
    /// Asked for with every word about a step: it must not cost a look at all blocks.
    scalars: Option<BlockId>,
    decided: usize,
}

/// Elements of the largest block that the layout chooses: 1 MiB of f32, the size of a message.
pub const BLOCK_ELEMENTS_MAX: u64 = 1 << 18;
/// The most blocks of one job, a model of 1 TiB in blocks of 1 MiB: a bound on what a declaration or a table that is not
/// ours can make anybody reserve.
pub const BLOCKS_MAX: u64 = 1 << 20;
/// A model is cut into about this many blocks even when it is small, so that several pservers can share it.
const BLOCKS_WANTED: u64 = 16;
const BLOCK_ELEMENTS_MIN: u64 = 64;

/// Elements of a block, as stated or chosen.
fn block_elements(declaration: &Declaration) -> u64 {
    let dense = declaration.parameters.iter().filter(|parameter| parameter.table.is_none());
    let total = dense.map(Parameter::elements).fold(0, u64::saturating_add);
    match declaration.block_elements {
        0 => total.div_ceil(BLOCKS_WANTED).clamp(BLOCK_ELEMENTS_MIN, BLOCK_ELEMENTS_MAX),
        stated => stated.min(BLOCK_ELEMENTS_MAX),
    }
}

/// No fewer than a layout would have, without making one.
pub(super) fn blocks_at_most(declaration: &Declaration) -> u64 {
    let limit = block_elements(declaration);
    let blocks = |parameter: &Parameter| match parameter.table {
        Some(table) => u64::from(table.buckets),
        None => parameter.elements().div_ceil(limit),
    };
    declaration.parameters.iter().map(blocks).fold(0, u64::saturating_add)
}

impl Layout {
    /// Cuts a checked declaration: large parameters into pieces of `block_elements`, small neighbours together, tables into
    /// their buckets.
    pub fn new(declaration: &Declaration) -> Layout {
        let limit = block_elements(declaration) as usize;
        let mut layout = Layout { blocks: Vec::new(), scalars: None, decided: 0 };
        for (index, parameter) in declaration.parameters.iter().enumerate() {
            layout.add(index, parameter, limit);
        }
        let scalars = layout.blocks.iter().position(|block| !block.is_pushed);
        layout.scalars = scalars.map(|at| BlockId(at as u32));
        layout.decided = layout.blocks.iter().filter(|block| block.is_pushed && !block.is_metric).count();
        layout
    }

    fn add(&mut self, index: usize, parameter: &Parameter, limit: usize) {
        let is_read_by_steps = parameter.rule.is_read_by_steps();
        let (is_pushed, is_metric) = (parameter.rule.is_pushed(), parameter.rule.is_metric());
        if let Some(table) = parameter.table {
            let bucket = |number| Some(BucketOf { parameter: index, number });
            let block = BlockLayout {
                pieces: Vec::new(),
                bucket: None,
                elements: 0,
                is_read_by_steps,
                is_metric,
                is_pushed,
                is_roundable: false,
            };
            let blocks =
                (0..table.buckets).map(|number| BlockLayout { bucket: bucket(number), ..block.clone() });
            return self.blocks.extend(blocks);
        }
        // What is decided over all blocks is in one.
        let limit = if is_pushed { limit } else { parameter.elements() as usize };
        let mut first = 0;
        while first < parameter.elements() {
            let length = (parameter.elements() - first).min(limit as u64) as usize;
            let shares = self.blocks.last().is_some_and(|block| {
                first == 0
                    && block.bucket.is_none()
                    && length as u64 == parameter.elements()
                    && block.is_read_by_steps == is_read_by_steps
                    && block.is_pushed == is_pushed
                    && block.is_metric == is_metric
                    && block.elements + length <= limit
            });
            if !shares {
                let (pieces, elements) = (Vec::new(), 0);
                let bucket = None;
                self.blocks.push(BlockLayout {
                    pieces,
                    bucket,
                    elements,
                    is_read_by_steps,
                    is_metric,
                    is_pushed,
                    is_roundable: true,
                });
            }
            if let Some(block) = self.blocks.last_mut() {
                // A gradient is what goes into a rule with a learning rate.
                block.is_roundable &= parameter.rule.has_rate();
                let range = block.elements..block.elements + length;
                block.elements = range.end;
                block.pieces.push(Piece { parameter: index, first, range });
            }
            first += length as u64;
        }
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }
    /// Whether there is no block; never so for a checked declaration.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
    /// The scalar block, if there is one.
    pub fn scalars(&self) -> Option<BlockId> {
        self.scalars
    }
    /// How many blocks tell the scalar block of every step: all that are trained, counters included.
    pub fn decided(&self) -> usize {
        self.decided
    }
    /// One block, if there is such.
    pub fn block(&self, id: BlockId) -> Option<&BlockLayout> {
        self.blocks.get(id.0 as usize)
    }
    /// All blocks with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (BlockId, &BlockLayout)> {
        self.blocks.iter().enumerate().map(|(index, block)| (BlockId(index as u32), block))
    }
}

impl BlockLayout {
    /// In which precision gradients of the block travel and are summed, in a job of that setting: all of its elements alike.
    pub fn precision(&self, gradients: Precision) -> Precision {
        if self.is_roundable { gradients } else { Precision::F32 }
    }
    /// Copies a block's values into the parameters' values (indexed as declared).
    pub fn scatter<P>(&self, values: &[f32], parameters: &mut P)
    where
        P: IndexMut<usize, Output: AsMut<[f32]>> + ?Sized,
    {
        for piece in &self.pieces {
            let first = piece.first as usize;
            parameters[piece.parameter].as_mut()[first..first + piece.range.len()]
                .copy_from_slice(&values[piece.range.clone()]);
        }
    }
    /// The same of a block's values as they travel: little-endian, at any alignment, all of them.
    pub fn scatter_words<P>(&self, bytes: &[u8], parameters: &mut P)
    where
        P: IndexMut<usize, Output: AsMut<[f32]>> + ?Sized,
    {
        let words = bytes.as_chunks().0;
        for piece in &self.pieces {
            let first = piece.first as usize;
            let values = &mut parameters[piece.parameter].as_mut()[first..first + piece.range.len()];
            let words = words[piece.range.clone()].iter();
            values.iter_mut().zip(words).for_each(|(value, word)| *value = f32::from_le_bytes(*word));
        }
    }
    /// The one stretch of a parameter that the block is, if it is one: which parameter, and which of its elements.
    pub fn stretch(&self) -> Option<(usize, Range<usize>)> {
        let [Piece { parameter, first, range }] = self.pieces.as_slice() else { return None };
        let first = *first as usize;
        Some((*parameter, first..first + range.len()))
    }
    /// A block's values as they travel where they are rounded, which they must be: bf16, little-endian, 2 bytes each.
    pub fn gather_bf16<P>(&self, parameters: &P) -> Vec<u8>
    where
        P: Index<usize, Output: AsRef<[f32]>> + ?Sized,
    {
        let mut bytes = vec![0; Precision::Bf16.bytes() * self.elements];
        let words = bytes.as_chunks_mut().0;
        for piece in &self.pieces {
            let values = &parameters[piece.parameter].as_ref()[piece.first as usize..];
            let words = words[piece.range.clone()].iter_mut();
            words.zip(values).for_each(|(word, value)| *word = bf16_to_bytes(*value));
        }
        bytes
    }
    /// Collects a block's values from the parameters' values (indexed as declared).
    pub fn gather<P>(&self, parameters: &P, values: &mut Vec<f32>)
    where
        P: Index<usize, Output: AsRef<[f32]>> + ?Sized,
    {
        values.clear();
        for piece in &self.pieces {
            let first = piece.first as usize;
            let of = &parameters[piece.parameter].as_ref()[first..first + piece.range.len()];
            values.extend_from_slice(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::initial::Initial;
    use crate::cluster::precision::bf16_from_bytes;
    use crate::cluster::rule::Rule;
    use crate::cluster::schedule::Schedule;
    use crate::cluster::table::Table;
    use crate::cluster::{Decisions, Group, Metric};
    use proptest::prelude::*;

    fn dense(name: &str, elements: u64) -> Parameter {
        Parameter::new(name, &[elements], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros)
    }

    #[test]
    fn small_neighbours_share_a_block_and_metrics_stand_apart() {
        let parameters = vec![dense("a", 3), dense("b", 4), dense("c", 25), Parameter::sum("loss", &[1])];
        let layout = Layout::new(&Declaration { parameters, block_elements: 10 });
        let elements: Vec<usize> = layout.iter().map(|(_, block)| block.elements).collect();
        assert_eq!(elements, [7, 10, 10, 5, 1]);
        assert!(!layout.block(BlockId(4)).unwrap().is_read_by_steps);
    }

    #[test]
    fn every_bucket_of_a_table_is_a_block_of_its_own() {
        let table = dense("t", 3).as_table(Table { buckets: 3, ..Table::default() });
        let parameters = vec![dense("a", 3), table, dense("b", 4)];
        let layout = Layout::new(&Declaration { parameters, block_elements: 10 });
        let buckets: Vec<Option<BucketOf>> = layout.iter().map(|(_, block)| block.bucket).collect();
        let bucket = |number| Some(BucketOf { parameter: 1, number });
        assert_eq!(buckets, [None, bucket(0), bucket(1), bucket(2), None]);
        assert!(layout.iter().all(|(_, block)| block.bucket.is_none() == (block.elements > 0)));
    }

    #[test]
    fn a_block_is_rounded_only_where_all_of_it_is_gradients() {
        let frozen = dense("frozen", 2).in_group(Group { is_frozen: true, ..Group::default() });
        let parameters = vec![
            dense("a", 3),
            frozen,
            dense("large", 25),
            Parameter::new("mean", &[2], Rule::Ema { decay: 0.9 }, Schedule::constant(0.0), Initial::Zeros),
            dense("beside", 2),
            Parameter::sum("loss", &[1]),
            Parameter::metric("right", Metric::Accuracy),
            dense("t", 3).as_table(Table { buckets: 1, ..Table::default() }),
        ];
        let declaration = Declaration { parameters, block_elements: 10 }.deciding(Decisions::default());
        let layout = Layout::new(&declaration);
        let blocks: Vec<(usize, bool)> =
            layout.iter().map(|(_, block)| (block.elements, block.is_roundable)).collect();
        let decided = declaration.parameters.last().map_or(0, |last| last.elements() as usize);
        // The tail of the large one shares its block with the running mean and what comes after it.
        let expected = [(5, true), (10, true), (10, true), (9, false), (1, false), (2, false), (0, false)];
        assert_eq!(blocks, [&expected[..], &[(decided, false)]].concat());
        for (_, block) in layout.iter() {
            let bf16 = if block.is_roundable { Precision::Bf16 } else { Precision::F32 };
            assert_eq!(block.precision(Precision::Bf16), bf16);
            assert_eq!(block.precision(Precision::F32), Precision::F32);
        }
    }

    proptest! {
        #[test]
        fn every_element_lies_in_exactly_one_block(
            lengths in proptest::collection::vec(1u64..500, 1..12), block_elements in 0u64..300
        ) {
            let parameters: Vec<Parameter> =
                lengths.iter().enumerate().map(|(i, n)| dense(&i.to_string(), *n)).collect();
            let layout = Layout::new(&Declaration { parameters, block_elements });
            let mut counts: Vec<Vec<f32>> = lengths.iter().map(|n| vec![0.0; *n as usize]).collect();
            let mut words = counts.clone();
            for (_, block) in layout.iter() {
                let mut values = Vec::new();
                block.gather(&counts, &mut values);
                prop_assert_eq!(values.len(), block.elements);
                values.iter_mut().for_each(|v| *v += 1.0);
                let halves = block.gather_bf16(&counts);
                let halves = halves.as_chunks().0.iter().map(|half| bf16_from_bytes(*half) + 1.0);
                prop_assert_eq!(halves.collect::<Vec<_>>(), values.as_slice());
                block.scatter(&values, &mut counts);
                let bytes: Vec<u8> = [1].into_iter().chain(values.iter().flat_map(|value| value.to_le_bytes())).collect();
                block.scatter_words(&bytes[1..], &mut words);
            }
            prop_assert!(counts.iter().flatten().all(|count| *count == 1.0));
            prop_assert_eq!(words, counts);
        }
    }
}
