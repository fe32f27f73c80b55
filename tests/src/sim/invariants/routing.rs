//! Every document places every block once: one primary that is one of its copies and in-sync, each copy on a pserver of its
//! own. From one document to the next nothing that fences goes back.

use crate::sim::evidence::Evidence;
use shoal_master::document::{Document, Mark, PlacedBlock};
use std::collections::BTreeSet;

pub(super) fn check(evidence: &Evidence) -> Result<(), String> {
    let documents = evidence.history.documents();
    documents.iter().try_for_each(is_whole)?;
    documents.windows(2).try_for_each(|pair| follows(&pair[0], &pair[1]))
}

fn is_whole(document: &Document) -> Result<(), String> {
    let version = document.routing_version;
    let mut fills = BTreeSet::new();
    for (at, block) in document.blocks.iter().enumerate() {
        let wrong = |what: &str| Err(format!("routing version {version}, block {at}: {what}: {block:?}"));
        let hosts: BTreeSet<_> = block.copies.iter().map(|copy| copy.pserver).collect();
        if hosts.len() != block.copies.len() {
            return wrong("two copies on one pserver");
        }
        if !hosts.iter().all(|host| document.pservers.contains_key(host)) {
            return wrong("a copy on a pserver that is not there");
        }
        let primary = block.copies.iter().find(|copy| copy.pserver == block.primary);
        if primary.is_none_or(|copy| copy.mark != Mark::InSync) {
            return wrong("the primary is no copy in-sync");
        }
        if !block.copies.iter().all(|copy| fills.insert((at, copy.pserver, copy.fill))) {
            return wrong("two copies of one fill");
        }
        if block.term.0 > version || block.rewind.0 > block.term.0 {
            return wrong("a term from the future, or a rewind number above the term");
        }
    }
    Ok(())
}

fn follows(before: &Document, after: &Document) -> Result<(), String> {
    let wrong = |what: String| Err(format!("after routing version {}: {what}", before.routing_version));
    if after.routing_version != before.routing_version + 1 {
        return wrong(format!("routing version {}", after.routing_version));
    }
    if after.master_term < before.master_term {
        return wrong(format!("master term {} after {}", after.master_term, before.master_term));
    }
    if !before.blocks.is_empty() && before.blocks.len() != after.blocks.len() {
        return wrong(format!("{} blocks after {}", after.blocks.len(), before.blocks.len()));
    }
    for (at, (old, new)) in before.blocks.iter().zip(&after.blocks).enumerate() {
        if let Err(what) = goes_on(old, new, after.routing_version) {
            return wrong(format!("block {at}: {what}"));
        }
    }
    let newest = |document: &Document| document.checkpoints.last().map(|kept| kept.record.checkpoint);
    if newest(after) < newest(before)
        && after.damaged.len() == before.damaged.len()
        && after.rewinds == before.rewinds
    {
        return wrong(format!("the newest checkpoint is {:?} after {:?}", newest(after), newest(before)));
    }
    Ok(())
}

/// A block under the next document: a change of primary has a term of its own, and who is promoted was in-sync.
fn goes_on(old: &PlacedBlock, new: &PlacedBlock, version: u64) -> Result<(), String> {
    if new.term < old.term || new.rewind < old.rewind {
        return Err(format!("{new:?} after {old:?}"));
    }
    let (is_restored, is_new_term) = (new.rewind != old.rewind, new.term != old.term);
    let begins_anew = new.copies.iter().all(|copy| {
        let is_primary = copy.pserver == new.primary;
        copy.fill.0 == version && (copy.mark == Mark::InSync) == is_primary
    });
    if is_restored && (new.rewind.0 != version || !begins_anew) {
        return Err(format!("restored as {new:?}"));
    }
    if is_new_term && new.term.0 != version {
        return Err(format!("a term that is not this swap's: {new:?}"));
    }
    if new.primary == old.primary || is_restored {
        return Ok(());
    }
    let was_in_sync = old.copies.iter().any(|copy| copy.pserver == new.primary && copy.mark == Mark::InSync);
    match (is_new_term, was_in_sync) {
        (true, true) => Ok(()),
        _ => Err(format!("{new:?} was promoted after {old:?}")),
    }
}
