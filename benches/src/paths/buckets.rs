//! A table as a pserver holds it: all of its buckets, updated and read as blocks do it, without locks, copies or messages.

use anyhow::ensure;
use shoal_pserver::bucket::Bucket;
use shoal_pserver::bucket::shape::BucketShape;
use shoal_pserver::kernel::rules::Pass;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::cluster::{Parameter, Rows, Rule, Schedule, Table};
use std::hint::black_box;

/// Keys of one message.
pub const MESSAGE_KEYS: usize = 10_000;
/// The rule of its rows.
pub const ADAGRAD: Rule = Rule::Adagrad { epsilon: 1e-8 };

/// Of each bucket the keys of one message, or its rows.
pub type Wanted = Vec<Vec<u64>>;
/// Of each bucket what one message brings it.
pub type Message = Vec<Rows>;

/// All buckets of one table.
#[derive(Debug)]
pub struct Buckets {
    table: Table,
    dimension: usize,
    buckets: Vec<(BucketShape, Bucket)>,
    updates: u64,
}

/// The parameter that a table is declared as.
pub fn parameter(table: Table, dimension: usize, rule: Rule) -> Parameter {
    let initial = Initial::Uniform { limit: 0.05 };
    Parameter::new("table", &[dimension as u64], rule, Schedule::constant(0.05), initial).as_table(table)
}

/// Draw `draw` of numbers below `below`: not quite uniform, near enough for places in memory.
pub fn drawn(draw: u64, below: u64) -> u64 {
    ((u128::from(mix(draw)) * u128::from(below)) >> 64) as u64
}

impl Buckets {
    /// Without rows.
    pub fn new(table: Table, dimension: usize) -> Buckets {
        let parameter = parameter(table, dimension, ADAGRAD);
        let bucket = |bucket| {
            let shape = BucketShape::new(7, &parameter, bucket)?;
            Some((shape.clone(), Bucket::new(&shape)))
        };
        let buckets = (0..table.buckets).filter_map(bucket).collect();
        Buckets { table, dimension, buckets, updates: 0 }
    }

    /// What is asked of each bucket for these keys, each once.
    pub fn wanted(&self, keys: impl IntoIterator<Item = u64>) -> Wanted {
        let mut wanted = vec![Vec::new(); self.buckets.len()];
        keys.into_iter().for_each(|key| wanted[self.table.bucket_of(key) as usize].push(key));
        for keys in &mut wanted {
            keys.sort_unstable();
            keys.dedup();
        }
        wanted
    }

    /// Gradients of one for occurrences of keys.
    pub fn message(&self, keys: impl IntoIterator<Item = u64>) -> Message {
        let mut parts = vec![Vec::new(); self.buckets.len()];
        keys.into_iter().for_each(|key| parts[self.table.bucket_of(key) as usize].push(key));
        let rows = |keys| {
            let mut rows = Rows::zeros(self.dimension, keys);
            rows.values_mut().fill(1.0);
            rows
        };
        parts.into_iter().map(rows).collect()
    }

    /// One update of every bucket. The version before it can still be read.
    pub fn update(&mut self, message: Message) {
        self.updates += 1;
        let pass = Pass { weight: 1.0, rate: 0.05, scale: 1.0, weight_decay: 0.0, update: self.updates };
        for ((shape, bucket), rows) in self.buckets.iter_mut().zip(message) {
            let plan = bucket.plan(shape, &rows, &pass);
            bucket.apply(shape, rows, &plan, pass);
            bucket.release(1);
        }
    }

    /// Reads the newest version of these keys.
    ///
    /// # Errors
    /// One of them has no row.
    pub fn read(&self, wanted: &Wanted) -> anyhow::Result<()> {
        for ((shape, bucket), keys) in self.buckets.iter().zip(wanted) {
            let mut bytes = Vec::new();
            bucket.read(shape, 0, keys, &mut bytes);
            let full = keys.len().div_ceil(8) + 4 * self.dimension * keys.len();
            ensure!(black_box(bytes).len() == full, "a key that was inserted has no row");
        }
        Ok(())
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.buckets.iter().map(|(_, bucket)| bucket.rows().len()).sum()
    }

    /// Bytes of their memory by the structures' own account, what is reserved included.
    pub fn bytes(&self) -> usize {
        self.buckets.iter().map(|(_, bucket)| bucket.rows().bytes()).sum()
    }
}
