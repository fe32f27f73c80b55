//! How large reports become.

use super::*;
use crate::block::primary::PlacedCopy;
use crate::block::tests::alone;
use crate::block::{NamedCheckpoint, Placement};
use crate::shard::Pushed;
use crate::shard::tests::{assigned, gradient, host, message};
use prost::Message;
use shoal_runtime::cluster::checkpoint::{FileRecord, PieceRef, WrittenFile};
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::{
    BlockId, CheckpointId, Declaration, Fill, Node, Parameter, Rewind, Rule, Schedule, StateName, Step, Term,
    Version,
};

const BLOCKS: u32 = 1 << 17;
const PIECES: u32 = 400_000;
const FILL: Fill = Fill(1 << 30);
const OTHER: Incarnation = Incarnation(u64::MAX);

/// Leads so many blocks, each under a term of its own, and each with a copy that asks to be admitted.
fn leading_many() -> Arc<Shard> {
    let shard = leading(BLOCKS, job(5, 2));
    let level = (0..BLOCKS).map(|block| {
        let name = Some(StateName { term: Term(term(block)), version: Version(0) }.into());
        proto::FollowedBlocks { blocks: vec![block], term: term(block), fill: FILL.0, name, filled: 0 }
    });
    let level: Vec<_> = level.collect();
    assert_eq!(shard.lead(OTHER, 0, 1, 0, &level).unwrap().news(&shard).unwrap().encode(), []);
    shard
}

fn term(block: u32) -> u64 {
    (1 << 30) + u64::from(block)
}

/// Leads so many blocks of one element, each under a term of its own and with a copy.
fn leading(blocks: u32, job: JobSettings) -> Arc<Shard> {
    let shard = empty(job, 16, ME);
    let w = Parameter::new("w", &[blocks.into()], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
    let declaration = Declaration { parameters: vec![w], block_elements: 1 };
    let copy = PlacedCopy { pserver: OTHER, fill: FILL, is_in_sync: false };
    let placed = |block: u32| Placement { copies: vec![copy], ..alone(term(block)) };
    let placements = (0..blocks).map(|block| (block, placed(block)));
    let named = NamedCheckpoint {
        checkpoint: CheckpointId(9),
        version: Some(Version(1 << 30)),
        since: None,
        named_at: 4,
    };
    let assignment =
        Assignment { declaration, checkpoint: Some(named), ..assigned(1, term(blocks), placements) };
    host(&shard, assignment);
    shard
}

/// Pieces in files of as many as they have at most.
fn write_many(shard: &Shard) {
    let piece = |block: u32| PieceRef {
        block: BlockId(block),
        rewind: Rewind(1 << 30),
        name: StateName { term: Term(1 << 30), version: Version(1 << 30) },
        slots: 0..u32::MAX,
        is_delta: true,
        file: 0,
        offset: 1 << 30,
        bytes: 1 << 20,
        crc32: u32::MAX,
    };
    let pieces: Vec<PieceRef> = (0..PIECES).map(piece).collect();
    for pieces in pieces.chunks(1 << 15) {
        let file = FileRecord {
            checkpoint: CheckpointId(9),
            name: "pserver-4294967295.65535-1000.blocks".to_owned(),
            bytes: 1 << 30,
            crc32: u32::MAX,
        };
        shard.note_written(CheckpointId(9), WrittenFile { file, pieces: pieces.to_vec() });
    }
}

/// A master that remembers this pserver, and records nothing.
const FIRST: proto::ReportReply = proto::ReportReply { base: 1, recorded_rewind: 0, recorded_below: 0 };

/// The largest report has 5,701,787 bytes whether there are so many blocks or 400,000; where each told of all that ask it had
/// 17,567,015 of 400,000.
#[test]
fn a_report_is_far_smaller_than_a_message_however_many_blocks_ask_and_pieces_are_written() {
    let shard = leading_many();
    write_many(&shard);
    let mut told = Reported::nothing(&shard);
    let (mut largest, mut pieces, mut blocks, mut admissions) = (0, 0, BTreeSet::new(), BTreeSet::new());
    for call in 1.. {
        let (message, tells) = told.message(&shard, ME, call).unwrap();
        largest = largest.max(message.encoded_len());
        blocks.extend(message.progress.iter().flat_map(|group| &group.blocks).copied());
        admissions.extend(message.admissions.iter().map(|asked| asked.block));
        told.answered(&shard, &FIRST, &tells);
        // The first was told to a master that has forgotten it.
        pieces += if call == 1 { 0 } else { message.written.iter().map(|file| file.pieces.len()).sum() };
        if !told.has_more {
            break;
        }
    }
    assert_eq!((blocks.len(), admissions.len(), pieces), (BLOCKS as usize, BLOCKS as usize, PIECES as usize));
    assert!(largest < 8 << 20, "the largest report has {largest} bytes, a message may have {}", 20 << 20);
    // What asks goes on asking, in turns.
    let mut turns = BTreeSet::new();
    for _ in 0..BLOCKS.div_ceil(1 << 15) {
        let (message, tells) = told.message(&shard, ME, 99).unwrap();
        assert!(message.encoded_len() < 4 << 20);
        turns.extend(message.admissions.iter().map(|asked| asked.block));
        told.answered(&shard, &FIRST, &tells);
    }
    assert_eq!(turns, admissions);
}

/// In a deep tree, of which each block holds as many nodes as it may.
#[test]
fn a_report_tells_of_fewer_blocks_where_each_holds_many_nodes() {
    const MANY: u32 = 1 << 15;
    let shard = leading(MANY, job(4096, 4096));
    for index in (0..32).step_by(2) {
        let bytes = 1.0f32.to_le_bytes();
        let gradients =
            (0..MANY).map(|block| proto::BlockGradient { rewind: term(block), ..gradient(block, &bytes) });
        let what = Pushed::Node(Step(0), Node::leaf(index));
        shard.push(&message(what, 1, gradients.collect())).unwrap();
    }
    let mut told = Reported::nothing(&shard);
    let mut reports = Vec::new();
    for call in 1.. {
        let (message, tells) = told.message(&shard, ME, call).unwrap();
        let nodes =
            message.progress.iter().flat_map(|group| &group.held).map(|held| held.nodes.len()).sum::<usize>();
        reports.push((message.progress.len(), nodes, message.encoded_len()));
        told.answered(&shard, &FIRST, &tells);
        if !told.has_more {
            break;
        }
    }
    // The first, to a master that has forgotten it, is told again.
    let blocks: usize = reports[1..].iter().map(|report| report.0).sum();
    assert!(blocks == MANY as usize && reports.len() == 3, "{reports:?}");
    assert!(reports.iter().all(|report| report.2 < 8 << 20), "{reports:?}");
}
