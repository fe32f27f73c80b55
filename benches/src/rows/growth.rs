//! A table that grows by real inserts: bytes of a row at many sizes, and what inserts, updates and lookups cost at some.
//!
//! Only the table is in memory while bytes are counted; the limit's array comes and goes beside it.

use crate::measure::{Spread, seconds};
use crate::paths::buckets::{Buckets, MESSAGE_KEYS, Message, Wanted, drawn};
use crate::process::resident_bytes;
use crate::rows::flat::Flat;
use serde::Serialize;
use shoal_runtime::cluster::Table;
use std::hint::black_box;

pub(crate) const DIMENSION: usize = 16;
/// Bytes that nobody can do without: an embedding and as many values of rule state.
pub(crate) const PAYLOAD_BYTES: f64 = 8.0 * DIMENSION as f64;
/// The limit's array is no larger, for at 10^8 rows there is no room for two. It is far beyond all caches.
const FLAT_BYTES_MAX: usize = 4 << 30;
/// Bytes are counted whenever the table has grown by one part in so many.
const COUNTS_PER_GROWTH: usize = 64;
/// Keys of a round, in several messages: fewer are too short for the clock.
const ROUND_KEYS: usize = 4 * MESSAGE_KEYS;

/// A table of one size.
#[derive(Debug, Serialize)]
pub(crate) struct Size {
    pub(crate) rows: usize,
    /// Resident bytes of a row, everything counted.
    pub(crate) resident: f64,
    /// The most that they were since the size before.
    pub(crate) resident_worst: f64,
    /// Bytes of a row by the structures' capacities; the most since the size before.
    pub(crate) reserved: f64,
    pub(crate) reserved_worst: f64,
    /// Nanoseconds of a row's insert since the size before, everything that grows included.
    pub(crate) growth_nanos: f64,
    /// The longest update of one message since then, in milliseconds.
    pub(crate) growth_longest_millis: f64,
    pub(crate) insert: Cost,
    pub(crate) update: Cost,
    pub(crate) lookup: Cost,
}

/// What one row costs.
#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    pub(crate) nanos: f64,
    pub(crate) limit_nanos: f64,
    /// Limit / ours inside a round: 1 is the limit reached.
    pub(crate) ratio: Spread,
}

impl Cost {
    fn of(rounds: &[[f64; 2]], rows: usize) -> Cost {
        let nanos =
            |which: usize| Spread::of(rounds.iter().map(|round| round[which] * 1e9 / rows as f64).collect());
        let ratio = Spread::of(rounds.iter().map(|[ours, limit]| limit / ours).collect());
        Cost { nanos: nanos(0).median, limit_nanos: nanos(1).median, ratio }
    }
}

/// A table on its way through sizes.
pub(crate) struct Growth {
    buckets: Buckets,
    rounds: u32,
    /// Resident before there was a table.
    before: u64,
    inserted: usize,
    draws: u64,
    since: Since,
}

/// What was seen since the last size.
#[derive(Default)]
struct Since {
    rows: usize,
    seconds: f64,
    longest: f64,
    resident_worst: f64,
    reserved_worst: f64,
}

impl Growth {
    pub(crate) fn new(rounds: u32) -> anyhow::Result<Growth> {
        let before = resident_bytes()?;
        let buckets = Buckets::new(Table::default(), DIMENSION);
        Ok(Growth { buckets, rounds, before, inserted: 0, draws: 0, since: Since::default() })
    }

    /// Grows the table to so many rows and measures it there.
    pub(crate) fn to(&mut self, rows: usize) -> anyhow::Result<Size> {
        // Half of a small table at least grows before its rounds begin.
        let keys = ROUND_KEYS.min((rows - self.inserted) / (2 * (self.rounds as usize + 1)));
        self.grow(rows - keys * (self.rounds as usize + 1))?;
        let flat_rows = rows.min(FLAT_BYTES_MAX / PAYLOAD_BYTES as usize);
        let mut flat = Flat::new(flat_rows, DIMENSION);
        let insert = self.inserts(&mut flat, keys)?;
        let update = self.updates(&mut flat)?;
        let lookup = self.lookups(&flat)?;
        drop(flat);
        self.count()?;
        let since = std::mem::take(&mut self.since);
        Ok(Size {
            rows,
            resident: self.resident()?,
            resident_worst: since.resident_worst,
            reserved: self.reserved(),
            reserved_worst: since.reserved_worst,
            growth_nanos: since.seconds * 1e9 / since.rows.max(1) as f64,
            growth_longest_millis: since.longest * 1e3,
            insert,
            update,
            lookup,
        })
    }

    fn grow(&mut self, rows: usize) -> anyhow::Result<()> {
        let mut counted = self.inserted;
        while self.inserted < rows {
            let keys = MESSAGE_KEYS.min(rows - self.inserted);
            let mut message = Some(self.next_message(keys));
            let took = seconds(&mut || {
                message.take().into_iter().for_each(|message| self.buckets.update(message));
                Ok(())
            })?;
            self.since.rows += keys;
            self.since.seconds += took;
            self.since.longest = self.since.longest.max(took);
            if self.inserted - counted > counted / COUNTS_PER_GROWTH {
                counted = self.inserted;
                self.count()?;
            }
        }
        Ok(())
    }

    /// A message of new keys. Keys count up: their hash spreads them.
    fn next_message(&mut self, keys: usize) -> Message {
        let first = self.inserted as u64;
        self.inserted += keys;
        self.buckets.message(first..first + keys as u64)
    }

    fn resident(&self) -> anyhow::Result<f64> {
        Ok(resident_bytes()?.saturating_sub(self.before) as f64 / self.buckets.rows().max(1) as f64)
    }
    fn reserved(&self) -> f64 {
        self.buckets.bytes() as f64 / self.buckets.rows().max(1) as f64
    }
    fn count(&mut self) -> anyhow::Result<()> {
        self.since.resident_worst = self.since.resident_worst.max(self.resident()?);
        self.since.reserved_worst = self.since.reserved_worst.max(self.reserved());
        Ok(())
    }

    /// Places of rows that are there.
    fn places(&mut self, of: usize, keys: usize) -> Vec<u32> {
        let first = self.draws;
        self.draws += keys as u64;
        (first..self.draws).map(|draw| drawn(draw, of as u64) as u32).collect()
    }
    fn known(&mut self) -> Vec<u64> {
        self.places(self.inserted, ROUND_KEYS).into_iter().map(u64::from).collect()
    }

    fn inserts(&mut self, flat: &mut Flat, keys: usize) -> anyhow::Result<Cost> {
        let next = |growth: &mut Growth| {
            let messages = (0..keys).step_by(MESSAGE_KEYS);
            messages.map(|at| growth.next_message(MESSAGE_KEYS.min(keys - at))).collect()
        };
        self.written(flat, keys, next)
    }

    fn updates(&mut self, flat: &mut Flat) -> anyhow::Result<Cost> {
        let next = |growth: &mut Growth| {
            let known = growth.known();
            known.chunks(MESSAGE_KEYS).map(|keys| growth.buckets.message(keys.iter().copied())).collect()
        };
        self.written(flat, ROUND_KEYS, next)
    }

    /// Messages applied beside Adagrad on as many rows of the flat array. They are made when their round comes, so that no
    /// memory is anybody's but the table's.
    fn written(
        &mut self,
        flat: &mut Flat,
        keys: usize,
        next: impl Fn(&mut Growth) -> Vec<Message>,
    ) -> anyhow::Result<Cost> {
        let gradients = vec![1.0; MESSAGE_KEYS * DIMENSION];
        let mut rounds = Vec::new();
        for _ in 0..=self.rounds {
            let (mut messages, places) = (next(self), self.places(flat.rows(), keys));
            let ours = seconds(&mut || {
                messages.drain(..).for_each(|message| self.buckets.update(message));
                Ok(())
            })?;
            let limit = seconds(&mut || {
                places.chunks(MESSAGE_KEYS).for_each(|places| flat.scatter(places, &gradients));
                Ok(())
            })?;
            rounds.push([ours, limit]);
        }
        Ok(Cost::of(&rounds[1..], keys))
    }

    fn lookups(&mut self, flat: &Flat) -> anyhow::Result<Cost> {
        let mut rounds = Vec::new();
        for _ in 0..=self.rounds {
            let (known, places) = (self.known(), self.places(flat.rows(), ROUND_KEYS));
            let wanted = known.chunks(MESSAGE_KEYS).map(|keys| self.buckets.wanted(keys.iter().copied()));
            let wanted: Vec<Wanted> = wanted.collect();
            let ours = seconds(&mut || wanted.iter().try_for_each(|wanted| self.buckets.read(wanted)))?;
            let limit = seconds(&mut || {
                places.chunks(MESSAGE_KEYS).for_each(|places| drop(black_box(flat.gather(places))));
                Ok(())
            })?;
            rounds.push([ours, limit]);
        }
        Ok(Cost::of(&rounds[1..], ROUND_KEYS))
    }
}
