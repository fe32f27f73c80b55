//! The tables of the simulation's program: one that counts records by key, one that learns rows which come late and go early.

use super::program::value;
use shoal_runtime::cluster::permutation::key;
use shoal_runtime::cluster::table::{Ceiling, Full, Table};
use shoal_runtime::host::random::Random;
use shoal_trainer_sdk::{Batch, Initial, Parameter, Record, Rule, Schedule};

/// The table that counts: a record's own key gets `4^epoch`, those that many share 1 for each record.
pub const ROW_COUNTS: &str = "rows.count";
/// The table that learns.
pub const ROWS: &str = "rows.learnt";
/// Elements of its rows.
const DIMENSION: usize = 2;
/// Marks a record's own key.
pub const OWN: u64 = 1 << 63;
/// Keys that many records share.
const SHARED: u64 = 5;

/// How a scenario's tables are declared.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// Of both tables.
    pub buckets: u32,
    /// Of the one that learns.
    pub table: Table,
    /// Of the one that learns.
    pub rule: Rule,
    /// Bytes of a segment.
    pub segment_bytes: usize,
}

impl Tables {
    /// Of a third of all seeds.
    pub fn drawn(seed: u64) -> Option<Tables> {
        let mut random = Random::seeded(key(&[seed, 0x7AB1E]));
        if random.below(3) > 0 {
            return None;
        }
        let pick = |random: &mut Random, of: &[u64]| of[random.below(of.len() as u64) as usize];
        let buckets = 1 + random.below(3) as u32;
        let age_max = random.percent(50).then(|| 1 + random.below(12) as u32);
        let full = if random.percent(50) {
            Full::Refuse
        } else {
            Full::Evict { half_life: 1 + random.below(5) as u32 }
        };
        let ceiling = random.percent(50).then(|| Ceiling { rows: 1 + random.below(12) as u32, full });
        let table = Table { buckets, admission: 1 + random.below(3) as u8, age_max, ceiling };
        let rules = [Rule::Momentum { momentum: 0.9 }, Rule::Adagrad { epsilon: 1e-3 }];
        let rule = rules[random.below(2) as usize];
        Some(Tables {
            buckets,
            table,
            rule,
            segment_bytes: pick(&mut random, &[1, 60, 400, 1 << 20]) as usize,
        })
    }

    /// The same for an asynchronous job, whose window is wider than ages.
    pub fn without_age(&self) -> Tables {
        Tables { table: Table { age_max: None, ..self.table }, ..*self }
    }

    /// The declarations of both.
    pub fn parameters(&self) -> [Parameter; 2] {
        let counts = Parameter::new(ROW_COUNTS, &[1], Rule::Sum, Schedule::constant(0.0), Initial::Zeros);
        let normal = Initial::Normal { deviation: 1.0 };
        let rows = Parameter::new(ROWS, &[DIMENSION as u64], self.rule, Schedule::constant(0.01), normal);
        [counts.as_table(Table { buckets: self.buckets, ..Table::default() }), rows.as_table(self.table)]
    }
}

/// The keys of a table that a record has, each once.
pub fn keys(table: &str, record: &Record<'_>) -> Vec<u64> {
    if table == ROW_COUNTS {
        return vec![OWN | record.index, record.index % SHARED];
    }
    // Two of a few, one of many; spread over all numbers, so that buckets share them.
    let of = |which: u64, among: u64| {
        let bits = (value(record, which).abs() * 1e6) as u64;
        key(&[which, bits % among])
    };
    let mut keys = vec![of(1, 6), of(2, 6), of(3, 60)];
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// What a record gives to the row of one of its keys, which is at these values.
pub fn give(table: &str, batch: &Batch<'_>, record: &Record<'_>, key: u64, row: &[f32], sums: &mut [f32]) {
    if table == ROW_COUNTS {
        sums[0] += if key & OWN == 0 { 1.0 } else { (1u32 << (2 * batch.epoch)) as f32 };
        return;
    }
    let luck = (batch.seed % 1000) as f32 * 1e-3;
    for (element, (sum, now)) in sums.iter_mut().zip(row).enumerate() {
        let scale = [1.0, 1e-4][element % 2];
        *sum += scale * (now.clamp(-100.0, 100.0) - luck * value(record, key ^ element as u64));
    }
}
