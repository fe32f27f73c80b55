//! Dense gradient sums, whose memory is used again: the pages of a large model's gradient are asked of the system once, not at every
//! step. No more of it is kept than gradients have had at a time of late: what was unused while [`WINDOW`] gradients were begun is
//! given back.

use crate::flat::{Flat, Places};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sums of each dense parameter, indexed as declared.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    values: Flat,
    /// Where the memory goes when the sums are dropped; `None`: back to the allocator.
    unused: Option<Arc<Unused>>,
}

/// Gradients that are begun before what none of them needed is given back: many steps' worth, few seconds'.
const WINDOW: usize = 256;

/// Memory of gradients that were dropped, for the next ones of the same declaration.
#[derive(Debug, Default)]
pub(crate) struct Unused(Mutex<Stack>);

/// Gradients that nobody uses. The one dropped last is used first, so the lowest are those that were needed least.
#[derive(Debug, Default)]
struct Stack {
    gradients: Vec<Flat>,
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
    /// The memory of a gradient, if some is unused; and what nobody needed, for whoever asks to drop.
    fn take(&mut self) -> (Option<Flat>, Vec<Flat>) {
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
    /// Zeros.
    pub(crate) fn zeros(unused: &Arc<Unused>, places: &Places) -> Sums {
        let (taken, surplus) = unused.stack().take();
        drop(surplus);
        let values = match taken.filter(|values| values.places() == places) {
            Some(mut values) => {
                values.all_mut().fill(0.0);
                values
            }
            None => Flat::zeros(places),
        };
        Sums { values, unused: Some(unused.clone()) }
    }
}

impl From<Flat> for Sums {
    fn from(values: Flat) -> Sums {
        Sums { values, unused: None }
    }
}

#[cfg(test)]
impl From<Vec<Vec<f32>>> for Sums {
    fn from(vectors: Vec<Vec<f32>>) -> Sums {
        Flat::from(vectors).into()
    }
}

impl Clone for Sums {
    fn clone(&self) -> Sums {
        self.values.clone().into()
    }
}

impl Deref for Sums {
    type Target = Flat;

    fn deref(&self) -> &Flat {
        &self.values
    }
}

impl DerefMut for Sums {
    fn deref_mut(&mut self) -> &mut Flat {
        &mut self.values
    }
}

impl Drop for Sums {
    fn drop(&mut self) {
        if let Some(unused) = &self.unused {
            let values = std::mem::take(&mut self.values);
            unused.stack().gradients.push(values);
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
        let places = Places::of([3, 0, 2]);
        let new = || Sums::zeros(&unused, &places);
        let (mut first, second) = (new(), new());
        first.iter_mut().for_each(|values| values.fill(f32::NAN));
        assert!(second.iter().eq([&[0.0; 3][..], &[], &[0.0; 2]]));
        let (of_first, of_second) = (addresses(&first), addresses(&second));
        assert_ne!(of_first, of_second);
        drop(first);
        assert_eq!(unused.stack().gradients.len(), 1);
        let third = new();
        assert!(addresses(&third) == of_first && third.iter().eq(second.iter()));
        assert_eq!(unused.stack().gradients.len(), 0, "all are in use");
    }

    #[test]
    fn what_a_window_of_gradients_did_not_need_is_given_back() {
        let unused: Arc<Unused> = Arc::default();
        let (one, two) = (Places::of([1]), Places::of([2]));
        let new = || Sums::zeros(&unused, &one);
        // Nine at a time once, then three.
        drop((0..9).map(|_| new()).collect::<Vec<Sums>>());
        let three = || drop((0..3).map(|_| new()).collect::<Vec<Sums>>());
        (0..2 * WINDOW / 3).for_each(|_| three());
        assert_eq!(unused.stack().gradients.len(), 3);
        // What is kept goes on being used: nothing is given back any more.
        let addresses = || unused.stack().gradients.iter().map(|of| of.all().as_ptr()).collect::<Vec<_>>();
        let before = addresses();
        (0..2 * WINDOW / 3).for_each(|_| three());
        assert_eq!(addresses(), before);
        // Another declaration has memory of its own.
        assert_eq!(Sums::zeros(&unused, &two).len(), 1);
    }

    #[test]
    fn a_copy_and_what_was_made_elsewhere_are_not_kept() {
        let unused = Arc::default();
        let sums = Sums::zeros(&unused, &Places::of([1]));
        drop((sums.clone(), Sums::from(vec![vec![1.0]])));
        assert_eq!(unused.stack().gradients.len(), 0);
        drop(sums);
        assert_eq!(unused.stack().gradients.len(), 1);
    }
}
