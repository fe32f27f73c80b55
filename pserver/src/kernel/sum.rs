//! Tree sums of gradients: elementwise `left + right`, and the reading of little-endian f32 words.
//!
//! Words are read through [`read`], which makes -0.0 into 0.0, so that 0.0 is a true identity of the sum. A sum of
//! canonical values is canonical, so it does not matter at which node of the tree this is done. Nothing here
//! may reorder operands: the bits of a sum are part of the protocol.

use super::width::{Loop, Width};

/// One f32 as it travels: little-endian, at any alignment.
pub type Word = [u8; 4];

/// The value of a word, canonical: -0.0 becomes 0.0.
#[inline(always)]
pub fn read(word: Word) -> f32 {
    f32::from_le_bytes(word) + 0.0
}

/// Adds the words of a message to the end of `values`.
pub fn read_into(words: &[Word], values: &mut Vec<f32>) {
    values.extend(words.iter().map(|word| read(*word)));
}

/// `left[i] = left[i] + right[i]`.
pub fn add_right(left: &mut [f32], right: &[f32]) {
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter_mut().zip(right) {
        *left += *right;
    }
}

/// `left[i] = left[i] + right[i]`, the right side straight from a message.
pub fn add_right_words(left: &mut [f32], right: &[Word]) {
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter_mut().zip(right) {
        *left += read(*right);
    }
}

/// `right[i] = left[i] + right[i]`, the left side straight from a message.
pub fn add_left_words(left: &[Word], right: &mut [f32]) {
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        *right += read(*left);
    }
}

/// The first element whose bits differ from the word's canonical value. Of not-a-numbers the bits are anybody's.
pub fn first_difference(values: &[f32], words: &[Word]) -> Option<usize> {
    assert_eq!(values.len(), words.len());
    values.iter().zip(words).position(|(value, word)| {
        let read = read(*word);
        value.to_bits() != read.to_bits() && !(value.is_nan() && read.is_nan())
    })
}

/// The first element that is an infinity or not-a-number.
pub fn first_non_finite(words: &[Word]) -> Option<usize> {
    // Without a branch first: that vectorises, and almost every gradient is finite.
    if Width::widest().run(AreFinite(words)) {
        return None;
    }
    words.iter().position(|word| !f32::from_le_bytes(*word).is_finite())
}

struct AreFinite<'a>(&'a [Word]);

impl Loop for AreFinite<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        // The exponent of an infinity or not-a-number is all ones, and no other's magnitude is as large.
        let magnitude = |word: &Word| u32::from_le_bytes(*word) & !(1 << 31);
        self.0.iter().map(magnitude).fold(0, u32::max) < f32::INFINITY.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(values: &[f32]) -> Vec<Word> {
        values.iter().map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn all_three_additions_give_the_same_bits() {
        let (left, right) = ([1e-40f32, 1.0, -3.5, 1e30], [2e-40f32, 1e-8, 3.5, 1e22]);
        let expected: Vec<u32> = left.iter().zip(&right).map(|(l, r)| (l + r).to_bits()).collect();
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        let (mut a, mut b, mut c) = (left, left, right);
        add_right(&mut a, &right);
        add_right_words(&mut b, &words(&right));
        add_left_words(&words(&left), &mut c);
        assert_eq!((bits(&a), bits(&b), bits(&c)), (expected.clone(), expected.clone(), expected));
    }

    #[test]
    fn a_negative_zero_is_read_as_zero_and_differs_from_nothing() {
        let mut values = vec![7.0];
        read_into(&words(&[-0.0, 1.0]), &mut values);
        assert_eq!(
            values.iter().map(|value| value.to_bits()).collect::<Vec<_>>(),
            [7.0f32, 0.0, 1.0].map(f32::to_bits)
        );
        assert_eq!(first_difference(&[0.0, 1.0], &words(&[-0.0, 1.0])), None);
        assert_eq!(first_difference(&[0.0, 1.0], &words(&[0.0, 1.0000001])), Some(1));
    }

    #[test]
    fn the_first_non_finite_element_is_found_wherever_it_is() {
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
        assert_eq!(first_non_finite(&words(&[f32::MAX, f32::MIN_POSITIVE / 4.0])), None);
    }
}
