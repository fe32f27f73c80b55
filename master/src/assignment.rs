//! What one pserver is to hold, read off the document: blocks that are placed alike travel together. Pure.

use crate::document::{Document, Mark, PlacedBlock};
use shoal_runtime::cluster::routing::PserverAddress;
use shoal_runtime::cluster::{Fill, Incarnation, Layout};
use shoal_runtime::wire::proto;
use std::collections::{BTreeMap, BTreeSet};

/// The whole of what `pserver` is to hold by `document`.
pub fn to(pserver: Incarnation, document: &Document) -> proto::Assignment {
    let mut groups: BTreeMap<Key, Vec<u32>> = BTreeMap::new();
    let mut named = BTreeSet::new();
    for (at, block) in document.blocks.iter().enumerate() {
        let Some(copy) = block.copy_on(pserver) else { continue };
        named.insert(block.primary);
        groups.entry(Key::new(block, copy.fill, pserver)).or_default().push(at as u32);
    }
    let scalars = document.declaration.as_ref().filter(|declared| declared.decisions().is_some());
    let scalars = scalars.and_then(|declared| Layout::new(declared).scalars());
    let scalars =
        scalars.and_then(|scalars| document.blocks.get(scalars.0 as usize)).map(|block| block.primary);
    named.extend(scalars.filter(|_| !groups.is_empty()));
    let address = |who: Incarnation| {
        let at = document.pservers.get(&who)?;
        Some(proto::PserverAddress::from(&PserverAddress { incarnation: who, address: at.address.clone() }))
    };
    proto::Assignment {
        routing_version: document.routing_version,
        declaration: document.declaration.as_ref().map(Into::into),
        master_term: document.master_term,
        exclusions: document.exclusions.number,
        judged: document.evaluations.len() as u64,
        rates: document
            .judged()
            .rates
            .into_iter()
            .map(|(evaluation, rate)| proto::RateChange { evaluation, rate })
            .collect(),
        scalar_primary: scalars.map_or(0, |primary| primary.0),
        may_leave: groups.is_empty() && document.leaving.contains(&pserver),
        is_over: document.end.is_some(),
        record_hashes: if document.job.is_sync() { document.checks.record_hashes } else { 0 },
        blocks: groups.into_iter().map(|(key, blocks)| key.group(blocks)).collect(),
        pservers: named.into_iter().filter_map(address).collect(),
        checkpoint: document.named.map(|named| proto::NamedCheckpoint {
            checkpoint: named.checkpoint.0,
            version: named.version.0,
            since: named.since.map_or(0, |since| since.0),
            named_at: named.named_at,
        }),
    }
}

/// How a block is placed, as one of its copies sees it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    term: u64,
    rewind: u64,
    fill: u64,
    primary: u64,
    /// For the primary: the other copies as (pserver, fill, in-sync).
    copies: Vec<(u64, u64, bool)>,
    /// For the primary: 0 for nobody.
    heir: u64,
    /// What it was restored from: checkpoint, bytes and checksum of the manifest.
    origin: Option<(u64, u64, u32)>,
}

impl Key {
    fn new(block: &PlacedBlock, fill: Fill, pserver: Incarnation) -> Key {
        let others = block.copies.iter().filter(|copy| copy.pserver != pserver && block.primary == pserver);
        let copies = others.map(|copy| (copy.pserver.0, copy.fill.0, copy.mark == Mark::InSync));
        Key {
            term: block.term.0,
            rewind: block.rewind.0,
            fill: fill.0,
            primary: block.primary.0,
            copies: copies.collect(),
            heir: block.heir.filter(|_| block.primary == pserver).map_or(0, |heir| heir.0),
            origin: block.origin.map(|origin| (origin.checkpoint.0, origin.bytes, origin.crc32)),
        }
    }

    fn group(self, blocks: Vec<u32>) -> proto::AssignedBlocks {
        let copy = |(pserver, fill, is_in_sync)| proto::AssignedCopy { pserver, fill, is_in_sync };
        proto::AssignedBlocks {
            blocks,
            term: self.term,
            rewind: self.rewind,
            fill: self.fill,
            primary: self.primary,
            copies: self.copies.into_iter().map(copy).collect(),
            heir: self.heir,
            origin: self.origin.map(|(checkpoint, bytes, crc32)| proto::ManifestRecord {
                checkpoint,
                bytes,
                crc32,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{End, PlacedCopy, PserverAt, Wanted};
    use crate::fixture;
    use proptest::prelude::*;
    use shoal_runtime::cluster::{Rewind, Term};

    const A: Incarnation = Incarnation(1);
    const B: Incarnation = Incarnation(2);
    const C: Incarnation = Incarnation(3);

    fn copy(pserver: Incarnation, fill: u64, mark: Mark) -> PlacedCopy {
        PlacedCopy { pserver, fill: Fill(fill), mark }
    }

    /// Led by A, followed by B (in-sync) and C (filling); B is the heir.
    fn block() -> PlacedBlock {
        let copies = vec![copy(A, 1, Mark::InSync), copy(B, 2, Mark::InSync), copy(C, 3, Mark::Filling)];
        PlacedBlock { term: Term(5), rewind: Rewind(4), primary: A, copies, heir: Some(B), origin: None }
    }

    fn document(blocks: Vec<PlacedBlock>) -> Document {
        let at = |who: Incarnation| {
            (who, PserverAt { name: format!("p{}", who.0), address: format!("p{}:7", who.0) })
        };
        let wanted = Wanted { pservers: 3, trainers: 1, replicas: 1, exclude_max: 0 };
        Document {
            blocks,
            pservers: [A, B, C].map(at).into(),
            declaration: Some(fixture::declaration()),
            ..Document::new(fixture::settings(64, 2, 8, 2), wanted).elected("m")
        }
    }

    #[test]
    fn the_primary_is_told_of_its_followers_and_its_heir_and_a_follower_of_its_primary_alone() {
        let document = document(vec![block()]);
        let led = to(A, &document).blocks.remove(0);
        assert_eq!((led.term, led.rewind, led.fill, led.primary, led.heir), (5, 4, 1, 1, 2));
        let copies: Vec<_> =
            led.copies.iter().map(|copy| (copy.pserver, copy.fill, copy.is_in_sync)).collect();
        assert_eq!(copies, [(2, 2, true), (3, 3, false)]);
        for (follower, fill) in [(B, 2), (C, 3)] {
            let followed = to(follower, &document).blocks.remove(0);
            assert_eq!((followed.term, followed.fill, followed.primary), (5, fill, 1));
            assert_eq!((followed.copies, followed.heir), (vec![], 0), "that is the primary's alone");
        }
    }

    #[test]
    fn it_names_the_addresses_of_primaries_the_declaration_and_who_says_so() {
        let of_c = PlacedBlock { heir: None, ..PlacedBlock::restored(C, 1) };
        let assignment = to(B, &document(vec![block(), of_c]));
        let named: Vec<_> =
            assignment.pservers.iter().map(|at| (at.incarnation, at.address.as_str())).collect();
        assert_eq!(named, [(1, "p1:7")], "not of those it has nothing of");
        assert_eq!((assignment.master_term, assignment.routing_version), (1, 1));
        assert_eq!(assignment.declaration, Some((&fixture::declaration()).into()));
    }

    #[test]
    fn who_is_leaving_may_leave_as_soon_as_nothing_is_left_there_and_nobody_else_may() {
        let mut document = document(vec![PlacedBlock::restored(A, 1)]);
        let may_leave = |document: &Document| [A, B].map(|who| to(who, document).may_leave);
        assert_eq!(may_leave(&document), [false, false], "an idle pserver is spare, not gone");
        document.leaving = [A, B].into();
        assert_eq!(may_leave(&document), [false, true]);
    }

    #[test]
    fn who_holds_blocks_of_a_job_that_is_over_hears_so_and_is_not_sent_away() {
        let mut document = document(vec![block()]);
        assert!(!to(A, &document).is_over);
        for end in [End::Done, End::Failed("why".to_owned())] {
            document.end = Some(end);
            let told = to(A, &document);
            assert!(
                told.is_over && !told.may_leave && !told.blocks.is_empty(),
                "the model may be read there"
            );
        }
    }

    proptest! {
        #[test]
        fn every_copy_is_in_one_group_with_those_that_are_placed_alike_and_no_others(
            draws in proptest::collection::vec((0u64..2, 0u64..2, 0usize..3, 0u8..8, any::<bool>()), 0..40)
        ) {
            let placed = |(term, fill, first, others, is_heir): (u64, u64, usize, u8, bool)| {
                let pservers = [A, B, C];
                let others = (0..3).filter(|at| *at != first && others & (1 << at) != 0).map(|at| pservers[at]);
                let follow = others.map(|who| copy(who, fill, if fill == 0 { Mark::InSync } else { Mark::Filling }));
                let copies: Vec<PlacedCopy> =
                    std::iter::once(copy(pservers[first], 0, Mark::InSync)).chain(follow).collect();
                let heir = copies.get(1).map(|copy| copy.pserver).filter(|_| is_heir);
                PlacedBlock { term: Term(term), rewind: Rewind(0), primary: pservers[first], copies, heir, origin: None }
            };
            let document = document(draws.into_iter().map(placed).collect());
            for who in [A, B, C] {
                let groups = to(who, &document).blocks;
                let mut told: Vec<u32> = groups.iter().flat_map(|group| group.blocks.clone()).collect();
                told.sort_unstable();
                let held = (0..).zip(&document.blocks).filter(|(_, block)| block.copy_on(who).is_some());
                prop_assert_eq!(told, held.map(|(at, _)| at).collect::<Vec<u32>>());
                for (at, group) in groups.iter().enumerate() {
                    for id in &group.blocks {
                        let block = &document.blocks[*id as usize];
                        let leads = block.primary == who;
                        prop_assert_eq!((group.term, group.primary), (block.term.0, block.primary.0));
                        prop_assert_eq!(group.fill, block.copy_on(who).unwrap().fill.0);
                        prop_assert_eq!(group.copies.len(), if leads { block.copies.len() - 1 } else { 0 });
                        prop_assert_eq!(group.heir, block.heir.filter(|_| leads).map_or(0, |heir| heir.0));
                    }
                    let alike = |other: &proto::AssignedBlocks| {
                        proto::AssignedBlocks { blocks: vec![], ..other.clone() }
                            == proto::AssignedBlocks { blocks: vec![], ..group.clone() }
                    };
                    prop_assert!(!groups[..at].iter().any(alike), "two groups that are alike");
                }
            }
        }
    }
}
