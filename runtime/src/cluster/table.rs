//! Embedding tables: parameters with a row for every key that has occurred, and what is said about them beside rule and
//! initial values. Which bucket a key belongs to, and when rows come and go. Values only; the rows are the pserver's.

use super::permutation::mix;
use serde::{Deserialize, Serialize};

/// What makes a parameter an embedding table; its shape is that of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Blocks that its keys are spread over, for good: so many pservers can share it.
    pub buckets: u32,
    /// How often a key must have occurred before its row is born, from 1. Until then it reads as its initial values, and
    /// what it is given is lost.
    pub admission: u8,
    /// A row whose key has not occurred in so many updates is evicted; none is kept for ever.
    pub age_max: Option<u32>,
    /// The most rows of one bucket, and what becomes of the next key.
    pub ceiling: Option<Ceiling>,
}

/// The most rows of one bucket. Per bucket, so that it does not depend on how many pservers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ceiling {
    /// So many.
    pub rows: u32,
    /// What becomes of the next key.
    pub full: Full,
}

/// What becomes of a key whose bucket is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Full {
    /// It stays unborn.
    Refuse,
    /// The rows with the lowest scores are evicted, a sixteenth of the bucket at a time. A row's score is how often its
    /// key occurred, halved for every `half_life` updates since: a short one keeps the most recent rows, a long one the
    /// most frequent.
    Evict {
        /// In updates; positive.
        half_life: u32,
    },
}

/// Buckets of a table that does not say.
pub const BUCKETS: u32 = 64;
/// The most rows that a bucket can have.
pub const ROWS_MAX: u32 = 1 << 30;
/// The longest row, in elements.
pub const DIMENSION_MAX: u64 = 4096;

impl Default for Table {
    fn default() -> Table {
        Table { buckets: BUCKETS, admission: 1, age_max: None, ceiling: None }
    }
}

impl Table {
    /// Which bucket a key belongs to. The low half of its mixed bits says it, so that the high half is as good as new
    /// within a bucket: see [`place_hash`].
    #[inline]
    pub fn bucket_of(&self, key: u64) -> u32 {
        bucket_of(key, self.buckets)
    }

    /// Of each bucket the places of its keys among these.
    pub fn places(&self, keys: &[u64]) -> Vec<Vec<u32>> {
        let mut places = vec![Vec::new(); self.buckets as usize];
        for (place, key) in (0..).zip(keys) {
            places[self.bucket_of(*key) as usize].push(place);
        }
        places
    }

    /// The most rows of one bucket.
    pub fn rows_max(&self) -> u32 {
        self.ceiling.map_or(ROWS_MAX, |ceiling| ceiling.rows)
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        if self.buckets == 0 {
            return Some("a table has at least one bucket (64 are usual)");
        }
        if self.admission == 0 {
            return Some("admission counts from 1: a key's first occurrence makes its row");
        }
        if self.age_max == Some(0) {
            return Some("a table whose rows live for no update holds none: leave age_max out, or raise it");
        }
        let ceiling = self.ceiling?;
        if ceiling.rows == 0 || ceiling.rows > ROWS_MAX {
            return Some("a ceiling is from 1 to 2^30 rows a bucket");
        }
        matches!(ceiling.full, Full::Evict { half_life: 0 })
            .then_some("half_life is at least 1 update (1 keeps the most recent rows)")
    }
}

/// Which of so many buckets a key belongs to.
#[inline]
fn bucket_of(key: u64, buckets: u32) -> u32 {
    let low = mix(key) & u64::from(u32::MAX);
    ((low * u64::from(buckets)) >> 32) as u32
}

/// What an index within a bucket looks a key up by: bits that its bucket says nothing of, at both ends.
#[inline]
pub fn place_hash(key: u64) -> u64 {
    const TOP: u64 = 0x7f << 57;
    let mixed = mix(key);
    mixed & TOP | (mixed & !TOP) >> 32
}

/// One of 256 shares of a bucket's keys: bits that neither its bucket nor [`place_hash`] says anything of, in tables of up to
/// 2^24 buckets.
#[inline]
pub fn place_share(key: u64) -> u8 {
    mix(key) as u8
}

/// The key of a string: FNV-1a (Fowler, Noll and Vo 1991) of 64 bits, mixed. Of a million strings two have the same key
/// once in 37 million tables.
pub fn string_key(text: &str) -> u64 {
    let folded = text.bytes().fold(0xcbf2_9ce4_8422_2325, |state: u64, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(folded)
}

/// The key of a value of a feature, for a table that several features share.
pub fn feature_key(feature: &str, value: &str) -> u64 {
    super::permutation::key(&[string_key(feature), string_key(value)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_are_spread_evenly_over_any_number_of_buckets() {
        for buckets in [1, 2, 3, 7, 64, 100] {
            let mut counts = vec![0u32; buckets as usize];
            let keys = 6400 * u64::from(buckets);
            // Neighbours, and keys that only differ in their highest bits.
            for key in (0..keys / 2).flat_map(|key| [key, key << 40]) {
                counts[bucket_of(key, buckets) as usize] += 1;
            }
            // Six standard deviations of a count of 6400.
            assert!(counts.iter().all(|count| count.abs_diff(6400) < 480), "{buckets}: {counts:?}");
        }
    }

    #[test]
    fn what_a_bucket_is_looked_up_by_does_not_repeat_which_bucket_it_is() {
        let within: Vec<u64> = (0..64_000).filter(|key| bucket_of(*key, 64) == 5).map(place_hash).collect();
        let tops: BTreeSet<u64> = within.iter().map(|hash| hash >> 57).collect();
        let lows: BTreeSet<u64> = within.iter().map(|hash| hash & 0xff).collect();
        assert_eq!(tops.len(), 128);
        let shares: BTreeSet<u8> =
            (0..64_000).filter(|key| bucket_of(*key, 64) == 5).map(place_share).collect();
        assert!(shares.len() > 235, "{}", shares.len());
        // 1,000 draws leave each of 256 out with a chance of 0.02.
        assert!(lows.len() > 235, "{}", lows.len());
    }

    #[test]
    fn features_do_not_run_into_one_another() {
        let keys = [
            feature_key("a", "bc"),
            feature_key("ab", "c"),
            feature_key("bc", "a"),
            feature_key("", "abc"),
            string_key("abc"),
            string_key(""),
        ];
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
        let many: BTreeSet<u64> = (0..100_000).map(|value| string_key(&value.to_string())).collect();
        assert_eq!(many.len(), 100_000);
        // Part of what a checkpoint means: never to change.
        assert_eq!(string_key("user"), 0x25db_21ae_0302_bf5b);
    }

    #[test]
    fn tables_that_make_no_sense_are_refused_with_the_way_out() {
        let table = Table::default();
        let ceiling = |rows, full| Table { ceiling: Some(Ceiling { rows, full }), ..table };
        let faults = [
            (Table { buckets: 0, ..table }, "bucket"),
            (Table { admission: 0, ..table }, "admission"),
            (Table { age_max: Some(0), ..table }, "age_max"),
            (ceiling(0, Full::Refuse), "ceiling"),
            (ceiling(ROWS_MAX + 1, Full::Refuse), "ceiling"),
            (ceiling(9, Full::Evict { half_life: 0 }), "half_life"),
        ];
        for (table, word) in faults {
            assert!(table.fault().is_some_and(|fault| fault.contains(word)), "{table:?}");
        }
        assert_eq!((table.fault(), ceiling(1, Full::Evict { half_life: 1 }).fault()), (None, None));
    }
}
