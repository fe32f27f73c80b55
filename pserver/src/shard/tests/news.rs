//! What a primary gives a follower arrives as it was meant, and what cannot be understood is refused by name.

use super::*;
use crate::block::News;
use crate::block::reduce::Sum;
use crate::block::state::Update;
use bytes::Bytes;
use shoal_runtime::cluster::block_copy::Segment;
use shoal_runtime::cluster::{BlockCopy, Ledger, StateName};
use shoal_runtime::wire::proto::followed_block::News as Wire;

fn name(term: u64, version: u64) -> StateName {
    StateName { term: Term(term), version: Version(version) }
}

#[test]
fn news_arrive_as_they_were_meant() {
    let shard = shard();
    let hosting = shard.hosting().unwrap();
    let shape = &hosting.block(BlockId(0)).unwrap().shape;
    let mut ledger = Ledger::default();
    assert!(ledger.insert(5));
    let copy = BlockCopy {
        block: BlockId(0),
        rewind: Rewind(2),
        name: name(8, 2),
        published: Version(1),
        parameters: Bytes::from_static(&[1; 8]),
        earlier: vec![Bytes::from_static(&[1; 8]), Bytes::from_static(&[2; 8])],
        slots: vec![Bytes::from_static(&[3; 8])],
        ledger,
        segment: Some(Segment { slots: 3..9, candidates: Bytes::from_static(&[5; 3]), freed: None }),
    };
    let mut sum = Sum::Dense(vec![1.0, -2.0, 0.5, 4.0, 0.0, 1e-40].into());
    sum.freeze();
    let entry = Update::new(name(7, 2), Term(8), 3, sum);
    let entry = Update { position: Some(0), staleness: 9, factor: 0.5, rate: 0.25, ..entry };
    let empty = Sum::Dense(Vec::new().into());
    let all = [
        News::Broken,
        News::Copy(Box::new(copy.clone())),
        News::Copy(Box::new(BlockCopy { earlier: Vec::new(), segment: None, ..copy })),
        News::Entry(Arc::new(entry.clone())),
        News::Entry(Arc::new(Update { position: None, ..entry })),
        News::Nothing,
    ];
    for news in all {
        assert_eq!(News::decode(shape, news.clone().encode()), Ok(news));
    }
    // An update of no record has no gradient.
    let entry = News::Entry(Arc::new(Update::new(name(7, 2), Term(8), 0, empty)));
    let Ok(News::Entry(update)) = News::decode(shape, entry.encode()) else { panic!() };
    assert_eq!((update.weight, update.sum.dense()), (0, vec![]));
}

#[test]
fn news_without_what_they_are_about_are_refused() {
    let shard = shard();
    let hosting = shard.hosting().unwrap();
    let shape = &hosting.block(BlockId(0)).unwrap().shape;
    let wrong = [Wire::Entry(proto::LogEntry::default()), Wire::Copy(proto::BlockCopy::default())];
    for (wrong, subject) in wrong.into_iter().zip(["entry.follows", "block_copy.name"]) {
        let refusal = News::decode(shape, Some(wrong)).unwrap_err();
        assert_eq!((refusal.kind, refusal.subject.as_str()), (RefusalKind::Malformed, subject));
    }
}
