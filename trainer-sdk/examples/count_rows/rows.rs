//! The count oracle's sparse twin: a table whose rows show how often each record, and each key of a skewed lot, took effect.
//!
//! Record *i* has eight keys. One is its own, and gets `4^epoch` as an element of the dense oracle does. The others are
//! drawn by rank, log-uniformly (Zipf's law with exponent 1), from a million; each occurrence adds 1.

use super::oracle::{self, Tally};
use shoal_trainer_sdk::{Batch, Gradient, Initial, Keys, Parameter, Rule, Schedule, Table};
use std::collections::BTreeMap;

/// The table.
pub(crate) const COUNTS: &str = "count.rows";
/// Marks a record's own key: ranks are below.
const OWN: u64 = 1 << 63;
const RANKS: u64 = 7;
const RANK_BITS: u64 = 20;

/// The counting table, in so many buckets.
pub(crate) fn parameter(buckets: u32) -> Parameter {
    let rule = Parameter::new(COUNTS, &[1], Rule::Sum, Schedule::constant(0.0), Initial::Zeros);
    rule.as_table(Table { buckets, ..Table::default() })
}

/// The ranked keys of a record: as many in every stretch from a power of two to the next.
pub(crate) fn ranked(record: u64) -> impl Iterator<Item = u64> {
    (0..RANKS).map(move |which| {
        let bits = mix(record * RANKS + which);
        let first = 1 << (bits % RANK_BITS);
        first + (bits >> 8) % first
    })
}

/// Names the keys of a batch.
pub(crate) fn name(batch: &Batch<'_>, keys: &mut Keys) -> anyhow::Result<()> {
    for record in batch.records {
        keys.add(COUNTS, OWN | record.index)?;
        keys.extend(COUNTS, ranked(record.index))?;
    }
    Ok(())
}

/// Counts the records of a batch.
pub(crate) fn add(batch: &Batch<'_>, gradient: &mut Gradient) -> anyhow::Result<()> {
    let weight = oracle::weight(batch.epoch)?;
    let mut counts = gradient.embeddings_mut(COUNTS)?;
    for record in batch.records {
        counts.row_mut(OWN | record.index)?[0] += weight;
        for key in ranked(record.index) {
            counts.row_mut(key)?[0] += 1.0;
        }
    }
    Ok(())
}

/// Reads the counts after `epochs` epochs over `records` records: (key, count) of every row. A row that is missing, or that
/// nothing should have made, is wrong.
#[allow(dead_code)] // The example counts; who reads is the command.
pub(crate) fn tally(rows: impl Iterator<Item = (u64, f32)>, records: u64, epochs: u64) -> Tally {
    let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
    for key in (0..records).flat_map(ranked) {
        *expected.entry(key).or_default() += epochs;
    }
    let (mut own, mut tally) = (Vec::new(), Tally::default());
    tally.expected = expected.values().sum();
    for (key, count) in rows {
        if key & OWN != 0 {
            tally.wrong += u64::from(key & !OWN >= records);
            own.push(count);
        } else {
            tally.counted += count as u64;
            tally.wrong += u64::from(expected.remove(&key).map(|exact| exact as f32) != Some(count));
        }
    }
    tally.wrong += expected.len() as u64;
    // A row that is not there counts nothing.
    own.resize(own.len().max(records as usize), 0.0);
    let own = oracle::tally(&own, epochs);
    Tally {
        expected: tally.expected + own.expected,
        counted: tally.counted + own.counted,
        wrong: tally.wrong + own.wrong,
    }
}

/// SplitMix64's finaliser (Steele, Lea, Flood 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an exact run leaves behind.
    fn exact(records: u64, epochs: u64) -> BTreeMap<u64, f32> {
        let mut rows = BTreeMap::new();
        for record in 0..records {
            rows.insert(OWN | record, (0..epochs).map(|epoch| 4u32.pow(epoch as u32) as f32).sum());
            for key in ranked(record) {
                *rows.entry(key).or_default() += epochs as f32;
            }
        }
        rows
    }

    #[test]
    fn an_exact_run_has_nothing_wrong_and_any_other_has() {
        let rows = exact(200, 3);
        let wrong = |rows: &BTreeMap<u64, f32>| tally(rows.iter().map(|(key, count)| (*key, *count)), 200, 3);
        let all = wrong(&rows);
        assert_eq!((all.wrong, all.counted, all.expected), (0, 200 * 8 * 3, 200 * 8 * 3));
        for key in [OWN | 7, *rows.keys().next().unwrap()] {
            let mut changed = rows.clone();
            *changed.get_mut(&key).unwrap() += 1.0;
            assert_eq!(wrong(&changed).wrong, 1);
            changed.remove(&key);
            assert_eq!(wrong(&changed).wrong, 1, "a row that is missing");
        }
        for key in [OWN | 200, 1 << 40] {
            let mut more = rows.clone();
            more.insert(key, 21.0);
            assert!(wrong(&more).wrong > 0, "a row that nothing should have made");
        }
    }

    #[test]
    fn low_ranks_are_frequent_and_high_ones_many() {
        let keys: Vec<u64> = (0..10_000).flat_map(ranked).collect();
        let of = |range: std::ops::Range<u64>| keys.iter().filter(|key| range.contains(key)).count();
        assert!((3000..4000).contains(&of(1..2)) && of(1 << 19..1 << 20) > 3000);
        assert!(keys.iter().all(|key| (1..1 << RANK_BITS).contains(key)));
    }
}
