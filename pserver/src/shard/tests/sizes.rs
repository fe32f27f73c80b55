//! How large an answer to a follower becomes.

use super::*;
use crate::block::primary::PlacedCopy;
use prost::Message;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::table::{Ceiling, Full};
use shoal_runtime::cluster::{Declaration, Fill, Parameter, Rows, Rule, StateName, Table};
use shoal_runtime::wire::proto::followed_block::News as Wire;
use shoal_runtime::wire::{proto, rows};

const OTHER: Incarnation = Incarnation(u64::MAX);
/// Rows of one element in sums of 12 MiB.
const ROWS_MAX: usize = (rows::STEP_BYTES_MAX - 4) / 16;

/// A leader of blocks `0..blocks`, each followed by a copy.
fn leader(declaration: &Declaration, blocks: u32) -> Arc<Shard> {
    let copy = PlacedCopy { pserver: OTHER, fill: Fill(4), is_in_sync: false };
    let placed = (0..blocks).map(|block| (block, Placement { copies: vec![copy], ..alone(3) }));
    let shard = empty(job(50, 2), 16, ME);
    host(&shard, Assignment { declaration: declaration.clone(), ..assigned(1, 4, placed) });
    shard
}

/// The copies of these blocks, which hold a state of `term` at `version`.
fn at(term: u64, version: u64, blocks: &[u32]) -> proto::FollowedBlocks {
    let name = StateName { term: Term(term), version: Version(version) };
    let (blocks, name) = (blocks.to_vec(), Some(name.into()));
    proto::FollowedBlocks { blocks, fill: 4, term: 3, name, filled: 0 }
}

fn push_rows(shard: &Shard, step: u64, buckets: &[Vec<u64>]) {
    let gradient = |(block, keys): (u32, &Vec<u64>)| {
        let mut sum = Vec::new();
        rows::encode(&Rows::zeros(1, keys.iter().copied()), &mut sum);
        proto::BlockGradient { version: step, ..gradient(block, &sum) }
    };
    let gradients = (0..).zip(buckets).map(gradient).collect();
    let weight = shard.shape.tree(Step(step)).present_in(ROOT).into();
    let what = Pushed::Node(Step(step), ROOT);
    shard.push(&message(what, weight, gradients)).unwrap();
}

/// Rows as short as they get, in as large a step as is taken, with as many evicted by age and for room as an update evicts.
#[test]
fn an_answer_to_a_follower_of_the_largest_steps_of_a_table_is_smaller_than_a_message() {
    const ROWS: usize = 600_000;
    let ceiling = Some(Ceiling { rows: ROWS as u32, full: Full::Evict { half_life: 3 } });
    let table = Table { buckets: 2, age_max: Some(8), ceiling, ..Table::default() };
    let row = Parameter::new("t", &[1], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
    let declaration = Declaration { parameters: vec![row.as_table(table)], block_elements: 0 };
    let keys = |from: u64, bucket: u32, rows: usize| {
        (from..).filter(|key| table.bucket_of(*key) == bucket).take(rows).collect::<Vec<u64>>()
    };
    let leader = leader(&declaration, 2);
    push_rows(&leader, 0, &[keys(0, 0, ROWS), keys(0, 1, ROWS)]);
    (1..9).for_each(|step| push_rows(&leader, step, &[Vec::new(), Vec::new()]));
    leader.follow_now(OTHER, &[at(3, 9, &[0, 1])]).unwrap();
    let largest = keys(1 << 32, 0, ROWS_MAX);
    push_rows(&leader, 9, &[largest, keys(1 << 32, 1, ROWS_MAX)]);
    let mut answers = Vec::new();
    for blocks in [&[0, 1][..], &[1]] {
        let blocks = leader.follow_now(OTHER, &[at(3, 9, blocks)]).unwrap();
        answers.push((blocks.len(), proto::FollowReply { blocks, is_unknown: false }.encoded_len()));
    }
    let [(1, first), (1, second)] = answers[..] else { panic!("{answers:?}") };
    let (largest, may) = (first.max(second), 20 << 20);
    assert!(
        (18 << 20..(18 << 20) + 200).contains(&largest),
        "the largest answer has {largest} bytes, a message may have {may}"
    );
}

#[test]
fn entries_of_no_record_do_not_make_an_answer_longer_that_is_full() {
    let w = Parameter::new("w", &[9 << 18], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
    let leader = leader(&Declaration { parameters: vec![w], block_elements: 1 << 18 }, 9);
    let nothing = gradient(8, &vec![0; 4 << 18]);
    leader.push(&message(Pushed::Node(Step(0), ROOT), 0, vec![nothing])).unwrap();
    let lost = |blocks| proto::FollowedBlocks { name: None, ..at(3, 0, blocks) };
    let given = |led: Option<Led>| -> Vec<u32> {
        led.unwrap().news(&leader).unwrap().encode().iter().map(|said| said.block).collect()
    };
    let said = [lost(&[0, 1, 2, 3, 4, 5, 6, 7]), at(3, 0, &[8])];
    assert_eq!(given(leader.lead(OTHER, 0, 1, 0, &said)), Vec::from_iter(0..8));
    assert_eq!(given(leader.lead(OTHER, 0, 1, 1, &[at(3, 0, &[0, 1, 2, 3, 4, 5, 6, 7])])), [8]);
}

#[test]
fn copies_that_are_broken_do_not_make_an_answer_longer_that_is_full() {
    let w = Parameter::new("w", &[9 << 18], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
    let leader = leader(&Declaration { parameters: vec![w], block_elements: 1 << 18 }, 9);
    let lost = |blocks| proto::FollowedBlocks { name: None, ..at(3, 0, blocks) };
    let said = vec![lost(&[0, 1, 2, 3, 4, 5, 6, 7]), at(2, 0, &[8])];
    let given = |led: Option<Led>| led.unwrap().news(&leader).unwrap().encode();
    let first = given(leader.lead(OTHER, 0, 1, 0, &said));
    assert!(first.iter().all(|said| matches!(said.news, Some(Wire::Copy(_)))) && first.len() == 8);
    let rest = given(leader.lead(OTHER, 0, 1, 1, &[at(3, 0, &[0, 1, 2, 3, 4, 5, 6, 7])]));
    let broken = Some(Wire::IsBroken(true));
    assert_eq!(rest.iter().map(|said| (said.block, &said.news)).collect::<Vec<_>>(), [(8, &broken)]);
}
