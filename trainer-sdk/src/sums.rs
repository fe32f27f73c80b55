//! Dense gradient sums, whose memory is used again: the pages of a large model's gradient are asked of the system once, not at every
//! step. No more of it is kept than gradients have had at a time, for the allocator is asked only when none is unused.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// A vector of sums for each parameter, indexed as declared.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    vectors: Vec<Vec<f32>>,
    /// Where the vectors go when the sums are dropped; `None`: back to the allocator.
    unused: Option<Arc<Unused>>,
}

/// Vectors of gradients that were dropped, for the next ones of the same declaration.
#[derive(Debug, Default)]
pub(crate) struct Unused(Mutex<Vec<Vec<Vec<f32>>>>);

impl Sums {
    /// Zeros, a vector of each length.
    pub(crate) fn zeros(unused: &Arc<Unused>, lengths: impl Iterator<Item = usize> + Clone) -> Sums {
        let taken = unused.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let vectors = match taken.filter(|vectors| vectors.iter().map(Vec::len).eq(lengths.clone())) {
            Some(mut vectors) => {
                vectors.iter_mut().for_each(|values| values.fill(0.0));
                vectors
            }
            None => lengths.map(|length| vec![0.0; length]).collect(),
        };
        Sums { vectors, unused: Some(unused.clone()) }
    }
}

impl From<Vec<Vec<f32>>> for Sums {
    fn from(vectors: Vec<Vec<f32>>) -> Sums {
        Sums { vectors, unused: None }
    }
}

impl Clone for Sums {
    fn clone(&self) -> Sums {
        self.vectors.clone().into()
    }
}

impl Deref for Sums {
    type Target = [Vec<f32>];

    fn deref(&self) -> &[Vec<f32>] {
        &self.vectors
    }
}

/// Values may be changed, lengths never.
impl DerefMut for Sums {
    fn deref_mut(&mut self) -> &mut [Vec<f32>] {
        &mut self.vectors
    }
}

impl Drop for Sums {
    fn drop(&mut self) {
        if let Some(unused) = &self.unused {
            let vectors = std::mem::take(&mut self.vectors);
            unused.0.lock().unwrap_or_else(PoisonError::into_inner).push(vectors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(sums: &Sums) -> Vec<*const f32> {
        sums.iter().map(|values| values.as_ptr()).collect()
    }

    #[test]
    fn a_gradient_has_the_memory_of_one_that_was_dropped_and_begins_at_zero() {
        let unused = Arc::default();
        let new = || Sums::zeros(&unused, [3, 0, 2].into_iter());
        let (mut first, second) = (new(), new());
        first.iter_mut().for_each(|values| values.fill(f32::NAN));
        assert_eq!((second.to_vec(), second.len()), (vec![vec![0.0; 3], vec![], vec![0.0; 2]], 3));
        let (of_first, of_second) = (addresses(&first), addresses(&second));
        assert_ne!(of_first, of_second);
        drop(first);
        assert_eq!(unused.0.lock().unwrap().len(), 1);
        let third = new();
        assert_eq!((addresses(&third), third.to_vec()), (of_first, second.to_vec()));
        assert_eq!(unused.0.lock().unwrap().len(), 0, "all are in use");
    }

    #[test]
    fn a_copy_and_what_was_made_elsewhere_are_not_kept() {
        let unused = Arc::default();
        let sums = Sums::zeros(&unused, [1].into_iter());
        drop((sums.clone(), Sums::from(vec![vec![1.0]])));
        assert_eq!(unused.0.lock().unwrap().len(), 0);
        drop(sums);
        assert_eq!(unused.0.lock().unwrap().len(), 1);
    }
}
