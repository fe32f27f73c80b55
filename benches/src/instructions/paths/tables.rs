//! Rows of embedding tables: a sum over them made, merged, applied to buckets, read from them.

use super::{HotPath, Walk};
use crate::paths::buckets::{Buckets, MESSAGE_KEYS};
use shoal_runtime::cluster::{Rows, Table};
use std::hint::black_box;

const DIMENSION: usize = 16;
const ROWS: (u32, &str) = (MESSAGE_KEYS as u32, "row");
/// Rows that a table has before it is counted, in messages.
const MESSAGES: u64 = 4;

pub(super) fn paths() -> Vec<HotPath> {
    vec![
        HotPath::new("rows/gather", ROWS, 2, || {
            Ok(Box::new(|| {
                black_box(Rows::zeros(DIMENSION, keys(7)));
                Ok(())
            }))
        }),
        HotPath::new("rows/merge", ROWS, 4, || {
            // Half of their keys are in both.
            let [left, right] = [2, 4].map(|apart| Rows::zeros(DIMENSION, keys(apart)));
            Ok(Box::new(move || {
                black_box(left.clone().merge(right.clone()));
                Ok(())
            }))
        }),
        HotPath::new("table/insert", ROWS, 2, insert),
        HotPath::new("table/update", ROWS, 4, update),
        HotPath::new("table/lookup", ROWS, 4, lookup),
    ]
}

/// Keys of one message, so far apart.
fn keys(apart: u64) -> impl Iterator<Item = u64> {
    (0..u64::from(ROWS.0)).map(move |key| key * apart)
}

/// Message `number` of new keys: it is made, then applied.
fn grow(buckets: &mut Buckets, number: u64) {
    let first = number * u64::from(ROWS.0);
    let message = buckets.message(first..first + u64::from(ROWS.0));
    buckets.update(message);
}

fn grown() -> Buckets {
    let mut buckets = Buckets::new(Table::default(), DIMENSION);
    (0..MESSAGES).for_each(|number| grow(&mut buckets, number));
    buckets
}

fn insert() -> anyhow::Result<Walk> {
    let (mut buckets, mut number) = (grown(), MESSAGES);
    Ok(Box::new(move || {
        grow(&mut buckets, number);
        number += 1;
        Ok(())
    }))
}

fn update() -> anyhow::Result<Walk> {
    let mut buckets = grown();
    let message = buckets.message(keys(MESSAGES));
    Ok(Box::new(move || {
        buckets.update(message.clone());
        Ok(())
    }))
}

fn lookup() -> anyhow::Result<Walk> {
    let buckets = grown();
    let wanted = buckets.wanted(keys(MESSAGES));
    Ok(Box::new(move || buckets.read(&wanted)))
}
