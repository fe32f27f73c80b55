//! Memory over a long run with eviction: keys by Zipf's law whose favourites change all the time, in a table that lets old
//! rows go and in one that is full.

use crate::paths::buckets::{Buckets, MESSAGE_KEYS, drawn};
use crate::process::resident_bytes;
use crate::rows::growth::DIMENSION;
use serde::Serialize;
use shoal_runtime::cluster::Table;
use shoal_runtime::cluster::table::{Ceiling, Full};

/// Keys that are drawn from at a time, and how far they move with every update.
const RANKS: f64 = 4e6;
const SHIFT: u64 = 500;
const INTERVALS: u64 = 24;
/// The first intervals, in which the table fills.
const WARM_UP: usize = 6;
/// The last third may have so much more than the first after the warm-up.
const GROWTH_MAX: f64 = 1.05;

/// A table that was soaked.
#[derive(Debug, Serialize)]
pub(crate) struct Soak {
    pub(crate) name: &'static str,
    pub(crate) updates: u64,
    /// Rows, and resident bytes beyond those before any table, at the end of each interval.
    pub(crate) intervals: Vec<(usize, u64)>,
    /// Resident bytes of the last third by those of the first after the warm-up.
    pub(crate) growth: f64,
    pub(crate) is_flat: bool,
}

/// Soaks a table that is full, then one whose rows age, with so many updates each. The second is the larger: what the first
/// has left to the allocator hides nothing of it.
pub(crate) fn soaks(updates: u64) -> anyhow::Result<Vec<Soak>> {
    let full = Full::Evict { half_life: 50 };
    let ceiling = Table { ceiling: Some(Ceiling { rows: 4_000, full }), ..Table::default() };
    let ageing = Table { age_max: Some(100), ..Table::default() };
    let before = resident_bytes()?;
    Ok(vec![
        soak("ceiling of 4,000 rows a bucket", ceiling, updates, before)?,
        soak("age_max of 100 updates", ageing, updates, before)?,
    ])
}

fn soak(name: &'static str, table: Table, updates: u64, before: u64) -> anyhow::Result<Soak> {
    let mut buckets = Buckets::new(table, DIMENSION);
    let mut intervals = Vec::new();
    for interval in 0..INTERVALS {
        for update in interval * updates / INTERVALS..(interval + 1) * updates / INTERVALS {
            let draws = update * MESSAGE_KEYS as u64..(update + 1) * MESSAGE_KEYS as u64;
            let message = buckets.message(draws.map(|draw| rank(draw) + SHIFT * update));
            buckets.update(message);
        }
        intervals.push((buckets.rows(), resident_bytes()?.saturating_sub(before)));
    }
    let growth = growth(&intervals[WARM_UP..]);
    Ok(Soak { name, updates, intervals, growth, is_flat: growth <= GROWTH_MAX })
}

/// A rank by Zipf's law with exponent 1: its logarithm is uniform.
fn rank(draw: u64) -> u64 {
    let uniform = drawn(draw, 1 << 53) as f64 / (1u64 << 53) as f64;
    libm::exp(uniform * libm::log(RANKS)) as u64
}

/// The mean bytes of the last third by those of the first.
fn growth(intervals: &[(usize, u64)]) -> f64 {
    let third = intervals.len() / 3;
    let bytes = |intervals: &[(usize, u64)]| intervals.iter().map(|(_, bytes)| *bytes).sum::<u64>() as f64;
    bytes(&intervals[intervals.len() - third..]) / bytes(&intervals[..third])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_last_third_and_ranks_are_zipfs() {
        let intervals: Vec<(usize, u64)> = (0..9).map(|at| (1, if at < 6 { 100 } else { 110 })).collect();
        assert!((growth(&intervals) - 1.1).abs() < 1e-9);
        let ranks: Vec<u64> = (0..100_000).map(rank).collect();
        let of = |rank: u64| ranks.iter().filter(|other| **other == rank).count() as f64;
        assert!((of(1) / of(2) - 1.71).abs() < 0.2, "ln 2 / ln 1.5: {} {}", of(1), of(2));
        assert!(ranks.iter().all(|rank| (1..4_000_000).contains(rank)));
    }
}
