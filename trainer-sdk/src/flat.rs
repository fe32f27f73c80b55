//! Values of all dense parameters in one stretch of memory: an array library can be lent all of them at once, and goes over them at
//! once. Pure.

use std::ops::{Index, IndexMut, Range};
use std::sync::Arc;

/// Where parameters begin: at a multiple of this many elements, 64 bytes. Array libraries share memory that is aligned so, and copy
/// other memory (`jax.device_put`); vector registers are no wider.
const ALIGNMENT: usize = 16;

/// Where each parameter lies in a stretch, in elements; indexed as declared, empty for one that has no values there. Clones are the
/// same places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places(Arc<[Range<usize>]>);

impl Places {
    /// One after the other, of so many elements each.
    pub(crate) fn of(lengths: impl IntoIterator<Item = usize>) -> Places {
        let mut end = 0usize;
        let place = |length| {
            let first = end.next_multiple_of(ALIGNMENT);
            end = first + length;
            first..end
        };
        Places(lengths.into_iter().map(place).collect())
    }

    /// Elements of the whole stretch, gaps between parameters included.
    pub(crate) fn elements(&self) -> usize {
        self.0.last().map_or(0, |last| last.end)
    }
}

/// Values of all dense parameters, indexed as declared. What lies in the gaps between them is of no meaning.
#[derive(Default)]
pub(crate) struct Flat {
    /// The stretch, and what it takes to begin it at an aligned address.
    memory: Vec<f32>,
    begin: usize,
    places: Places,
}

impl Flat {
    /// Zeros.
    pub(crate) fn zeros(places: &Places) -> Flat {
        // Zeroed memory comes from the system, which has it for nothing.
        let memory = vec![0.0f32; places.elements() + ALIGNMENT - 1];
        let begin = memory.as_ptr().align_offset(4 * ALIGNMENT).min(ALIGNMENT - 1);
        Flat { memory, begin, places: places.clone() }
    }

    /// Where its parameters are.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// The whole stretch, gaps included.
    pub(crate) fn all(&self) -> &[f32] {
        &self.memory[self.begin..][..self.places.elements()]
    }

    /// The whole stretch, to be written to.
    pub(crate) fn all_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.begin..][..self.places.elements()]
    }

    /// Where a parameter lies in the stretch, in elements.
    pub(crate) fn place(&self, parameter: usize) -> Range<usize> {
        self.places.0[parameter].clone()
    }

    /// How many parameters it is of.
    pub(crate) fn len(&self) -> usize {
        self.places.0.len()
    }

    /// The values of each parameter.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[f32]> + Clone {
        self.places.0.iter().map(|place| &self.all()[place.clone()])
    }

    /// The values of each parameter, to be written to.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let (mut rest, mut at) = (&mut self.memory[self.begin..], 0);
        self.places.0.iter().map(move |place| {
            let (_, from) = std::mem::take(&mut rest).split_at_mut(place.start - at);
            let (values, after) = from.split_at_mut(place.len());
            (rest, at) = (after, place.end);
            values
        })
    }
}

impl Index<usize> for Flat {
    type Output = [f32];

    fn index(&self, parameter: usize) -> &[f32] {
        &self.all()[self.places.0[parameter].clone()]
    }
}

impl IndexMut<usize> for Flat {
    fn index_mut(&mut self, parameter: usize) -> &mut [f32] {
        let place = self.places.0[parameter].clone();
        &mut self.all_mut()[place]
    }
}

/// A copy has an aligned address of its own.
impl Clone for Flat {
    fn clone(&self) -> Flat {
        let mut copy = Flat::zeros(&self.places);
        copy.all_mut().copy_from_slice(self.all());
        copy
    }
}

impl std::fmt::Debug for Flat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
impl From<Vec<Vec<f32>>> for Flat {
    fn from(vectors: Vec<Vec<f32>>) -> Flat {
        let mut flat = Flat::zeros(&Places::of(vectors.iter().map(Vec::len)));
        flat.iter_mut().zip(&vectors).for_each(|(values, of)| values.copy_from_slice(of));
        flat
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_parameter_has_its_own_values_at_an_aligned_address(lengths in proptest::collection::vec(0usize..40, 0..9)) {
            let places = Places::of(lengths.iter().copied());
            let mut flat = Flat::zeros(&places);
            let value = |parameter: usize, at: usize| (100 * parameter + at + 1) as f32;
            for (parameter, values) in flat.iter_mut().enumerate() {
                values.iter_mut().enumerate().for_each(|(at, of)| *of += value(parameter, at));
            }
            let expected: Vec<Vec<f32>> =
                lengths.iter().enumerate().map(|(p, n)| (0..*n).map(|at| value(p, at)).collect()).collect();
            for flat in [&flat, &flat.clone()] {
                prop_assert_eq!(flat.len(), lengths.len());
                prop_assert!(flat.iter().eq(expected.iter().map(Vec::as_slice)));
                for (parameter, values) in expected.iter().enumerate() {
                    prop_assert_eq!(&flat[parameter], &values[..]);
                    prop_assert_eq!(flat[parameter].as_ptr().align_offset(64), 0);
                }
                let sum: f64 = flat.all().iter().map(|value| f64::from(*value)).sum();
                prop_assert_eq!(sum, expected.iter().flatten().map(|value| f64::from(*value)).sum::<f64>(), "gaps are zero");
            }
        }
    }
}
