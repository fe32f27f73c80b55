//! Keys that have occurred and are not admitted yet: how often each did. Exact while they are few; many are counted in a
//! sketch. Chance lets it count too much, and ageing too little: all its counters are halved now and then.
//!
//! It is part of a bucket's state: a function of the updates alone, copied and saved with the rows.

use shoal_runtime::cluster::permutation::key as mixed;
use std::collections::BTreeMap;

/// Keys that are counted one by one.
const EXACT_MAX: usize = 1 << 14;
/// Counters of one row of the sketch, of 8 bits each.
const SKETCH_WIDTH: usize = 1 << 16;
const SKETCH_ROWS: usize = 4;
/// Occurrences after which all counters are halved, so that keys of long ago make room.
const SKETCH_AGE: u64 = 8 * SKETCH_WIDTH as u64;

/// How often keys without a row have occurred.
#[derive(Clone, Debug, PartialEq)]
pub enum Candidates {
    /// Key by key.
    Exact(BTreeMap<u64, u8>),
    /// In a sketch.
    Sketch(Box<Sketch>),
}

/// A count-min sketch with conservative update (Cormode and Muthukrishnan 2005; Estan and Varghese 2002) that ages by halving
/// (Einziger, Friedman and Manes 2017).
#[derive(Clone, Debug, PartialEq)]
pub struct Sketch {
    counters: Vec<u8>,
    /// Occurrences since the last halving.
    occurrences: u64,
}

impl Default for Candidates {
    fn default() -> Candidates {
        Candidates::Exact(BTreeMap::new())
    }
}

impl Candidates {
    /// How often a key has occurred, or more.
    pub fn count(&self, key: u64) -> u8 {
        match self {
            Candidates::Exact(counts) => counts.get(&key).copied().unwrap_or(0),
            Candidates::Sketch(sketch) => sketch.count(key),
        }
    }

    /// A key has occurred so often again, and is not admitted.
    pub fn add(&mut self, key: u64, occurrences: u32) {
        let more = u8::try_from(occurrences).unwrap_or(u8::MAX);
        match self {
            Candidates::Exact(counts) => {
                let count = counts.entry(key).or_default();
                *count = count.saturating_add(more);
                if counts.len() > EXACT_MAX {
                    let mut sketch = Sketch::new();
                    counts.iter().for_each(|(key, count)| sketch.add(*key, *count));
                    *self = Candidates::Sketch(Box::new(sketch));
                }
            }
            Candidates::Sketch(sketch) => sketch.add(key, more),
        }
    }

    /// A key has a row now. Counters that it shares stay.
    pub fn admitted(&mut self, key: u64) {
        if let Candidates::Exact(counts) = self {
            counts.remove(&key);
        }
    }

    /// Bytes in copies and files: `0 | (key, count)*`, or `1 | occurrences | counters`.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Candidates::Exact(counts) => {
                let mut bytes = vec![0];
                for (key, count) in counts {
                    bytes.extend_from_slice(&key.to_le_bytes());
                    bytes.push(*count);
                }
                bytes
            }
            Candidates::Sketch(sketch) => {
                let mut bytes = vec![1];
                bytes.extend_from_slice(&sketch.occurrences.to_le_bytes());
                bytes.extend_from_slice(&sketch.counters);
                bytes
            }
        }
    }

    /// What [`encode`](Self::encode) wrote; none of other bytes.
    pub fn decode(bytes: &[u8]) -> Option<Candidates> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            0 => {
                let (pairs, []) = rest.as_chunks::<9>() else { return None };
                let pairs = pairs.iter().map(|pair| {
                    let [key @ .., count] = pair;
                    (u64::from_le_bytes(*key), *count)
                });
                let counts: BTreeMap<u64, u8> = pairs.clone().collect();
                let is_sound =
                    counts.len() <= EXACT_MAX && pairs.eq(counts.iter().map(|(key, count)| (*key, *count)));
                is_sound.then_some(Candidates::Exact(counts))
            }
            1 => {
                let (occurrences, counters) = rest.split_first_chunk()?;
                let occurrences = u64::from_le_bytes(*occurrences);
                let is_sound = counters.len() == SKETCH_ROWS * SKETCH_WIDTH && occurrences < SKETCH_AGE;
                let counters = counters.to_vec();
                is_sound.then(|| Candidates::Sketch(Box::new(Sketch { counters, occurrences })))
            }
            _ => None,
        }
    }
}

impl Sketch {
    fn new() -> Sketch {
        Sketch { counters: vec![0; SKETCH_ROWS * SKETCH_WIDTH], occurrences: 0 }
    }

    fn places(key: u64) -> [usize; SKETCH_ROWS] {
        let bits = mixed(&[key]);
        std::array::from_fn(|row| {
            let column = (bits >> (16 * row)) as usize % SKETCH_WIDTH;
            row * SKETCH_WIDTH + column
        })
    }

    fn count(&self, key: u64) -> u8 {
        Sketch::places(key).map(|at| self.counters[at]).into_iter().min().unwrap_or(0)
    }

    fn add(&mut self, key: u64, more: u8) {
        let count = self.count(key).saturating_add(more);
        for at in Sketch::places(key) {
            self.counters[at] = self.counters[at].max(count);
        }
        self.occurrences += u64::from(more);
        if self.occurrences >= SKETCH_AGE {
            self.counters.iter_mut().for_each(|counter| *counter /= 2);
            self.occurrences = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn few_keys_are_counted_exactly_and_an_admitted_one_begins_anew() {
        let mut candidates = Candidates::default();
        for key in 0..EXACT_MAX as u64 {
            candidates.add(key, 1 + key as u32 % 3);
        }
        assert!((0..EXACT_MAX as u64).all(|key| u64::from(candidates.count(key)) == 1 + key % 3));
        candidates.add(7, 1000);
        assert_eq!((candidates.count(7), candidates.count(1 << 40)), (u8::MAX, 0));
        candidates.admitted(7);
        assert_eq!(candidates.count(7), 0);
    }

    #[test]
    fn many_keys_are_never_counted_too_little_and_seldom_too_much() {
        let (mut candidates, keys) = (Candidates::default(), 30_000u64);
        let times = |key: u64| 1 + key % 4;
        for key in 0..keys {
            candidates.add(key, times(key) as u32);
        }
        assert!(matches!(candidates, Candidates::Sketch(_)));
        let over = |key: &u64| u64::from(candidates.count(*key)) > times(*key);
        assert!((0..keys).all(|key| u64::from(candidates.count(key)) >= times(key)));
        // 30,000 keys share a counter of 65,536 with a chance of 0.37, and all four with one of 0.02.
        let wrong = (0..keys).filter(over).count() as f64 / keys as f64;
        assert!(wrong < 0.05, "{wrong}");
    }

    #[test]
    fn keys_of_long_ago_make_room() {
        let mut candidates = Candidates::default();
        candidates.add(u64::MAX, 200);
        (0..20_000).for_each(|key| candidates.add(key, 1));
        assert!(candidates.count(u64::MAX) >= 200);
        (0..30).for_each(|_| (0..20_000).for_each(|key| candidates.add(key, 1)));
        assert!(candidates.count(u64::MAX) <= 100, "{}", candidates.count(u64::MAX));
    }

    proptest! {
        #[test]
        fn counts_survive_being_written(
            keys in proptest::collection::vec((any::<u64>(), 1u32..300), 0..50), is_many in any::<bool>()
        ) {
            let mut candidates = Candidates::default();
            (0..if is_many { EXACT_MAX as u64 + 1 } else { 0 }).for_each(|key| candidates.add(key, 1));
            keys.iter().for_each(|(key, times)| candidates.add(*key, *times));
            prop_assert_eq!(Candidates::decode(&candidates.encode()), Some(candidates));
        }

        #[test]
        fn bytes_of_anybody_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Some(candidates) = Candidates::decode(&bytes) {
                prop_assert_eq!(candidates.encode(), bytes);
            }
        }
    }
}
