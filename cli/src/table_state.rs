//! The rows of one embedding table of a job at rest, collected from segments of its buckets.

use anyhow::{Context, ensure};
use safetensors::tensor::{Dtype, TensorView};
use sha2::{Digest, Sha256};
use shoal_runtime::cluster::block_copy::Settled;
use shoal_runtime::cluster::{BlockCopy, Parameter};

/// All rows of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableState {
    /// f32 values of a row: embedding and slots.
    width: usize,
    keys: Vec<u64>,
    /// Of each row the update that changed it last, and how often its key occurred.
    counts: Vec<[u32; 2]>,
    values: Vec<f32>,
}

/// A table as tensors: keys, embeddings and slots, row by row in key order.
pub(crate) struct TableTensors {
    tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
}

impl TableState {
    /// No rows yet of a table.
    pub(crate) fn new(table: &Parameter) -> TableState {
        let dimension = table.elements() as usize;
        TableState { width: dimension + table.rule.row_slots(dimension), ..TableState::default() }
    }

    /// How many rows.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Takes in one segment of one bucket: the rows in slots that are not settled yet.
    pub(crate) fn take(&mut self, copy: &BlockCopy, settled: &mut Settled) -> anyhow::Result<()> {
        let rows = settled.take(copy, self.width).map_err(anyhow::Error::msg);
        for row in rows.with_context(|| format!("block {}", copy.block))? {
            self.keys.push(row.key);
            self.counts.push([row.last, row.occurrences]);
            self.values.extend(row.values.iter().map(|word| f32::from_le_bytes(*word)));
        }
        Ok(())
    }

    /// In key order, wherever they lie.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        order.sort_unstable_by_key(|at| self.keys[*at]);
        order
    }

    /// Keys, each with the first element of its row.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = (u64, f32)> {
        self.keys.iter().enumerate().map(|(at, key)| (*key, self.row(at)[0]))
    }

    fn row(&self, at: usize) -> &[f32] {
        &self.values[at * self.width..][..self.width]
    }

    /// Adds all that the rows are, in key order.
    pub(crate) fn hash(&self, hash: &mut Sha256) {
        hash.update((self.keys.len() as u64).to_le_bytes());
        for at in self.order() {
            hash.update(self.keys[at].to_le_bytes());
            self.counts[at].iter().for_each(|count| hash.update(count.to_le_bytes()));
            hash.update(bytemuck::cast_slice::<f32, u8>(self.row(at)));
        }
    }

    /// The rows of a table by its name: `NAME.keys` (u64), `NAME` and, if asked, `NAME.SLOT`.
    pub(crate) fn tensors(&self, table: &Parameter, with_state: bool) -> anyhow::Result<TableTensors> {
        let (name, dimension, order) = (&table.name, table.elements() as usize, self.order());
        ensure!(
            order.windows(2).all(|pair| self.keys[pair[0]] < self.keys[pair[1]]),
            "a key of {name:?} twice"
        );
        let keys = order.iter().flat_map(|at| self.keys[*at].to_le_bytes()).collect();
        let mut tensors = vec![(format!("{name}.keys"), Dtype::U64, vec![order.len()], keys)];
        let slots = table.rule.slots();
        let slot_width = if slots.is_empty() { 0 } else { (self.width - dimension) / slots.len() };
        let columns = std::iter::once((name.clone(), 0, dimension));
        let slots = slots.iter().enumerate().filter(|_| with_state);
        let slots = slots.map(|(slot, slot_name)| {
            (format!("{name}.{slot_name}"), dimension + slot * slot_width, slot_width)
        });
        for (name, first, width) in columns.chain(slots) {
            let values = order.iter().flat_map(|at| &self.row(*at)[first..first + width]);
            let bytes = values.flat_map(|value| value.to_le_bytes()).collect();
            tensors.push((name, Dtype::F32, vec![order.len(), width], bytes));
        }
        Ok(TableTensors { tensors })
    }
}

impl TableTensors {
    /// Views of them, to be written.
    pub(crate) fn views(&self) -> anyhow::Result<Vec<(String, TensorView<'_>)>> {
        self.tensors
            .iter()
            .map(|(name, kind, shape, bytes)| {
                Ok((name.clone(), TensorView::new(*kind, shape.clone(), bytes)?))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::cluster::block_copy::{Segment, SegmentRow, encode_row};
    use shoal_runtime::cluster::initial::Initial;
    use shoal_runtime::cluster::{BlockId, Ledger, Rewind, Rule, Schedule, StateName, Table, Term, Version};

    fn table() -> Parameter {
        let rule = Rule::Adagrad { epsilon: 1e-8 };
        let row = Parameter::new("t", &[2], rule, Schedule::constant(0.1), Initial::Zeros);
        row.as_table(Table::default())
    }

    fn copy(keys: &[u64]) -> BlockCopy {
        let mut bytes = Vec::new();
        for (slot, key) in (0..).zip(keys) {
            let values = [*key as f32, 1.0, 0.5, 0.25].map(f32::to_le_bytes);
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

    fn state(segments: &[&[u64]]) -> TableState {
        let mut state = TableState::new(&table());
        segments.iter().for_each(|keys| state.take(&copy(keys), &mut Settled::default()).unwrap());
        state
    }

    fn sha256(state: &TableState) -> Vec<u8> {
        let mut hash = Sha256::new();
        state.hash(&mut hash);
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
}
