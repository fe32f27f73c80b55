//! In which precision gradients of dense parameters travel and are summed, and the rounding itself: the one definition that
//! trainers and pservers share. Pure.
//!
//! Where gradients are rounded, the value of every node of a step's tree is, whoever computes it: a leaf is
//! `round(x)`, a node `round(left + right)`, the sum inside being one f32 addition. So it does not matter which nodes a
//! trainer adds up and which a pserver does. Rounding twice is rounding once, and an absent sibling changes nothing.

use serde::{Deserialize, Serialize};

/// How precise gradients of dense parameters are on their way into an update. Means, update rules and parameters are
/// f32 always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precision {
    /// As they were computed: 4 bytes an element, nothing is rounded.
    #[default]
    F32,
    /// bfloat16, the upper half of an f32: its exponent and 8 bits of precision, 2 bytes an element.
    Bf16,
}

/// An f32 of at least this magnitude, as bits, is rounded to an infinity: halfway between the largest finite bf16, whose
/// last bit is odd, and what would come after it.
const OVERFLOWS: u32 = 0x7F7F_8000;
/// All bits but the sign.
const MAGNITUDE: u32 = 0x7FFF_FFFF;

impl From<shoal_job::spec::Gradients> for Precision {
    fn from(stated: shoal_job::spec::Gradients) -> Precision {
        match stated {
            shoal_job::spec::Gradients::F32 => Precision::F32,
            shoal_job::spec::Gradients::Bf16 => Precision::Bf16,
        }
    }
}

impl Precision {
    /// All there are.
    pub const ALL: [Precision; 2] = [Precision::F32, Precision::Bf16];

    /// Bytes of one element of a gradient on the wire.
    pub fn bytes(self) -> usize {
        match self {
            Precision::F32 => 4,
            Precision::Bf16 => 2,
        }
    }

    /// Its name, as flags and statuses have it.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        }
    }

    /// The magnitude, as bits of an f32, from which on a value is no finite number in this precision.
    pub fn overflows_at(self) -> u32 {
        match self {
            Precision::F32 => f32::INFINITY.to_bits(),
            Precision::Bf16 => OVERFLOWS,
        }
    }

    /// Whether a value is a finite number in this precision.
    pub fn is_finite(self, value: f32) -> bool {
        value.to_bits() & MAGNITUDE < self.overflows_at()
    }
}

/// The bf16 nearest to `value`, of two equally near the even one, as an f32; and 0.0 for -0.0, which is what small
/// negative values are rounded to: a sum must have a true identity.
///
/// What is as large as [`Precision::overflows_at`] becomes an infinity of its sign, not-a-number stays that.
#[inline(always)]
pub fn round_bf16(value: f32) -> f32 {
    // The carry out of the lower half rounds up, through the exponent where the mantissa is full.
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1));
    // Of not-a-number the carry could make anything: it is made quiet instead.
    let bits = if value.is_nan() { bits | 0x0040_0000 } else { rounded };
    f32::from_bits(bits & 0xFFFF_0000) + 0.0
}

/// The bytes of a value that is rounded: the upper half of its f32, little-endian.
#[inline(always)]
pub fn bf16_to_bytes(rounded: f32) -> [u8; 2] {
    debug_assert!(rounded.to_bits() & 0xFFFF == 0, "{rounded} is not rounded");
    ((rounded.to_bits() >> 16) as u16).to_le_bytes()
}

/// The value of bytes: exact, as every bf16 is an f32; not canonical, -0.0 is what it is.
#[inline(always)]
pub fn bf16_from_bytes(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, in numbers: the nearer of the two neighbours that bf16 has, the even one at a tie.
    fn reference(value: f32) -> f32 {
        // 2^128 has no f32: neighbours are told as f64, in which all of this is exact.
        let number = |upper: u32| match f32::from_bits(upper << 16) {
            infinite if infinite.is_infinite() => 2.0 * f64::from(f32::from_bits(0x7F00_0000)),
            finite => f64::from(finite),
        };
        let (sign, magnitude) = (value.signum(), f64::from(value.abs()));
        let below = value.abs().to_bits() >> 16;
        let (down, up) = (magnitude - number(below), number(below + 1) - magnitude);
        let is_down = down < up || down == up && below.is_multiple_of(2);
        let rounded = f32::from_bits((if is_down { below } else { below + 1 }) << 16);
        if rounded == 0.0 { 0.0 } else { sign * rounded }
    }

    /// Every upper half, with the lower halves around which something changes.
    fn interesting() -> impl Iterator<Item = f32> {
        const LOWER: [u32; 9] = [0, 1, 0x1234, 0x7FFF, 0x8000, 0x8001, 0xABCD, 0xFFFE, 0xFFFF];
        (0..=u32::from(u16::MAX))
            .flat_map(|upper| LOWER.into_iter().map(move |lower| f32::from_bits(upper << 16 | lower)))
    }

    #[test]
    fn rounding_is_to_the_nearest_even_of_every_number() {
        for value in interesting().filter(|value| value.is_finite()) {
            let (ours, theirs) = (round_bf16(value), reference(value));
            assert_eq!(ours.to_bits(), theirs.to_bits(), "{value:e} {:#010x}", value.to_bits());
            assert_eq!(Precision::Bf16.is_finite(value), ours.is_finite(), "{value:e}");
        }
    }

    #[test]
    fn infinities_stay_and_of_not_a_number_comes_nothing_else() {
        for value in interesting().filter(|value| !value.is_finite()) {
            let rounded = round_bf16(value);
            if value.is_nan() {
                assert!(rounded.is_nan(), "{:#010x}", value.to_bits());
            } else {
                assert_eq!(rounded.to_bits(), value.to_bits());
            }
            assert!(!Precision::Bf16.is_finite(value) && !Precision::F32.is_finite(value));
        }
    }

    #[test]
    fn the_ends_of_the_range_are_rounded_as_they_should_be() {
        let bits = |value: f32| round_bf16(value).to_bits();
        let largest = f32::from_bits(0x7F7F_0000);
        assert_eq!(bits(f32::MAX), f32::INFINITY.to_bits());
        assert_eq!(bits(-f32::MAX), f32::NEG_INFINITY.to_bits());
        assert_eq!(bits(f32::from_bits(0x7F7F_7FFF)), largest.to_bits());
        assert_eq!(bits(f32::from_bits(OVERFLOWS)), f32::INFINITY.to_bits());
        // The smallest subnormal of bf16, half of it, and a little more than half.
        assert_eq!(bits(f32::from_bits(0x0001_0000)), 0x0001_0000);
        assert_eq!((bits(f32::from_bits(0x8000)), bits(f32::from_bits(0x8001))), (0, 0x0001_0000));
        // A negative zero and what is rounded to one are the identity.
        assert_eq!((bits(-0.0), bits(f32::from_bits(0x8000_0001))), (0, 0));
        assert_eq!((Precision::F32.is_finite(f32::MAX), Precision::Bf16.is_finite(f32::MAX)), (true, false));
    }

    #[test]
    fn rounding_twice_is_rounding_once_and_the_bytes_say_all_of_it() {
        for value in interesting() {
            let once = round_bf16(value);
            let again = round_bf16(once);
            let read = bf16_from_bytes(bf16_to_bytes(once));
            for other in [again, read] {
                assert!(other.to_bits() == once.to_bits() || other.is_nan() && once.is_nan(), "{value:e}");
            }
        }
        assert_eq!(bf16_to_bytes(1.0), [0x80, 0x3F], "the upper half, its lower byte first");
        assert_eq!(bf16_from_bytes([0x00, 0x80]).to_bits(), (-0.0f32).to_bits());
    }
}
