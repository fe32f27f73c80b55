//! Checkpoints of a bucket that have what changed since a durable one: whatever was abandoned, evicted and born meanwhile,
//! what is restored of them is the version that was named.

use super::*;
use crate::block::piece::Restoring;
use proptest::prelude::*;
use shoal_runtime::cluster::block_copy::decode_rows;
use shoal_runtime::cluster::table::{Ceiling, Full};
use shoal_runtime::cluster::{BlockCopy, CheckpointId, Rows, Table};
use std::collections::BTreeMap;

const DIMENSION: usize = 2;
const MOMENTUM: Rule = Rule::Momentum { momentum: 0.9 };

fn declaration(table: Table) -> Declaration {
    let row = Parameter::new("t", &[DIMENSION as u64], MOMENTUM, Schedule::constant(0.1), Initial::Zeros);
    Declaration { parameters: vec![row.as_table(table)], block_elements: 0 }
}

fn block(table: Table, segment_bytes: usize) -> Block {
    let terms = Arc::new(BlockSettings::new(&job(1 << 20, 2), 16).with_segments(segment_bytes));
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
    let arriving = NodeGradient { step: Step(at), node, weight: 2, gradient: Gradient::Rows(rows.clone()) };
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
        let (counts, (rows, bytes)) = (std::mem::take(&mut block.row_counts), block.rows());
        assert!(bytes >= rows * 4 * (4 + 2 * DIMENSION as u64));
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
    block.restore(Term(1), restoring.finish().unwrap());
    block
}

/// A checkpoint of the block as it is, since the durable one if there is one, named at this routing version.
fn named(checkpoint: u64, since: Option<u64>, named_at: u64) -> Option<NamedCheckpoint> {
    let (checkpoint, since) = (CheckpointId(checkpoint), since.map(CheckpointId));
    Some(NamedCheckpoint { checkpoint, version: None, since, named_at })
}

#[derive(Clone, Debug)]
enum MetricTurn {
    Step(Vec<u64>),
    /// One is named, since the durable one if that is asked for.
    Name(bool),
    /// The next segment of the one under way is given. Once there is none it becomes durable, or is abandoned.
    Give(bool),
    /// Another copy becomes the primary, whatever of the one under way was given.
    Move,
    /// The primary begins anew from the durable one.
    Restore,
}

fn turns() -> impl Strategy<Value = Vec<MetricTurn>> {
    let keys = proptest::collection::btree_set(0u64..60, 1..8);
    let turn = prop_oneof![
        6 => keys.prop_map(|keys| MetricTurn::Step(keys.into_iter().collect())),
        2 => any::<bool>().prop_map(MetricTurn::Name),
        2 => Just(MetricTurn::Name(true)),
        8 => (0u8..4).prop_map(|chance| MetricTurn::Give(chance > 0)),
        1 => Just(MetricTurn::Move),
        1 => Just(MetricTurn::Restore),
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
    routing_version: u64,
    checkpoints: u64,
    under_way: Option<UnderWay>,
    durable: Option<u64>,
    /// Of durable ones all pieces, with those that they rest on.
    pieces: BTreeMap<u64, Vec<BlockCopy>>,
}

struct UnderWay {
    named: Option<NamedCheckpoint>,
    /// What it should be, by the primary that gives it.
    expected: Content,
    given: Vec<BlockCopy>,
}

impl UnderWay {
    fn id(&self) -> CheckpointId {
        self.named.unwrap().checkpoint
    }

    /// What is given once it is whole does not count.
    fn is_whole(&self) -> bool {
        self.given.last().is_some_and(|copy| copy.segment.as_ref().unwrap().slots.end == u32::MAX)
    }
}

impl Play {
    fn turn(&mut self, turn: MetricTurn) {
        match (turn, &mut self.under_way) {
            (MetricTurn::Step(keys), _) => step(&mut self.block, keys),
            (MetricTurn::Name(is_since), None) => {
                (self.checkpoints, self.routing_version) = (self.checkpoints + 1, self.routing_version + 1);
                let since = self.durable.filter(|_| is_since);
                let named = named(self.checkpoints, since, self.routing_version);
                let expected = content(&self.block);
                self.block.name_checkpoint(named);
                self.under_way = Some(UnderWay { named, expected, given: Vec::new() });
            }
            (MetricTurn::Give(is_kept), Some(under_way)) => match self.block.give_piece(under_way.id()) {
                Some(piece) if !under_way.is_whole() => under_way.given.push(piece.copy),
                Some(_) => {}
                None => self.end(is_kept),
            },
            (MetricTurn::Move, _) => {
                let of = CopyOf { segment_bytes: usize::MAX, ..self.block.copy_of(0, 0) };
                let copy = self.block.state.as_ref().unwrap().copy(&self.block.shape, of).unwrap();
                self.block = restored(self.table, &[copy]);
                self.begin_term();
                if let Some(under_way) = &mut self.under_way {
                    if !under_way.is_whole() {
                        (under_way.given, under_way.expected) = (Vec::new(), content(&self.block));
                    }
                    self.block.name_checkpoint(under_way.named);
                }
            }
            (MetricTurn::Restore, None) => {
                let Some(durable) = self.durable else { return };
                self.block = restored(self.table, &self.pieces[&durable]);
                self.begin_term();
            }
            _ => {}
        }
    }

    fn begin_term(&mut self) {
        self.routing_version += 1;
        self.block.place(Placement { term: Term(self.routing_version), ..alone(1) }, ME);
    }

    fn end(&mut self, is_kept: bool) {
        let Some(UnderWay { expected, given: mut pieces, .. }) = self.under_way.take() else { return };
        if is_delta(&pieces[0]) {
            pieces.extend(self.pieces[&self.durable.unwrap()].iter().cloned());
        }
        assert_eq!(content(&restored(self.table, &pieces)), expected);
        if is_kept {
            self.durable = Some(self.checkpoints);
            self.pieces.insert(self.checkpoints, pieces);
        }
    }
}

fn play(table: Table, segment_bytes: usize, turns: Vec<MetricTurn>) -> Play {
    let block = begun(table, segment_bytes);
    let (under_way, durable, pieces) = (None, None, BTreeMap::new());
    let (routing_version, checkpoints) = (1, 0);
    let mut play = Play { table, block, routing_version, checkpoints, under_way, durable, pieces };
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

/// The piece of the primary before counts, that of the next has more in it: what changed since the latter would leave that out.
#[test]
fn what_follows_a_piece_that_does_not_count_has_everything() {
    let keys = |keys: std::ops::Range<u64>| MetricTurn::Step(keys.collect());
    let table = Table { buckets: 1, ..Table::default() };
    let all = || vec![MetricTurn::Give(true); 100];
    let turns = [
        vec![keys(0..40), MetricTurn::Name(true), MetricTurn::Give(true)],
        vec![keys(0..3), MetricTurn::Move],
        all(),
        vec![keys(5..6), MetricTurn::Name(true)],
        all(),
        vec![keys(7..8), MetricTurn::Name(true)],
        all(),
    ];
    let played = play(table, 1 << 20, turns.concat());
    assert_eq!((played.checkpoints, played.durable), (3, Some(3)));
    assert_eq!([1, 2, 3].map(|id| is_delta(&played.pieces[&id][0])), [false, false, true]);
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
            block.name_checkpoint(named(at, Some(at - 1), 1));
            let pieces = std::iter::from_fn(|| block.give_piece(CheckpointId(at))).map(|piece| piece.copy);
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
        block.name_checkpoint(named(at, Some(at - 1), 1));
        kinds.push(is_delta(&block.give_piece(CheckpointId(at)).unwrap().copy));
    }
    assert_eq!(kinds, [false, true, false]);
}

#[test]
fn a_copy_that_has_only_changes_is_no_state_to_follow_from() {
    let mut block = begun(Table { buckets: 1, ..Table::default() }, 1 << 20);
    step(&mut block, 0..100);
    let mut pieces = Vec::new();
    for at in 1..=2 {
        block.name_checkpoint(named(at, Some(at - 1), 1));
        pieces.push(block.give_piece(CheckpointId(at)).unwrap().copy);
        step(&mut block, [3]);
    }
    assert!(State::from_copy(&block.shape, &pieces[0]).is_ok());
    let refusal = State::from_copy(&block.shape, &pieces[1]).unwrap_err();
    assert!(refusal.detail.contains("only what changed"), "{refusal}");
}
