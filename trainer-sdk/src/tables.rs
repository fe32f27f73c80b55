//! Rows of embedding tables as a training program sees them: the keys of a batch, their rows, their gradients. Knows
//! nothing of the network.

use crate::access::AccessError;
use crate::error::TrainError;
use crate::names::Names;
use shoal_runtime::cluster::{BlockId, Rows};
use shoal_runtime::wire::rows;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The keys that occur in a batch, by table: [`Model::keys`](crate::Model::keys) fills it.
#[derive(Clone, Debug)]
pub struct Keys {
    names: Arc<Names>,
    /// Every occurrence, indexed as declared.
    occurrences: Vec<Vec<u64>>,
}

impl Keys {
    pub(crate) fn new(names: &Arc<Names>) -> Keys {
        Keys { names: names.clone(), occurrences: vec![Vec::new(); names.declaration.parameters.len()] }
    }

    /// A key occurs in the batch, once more if it was added before. Any u64 is a key; [`feature_key`](crate::feature_key) and
    /// [`string_key`](crate::string_key) make them of texts.
    ///
    /// # Errors
    /// No such table.
    pub fn add(&mut self, table: &str, key: u64) -> Result<(), AccessError> {
        self.extend(table, [key])
    }

    /// These keys occur in the batch, as often as they come.
    ///
    /// # Errors
    /// No such table.
    pub fn extend(&mut self, table: &str, keys: impl IntoIterator<Item = u64>) -> Result<(), AccessError> {
        let at = self.names.table(table)?;
        self.occurrences[at].extend(keys);
        Ok(())
    }

    /// Adds the keys of another batch.
    pub(crate) fn join(&mut self, other: Keys) {
        for (ours, theirs) in self.occurrences.iter_mut().zip(other.occurrences) {
            ours.extend(theirs);
        }
    }

    /// Bytes of the keys and of a row for each occurrence.
    pub(crate) fn bytes(&self) -> usize {
        let tables = self.names.declaration.parameters.iter().zip(&self.occurrences);
        tables.map(|(table, keys)| (8 + 4 * table.elements() as usize) * keys.len()).sum()
    }

    /// A row of zeros for every key.
    pub(crate) fn rows(self) -> Vec<Rows> {
        let parameters = self.names.declaration.parameters.iter();
        let rows = parameters.zip(self.occurrences);
        rows.map(|(parameter, keys)| Rows::zeros(parameter.elements() as usize, keys)).collect()
    }
}

/// Rows of one table, by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TableRows {
    /// Strictly ascending.
    pub(crate) keys: Arc<Vec<u64>>,
    pub(crate) values: Vec<f32>,
}

/// The rows of one table that a batch may read.
#[derive(Clone, Copy, Debug)]
pub struct Embeddings<'a> {
    name: &'a str,
    dimension: usize,
    rows: &'a TableRows,
}

impl<'a> Embeddings<'a> {
    pub(crate) fn new(name: &'a str, dimension: usize, rows: &'a TableRows) -> Embeddings<'a> {
        Embeddings { name, dimension, rows }
    }

    /// The row of a key: as many values as the table's shape has elements, in row-major order. A row that is not born yet has its
    /// initial values; of a table of sums all are 0.
    ///
    /// # Errors
    /// The batch's keys had it not.
    pub fn row(&self, key: u64) -> Result<&'a [f32], AccessError> {
        let at = self.rows.keys.binary_search(&key).map_err(|_| unnamed(self.name, key))?;
        Ok(&self.rows.values[at * self.dimension..][..self.dimension])
    }
}

/// The gradient sums of one table's rows, zero at first.
#[derive(Debug)]
pub struct EmbeddingGradients<'a> {
    name: &'a str,
    dimension: usize,
    rows: &'a mut Rows,
}

impl<'a> EmbeddingGradients<'a> {
    pub(crate) fn new(name: &'a str, dimension: usize, rows: &'a mut Rows) -> EmbeddingGradients<'a> {
        EmbeddingGradients { name, dimension, rows }
    }

    /// The gradient sums of a key's row, as many as the table's shape has elements, in row-major order: to be added to. A key that
    /// occurs more than once in the batch has one row, for the sum over all of them.
    ///
    /// # Errors
    /// The batch's keys had it not.
    pub fn row_mut(&mut self, key: u64) -> Result<&mut [f32], AccessError> {
        let at = self.rows.keys().binary_search(&key).map_err(|_| unnamed(self.name, key))?;
        Ok(&mut self.rows.values_mut()[at * self.dimension..][..self.dimension])
    }
}

fn unnamed(table: &str, key: u64) -> AccessError {
    AccessError::NoSuchKey { table: table.to_owned(), key }
}

/// Which rows of a table belong to one bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BucketRows {
    /// The table, indexed as declared.
    pub(crate) parameter: usize,
    /// Ascending.
    pub(crate) places: Vec<u32>,
}

/// The rows of each bucket that has any; `keys` are indexed as declared.
///
/// # Errors
/// More rows of one bucket than a step may touch: pservers would refuse them, or no message could carry them.
pub(crate) fn by_bucket<'a>(
    names: &Names,
    keys: impl Iterator<Item = &'a [u64]>,
) -> Result<BTreeMap<BlockId, BucketRows>, TrainError> {
    #[cfg(test)]
    crate::ran::note("by bucket");
    let mut buckets = BTreeMap::new();
    for (parameter, keys) in keys.enumerate().filter(|(_, keys)| !keys.is_empty()) {
        let table = &names.declaration.parameters[parameter];
        for (block, places) in names.places(parameter, keys).into_iter().filter(|(_, at)| !at.is_empty()) {
            if let Some(why) = rows::too_many(places.len(), table.elements() as usize) {
                let (name, bucket) = (&table.name, names.bucket(block));
                return Err(TrainError::Settings(format!("bucket {bucket} of table {name:?}: {why}")));
            }
            buckets.insert(block, BucketRows { parameter, places });
        }
    }
    Ok(buckets)
}

/// The rows that a pull asks each bucket for: of tables that steps read, not of sums.
///
/// # Errors
/// As [`by_bucket`].
pub(crate) fn read_by_bucket(
    names: &Names,
    rows: &[TableRows],
) -> Result<BTreeMap<BlockId, BucketRows>, TrainError> {
    let mut buckets = by_bucket(names, rows.iter().map(|rows| &rows.keys[..]))?;
    buckets.retain(|_, rows| names.declaration.parameters[rows.parameter].rule.is_read_by_steps());
    Ok(buckets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::cluster::initial::Initial;
    use shoal_runtime::cluster::{Declaration, Parameter, Precision, Rule, Schedule, Table};

    fn names() -> Arc<Names> {
        let row = |name: &str, dimension| {
            let zeros = Initial::Zeros;
            Parameter::new(name, &[dimension], Rule::Sgd, Schedule::constant(0.1), zeros)
        };
        let table = Table { buckets: 3, ..Table::default() };
        let parameters = vec![row("t", 2).as_table(table), row("w", 4), row("u", 1).as_table(table)];
        Arc::new(Names::new(Declaration { parameters, block_elements: 0 }, 7, Precision::F32))
    }

    #[test]
    fn keys_make_rows_of_zeros_which_are_found_by_key_alone() {
        let names = names();
        let mut keys = Keys::new(&names);
        keys.extend("t", [9, 4, 9]).unwrap();
        keys.add("u", 1).unwrap();
        assert!(keys.add("w", 1).unwrap_err().to_string().contains("no embedding table \"w\""));
        let mut other = Keys::new(&names);
        other.add("t", 5).unwrap();
        keys.join(other);
        let mut rows = keys.rows();
        assert_eq!((rows[0].keys(), rows[0].counts()), (&[4, 5, 9][..], &[1, 1, 2][..]));
        assert_eq!((rows[1].len(), rows[2].len()), (0, 1));
        let mut gradients = EmbeddingGradients::new("t", 2, &mut rows[0]);
        gradients.row_mut(5).unwrap()[1] = 3.0;
        assert!(gradients.row_mut(6).unwrap_err().to_string().contains("Model::keys"));
        assert_eq!(rows[0].values(), [0.0, 0.0, 0.0, 3.0, 0.0, 0.0]);
        let pulled = TableRows { keys: vec![4, 9].into(), values: vec![1.0, 2.0, 3.0, 4.0] };
        let embeddings = Embeddings::new("t", 2, &pulled);
        assert_eq!(embeddings.row(9).unwrap(), [3.0, 4.0]);
        assert!(embeddings.row(5).is_err());
    }

    #[test]
    fn sums_are_pushed_to_and_never_pulled() {
        let table = |name: &str, rule| {
            let parameter = Parameter::new(name, &[1], rule, Schedule::constant(0.1), Initial::Zeros);
            parameter.as_table(Table { buckets: 1, ..Table::default() })
        };
        let parameters = vec![table("seen", Rule::Sum), table("t", Rule::Sgd)];
        let names = Names::new(Declaration { parameters, block_elements: 0 }, 7, Precision::F32);
        let rows = [vec![3, 4], vec![5]].map(|keys| TableRows { keys: keys.into(), values: Vec::new() });
        let pushed = by_bucket(&names, rows.iter().map(|rows| &rows.keys[..])).unwrap();
        assert_eq!(pushed.keys().collect::<Vec<_>>(), [&BlockId(0), &BlockId(1)]);
        let pulled = read_by_bucket(&names, &rows).unwrap();
        assert_eq!(pulled, BTreeMap::from([(BlockId(1), BucketRows { parameter: 1, places: vec![0] })]));
    }

    #[test]
    fn a_bucket_with_more_rows_than_a_step_may_touch_is_refused_by_name_with_the_way_out() {
        let parameter = Parameter::new("t", &[4], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
        let names = |buckets| {
            let parameters = vec![parameter.clone().as_table(Table { buckets, ..Table::default() })];
            Names::new(Declaration { parameters, block_elements: 0 }, 7, Precision::F32)
        };
        // A row of four elements, its key and its count: 28 bytes; four bytes say how many there are.
        let most = (rows::STEP_BYTES_MAX - 4) / 28;
        let keys: Vec<u64> = (0..=most as u64).collect();
        assert!(by_bucket(&names(1), [&keys[1..]].into_iter()).is_ok());
        let refused = by_bucket(&names(1), [&keys[..]].into_iter()).unwrap_err().to_string();
        let expected = "bucket 0 of table \"t\": 449390 of its rows in one step have 12582924 bytes, at most 12582912 are \
                        taken: declare more buckets, or fewer microbatches a step";
        assert_eq!(refused, expected);
        assert!(by_bucket(&names(2), [&keys[..]].into_iter()).is_ok());
    }

    #[test]
    fn every_row_goes_to_its_own_bucket() {
        let names = names();
        let mut keys = Keys::new(&names);
        keys.extend("t", 0..50).unwrap();
        keys.extend("u", 0..2).unwrap();
        let rows = keys.rows();
        let buckets = by_bucket(&names, rows.iter().map(Rows::keys)).unwrap();
        let keys = |block: &BlockId| {
            let BucketRows { parameter, places } = &buckets[block];
            let keys = rows[*parameter].keys();
            (*parameter, places.iter().map(|place| keys[*place as usize]).collect::<Vec<u64>>())
        };
        let mut of_t: Vec<u64> = (0..3).flat_map(|block| keys(&BlockId(block)).1).collect();
        of_t.sort_unstable();
        assert_eq!((of_t, buckets.contains_key(&BlockId(3))), ((0..50).collect(), false));
        for block in buckets.keys() {
            let (parameter, keys) = keys(block);
            // Of the first table, three buckets; one block of a dense parameter; the second table.
            let (first, expected) = if block.0 < 3 { (0, 0) } else { (4, 2) };
            assert_eq!(parameter, expected);
            assert!(keys.is_sorted_by(|left, right| left < right));
            let table = names.declaration.parameters[parameter].table.unwrap();
            assert!(keys.iter().all(|key| first + table.bucket_of(*key) == block.0));
        }
    }
}
