//! Tree sums of gradients: elementwise `left + right`, and the reading of little-endian words: f32, or bf16 where a job
//! rounds gradients.
//!
//! Words are read through [`Word::read`], which makes -0.0 into 0.0, so that 0.0 is a true identity of the sum. A sum of
//! canonical values is canonical, so it does not matter at which node of the tree this is done. Nothing here
//! may reorder operands: the bits of a sum are part of the protocol.

use super::width::{Loop, Width};
use shoal_runtime::cluster::precision::{bf16_from_bytes, round_bf16};
use std::marker::PhantomData;

/// One element as it travels, little-endian, at any alignment; and how its kind is summed.
pub trait Word: Copy {
    /// How wide its sums are made. Plain f32 ones are held up by memory, not by registers.
    fn width() -> Width;
    /// The value, canonical: -0.0 becomes 0.0.
    fn read(self) -> f32;
    /// The value of a node whose halves have these.
    fn sum(left: f32, right: f32) -> f32;
    /// The magnitude as bits of an f32, without a sign.
    fn magnitude(self) -> u32;
}

/// An f32.
pub type Single = [u8; 4];

/// A bf16: the upper half of an f32.
pub type Half = [u8; 2];

impl Word for Single {
    #[inline(always)]
    fn width() -> Width {
        Width::plain()
    }
    #[inline(always)]
    fn read(self) -> f32 {
        f32::from_le_bytes(self) + 0.0
    }
    #[inline(always)]
    fn sum(left: f32, right: f32) -> f32 {
        left + right
    }
    #[inline(always)]
    fn magnitude(self) -> u32 {
        u32::from_le_bytes(self) & !(1 << 31)
    }
}

impl Word for Half {
    #[inline(always)]
    fn width() -> Width {
        Width::widest()
    }
    #[inline(always)]
    fn read(self) -> f32 {
        bf16_from_bytes(self) + 0.0
    }
    #[inline(always)]
    fn sum(left: f32, right: f32) -> f32 {
        round_bf16(left + right)
    }
    #[inline(always)]
    fn magnitude(self) -> u32 {
        bf16_from_bytes(self).to_bits() & !(1 << 31)
    }
}

/// Adds the words of a message to the end of `values`.
pub fn read_into<W: Word>(words: &[W], values: &mut Vec<f32>) {
    values.extend(words.iter().map(|word| word.read()));
}

/// `left[i] = left[i] + right[i]`.
pub fn add_right<W: Word>(left: &mut [f32], right: &[f32]) {
    assert_eq!(left.len(), right.len());
    W::width().run(AddRight::<W>(left, right, PhantomData));
}

/// `left[i] = left[i] + right[i]`, the right side straight from a message.
pub fn add_right_words<W: Word>(left: &mut [f32], right: &[W]) {
    assert_eq!(left.len(), right.len());
    W::width().run(AddRightWords(left, right));
}

/// `right[i] = left[i] + right[i]`, the left side straight from a message.
pub fn add_left_words<W: Word>(left: &[W], right: &mut [f32]) {
    assert_eq!(left.len(), right.len());
    W::width().run(AddLeftWords(left, right));
}

struct AddRight<'a, W>(&'a mut [f32], &'a [f32], PhantomData<W>);

impl<W: Word> Loop for AddRight<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (left, right) in self.0.iter_mut().zip(self.1) {
            *left = W::sum(*left, *right);
        }
    }
}

struct AddRightWords<'a, W>(&'a mut [f32], &'a [W]);

impl<W: Word> Loop for AddRightWords<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (left, right) in self.0.iter_mut().zip(self.1) {
            *left = W::sum(*left, right.read());
        }
    }
}

struct AddLeftWords<'a, W>(&'a [W], &'a mut [f32]);

impl<W: Word> Loop for AddLeftWords<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (left, right) in self.0.iter().zip(self.1) {
            *right = W::sum(left.read(), *right);
        }
    }
}

/// The first element whose bits differ from the word's canonical value. Of not-a-numbers the bits are anybody's.
pub fn first_difference<W: Word>(values: &[f32], words: &[W]) -> Option<usize> {
    assert_eq!(values.len(), words.len());
    values.iter().zip(words).position(|(value, word)| {
        let read = word.read();
        value.to_bits() != read.to_bits() && !(value.is_nan() && read.is_nan())
    })
}

/// The first element that is an infinity or not-a-number.
pub fn first_non_finite<W: Word>(words: &[W]) -> Option<usize> {
    // Without a branch first: that vectorises, and almost every gradient is finite.
    if Width::widest().run(AreFinite(words)) {
        return None;
    }
    words.iter().position(|word| !word.read().is_finite())
}

struct AreFinite<'a, W>(&'a [W]);

impl<W: Word> Loop for AreFinite<'_, W> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        // The exponent of an infinity or not-a-number is all ones, and no other's magnitude is as large.
        self.0.iter().map(|word| word.magnitude()).fold(0, u32::max) < f32::INFINITY.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::cluster::precision::bf16_to_bytes;

    fn words(values: &[f32]) -> Vec<Single> {
        values.iter().map(|value| value.to_le_bytes()).collect()
    }

    fn halves(values: &[f32]) -> Vec<Half> {
        values.iter().map(|value| bf16_to_bytes(round_bf16(*value))).collect()
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    #[test]
    fn all_three_additions_give_the_same_bits() {
        let (left, right) = ([1e-40f32, 1.0, -3.5, 1e30], [2e-40f32, 1e-8, 3.5, 1e22]);
        let expected: Vec<u32> = left.iter().zip(&right).map(|(l, r)| (l + r).to_bits()).collect();
        let (mut a, mut b, mut c) = (left, left, right);
        add_right::<Single>(&mut a, &right);
        add_right_words(&mut b, &words(&right));
        add_left_words(&words(&left), &mut c);
        assert_eq!((bits(&a), bits(&b), bits(&c)), (expected.clone(), expected.clone(), expected));
    }

    /// Values of bf16 whose sums are rounded up, down, at ties, to subnormals, to infinity, to 0.0 and to -0.0 if nobody
    /// takes care.
    fn rounded_pairs(count: usize) -> (Vec<f32>, Vec<f32>) {
        let values: [(f32, f32); 12] = [
            (1.0, 1.0 / 256.0),
            (1.0 + 1.0 / 128.0, 1.0 / 256.0),
            (1.0, 3.0 / 512.0),
            (-2.0, 1e-3),
            (1e30, -1e30),
            (-0.0, -0.0),
            (f32::from_bits(0x7F7F_0000), f32::from_bits(0x7B80_0000)),
            (-f32::from_bits(0x7F7F_0000), -f32::from_bits(0x7F00_0000)),
            (f32::from_bits(0x0001_0000), f32::from_bits(0x8001_0000)),
            (f32::from_bits(0x0045_0000), f32::from_bits(0x0017_0000)),
            (3.5, -3.484375),
            (1e-20, 7e-23),
        ];
        let pair = |at: usize| values[(at * 7 + at / 12) % values.len()];
        (0..count).map(pair).map(|(left, right)| (round_bf16(left), round_bf16(right))).unzip()
    }

    #[test]
    fn rounded_sums_have_the_bits_of_the_scalar_definition_at_every_width_and_tail() {
        for count in (0..70).chain([255, 1024, 1031]) {
            let (left, right) = rounded_pairs(count);
            let expected: Vec<u32> =
                left.iter().zip(&right).map(|(l, r)| round_bf16(l + r).to_bits()).collect();
            for width in Width::all() {
                let (mut a, mut b, mut c) = (left.clone(), left.clone(), right.clone());
                width.run(AddRight::<Half>(&mut a, &right, PhantomData));
                width.run(AddRightWords(&mut b, &halves(&right)));
                width.run(AddLeftWords(&halves(&left), &mut c));
                for ours in [a, b, c] {
                    assert_eq!(bits(&ours), expected, "{count} elements, {width:?}");
                }
            }
            let (mut a, mut b, mut c) = (left.clone(), left.clone(), right.clone());
            add_right::<Half>(&mut a, &right);
            add_right_words(&mut b, &halves(&right));
            add_left_words(&halves(&left), &mut c);
            assert_eq!([bits(&a), bits(&b), bits(&c)], [&expected; 3].map(Vec::clone), "{count} elements");
        }
        // It is something else than an f32 sum.
        let (mut left, right) = rounded_pairs(12);
        let rounded = left.iter().zip(&right).map(|(l, r)| round_bf16(l + r)).collect::<Vec<_>>();
        add_right::<Single>(&mut left, &right);
        assert_ne!(bits(&left), bits(&rounded));
    }

    #[test]
    fn a_negative_zero_is_read_as_zero_and_differs_from_nothing() {
        let mut values = vec![7.0];
        read_into(&words(&[-0.0, 1.0]), &mut values);
        assert_eq!(bits(&values), [7.0f32, 0.0, 1.0].map(f32::to_bits));
        assert_eq!(first_difference(&[0.0, 1.0], &words(&[-0.0, 1.0])), None);
        assert_eq!(first_difference(&[0.0, 1.0], &words(&[0.0, 1.0000001])), Some(1));
    }

    #[test]
    fn the_same_holds_of_halves() {
        let came: [Half; 3] = [[0x00, 0x80], [0x80, 0x3F], [0x01, 0x00]];
        let mut values = vec![7.0];
        read_into(&came, &mut values);
        assert_eq!(bits(&values), [0x40E0_0000, 0, 0x3F80_0000, 0x0001_0000]);
        assert_eq!(first_difference(&values[1..], &came), None);
        assert_eq!(first_difference(&[0.0, 1.0, 0.0], &came), Some(2));
        assert_eq!(first_difference(&[f32::NAN], &[[0xFF, 0xFF]]), None);
    }

    fn finds_what_is_not_finite<W: Word>(words: fn(&[f32]) -> Vec<W>) {
        for at in [0, 1, 1023, 1024, 2047, 2500] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut values = vec![1.0; 2501];
                values[at] = bad;
                values[2500] = if at == 2500 { bad } else { f32::NAN };
                let words = words(&values);
                assert_eq!(first_non_finite(&words), Some(at));
                for width in Width::all() {
                    assert!(!width.run(AreFinite(&words)) && width.run(AreFinite(&words[..at])), "{width:?}");
                }
            }
        }
    }

    #[test]
    fn the_first_non_finite_element_is_found_wherever_it_is() {
        finds_what_is_not_finite(words);
        finds_what_is_not_finite(halves);
        assert_eq!(first_non_finite(&words(&[f32::MAX, f32::MIN_POSITIVE / 4.0])), None);
        assert_eq!(first_non_finite(&halves(&[f32::from_bits(0x7F7F_0000), 1e-40])), None);
        assert_eq!(first_non_finite(&halves(&[1.0, f32::MAX])), Some(1), "no bf16 is as large");
    }
}
