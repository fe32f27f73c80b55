//! Batches against what a routing says: every wanted block in exactly one, at its present place.

use super::*;
use proptest::prelude::*;
use shoal_runtime::cluster::routing::BlockRoute;
use shoal_runtime::cluster::{Incarnation, Rewind};

/// A table over two pservers, of (primary, term, rewind number) for each block.
pub(crate) fn routing(version: u64, blocks: &[(u32, u64, u64)]) -> Routing {
    let pserver =
        |at: u64| PserverAddress { incarnation: Incarnation(at + 1), address: format!("pserver-{at}") };
    let route = |(primary, term, rewind): &(u32, u64, u64)| BlockRoute {
        primary: *primary,
        term: Term(*term),
        rewind: Rewind(*rewind),
    };
    Routing { version, pservers: vec![pserver(0), pserver(1)], blocks: blocks.iter().map(route).collect() }
}

fn all(blocks: u32) -> BTreeSet<BlockId> {
    (0..blocks).map(BlockId).collect()
}

fn pending() -> Pending {
    Pending::new(Duration::from_secs(1))
}

#[test]
fn a_block_that_moves_takes_its_batch_with_it_and_no_other() {
    let mut pending = pending();
    let before = routing(1, &[(0, 1, 1), (1, 1, 1), (0, 1, 1)]);
    let first = pending.follow(&before, &all(3), |_| 4);
    assert_eq!(first, BatchChanges { abandoned: vec![], begun: vec![0, 1] });
    let after = routing(2, &[(0, 1, 1), (1, 1, 1), (1, 2, 1)]);
    let second = pending.follow(&after, &all(3), |_| 4);
    assert_eq!(second, BatchChanges { abandoned: vec![0], begun: vec![2, 3] });
    assert!(pending.batch(0).is_none(), "an answer to an abandoned call finds no batch");
    assert_eq!(pending.batch(3).unwrap().blocks, [(BlockId(2), Term(2))]);
}

#[test]
fn a_new_term_at_the_same_pserver_is_a_new_call() {
    let mut pending = pending();
    pending.follow(&routing(1, &[(0, 1, 1)]), &all(1), |_| 4);
    let followed = pending.follow(&routing(5, &[(0, 5, 1)]), &all(1), |_| 4);
    assert_eq!(followed, BatchChanges { abandoned: vec![0], begun: vec![1] });
}

#[test]
fn a_version_that_moves_none_of_ours_disturbs_nothing() {
    let mut pending = pending();
    pending.follow(&routing(1, &[(0, 1, 1), (1, 1, 1)]), &[BlockId(0)].into(), |_| 4);
    let followed = pending.follow(&routing(2, &[(0, 1, 1), (0, 2, 1)]), &[BlockId(0)].into(), |_| 4);
    assert_eq!(followed, BatchChanges::default());
}

proptest! {
    #[test]
    fn every_wanted_block_is_in_one_batch_at_its_place_and_messages_are_bounded(
        tables in proptest::collection::vec(proptest::collection::vec((0u32..2, 0u64..3, 0u64..2), 12), 1..5),
        wanted in proptest::collection::btree_set(0u32..12, 0..12),
        bytes in proptest::collection::vec(1usize..MESSAGE_BYTES, 12),
    ) {
        let wanted: BTreeSet<BlockId> = wanted.into_iter().map(BlockId).collect();
        let size = |block: BlockId| bytes[block.0 as usize];
        let mut pending = pending();
        for (version, table) in tables.iter().enumerate() {
            let routing = routing(version as u64, table);
            let followed = pending.follow(&routing, &wanted, size);
            prop_assert!(followed.begun.iter().all(|id| pending.batches.contains_key(id)));
            let mut seen = BTreeSet::new();
            for batch in pending.batches.values() {
                let total: usize = batch.blocks.iter().map(|(block, _)| size(*block)).sum();
                prop_assert!(total <= MESSAGE_BYTES);
                for (block, term) in &batch.blocks {
                    let route = routing.blocks[block.0 as usize];
                    prop_assert_eq!(&routing.pservers[route.primary as usize], &batch.pserver);
                    prop_assert_eq!(route.term, *term);
                    prop_assert!(seen.insert(*block));
                }
            }
            prop_assert_eq!(&seen, &wanted);
        }
    }
}
