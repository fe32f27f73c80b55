//! The rows of one embedding table of a job at rest, collected from segments of its buckets.

use anyhow::{Context, ensure};
use safetensors::tensor::{Dtype, TensorView};
use sha2::{Digest, Sha256};
use shoal_runtime::cluster::block_copy::Settled;
use shoal_runtime::cluster::tensor_names::{KEYS, beside};
use shoal_runtime::cluster::{BlockCopy, Parameter};
use std::ops::Range;

/// All rows of a table.
#[derive(Clone, Debug, Default)]
pub struct TableState {
    /// f32 values of a row: embedding and slots.
    width: usize,
    keys: Vec<u64>,
    /// Of each row the update that changed it last, and how often its key occurred.
    counts: Vec<[u32; 2]>,
    values: Vec<f32>,
}

/// One row of it.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Its key.
    pub key: u64,
    /// The update that changed it last, modulo 2^32.
    pub last: u32,
    /// How often its key occurred, halved with age.
    pub occurrences: u32,
    /// Embedding, then the rule's slots.
    pub values: &'a [f32],
}

/// What lies where in a row's values.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// The rule's slot; absent of the embedding.
    pub slot: Option<&'static str>,
    /// Where it lies.
    pub range: Range<usize>,
}

/// The embedding's place in a row and, if asked, that of each of the rule's slots.
pub fn stretches(table: &Parameter, with_state: bool) -> Vec<Stretch> {
    let dimension = table.elements() as usize;
    let slots = if with_state { table.rule.slots() } else { &[] };
    let width = table.rule.row_slots(dimension) / table.rule.slots().len().max(1);
    let places = (dimension..).step_by(width.max(1)).map(|first| first..first + width);
    let slots = slots.iter().zip(places).map(|(slot, range)| Stretch { slot: Some(slot), range });
    std::iter::once(Stretch { slot: None, range: 0..dimension }).chain(slots).collect()
}

/// A table as tensors: keys, embeddings and slots, row by row in key order.
pub struct TableTensors {
    tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
}

impl TableState {
    /// No rows yet of a table.
    pub fn new(table: &Parameter) -> TableState {
        let dimension = table.elements() as usize;
        TableState { width: dimension + table.rule.row_slots(dimension), ..TableState::default() }
    }

    /// How many rows.
    pub fn row_count(&self) -> usize {
        self.keys.len()
    }

    /// Takes in one segment of one bucket: the rows in slots that are not settled yet.
    pub fn take(&mut self, copy: &BlockCopy, settled: &mut Settled) -> anyhow::Result<()> {
        let rows = settled.take(copy, self.width).map_err(anyhow::Error::msg);
        for row in rows.with_context(|| format!("block {}", copy.block))? {
            self.keys.push(row.key);
            self.counts.push([row.last, row.occurrences]);
            self.values.extend(row.values.iter().map(|word| f32::from_le_bytes(*word)));
        }
        Ok(())
    }

    /// In key order, wherever they lie.
    fn ordered(&self) -> Vec<Row<'_>> {
        let mut rows: Vec<Row<'_>> = (0..self.keys.len()).map(|at| self.row(at)).collect();
        rows.sort_unstable_by_key(|row| row.key);
        rows
    }

    /// In key order, of the table of this name.
    pub fn rows(&self, name: &str) -> anyhow::Result<Vec<Row<'_>>> {
        let rows = self.ordered();
        ensure!(rows.windows(2).all(|pair| pair[0].key < pair[1].key), "a key of {name:?} twice");
        Ok(rows)
    }

    /// Keys, each with the first element of its row.
    pub fn firsts(&self) -> impl Iterator<Item = (u64, f32)> {
        (0..self.keys.len()).map(|at| (self.keys[at], self.row(at).values[0]))
    }

    fn row(&self, at: usize) -> Row<'_> {
        let [last, occurrences] = self.counts[at];
        Row { key: self.keys[at], last, occurrences, values: &self.values[at * self.width..][..self.width] }
    }

    /// Adds all that the rows are, in key order.
    pub fn hash_into(&self, hash: &mut Sha256) {
        hash.update((self.keys.len() as u64).to_le_bytes());
        for row in self.ordered() {
            hash.update(row.key.to_le_bytes());
            [row.last, row.occurrences].iter().for_each(|count| hash.update(count.to_le_bytes()));
            hash.update(bytemuck::cast_slice::<f32, u8>(row.values));
        }
    }

    /// The rows of a table by its name: `NAME.keys` (u64), `NAME`, row by row in the shape that was declared, and, if asked,
    /// `NAME.SLOT`.
    pub fn tensors(&self, table: &Parameter, with_state: bool) -> anyhow::Result<TableTensors> {
        let (name, rows) = (&table.name, self.rows(&table.name)?);
        let keys = rows.iter().flat_map(|row| row.key.to_le_bytes()).collect();
        let mut tensors = vec![(beside(name, KEYS), Dtype::U64, vec![rows.len()], keys)];
        for Stretch { slot, range } in stretches(table, with_state) {
            let name = slot.map_or_else(|| name.clone(), |slot| beside(name, slot));
            let declared = || table.shape.iter().map(|dimension| *dimension as usize);
            // Some slots have one number for a whole row.
            let row =
                if range.len() as u64 == table.elements() { declared().collect() } else { vec![range.len()] };
            let values = rows.iter().flat_map(|row| &row.values[range.clone()]);
            let bytes = values.flat_map(|value| value.to_le_bytes()).collect();
            tensors.push((name, Dtype::F32, [vec![rows.len()], row].concat(), bytes));
        }
        Ok(TableTensors { tensors })
    }
}

impl TableTensors {
    /// Views of them, to be written.
    pub fn views(&self) -> anyhow::Result<Vec<(String, TensorView<'_>)>> {
        self.tensors
            .iter()
            .map(|(name, kind, shape, bytes)| {
                Ok((name.clone(), TensorView::new(*kind, shape.clone(), bytes)?))
            })
            .collect()
    }
}

/// Tables and copies of buckets for tests, of other packages too.
#[cfg(any(test, feature = "internals"))]
#[allow(clippy::unwrap_used, reason = "for tests")]
pub mod samples {
    use super::*;
    use shoal_runtime::cluster::block_copy::{Segment, SegmentRow, encode_row};
    use shoal_runtime::cluster::initial::Initial;
    use shoal_runtime::cluster::{BlockId, Ledger, Rewind, Rule, Schedule, StateName, Table, Term, Version};

    /// A table whose rows have two elements and one slot of two.
    pub fn table() -> Parameter {
        let rule = Rule::Adagrad { epsilon: 1e-8 };
        let row = Parameter::new("t", &[2], rule, Schedule::constant(0.1), Initial::Zeros);
        row.as_table(Table::default())
    }

    /// All of a bucket: rows with these keys, from slot 0 on.
    pub fn copy(keys: &[u64]) -> BlockCopy {
        copy_of(keys, |key| vec![key as f32, 1.0, 0.5, 0.25])
    }

    /// The same, with these values in each row.
    pub fn copy_of(keys: &[u64], values: impl Fn(u64) -> Vec<f32>) -> BlockCopy {
        let mut bytes = Vec::new();
        for (slot, key) in (0..).zip(keys) {
            let values: Vec<[u8; 4]> = values(*key).into_iter().map(f32::to_le_bytes).collect();
            encode_row(SegmentRow { slot, key: *key, last: 3, occurrences: 4, values: &values }, &mut bytes);
        }
        BlockCopy {
            block: BlockId(0),
            rewind: Rewind(1),
            name: StateName { term: Term(1), version: Version(3) },
            published: Version(3),
            parameters: bytes.into(),
            earlier: Vec::new(),
            slots: Vec::new(),
            ledger: Ledger::default(),
            segment: Some(Segment { slots: 0..u32::MAX, candidates: Default::default(), freed: None }),
        }
    }

    /// What was taken in of them.
    pub fn state(segments: &[&[u64]]) -> TableState {
        let mut state = TableState::new(&table());
        segments.iter().for_each(|keys| state.take(&copy(keys), &mut Settled::default()).unwrap());
        state
    }
}

#[cfg(test)]
mod tests {
    use super::samples::*;
    use super::*;

    fn sha256(state: &TableState) -> Vec<u8> {
        let mut hash = Sha256::new();
        state.hash_into(&mut hash);
        hash.finalize().to_vec()
    }

    #[test]
    fn a_table_is_the_same_wherever_its_rows_lie() {
        let (one, other) = (state(&[&[5, 9], &[2]]), state(&[&[2, 9, 5]]));
        assert_eq!(sha256(&one), sha256(&other));
        assert_ne!(sha256(&one), sha256(&state(&[&[2, 9]])));
    }

    #[test]
    fn rows_are_exported_in_key_order_with_their_slots_if_asked() {
        let state = state(&[&[5, 9], &[2]]);
        let tensors = state.tensors(&table(), true).unwrap();
        let views = tensors.views().unwrap();
        let names: Vec<&str> = views.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["t.keys", "t", "t.summed_squares"]);
        assert_eq!(views[0].1.data()[..9], [2, 0, 0, 0, 0, 0, 0, 0, 5]);
        let embeddings: Vec<f32> = bytemuck::pod_collect_to_vec(views[1].1.data());
        assert_eq!((views[1].1.shape(), embeddings), (&[3, 2][..], vec![2.0, 1.0, 5.0, 1.0, 9.0, 1.0]));
        assert_eq!(state.tensors(&table(), false).unwrap().views().unwrap().len(), 2);
    }

    #[test]
    fn rows_are_exported_in_the_shape_in_which_a_job_may_begin_at_them() {
        for (shape, rows) in [(&[2, 1][..], &[1, 2, 1][..]), (&[], &[1])] {
            let table = Parameter { shape: shape.to_vec(), ..table() };
            let mut state = TableState::new(&table);
            let width = 2 * table.elements() as usize;
            state.take(&copy_of(&[7], |_| vec![0.5; width]), &mut Settled::default()).unwrap();
            let tensors = state.tensors(&table, true).unwrap();
            let shapes: Vec<Vec<usize>> =
                tensors.views().unwrap().iter().map(|(_, view)| view.shape().to_vec()).collect();
            assert_eq!(shapes, [&[1], rows, rows]);
        }
    }
}
