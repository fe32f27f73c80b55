//! What a primary gives a follower arrives as it was meant, and what cannot be understood is refused by name.

use super::*;
use crate::block::News;
use crate::block::primary::PlacedCopy;
use crate::block::reduce::Sum;
use crate::block::state::Update;
use bytes::Bytes;
use shoal_runtime::cluster::block_copy::Segment;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::{BlockCopy, Declaration, Fill, Ledger, Parameter, Rule, StateName};
use shoal_runtime::wire::proto::followed_block::News as Wire;

const OTHER: Incarnation = Incarnation(2);

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

/// Entries of peers may be anything: none of these may reach the block's rule.
#[test]
fn an_entry_of_no_record_has_no_gradient_and_one_of_some_has_whole_values() {
    let shard = shard();
    let hosting = shard.hosting().unwrap();
    let shape = &hosting.block(BlockId(0)).unwrap().shape;
    let decoded = |weight, bytes: usize| {
        Update::decode_gradient(shape, weight, Bytes::from(vec![0; bytes])).map(|(sum, _)| sum.dense().len())
    };
    assert_eq!((decoded(0, 24), decoded(0, 25), decoded(3, 24)), (Ok(0), Ok(0), Ok(6)));
    assert_eq!(decoded(3, 25).unwrap_err().kind, RefusalKind::WrongShape);
    let state = shard.read_state(Version(0), &[BlockId(0)], 0).unwrap().remove(0);
    let state = State::from_copy(shape, &state).unwrap();
    let check = |weight, elements| {
        let sum = Sum::Dense(vec![0.0; elements].into());
        state.check(shape, &Update::new(state.name(), Term(3), weight, sum)).map_err(|refusal| refusal.kind)
    };
    assert_eq!((check(0, 0), check(3, 6)), (Ok(()), Ok(())));
    assert_eq!([check(0, 6), check(3, 0), check(3, 5)], [Err(RefusalKind::WrongShape); 3]);
}

#[test]
fn what_is_beside_news_that_cannot_be_understood_is_taken_in() {
    let w = Parameter::new("w", &[9], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
    let declaration = Declaration { parameters: vec![w], block_elements: 1 };
    let (leader, follower) = (empty(job(50, 2), 16, ME), empty(job(50, 2), 16, OTHER));
    let copy = PlacedCopy { pserver: OTHER, fill: Fill(4), is_in_sync: false };
    let all = |placement: Placement| {
        let placed = (0..9).map(|block| (block, placement.clone()));
        Assignment { declaration: declaration.clone(), ..assigned(1, 4, placed) }
    };
    host(&leader, all(Placement { copies: vec![copy], ..alone(3) }));
    follower.assign_now(all(Placement { fill: Fill(4), ..alone(3) })).unwrap();
    let mut said = leader.follow_now(OTHER, &follower.following_now(ME).unwrap()).unwrap();
    said.iter_mut().step_by(2).for_each(|said| said.news = Some(Wire::Copy(proto::BlockCopy::default())));
    let refusal = follower.hear_now(said).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Malformed);
    let held = follower.whole_standing().unwrap().1;
    let held: Vec<_> = held.iter().map(|copy| (copy.blocks.clone(), copy.name.is_some())).collect();
    assert_eq!(held, [(vec![0, 2, 4, 6, 8], false), (vec![1, 3, 5, 7], true)]);
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
