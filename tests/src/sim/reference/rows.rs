//! The definition of tables, written once more: rows by key, nothing of slots, segments or logs.

use crate::sim::tables;
use shoal_runtime::cluster::table::{Ceiling, Full};
use shoal_runtime::cluster::{JobSettings, Parameter, Rule, Table};
use shoal_trainer_sdk::Batch;
use std::collections::{BTreeMap, BTreeSet};

/// A row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Embedding, then the rule's slots.
    pub values: Vec<f32>,
    /// The update that changed it last.
    pub last: u32,
    /// How often its key occurred, halved with age.
    pub occurrences: u32,
}

/// A table at one version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// By key.
    pub rows: BTreeMap<u64, Row>,
    /// How often keys without a row have occurred.
    candidates: BTreeMap<u64, u32>,
}

/// By key how often it occurs, and the sum of its gradients.
pub(super) type RowSums = BTreeMap<u64, (u32, Vec<f32>)>;

/// What one microbatch gives to a table at a version; -0.0 counts as 0.0.
pub(super) fn leaf(
    parameter: &Parameter,
    job: &JobSettings,
    rows: &Rows,
    batch: &Batch<'_>,
    scale: f32,
) -> RowSums {
    let mut sums = RowSums::new();
    for record in batch.records {
        for key in tables::keys(&parameter.name, record) {
            let row = rows.rows.get(&key).map(|row| row.values[..parameter.elements() as usize].to_vec());
            let row = row.unwrap_or_else(|| initial(parameter, job, key));
            let (count, sum) = sums.entry(key).or_insert_with(|| (0, vec![0.0; row.len()]));
            *count += 1;
            tables::give(&parameter.name, batch, record, key, &row, sum);
        }
    }
    let is_scaled = parameter.rule != Rule::Sum;
    for value in sums.values_mut().flat_map(|(_, sum)| sum) {
        *value = if is_scaled { *value * scale } else { *value } + 0.0;
    }
    sums
}

/// The sum of `leaves` padded to `width`, a power of two, with absent leaves: key by key.
pub(super) fn sum_of(leaves: &[RowSums], width: usize) -> RowSums {
    if leaves.len() <= 1 {
        return leaves.first().cloned().unwrap_or_default();
    }
    let (left, right) = leaves.split_at((width / 2).min(leaves.len()));
    let mut sum = sum_of(left, width / 2);
    for (key, (count, values)) in sum_of(right, width / 2) {
        match sum.get_mut(&key) {
            None => {
                sum.insert(key, (count, values));
            }
            Some((ours, sums)) => {
                *ours += count;
                sums.iter_mut().zip(values).for_each(|(ours, theirs)| *ours += theirs);
            }
        }
    }
    sum
}

fn initial(parameter: &Parameter, job: &JobSettings, key: u64) -> Vec<f32> {
    let mut row = vec![0.0; parameter.elements() as usize];
    parameter.initial.of_rows(job.seed, &parameter.name).fill(key, &mut row);
    row
}

/// One update of a table.
pub(super) struct Update<'a> {
    pub(super) parameter: &'a Parameter,
    pub(super) table: Table,
    pub(super) job: &'a JobSettings,
    /// From 1.
    pub(super) number: u32,
    pub(super) weight: f32,
    pub(super) rate: f32,
}

impl Update<'_> {
    pub(super) fn apply(&self, rows: &mut Rows, sums: &RowSums) {
        for bucket in 0..self.table.buckets {
            let own = |key: &u64| self.table.bucket_of(*key) == bucket;
            let sums: RowSums =
                sums.iter().filter(|(key, _)| own(key)).map(|(key, sum)| (*key, sum.clone())).collect();
            self.sweep(rows, &sums, bucket);
            let born = self.born(rows, &sums, bucket);
            for (key, (count, sum)) in &sums {
                if born.contains(key) {
                    let mut values = initial(self.parameter, self.job, *key);
                    values.resize(values.len() * (1 + self.parameter.slots().len()), 0.0);
                    rows.rows.insert(*key, Row { values, last: self.number, occurrences: 0 });
                    rows.candidates.remove(key);
                }
                match rows.rows.get_mut(key) {
                    Some(row) => self.change(row, *count, sum),
                    None if self.table.admission > 1 => *rows.candidates.entry(*key).or_default() += count,
                    None => {}
                }
            }
        }
    }

    fn own<'a>(&self, rows: &'a Rows, bucket: u32) -> impl Iterator<Item = (&'a u64, &'a Row)> {
        let table = self.table;
        rows.rows.iter().filter(move |(key, _)| table.bucket_of(**key) == bucket)
    }

    fn sweep(&self, rows: &mut Rows, sums: &RowSums, bucket: u32) {
        let Some(age_max) = self.table.age_max else { return };
        let period = (age_max / 8).max(1);
        if !(self.number + bucket * period / self.table.buckets).is_multiple_of(period) {
            return;
        }
        let is_old = |(key, row): &(&u64, &Row)| !sums.contains_key(key) && self.number - row.last > age_max;
        let old: Vec<u64> = self.own(rows, bucket).filter(is_old).map(|(key, _)| *key).collect();
        old.iter().for_each(|key| drop(rows.rows.remove(key)));
    }

    /// Keys that get a row; those that go for them are gone.
    fn born(&self, rows: &mut Rows, sums: &RowSums, bucket: u32) -> BTreeSet<u64> {
        let is_admitted = |(key, (count, _)): &(&u64, &(u32, Vec<f32>))| {
            let before = rows.candidates.get(key).copied().unwrap_or(0);
            !rows.rows.contains_key(key) && before + count >= u32::from(self.table.admission)
        };
        let wanted: Vec<u64> = sums.iter().filter(is_admitted).map(|(key, _)| *key).collect();
        let Some(Ceiling { rows: most, full }) = self.table.ceiling else {
            return wanted.into_iter().collect();
        };
        let most = most as usize;
        let excess = (self.own(rows, bucket).count() + wanted.len()).saturating_sub(most);
        if excess > 0 && full != Full::Refuse {
            let others = self.own(rows, bucket).filter(|(key, _)| !sums.contains_key(key));
            let mut order: Vec<(u32, u32, u64)> =
                others.map(|(key, row)| (self.score(row), row.last, *key)).collect();
            order.sort_unstable();
            order.truncate(excess.max(most / 16));
            order.iter().for_each(|(_, _, key)| drop(rows.rows.remove(key)));
        }
        let room = most.saturating_sub(self.own(rows, bucket).count());
        wanted.into_iter().take(room).collect()
    }

    fn score(&self, row: &Row) -> u32 {
        match self.table.ceiling {
            Some(Ceiling { full: Full::Evict { half_life }, .. }) => {
                (0..(self.number - row.last) / half_life).fold(row.occurrences, |score, _| score / 2)
            }
            _ => row.occurrences,
        }
    }

    fn change(&self, row: &mut Row, count: u32, sum: &[f32]) {
        let missed = (self.number - row.last).saturating_sub(1);
        row.occurrences = self.score(row) + count;
        row.last = self.number;
        let (values, slots) = row.values.split_at_mut(sum.len());
        for (element, (value, sum)) in values.iter_mut().zip(sum).enumerate() {
            let mean = sum / self.weight;
            match self.parameter.rule {
                Rule::Sum => super::count(value, &mut slots[element], *sum),
                Rule::Momentum { momentum } => {
                    if missed > 0 {
                        slots[element] *= libm::pow(f64::from(momentum), f64::from(missed)) as f32;
                    }
                    slots[element] = momentum * slots[element] + mean;
                    *value -= self.rate * slots[element];
                }
                Rule::Adagrad { epsilon } => {
                    slots[element] += mean * mean;
                    *value -= (self.rate * mean) / (slots[element].sqrt() + epsilon);
                }
                rule => unreachable!("the simulation's tables use no {rule:?}"),
            }
        }
    }
}
