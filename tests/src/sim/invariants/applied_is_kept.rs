//! P3: an update that was called applied is not made again under a later term of the same history.

use crate::sim::evidence::Evidence;
use shoal_master::document::Document;
use shoal_runtime::cluster::Rewind;
use std::collections::BTreeMap;

pub(super) fn check(evidence: &Evidence) -> Result<(), String> {
    let documents = evidence.history.documents();
    let rewinds = rewinds(&documents);
    // The update that each entry makes, by block and rewind number, with its term.
    let mut made: BTreeMap<(u32, u64, u64), u64> = BTreeMap::new();
    for ((block, term, version), entry) in evidence.seen.entries() {
        let Some(rewind) = rewinds.get(&(block, term)) else { continue };
        let unit = if evidence.job.is_sync() { version - 1 } else { entry.position.unwrap_or_default() };
        let newest = made.entry((block, rewind.0, unit)).or_default();
        *newest = term.max(*newest);
    }
    for (update, at, count) in evidence.seen.applied() {
        let Some(made) = made.get(&(update.block, update.rewind, update.unit)) else { continue };
        let Some(said) = term_at(&documents[..count.min(documents.len())], update.block, &at) else {
            continue;
        };
        if said < *made {
            return Err(format!(
                "{at} called {update:?} applied under term {said}, and it was made again under {made}"
            ));
        }
    }
    Ok(())
}

/// The rewind number that each term of each block belongs to.
fn rewinds(documents: &[Document]) -> BTreeMap<(u32, u64), Rewind> {
    let blocks = documents.iter().flat_map(|document| document.blocks.iter().enumerate());
    blocks.map(|(at, block)| ((at as u32, block.term.0), block.rewind)).collect()
}

/// The last term, by then, under which a block's primary answered at this address.
fn term_at(documents: &[Document], block: u32, address: &str) -> Option<u64> {
    let leads = |document: &&Document| {
        let block = document.blocks.get(block as usize);
        let primary = block.and_then(|block| document.pservers.get(&block.primary));
        primary.is_some_and(|pserver| pserver.address == address)
    };
    let last = documents.iter().rev().find(leads)?;
    Some(last.blocks[block as usize].term.0)
}
