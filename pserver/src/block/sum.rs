//! What microbatches add up to in one block: values of a dense block, rows of a bucket. Here is all that differs between
//! the two on the way from a message to an update. Pure.

use super::held::Difference;
use crate::kernel::sum::{
    Word, add_left_words, add_right, add_right_words, first_difference, read, read_all,
};
use shoal_runtime::cluster::Rows;
use std::borrow::Cow;

/// A sum over microbatches.
#[derive(Clone, Debug, PartialEq)]
pub enum Sum {
    /// One value for each element of the block; none where the block takes no part.
    Dense(Vec<f32>),
    /// Of a bucket, the rows whose keys occurred.
    Rows(Rows),
}

/// A sum as it came.
#[derive(Clone, Debug)]
pub enum Came<'a> {
    /// One word for each element of the block.
    Words(&'a [Word]),
    /// Of a bucket, the rows whose keys occurred. Owned ones are kept as they are, not copied.
    Rows(Cow<'a, Rows>),
}

impl Came<'_> {
    /// The same, to be looked at.
    pub fn as_ref(&self) -> Came<'_> {
        match self {
            Came::Words(words) => Came::Words(words),
            Came::Rows(rows) => Came::Rows(Cow::Borrowed(rows)),
        }
    }

    /// The same, kept.
    pub fn into_sum(self) -> Sum {
        match self {
            Came::Words(words) => Sum::Dense(read_all(words)),
            Came::Rows(rows) => Sum::Rows(rows.into_owned()),
        }
    }

    /// Rows of a bucket.
    pub(super) fn rows(&self) -> usize {
        match self {
            Came::Words(_) => 0,
            Came::Rows(rows) => rows.len(),
        }
    }

    /// `left + right`, where this is the left one or the right one of the two.
    pub(super) fn merge(self, sibling: Sum, is_left: bool) -> Sum {
        match (self, sibling) {
            (Came::Words(left), Sum::Dense(mut right)) if is_left => {
                add_left_words(left, &mut right);
                Sum::Dense(right)
            }
            (Came::Words(right), Sum::Dense(mut left)) => {
                add_right_words(&mut left, right);
                Sum::Dense(left)
            }
            (came, sibling) => came.into_sum().merge(sibling, is_left),
        }
    }
}

impl Sum {
    /// Rows of a bucket.
    pub(super) fn rows(&self) -> usize {
        match self {
            Sum::Dense(_) => 0,
            Sum::Rows(rows) => rows.len(),
        }
    }

    /// `left + right`, where this is the left one or the right one of the two. Both are of one block.
    pub(super) fn merge(self, sibling: Sum, is_left: bool) -> Sum {
        let (left, right) = if is_left { (self, sibling) } else { (sibling, self) };
        match (left, right) {
            (Sum::Dense(mut left), Sum::Dense(right)) => {
                add_right(&mut left, &right);
                Sum::Dense(left)
            }
            (Sum::Rows(left), Sum::Rows(right)) => Sum::Rows(left.merge(right)),
            (Sum::Dense(_), Sum::Rows(_)) | (Sum::Rows(_), Sum::Dense(_)) => {
                unreachable!("a block is dense or a bucket: its shape has checked what came")
            }
        }
    }

    /// The first difference in bits to what came for the same node.
    pub(super) fn first_difference(&self, came: &Came<'_>) -> Option<Difference> {
        match (self, came) {
            (Sum::Dense(held), Came::Words(words)) => {
                let element = first_difference(held, words)?;
                Some(Difference::Element { element, held: held[element], came: read(words[element]) })
            }
            (Sum::Rows(held), Came::Rows(rows)) => held.first_difference(rows).map(Difference::Row),
            (Sum::Dense(_), Came::Rows(_)) | (Sum::Rows(_), Came::Words(_)) => {
                unreachable!("a block is dense or a bucket: its shape has checked what came")
            }
        }
    }
}

#[cfg(test)]
impl Sum {
    /// The values of a dense block.
    pub(crate) fn dense(&self) -> &[f32] {
        match self {
            Sum::Dense(values) => values,
            Sum::Rows(rows) => panic!("{rows:?}"),
        }
    }
}
