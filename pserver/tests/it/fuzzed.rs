//! The fuzz target over its corpus and over changed copies of it, as an ordinary test.
//! `cargo test -p shoal-pserver --test it fuzzed:: -- --ignored` writes the seeds again.

use crate::bodies::{self, FOLLOWER, PLACED};
use crate::mutate;
use prost::Message;
use shoal_runtime::cluster::precision::bf16_to_bytes;
use shoal_runtime::wire::proto;
use std::path::PathBuf;

/// Changed copies of each seed.
const CHANGES: u64 = 400;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/service")
}

#[test]
fn a_pserver_survives_every_message_and_what_it_refuses_changes_nothing() {
    mutate::are_survived(&folder(), CHANGES, bodies::service);
}

fn message(kind: u8, message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    [&[kind][..], &(bytes.len() as u16).to_le_bytes(), &bytes].concat()
}

/// A push of one value to these blocks.
fn push(step: u64, node: Option<(u32, u32)>, weight: u64, blocks: &[(u32, usize)], value: f32) -> Vec<u8> {
    push_words(step, node, weight, blocks, |_| value.to_le_bytes().to_vec())
}

/// The same of a value that bf16 has, in a job that rounds the gradients of blocks 0 and 1.
fn push_rounded(step: u64, node: (u32, u32), weight: u64, blocks: &[(u32, usize)], value: f32) -> Vec<u8> {
    push_words(step, Some(node), weight, blocks, |block| match block {
        0 | 1 => bf16_to_bytes(value).to_vec(),
        _ => value.to_le_bytes().to_vec(),
    })
}

fn push_words(
    step: u64,
    node: Option<(u32, u32)>,
    weight: u64,
    blocks: &[(u32, usize)],
    word: impl Fn(u32) -> Vec<u8>,
) -> Vec<u8> {
    let gradient = |(block, elements): &(u32, usize)| proto::BlockGradient {
        block: *block,
        gradient: word(*block).repeat(*elements).into(),
        rewind: PLACED,
        ..Default::default()
    };
    let request = proto::PushRequest {
        step,
        node: node.map(|(level, index)| proto::Node { level, index }),
        weight,
        blocks: blocks.iter().map(gradient).collect(),
        position: step,
        ..Default::default()
    };
    message(0, &request)
}

const ALL: [(u32, usize); 3] = [(0, 4), (1, 2), (2, 1)];
const TRAINED: [(u32, usize); 4] = [(0, 4), (1, 2), (2, 1), (3, 0)];

/// Pushes of a job with rounded gradients: a node, another result for it, an infinity, one as long as f32, the rest.
fn rounded() -> Vec<u8> {
    [
        push_rounded(0, (1, 0), 4, &TRAINED, 1.0),
        push_rounded(0, (1, 0), 4, &TRAINED, 2.0),
        push_rounded(0, (0, 2), 2, &ALL, f32::INFINITY),
        push(0, Some((1, 1)), 4, &TRAINED, 0.5),
        push_rounded(0, (1, 1), 4, &TRAINED, 0.5),
    ]
    .concat()
}

/// What a primary gives a follower of all blocks: their first states, entries that follow them, and entries that no primary makes.
fn news() -> Vec<u8> {
    use proto::followed_block::News;
    let at = |version| Some(proto::StateName { term: PLACED, version });
    let reply = |news: Vec<(u32, News)>| {
        let told = |(block, news)| proto::FollowedBlock {
            block,
            term: PLACED,
            fill: PLACED,
            published: 0,
            news: Some(news),
        };
        message(5, &proto::FollowReply { blocks: news.into_iter().map(told).collect(), is_unknown: false })
    };
    let copy = |block, elements: usize, slots| {
        let values = bytes::Bytes::from(vec![0; 4 * elements]);
        let slots = vec![values.clone(); slots];
        let name = at(0);
        let parameters = values;
        let copy = proto::BlockCopy { block, rewind: PLACED, name, parameters, slots, ..Default::default() };
        (block, News::Copy(copy))
    };
    let entry = |block, version, weight, bytes| {
        let (follows, gradient) = (at(version), vec![0x3f; bytes].into());
        let entry = proto::LogEntry {
            follows,
            term: PLACED,
            weight,
            gradient,
            factor: 1.0,
            rate: 1.0,
            ..Default::default()
        };
        (block, News::Entry(entry))
    };
    let mut all = reply(vec![copy(0, 4, 2), copy(1, 2, 2), copy(2, 1, 1), copy(3, 2, 0)]);
    all.extend(reply(vec![entry(0, 0, 8, 16), entry(1, 0, 8, 8), entry(2, 0, 8, 4), entry(3, 0, 0, 0)]));
    all.extend(reply(vec![entry(0, 1, 8, 17), entry(1, 1, 8, 4), entry(2, 1, 0, 7), entry(3, 1, 0, 0)]));
    all.extend(reply(vec![
        entry(0, 1, 0, 3),
        entry(1, 1, 0, 8),
        (2, News::IsBroken(true)),
        entry(3, 2, 0, 0),
    ]));
    // The metric's evaluation begins.
    all.extend(reply(vec![entry(3, 3, 0, 2), entry(3, 3, 3, 4), entry(3, 4, 0, 9)]));
    all
}

#[test]
#[ignore = "writes pserver/fuzz/corpus"]
fn write_the_seeds() {
    let blocks = vec![0, 1, 2, 3];
    let pull = |step| proto::PullRequest {
        step,
        rewind: PLACED,
        blocks: vec![0, 1],
        without_data: vec![2, 3],
        ..Default::default()
    };
    let followed = |name| proto::FollowedBlocks {
        blocks: blocks.clone(),
        term: PLACED,
        fill: PLACED + 1,
        name,
        filled: 0,
    };
    let follow = |name| proto::FollowRequest {
        incarnation: FOLLOWER.0,
        blocks: vec![followed(name)],
        ..Default::default()
    };
    let at = |version| Some(proto::StateName { term: PLACED, version });
    let partial = |block| proto::Partial { block, sum_of_squares: 2.5, is_finite: true, weight: 8 };
    let decide = proto::DecideRequest {
        rewind: PLACED,
        partials: (0..3).map(partial).collect(),
        ..Default::default()
    };
    let read = proto::ReadStateRequest { version: 1, blocks: blocks.clone(), ..Default::default() };
    let sync = [
        message(1, &pull(0)),
        message(2, &follow(None)),
        push(0, Some((1, 0)), 4, &TRAINED, 1.0),
        push(0, Some((1, 0)), 4, &TRAINED, 2.0),
        push(0, Some((0, 1)), 2, &ALL, f32::NAN),
        push(0, Some((1, 1)), 4, &TRAINED, 0.5),
        message(2, &follow(at(0))),
        message(3, &decide),
        message(1, &pull(1)),
        message(4, &read),
        push(1, Some((2, 0)), 8, &TRAINED, 1.0),
    ]
    .concat();
    let positions = [
        push(0, None, 2, &TRAINED, 1.0),
        push(2, None, 2, &TRAINED, 1.0),
        push(0, None, 2, &TRAINED, 1.0),
        message(2, &follow(at(1))),
        message(1, &pull(0)),
        push(1, None, 2, &TRAINED, -1.0),
        push(1 << 40, None, 2, &TRAINED, -1.0),
    ]
    .concat();
    std::fs::create_dir_all(folder()).unwrap();
    for (name, kind, messages) in [
        ("sync", 0, &sync),
        ("delayed", 1, &sync),
        ("deciding", 2, &sync),
        ("positions", 3, &positions),
        ("rounded", 4, &rounded()),
        ("following", 5, &news()),
        ("following-positions", 8, &news()),
    ] {
        std::fs::write(folder().join(name), [&[kind][..], messages].concat()).unwrap();
    }
}
