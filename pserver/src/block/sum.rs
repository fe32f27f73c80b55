//! What microbatches add up to in one block: values of a dense block, rows of a bucket. Here is all that differs between
//! the two on the way from a message to an update. Pure.

use super::held::Difference;
use super::shape::STRETCH;
use crate::device::{DeviceError, Tree, Words};
use crate::kernel::sum::{
    Half, Single, Word, add_left_words, add_right, add_right_words, first_difference, read_into,
};
use bytes::Bytes;
use shoal_runtime::cluster::precision::bf16_to_bytes;
use shoal_runtime::cluster::{Precision, Rows};
use std::borrow::Cow;
use std::ops::Range;

/// A sum over microbatches.
#[derive(Clone, Debug, PartialEq)]
pub enum Sum {
    /// Of a dense block.
    Dense(DenseSum),
    /// Of a bucket, the rows whose keys occurred.
    Rows(Rows),
}

/// One value for each element of a dense block; none where the block takes no part. What came last in a message may still
/// be there, unread: a root's is read stretch by stretch on its way into the update, which saves a pass over memory.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseSum {
    values: Vec<f32>,
    unread: Option<(Bytes, Side)>,
    /// On a device still; then nothing of it is here.
    there: Option<Tree>,
    /// How messages of the block are to be read, and what becomes of each sum of two.
    precision: Precision,
}

/// What an unread message is of a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    /// All of it: there are no values yet.
    All,
    /// To be added to the values, as the left side or the right one.
    Left,
    Right,
}

/// A sum as it came.
#[derive(Clone, Debug)]
pub enum Came<'a> {
    /// One word for each element of the block, of so many bytes as the precision has.
    Words(Bytes, Precision),
    /// One f32 for each element of the block, on this pserver's device; as the precision says they are rounded.
    There(Words, Precision),
    /// Of a bucket, the rows whose keys occurred. Owned ones are kept as they are, not copied.
    Rows(Cow<'a, Rows>),
}

impl Came<'_> {
    /// The same, to be looked at.
    pub fn as_ref(&self) -> Came<'_> {
        match self {
            Came::Words(words, precision) => Came::Words(words.clone(), *precision),
            Came::There(words, precision) => Came::There(words.clone(), *precision),
            Came::Rows(rows) => Came::Rows(Cow::Borrowed(rows)),
        }
    }

    /// Copies here what is on a device.
    ///
    /// # Errors
    /// The device has failed; it is there still.
    pub fn bring(&mut self) -> Result<(), DeviceError> {
        if let Came::There(words, precision) = self {
            let values = Tree::of(words.clone(), *precision).bring()?;
            let words: Vec<u8> = match precision {
                Precision::F32 => bytemuck::cast_slice(&values).to_vec(),
                Precision::Bf16 => values.iter().flat_map(|value| bf16_to_bytes(*value)).collect(),
            };
            *self = Came::Words(words.into(), *precision);
        }
        Ok(())
    }

    /// The same, of a dense block unread.
    pub fn into_sum(self) -> Sum {
        match self {
            Came::Words(words, precision) => Sum::Dense(DenseSum::unread(words, precision)),
            Came::There(words, precision) => {
                let there = Some(Tree::of(words, precision));
                Sum::Dense(DenseSum { values: Vec::new(), unread: None, there, precision })
            }
            Came::Rows(rows) => Sum::Rows(rows.into_owned()),
        }
    }

    /// Rows of a bucket.
    pub(super) fn rows(&self) -> usize {
        match self {
            Came::Words(..) | Came::There(..) => 0,
            Came::Rows(rows) => rows.len(),
        }
    }
}

impl From<Vec<f32>> for DenseSum {
    fn from(values: Vec<f32>) -> DenseSum {
        DenseSum { values, unread: None, there: None, precision: Precision::F32 }
    }
}

impl DenseSum {
    /// What a message says, little-endian, in that precision.
    pub fn unread(words: Bytes, precision: Precision) -> DenseSum {
        DenseSum { values: Vec::new(), unread: Some((words, Side::All)), there: None, precision }
    }

    /// Whether it has no values, and none to be read.
    pub fn is_empty(&self) -> bool {
        let is_unread = self.unread.as_ref().is_some_and(|(words, _)| !words.is_empty());
        self.values.is_empty() && !is_unread && self.there.as_ref().is_none_or(|tree| tree.elements() == 0)
    }

    /// What it is of on a device, if it is there.
    pub fn there(&self) -> Option<&Tree> {
        self.there.as_ref()
    }

    /// Copies here what is on a device.
    ///
    /// # Errors
    /// The device has failed; it is there still.
    fn bring(&mut self) -> Result<(), DeviceError> {
        if let Some(tree) = &self.there {
            self.values = tree.bring()?;
            self.there = None;
        }
        Ok(())
    }

    /// Reads what is unread, and lets go of the message. What is on a device stays there.
    pub fn settle(&mut self) {
        let elements = self.elements();
        self.stretch(0..elements);
        self.unread = None;
    }

    /// All values of one that is settled.
    pub fn values(&self) -> &[f32] {
        debug_assert!(self.unread.is_none(), "it is to be settled before it is looked at");
        debug_assert!(self.there.is_none(), "it is to be brought here before it is looked at");
        &self.values
    }

    /// The values of the stretch that comes next, read now. Stretches are asked for in order, each once.
    pub(super) fn stretch(&mut self, range: Range<usize>) -> &mut [f32] {
        match self.precision {
            Precision::F32 => self.read::<Single>(range.clone(), |words| words.as_chunks().0),
            Precision::Bf16 => self.read::<Half>(range.clone(), |words| words.as_chunks().0),
        }
        &mut self.values[range]
    }

    /// Reads a stretch of what is unread, by what its bytes are as words.
    #[inline]
    fn read<W: Word>(&mut self, range: Range<usize>, words: fn(&[u8]) -> &[W]) {
        let Some((bytes, side)) = &self.unread else { return };
        let words = &words(bytes)[range.clone()];
        match side {
            Side::All => {
                if self.values.is_empty() {
                    self.values.reserve_exact(bytes.len() / self.precision.bytes());
                }
                read_into(words, &mut self.values);
            }
            Side::Left => add_left_words(words, &mut self.values[range]),
            Side::Right => add_right_words(&mut self.values[range], words),
        }
    }

    /// Reads all of it to there, stretch by stretch.
    pub(super) fn read_to(&mut self, to: &mut [f32]) {
        for (at, to) in to.chunks_mut(STRETCH).enumerate() {
            let first = at * STRETCH;
            to.copy_from_slice(self.stretch(first..first + to.len()));
        }
    }

    /// All values, once every stretch was asked for.
    pub(super) fn into_values(self) -> Vec<f32> {
        self.values
    }

    fn elements(&self) -> usize {
        self.unread.as_ref().map_or(self.values.len(), |(words, _)| words.len() / self.precision.bytes())
    }

    /// Both are of one block, and so of one precision; both are here, or both on a device.
    fn merge(mut self, mut sibling: DenseSum, is_left: bool) -> DenseSum {
        let precision = self.precision;
        if let (Some(tree), Some(other)) = (&self.there, &sibling.there) {
            let there =
                Some(tree.join(other).unwrap_or_else(|| unreachable!("a step's tree is not so deep")));
            return DenseSum { there, ..self };
        }
        sibling.settle();
        if let Some((words, Side::All)) = self.unread {
            let side = if is_left { Side::Left } else { Side::Right };
            return DenseSum { values: sibling.values, unread: Some((words, side)), there: None, precision };
        }
        self.settle();
        let (mut left, right) = if is_left { (self, sibling) } else { (sibling, self) };
        match precision {
            Precision::F32 => add_right::<Single>(&mut left.values, &right.values),
            Precision::Bf16 => add_right::<Half>(&mut left.values, &right.values),
        }
        left
    }
}

/// The first difference in bits of values to words.
fn difference<W: Word>(held: &[f32], words: &[W]) -> Option<Difference> {
    let element = first_difference(held, words)?;
    Some(Difference::Element { element, held: held[element], came: words[element].read() })
}

impl Sum {
    /// Of no microbatch.
    pub(super) fn nothing(is_of_rows: bool) -> Sum {
        if is_of_rows { Sum::Rows(Rows::default()) } else { Sum::Dense(Vec::new().into()) }
    }

    /// Reads what is unread of it.
    pub fn settle(&mut self) {
        if let Sum::Dense(sum) = self {
            sum.settle();
        }
    }

    /// Whether it is on a device.
    pub(super) fn is_there(&self) -> bool {
        matches!(self, Sum::Dense(sum) if sum.there.is_some())
    }

    /// Copies here what is on a device.
    ///
    /// # Errors
    /// The device has failed; it is there still.
    pub(super) fn bring(&mut self) -> Result<(), DeviceError> {
        match self {
            Sum::Dense(sum) => sum.bring(),
            Sum::Rows(_) => Ok(()),
        }
    }

    /// Rows of a bucket.
    pub(super) fn rows(&self) -> usize {
        match self {
            Sum::Dense(_) => 0,
            Sum::Rows(rows) => rows.len(),
        }
    }

    /// `left + right`, where this is the left one or the right one of the two. Both are of one block.
    pub(super) fn merge(self, sibling: Sum, is_left: bool) -> Sum {
        match (self, sibling) {
            (Sum::Dense(sum), Sum::Dense(sibling)) => Sum::Dense(sum.merge(sibling, is_left)),
            (Sum::Rows(left), Sum::Rows(right)) if is_left => Sum::Rows(left.merge(right)),
            (Sum::Rows(right), Sum::Rows(left)) => Sum::Rows(left.merge(right)),
            (Sum::Dense(_), Sum::Rows(_)) | (Sum::Rows(_), Sum::Dense(_)) => {
                unreachable!("a block is dense or a bucket: its shape has checked what came")
            }
        }
    }

    /// The first difference in bits to what came for the same node.
    pub(super) fn first_difference(&self, came: &Came<'_>) -> Option<Difference> {
        if self.is_there() || matches!(came, Came::There(..)) {
            // A device that has failed contradicts nothing.
            let [mut held, mut came] = [self.clone(), came.as_ref().into_sum()];
            [&mut held, &mut came].into_iter().try_for_each(Sum::bring).ok()?;
            came.settle();
            let Sum::Dense(came) = came else { return None };
            let words = bytemuck::cast_slice::<f32, u8>(came.values()).to_vec().into();
            return held.first_difference(&Came::Words(words, Precision::F32));
        }
        match (self, came) {
            (Sum::Dense(held), Came::Words(words, Precision::F32)) => {
                difference::<Single>(held.values(), words.as_chunks().0)
            }
            (Sum::Dense(held), Came::Words(words, Precision::Bf16)) => {
                difference::<Half>(held.values(), words.as_chunks().0)
            }
            (Sum::Rows(held), Came::Rows(rows)) => held.first_difference(rows).map(Difference::Row),
            (Sum::Dense(_), Came::Rows(_) | Came::There(..))
            | (Sum::Rows(_), Came::Words(..) | Came::There(..)) => {
                unreachable!("a block is dense or a bucket: its shape has checked what came")
            }
        }
    }
}

#[cfg(test)]
impl Sum {
    /// The values of a dense block.
    pub(crate) fn dense(&self) -> Vec<f32> {
        match self.clone() {
            Sum::Dense(mut sum) => {
                sum.bring().unwrap();
                sum.settle();
                sum.into_values()
            }
            Sum::Rows(rows) => panic!("{rows:?}"),
        }
    }
}
