//! What is said arrives as it was meant, and what cannot be understood is refused by name.

use super::*;
use crate::block::tests::alone;
use crate::report::tests::wire;
use crate::shard::tests::assigned;
use bytes::Bytes;
use shoal_runtime::cluster::block_copy::Segment;
use shoal_runtime::cluster::routing::PserverAddress;
use shoal_runtime::cluster::{Ledger, RefusalKind, StateName};

fn name(term: u64, version: u64) -> StateName {
    StateName { term: Term(term), version: Version(version) }
}

#[test]
fn assignments_arrive_as_they_were_given() {
    let copy = |pserver, is_in_sync| PlacedCopy { pserver: Incarnation(pserver), fill: Fill(6), is_in_sync };
    let led = Placement {
        term: Term(8),
        rewind: Rewind(2),
        copies: vec![copy(4, true), copy(5, false)],
        heir: Some(Incarnation(4)),
        ..alone(3)
    };
    let mut given = assigned(7, 9, [(0, led), (1, Placement { primary: Incarnation(5), ..alone(4) })]);
    given.pservers = vec![PserverAddress { incarnation: Incarnation(5), address: "ps-5:1".into() }];
    given.may_leave = true;
    assert_eq!(assignment(wire(&given), true), Ok(given.clone()));
    let without = proto::Assignment { declaration: None, ..wire(&given) };
    let refusal = assignment(without, true).unwrap_err();
    assert_eq!((refusal.kind, refusal.subject.as_str()), (RefusalKind::Malformed, "assignment.declaration"));
}

#[test]
fn followers_words_and_news_arrive_as_they_were_meant() {
    let group = Following {
        blocks: vec![BlockId(1), BlockId(3)],
        stand: Stand { term: Term(8), fill: Fill(6), cursor: None },
    };
    let cursors = [None, Some(7)].map(|filled| Some(Cursor { name: name(8, 2), filled }));
    let others = cursors.map(|cursor| Following { stand: Stand { cursor, ..group.stand }, ..group.clone() });
    for said in others.into_iter().chain([group]) {
        assert_eq!(following(followed_blocks(said.clone())), said);
    }
    let mut ledger = Ledger::default();
    assert!(ledger.insert(5));
    let copy = BlockCopy {
        block: BlockId(1),
        rewind: Rewind(2),
        name: name(8, 2),
        published: Version(1),
        parameters: Bytes::from_static(&[1; 8]),
        earlier: vec![Bytes::from_static(&[1; 8]), Bytes::from_static(&[2; 8])],
        slots: vec![Bytes::from_static(&[3; 8])],
        ledger,
        segment: Some(Segment { slots: 3..9, candidates: Bytes::from_static(&[5; 3]), freed: None }),
    };
    let gradient = Bytes::from_static(&[4; 8]);
    let entry = Entry {
        follows: name(7, 2),
        term: Term(8),
        weight: 3,
        gradient,
        position: Some(0),
        staleness: 9,
        factor: 0.5,
        rate: 0.25,
    };
    let all = [
        News::Broken,
        News::Copy(Box::new(copy.clone())),
        News::Copy(Box::new(BlockCopy { earlier: Vec::new(), segment: None, ..copy })),
        News::Entry(entry.clone()),
        News::Entry(Entry { position: None, ..entry }),
        News::Nothing,
    ];
    for what in all {
        let said =
            Followed { block: BlockId(1), term: Term(8), fill: Fill(6), published: Version(1), news: what };
        assert_eq!(news(followed(said.clone())), Ok(said));
    }
}

#[test]
fn news_without_what_they_are_about_are_refused() {
    let wrong = [
        proto::followed_block::News::Entry(proto::LogEntry::default()),
        proto::followed_block::News::Copy(proto::BlockCopy::default()),
    ];
    for (wrong, subject) in wrong.into_iter().zip(["entry.follows", "block_copy.name"]) {
        let refusal = news(proto::FollowedBlock { news: Some(wrong), ..Default::default() }).unwrap_err();
        assert_eq!((refusal.kind, refusal.subject.as_str()), (RefusalKind::Malformed, subject));
    }
}
