//! Dense gradient sums, whose memory is used again: the pages of a large model's gradient are asked of the system once, not at every
//! step. No more of it is kept than gradients have had at a time of late: what was unused while [`WINDOW`] gradients were begun is
//! given back.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A vector of sums for each parameter, indexed as declared.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    vectors: Vectors,
    /// Where the vectors go when the sums are dropped; `None`: back to the allocator.
    unused: Option<Arc<Unused>>,
}

/// Gradients that are begun before what none of them needed is given back: many steps' worth, few seconds'.
const WINDOW: usize = 256;

/// Vectors of gradients that were dropped, for the next ones of the same declaration.
#[derive(Debug, Default)]
pub(crate) struct Unused(Mutex<Stack>);

/// The values of one gradient, a vector for each parameter.
type Vectors = Vec<Vec<f32>>;

/// Gradients that nobody uses. The one dropped last is used first, so the lowest are those that were needed least.
#[derive(Debug, Default)]
struct Stack {
    gradients: Vec<Vectors>,
    /// The fewest that lay here since the window began.
    fewest: usize,
    /// Gradients begun in this window.
    begun: usize,
}

impl Unused {
    fn stack(&self) -> MutexGuard<'_, Stack> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stack {
    /// The vectors of a gradient, if some are unused; and those that nobody needed, for whoever asks to drop.
    fn take(&mut self) -> (Option<Vectors>, Vec<Vectors>) {
        let taken = self.gradients.pop();
        (self.fewest, self.begun) = (self.fewest.min(self.gradients.len()), self.begun + 1);
        if self.begun < WINDOW {
            return (taken, Vec::new());
        }
        let surplus = self.gradients.drain(..self.fewest).collect();
        (self.fewest, self.begun) = (self.gradients.len(), 0);
        (taken, surplus)
    }
}

impl Sums {
    /// Zeros, a vector of each length.
    pub(crate) fn zeros(unused: &Arc<Unused>, lengths: impl Iterator<Item = usize> + Clone) -> Sums {
        let (taken, surplus) = unused.stack().take();
        drop(surplus);
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
            unused.stack().gradients.push(vectors);
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
        assert_eq!(unused.stack().gradients.len(), 1);
        let third = new();
        assert_eq!((addresses(&third), third.to_vec()), (of_first, second.to_vec()));
        assert_eq!(unused.stack().gradients.len(), 0, "all are in use");
    }

    #[test]
    fn what_a_window_of_gradients_did_not_need_is_given_back() {
        let unused: Arc<Unused> = Arc::default();
        let new = || Sums::zeros(&unused, [1].into_iter());
        // Nine at a time once, then three.
        drop((0..9).map(|_| new()).collect::<Vec<Sums>>());
        let three = || drop((0..3).map(|_| new()).collect::<Vec<Sums>>());
        (0..2 * WINDOW / 3).for_each(|_| three());
        assert_eq!(unused.stack().gradients.len(), 3);
        // What is kept goes on being used: nothing is given back any more.
        unused.stack().gradients.iter_mut().for_each(|vectors| vectors[0].clear());
        let empty = || Sums::zeros(&unused, [0].into_iter());
        (0..2 * WINDOW / 3).for_each(|_| drop((0..3).map(|_| empty()).collect::<Vec<Sums>>()));
        let stack = unused.stack();
        let marked = stack.gradients.iter().filter(|vectors| vectors[0].capacity() > 0).count();
        assert_eq!((stack.gradients.len(), marked), (3, 3), "a new one of no length has no memory");
    }

    #[test]
    fn a_copy_and_what_was_made_elsewhere_are_not_kept() {
        let unused = Arc::default();
        let sums = Sums::zeros(&unused, [1].into_iter());
        drop((sums.clone(), Sums::from(vec![vec![1.0]])));
        assert_eq!(unused.stack().gradients.len(), 0);
        drop(sums);
        assert_eq!(unused.stack().gradients.len(), 1);
    }
}
