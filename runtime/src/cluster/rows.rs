//! Sums over rows of a table: what microbatches give to the keys that occur in them, and how two such sums become one.
//! Pure.
//!
//! It is the step's tree once more, key by key: a key that is in one of two sums only has in the other the identity. So
//! the bits of a row's sum depend on the leaves that have its key and on their slots, and on nothing else.

use std::cmp::Ordering;

/// For each of some keys of one table how often it occurred, and the sum of its gradients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Strictly ascending.
    keys: Vec<u64>,
    /// As many, from 1; at the top it stays.
    counts: Vec<u32>,
    /// As many rows, each as long as the table's.
    values: Vec<f32>,
}

/// How two results for one node differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowDifference {
    /// One of them only has the key.
    Key {
        /// The key.
        key: u64,
    },
    /// They disagree on how often it occurred.
    Count {
        /// The key.
        key: u64,
        /// How often in this one.
        ours: u32,
        /// How often in the other.
        theirs: u32,
    },
    /// They disagree on an element of its sum.
    Element {
        /// The key.
        key: u64,
        /// Which element of the row.
        element: usize,
        /// Its value in this one.
        ours: f32,
        /// Its value in the other.
        theirs: f32,
    },
}

impl Rows {
    /// Of keys with their counts and rows of `dimension` elements each; -0.0 becomes 0.0, the identity. None unless keys
    /// ascend strictly, no count is 0 and all three are of one length.
    pub fn new(dimension: usize, keys: Vec<u64>, counts: Vec<u32>, mut values: Vec<f32>) -> Option<Rows> {
        let is_sound = keys.is_sorted_by(|left, right| left < right)
            && counts.len() == keys.len()
            && counts.iter().all(|count| *count > 0)
            && values.len() == keys.len().checked_mul(dimension)?;
        values.iter_mut().for_each(|value| *value += 0.0);
        is_sound.then_some(Rows { keys, counts, values })
    }

    /// The keys, ascending.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }
    /// How often each occurred.
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }
    /// The sums, row by row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }
    /// The sums, to be worked in.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }
    /// Keys, counts, and the sums to be worked in.
    pub fn parts_mut(&mut self) -> (&[u64], &[u32], &mut [f32]) {
        (&self.keys, &self.counts, &mut self.values)
    }
    /// Keys and sums alone.
    pub fn into_parts(self) -> (Vec<u64>, Vec<f32>) {
        (self.keys, self.values)
    }
    /// How many keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }
    /// Whether no key occurred.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Elements of a row; 0 where there is none.
    pub fn dimension(&self) -> usize {
        self.values.len().checked_div(self.len()).unwrap_or(0)
    }

    /// `left + right`, key by key. Both are of one table.
    pub fn merge(self, right: Rows) -> Rows {
        if self.is_empty() || right.is_empty() {
            return if self.is_empty() { right } else { self };
        }
        let dimension = self.dimension();
        assert_eq!(dimension, right.dimension(), "rows of two tables");
        let both = self.len() + right.len();
        let mut sum = Rows::with_room(both, dimension);
        let (mut l, mut r) = (0, 0);
        while l < self.len() || r < right.len() {
            let order = match (self.keys.get(l), right.keys.get(r)) {
                (Some(left), Some(right)) => left.cmp(right),
                (Some(_), None) => Ordering::Less,
                (None, _) => Ordering::Greater,
            };
            match order {
                Ordering::Less => sum.append(&self, &mut l, dimension),
                Ordering::Greater => sum.append(&right, &mut r, dimension),
                Ordering::Equal => {
                    sum.append(&self, &mut l, dimension);
                    let (at, first) = (sum.len() - 1, sum.values.len() - dimension);
                    sum.counts[at] = sum.counts[at].saturating_add(right.counts[r]);
                    let theirs = &right.values[r * dimension..(r + 1) * dimension];
                    sum.values[first..].iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours += *theirs);
                    r += 1;
                }
            }
        }
        sum
    }

    fn append(&mut self, of: &Rows, at: &mut usize, dimension: usize) {
        self.keys.push(of.keys[*at]);
        self.counts.push(of.counts[*at]);
        self.values.extend_from_slice(&of.values[*at * dimension..(*at + 1) * dimension]);
        *at += 1;
    }

    fn with_room(rows: usize, dimension: usize) -> Rows {
        Rows {
            keys: Vec::with_capacity(rows),
            counts: Vec::with_capacity(rows),
            values: Vec::with_capacity(rows * dimension),
        }
    }

    /// The first difference in bits, in key order. Of not-a-numbers the bits are anybody's.
    pub fn first_difference(&self, theirs: &Rows) -> Option<RowDifference> {
        let dimension = self.dimension();
        for (at, (key, their)) in self.keys.iter().zip(&theirs.keys).enumerate() {
            if key != their {
                return Some(RowDifference::Key { key: *key.min(their) });
            }
            let key = *key;
            let (ours, their) = (self.counts[at], theirs.counts[at]);
            if ours != their {
                return Some(RowDifference::Count { key, ours, theirs: their });
            }
            let row = at * dimension..(at + 1) * dimension;
            let pairs = self.values[row.clone()].iter().zip(&theirs.values[row]);
            for (element, (ours, theirs)) in pairs.enumerate() {
                if ours.to_bits() != theirs.to_bits() && !(ours.is_nan() && theirs.is_nan()) {
                    return Some(RowDifference::Element { key, element, ours: *ours, theirs: *theirs });
                }
            }
        }
        let longer = if self.len() > theirs.len() { self } else { theirs };
        let key = longer.keys.get(self.len().min(theirs.len()))?;
        Some(RowDifference::Key { key: *key })
    }

    /// The same keys, each once and with a row of zeros: where a microbatch's gradients are added up.
    pub fn zeros(dimension: usize, occurrences: impl IntoIterator<Item = u64>) -> Rows {
        let mut occurred: Vec<u64> = occurrences.into_iter().collect();
        occurred.sort_unstable();
        let (mut keys, mut counts): (Vec<u64>, Vec<u32>) = (Vec::new(), Vec::new());
        for key in occurred {
            match counts.last_mut().filter(|_| keys.last() == Some(&key)) {
                Some(count) => *count = count.saturating_add(1),
                None => {
                    keys.push(key);
                    counts.push(1);
                }
            }
        }
        let values = vec![0.0; keys.len() * dimension];
        Rows { keys, counts, values }
    }
}

#[cfg(test)]
mod tests;
