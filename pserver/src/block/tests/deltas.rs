//! Checkpoints of a bucket that have what changed since a durable one: whatever was abandoned, evicted and born meanwhile,
//! what is restored of them is the version that was named.

use super::*;
use crate::block::restoring::Restoring;
use proptest::prelude::*;
use shoal_runtime::cluster::block_copy::decode_rows;
use shoal_runtime::cluster::table::{Ceiling, Full};
use shoal_runtime::cluster::{BlockCopy, CheckpointId, Rows, Table};
use std::borrow::Cow;
use std::collections::BTreeMap;

const DIMENSION: usize = 2;
const MOMENTUM: Rule = Rule::Momentum { momentum: 0.9 };

fn declaration(table: Table) -> Declaration {
    let row = Parameter::new("t", &[DIMENSION as u64], MOMENTUM, Schedule::constant(0.1), Initial::Zeros);
    Declaration { parameters: vec![row.as_table(table)], block_elements: 0 }
}

fn block(table: Table, segment_bytes: usize) -> Block {
    let terms = Arc::new(Terms::new(&job(1 << 20, 2), 16).with_segments(segment_bytes));
    Block::new(shape_of(&declaration(table), BlockId(0)), terms, alone(1), ME)
}

/// The same without rows, before the first update.
fn begun(table: Table, segment_bytes: usize) -> Block {
    let mut block = block(table, segment_bytes);
    block.restore_initial(Term(1));
    block
}

fn step(block: &mut Block, keys: impl IntoIterator<Item = u64>) {
    let at = block.published().0;
    let mut rows = Rows::zeros(DIMENSION, keys);
    rows.values_mut().iter_mut().zip(1..).for_each(|(value, of)| *value = (at + of) as f32);
    let node = Node { level: 1, index: 0 };
    let arriving = NodeGradient { step: Step(at), node, weight: 2, came: Came::Rows(Cow::Borrowed(&rows)) };
    assert!(matches!(block.push(Rewind(1), arriving), Ok(PushOutcome::Applied { .. })));
}

type Row = (u64, u32, u32, Vec<[u8; 4]>);
/// Rows, and keys that are not admitted.
type Content = (Vec<Row>, Bytes);

/// All rows of a block's newest state, with the keys that are counted and not admitted.
fn content(block: &Block) -> Content {
    let of = CopyOf { segment_bytes: usize::MAX, ..block.copy_of(0, 0) };
    let copy = block.state.as_ref().unwrap().copy(&block.shape, of).unwrap();
    let rows = decode_rows(&copy.parameters, 2 * DIMENSION).unwrap();
    let mut rows: Vec<Row> =
        rows.map(|row| (row.key, row.last, row.occurrences, row.values.to_vec())).collect();
    rows.sort_unstable_by_key(|row| row.0);
    (rows, copy.segment.unwrap().candidates)
}

fn is_delta(copy: &BlockCopy) -> bool {
    copy.segment.as_ref().is_some_and(|segment| segment.freed.is_some())
}

#[test]
fn rows_that_are_refused_and_evicted_are_counted_once() {
    let counted = |full| {
        let ceiling = Some(Ceiling { rows: 10, full });
        let mut block = begun(Table { buckets: 1, ceiling, ..Table::default() }, 1 << 20);
        assert_eq!(block.rows(), (0, 0));
        step(&mut block, 0..8);
        step(&mut block, 6..15);
        let (counts, (rows, bytes)) = (block.take_row_counts(), block.rows());
        assert!(bytes >= rows * 4 * (4 + 2 * DIMENSION as u64));
        assert_eq!(block.take_row_counts(), RowCounts::default(), "they were told");
        (rows, counts.evicted, counts.refused)
    };
    assert_eq!(counted(Full::Refuse), (10, 0, 5));
    let (rows, evicted, refused) = counted(Full::Evict { half_life: 3 });
    assert_eq!((rows + evicted, refused), (15, 0));
}

/// The pieces of a checkpoint, newest state first.
fn restored(table: Table, pieces: &[BlockCopy]) -> Block {
    let mut block = block(table, 64);
    let mut restoring = Restoring::default();
    pieces.iter().for_each(|piece| restoring.take(&block.shape, piece).unwrap());
    block.restore_from(Term(1), restoring.finish().unwrap());
    block
}

#[derive(Clone, Debug)]
enum Turn {
    Step(Vec<u64>),
    /// One is named, since the durable one if that is asked for.
    Name(bool),
    /// The next segment of the one under way is given. With the last it becomes durable, or is abandoned.
    Give(bool),
    /// The primary begins anew from the durable one.
    Restore,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let keys = proptest::collection::btree_set(0u64..60, 1..8);
    let turn = prop_oneof![
        6 => keys.prop_map(|keys| Turn::Step(keys.into_iter().collect())),
        2 => any::<bool>().prop_map(Turn::Name),
        2 => Just(Turn::Name(true)),
        8 => (0u8..4).prop_map(|chance| Turn::Give(chance > 0)),
        1 => Just(Turn::Restore),
    ];
    proptest::collection::vec(turn, 20..120)
}

fn tables() -> impl Strategy<Value = Table> {
    let ceiling = (8u32..30).prop_map(|rows| Ceiling { rows, full: Full::Evict { half_life: 3 } });
    let parts = (1u8..3, proptest::option::of(2u32..30), proptest::option::of(ceiling));
    parts.prop_map(|(admission, age_max, ceiling)| Table { buckets: 1, admission, age_max, ceiling })
}

/// A bucket's primary with the checkpoints that it made.
struct Play {
    table: Table,
    block: Block,
    named: u64,
    /// What the one under way should be, and what was given of it.
    under_way: Option<(Content, Vec<BlockCopy>)>,
    durable: Option<u64>,
    /// Of durable ones all pieces, with those that they rest on.
    pieces: BTreeMap<u64, Vec<BlockCopy>>,
    deltas: usize,
}

impl Play {
    fn turn(&mut self, turn: Turn) {
        match (turn, &mut self.under_way) {
            (Turn::Step(keys), _) => step(&mut self.block, keys),
            (Turn::Name(is_since), None) => {
                self.named += 1;
                let since = self.durable.filter(|_| is_since).map(CheckpointId);
                let version = Some(self.block.published());
                let expected = content(&self.block);
                let checkpoint = CheckpointId(self.named);
                self.block.name_checkpoint(Some(NamedCheckpoint { checkpoint, version, since }));
                self.under_way = Some((expected, Vec::new()));
            }
            (Turn::Give(is_kept), Some((_, given))) => {
                let (_, piece) = self.block.give_piece().expect("not all is given");
                let is_last = piece.copy.segment.as_ref().unwrap().slots.end == u32::MAX;
                given.push(piece.copy);
                if is_last {
                    self.end(is_kept);
                }
            }
            (Turn::Restore, None) => {
                let Some(durable) = self.durable else { return };
                self.block = restored(self.table, &self.pieces[&durable]);
            }
            _ => {}
        }
    }

    fn end(&mut self, is_kept: bool) {
        let Some((expected, mut pieces)) = self.under_way.take() else { return };
        if is_delta(&pieces[0]) {
            self.deltas += 1;
            pieces.extend(self.pieces[&self.durable.unwrap()].iter().cloned());
        }
        assert_eq!(content(&restored(self.table, &pieces)), expected);
        if is_kept {
            self.durable = Some(self.named);
            self.pieces.insert(self.named, pieces);
        }
    }
}

fn play(table: Table, segment_bytes: usize, turns: Vec<Turn>) -> Play {
    let block = begun(table, segment_bytes);
    let (under_way, durable, pieces) = (None, None, BTreeMap::new());
    let mut play = Play { table, block, named: 0, under_way, durable, pieces, deltas: 0 };
    turns.into_iter().for_each(|turn| play.turn(turn));
    play
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn what_changed_and_what_it_rests_on_are_the_version_that_was_named(
        table in tables(), segment_bytes in 1usize..300, turns in turns()
    ) {
        play(table, segment_bytes, turns);
    }
}

/// Rows of 36 bytes, and a byte for keys that are not admitted: the base has all, what follows those of the keys that occurred, whatever the table has.
#[test]
fn a_piece_has_as_many_bytes_as_rows_that_changed() {
    for rows in [1_000, 10_000, 100_000] {
        let mut block = begun(Table { buckets: 1, ..Table::default() }, 1 << 20);
        step(&mut block, 0..rows);
        let mut written = Vec::new();
        for (at, touched) in [(1, 0), (2, rows / 1000), (3, rows / 100), (4, rows / 10)] {
            if touched > 0 {
                step(&mut block, (0..touched).map(|key| 7 * key));
            }
            let (version, since) = (Some(block.published()), Some(CheckpointId(at - 1)));
            block.name_checkpoint(Some(NamedCheckpoint { checkpoint: CheckpointId(at), version, since }));
            let pieces = std::iter::from_fn(|| block.give_piece()).map(|(_, piece)| piece.copy);
            written.push(pieces.map(|copy| copy.bytes() as u64).sum::<u64>());
        }
        let expected = [rows, rows / 1000, rows / 100, rows / 10].map(|rows| 36 * rows + 1);
        assert_eq!(written, expected, "{rows} rows");
    }
}

#[test]
fn where_most_rows_changed_all_are_written() {
    let mut block = begun(Table { buckets: 1, ..Table::default() }, 1 << 20);
    step(&mut block, 0..100);
    let mut kinds = Vec::new();
    for (at, touched) in [(1, 100), (2, 50), (3, 51)] {
        step(&mut block, 0..touched);
        let (version, since) = (Some(block.published()), Some(CheckpointId(at - 1)));
        block.name_checkpoint(Some(NamedCheckpoint { checkpoint: CheckpointId(at), version, since }));
        kinds.push(is_delta(&block.give_piece().unwrap().1.copy));
    }
    assert_eq!(kinds, [false, true, false]);
}

#[test]
fn a_copy_that_has_only_changes_is_no_state_to_follow_from() {
    let mut block = begun(Table { buckets: 1, ..Table::default() }, 1 << 20);
    step(&mut block, 0..100);
    let mut pieces = Vec::new();
    for at in 1..=2 {
        let (version, since) = (Some(block.published()), Some(CheckpointId(at - 1)));
        block.name_checkpoint(Some(NamedCheckpoint { checkpoint: CheckpointId(at), version, since }));
        pieces.push(block.give_piece().unwrap().1.copy);
        step(&mut block, [3]);
    }
    assert!(State::from_copy(&block.shape, &pieces[0]).is_ok());
    let refusal = State::from_copy(&block.shape, &pieces[1]).unwrap_err();
    assert!(refusal.detail.contains("only what changed"), "{refusal}");
}
