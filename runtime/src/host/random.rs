//! Seeded randomness for jitter, nonces and simulations. Never for training: that is keyed by (seed, step, slot).

use crate::cluster::permutation::mix;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub fn seeded(seed: u64) -> Random {
        Random { state: mix(seed) }
    }
    /// A generator seeded by the operating system, for production processes.
    pub fn from_os() -> Random {
        // Where the system gives nothing there is std's way to ask it, which ends the process if that is so: with a number of our own,
        // two containers would be one to their master.
        Random::seeded(getrandom::u64().unwrap_or_else(|_| RandomState::new().build_hasher().finish()))
    }
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }
    /// A number in `0..bound`; `bound > 0`. The bias is below 2^-32 for bounds below 2^32.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }
    /// True with probability `percent / 100`.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    /// A generator of its own for a part, so that parts do not disturb each other's numbers.
    pub fn split(&mut self) -> Random {
        Random::seeded(self.bits())
    }
}
