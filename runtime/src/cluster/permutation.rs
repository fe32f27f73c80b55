//! A seeded permutation of `0..n` that is computed, not stored, and can be inverted.
//!
//! A balanced Feistel network over the next even number of bits with cycle walking (Black and Rogaway,
//! "Ciphers with Arbitrary Finite Domains", 2002). It is no cipher: it only has to shuffle well and cost no
//! memory, so that an epoch over 10^8 chunks is planned without a table.

const ROUNDS: u64 = 4;

/// SplitMix64's finaliser (Steele, Lea, Flood 2014): every input bit moves every output bit.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// One 64-bit key from several numbers, order-sensitive.
pub fn key(parts: &[u64]) -> u64 {
    parts.iter().fold(0x5348_4F41_4C00_0001, |state, part| mix(state ^ mix(*part)))
}

/// A permutation of `0..len`.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    key: u64,
}

impl Permutation {
    /// The permutation of `0..len` that `key` names; `len <= 2^62`.
    pub fn new(len: u64, key: u64) -> Permutation {
        assert!(len <= 1 << 62, "permutation of {len} is too long");
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Permutation { len, half_bits: bits.div_ceil(2).max(1), key }
    }

    /// Where `position` goes; `position < len`.
    pub fn at(&self, position: u64) -> u64 {
        assert!(position < self.len, "position {position} of {}", self.len);
        let mut x = position;
        loop {
            x = self.encrypt(x);
            if x < self.len {
                return x;
            }
        }
    }

    /// The position that goes to `value`; the inverse of [`at`](Self::at).
    pub fn position_of(&self, value: u64) -> u64 {
        assert!(value < self.len, "value {value} of {}", self.len);
        let mut x = value;
        loop {
            x = self.decrypt(x);
            if x < self.len {
                return x;
            }
        }
    }

    fn round(&self, half: u64, round: u64) -> u64 {
        mix(half ^ mix(self.key.wrapping_add(round))) & ((1 << self.half_bits) - 1)
    }

    fn encrypt(&self, x: u64) -> u64 {
        let (mut left, mut right) = (x >> self.half_bits, x & ((1 << self.half_bits) - 1));
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(right, round));
        }
        left << self.half_bits | right
    }

    fn decrypt(&self, x: u64) -> u64 {
        let (mut left, mut right) = (x >> self.half_bits, x & ((1 << self.half_bits) - 1));
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.round(left, round), left);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_value_comes_up_once_and_inverts(len in 1u64..3000, key in any::<u64>()) {
            let permutation = Permutation::new(len, key);
            let mut seen = vec![false; len as usize];
            for position in 0..len {
                let value = permutation.at(position);
                prop_assert!(!std::mem::replace(&mut seen[value as usize], true));
                prop_assert_eq!(permutation.position_of(value), position);
            }
        }
    }

    #[test]
    fn places_are_spread_evenly_over_keys() {
        // Position 0 of 8 under 8000 keys: each value about 1000 times. Five standard deviations are ~148.
        let mut counts = [0; 8];
        for key in 0..8000 {
            counts[Permutation::new(8, key).at(0) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
