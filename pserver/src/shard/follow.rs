//! Following and being followed: what copies of one block say to one another, over all blocks of two pservers.

use super::Shard;
use crate::block::{Cursor, News};
use shoal_runtime::cluster::{BlockId, Fill, Incarnation, Refusal, Term, Version};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of copies and entries after which a follower is answered with what there is. One more copy comes on top, and
/// the largest (1 MiB of parameters, as much of each of the 9 versions that the largest delay keeps and of each of
/// three slots; a segment of a bucket is smaller) has 13 MiB, the largest entry 15: a message may have 20 MiB.
const FOLLOW_BYTES: usize = 3 << 20;
/// What a block costs in a message beside its buffers, at most.
const ENVELOPE_BYTES: usize = 128;

/// Copies of one follower that stand alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// The blocks.
    pub blocks: Vec<BlockId>,
    /// Their term, as the follower knows it.
    pub term: Term,
    /// Which copies.
    pub fill: Fill,
    /// What they hold, if anything.
    pub cursor: Option<Cursor>,
}

/// What a primary has for one copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Followed {
    /// The block.
    pub block: BlockId,
    /// Under which term it is said.
    pub term: Term,
    /// For which copy.
    pub fill: Fill,
    /// What is published.
    pub published: Version,
    /// What there is.
    pub news: News,
}

impl Shard {
    /// A follower says how its copies stand; it is given what follows, as much as fits a message.
    pub fn follow(&self, follower: Incarnation, following: &[Following]) -> Result<Vec<Followed>, Refusal> {
        let Some(hosting) = self.hosting() else { return Ok(Vec::new()) };
        let (mut followed, mut bytes) = (Vec::new(), 0);
        let (mut is_published, mut is_updated, mut is_due) = (false, false, false);
        for group in following {
            for id in &group.blocks {
                let Some(hosted) = hosting.block(*id) else { continue };
                let mut block = hosted.lock()?;
                let before = (block.published(), block.version());
                let news = block.follow(follower, group.fill, group.term, group.cursor, bytes < FOLLOW_BYTES);
                is_published |= block.published() > before.0;
                is_updated |= block.version() > before.1;
                is_due |= block.is_admission_due();
                if !matches!(news, News::Nothing | News::NotHere) {
                    bytes += ENVELOPE_BYTES + size(&news);
                    let published = block.published();
                    followed.push(Followed {
                        block: *id,
                        term: group.term,
                        fill: group.fill,
                        published,
                        news,
                    });
                }
            }
        }
        if is_published || is_due {
            self.published.send();
        }
        if is_updated {
            self.logged.send();
        }
        if is_published {
            self.whole.send();
        }
        Ok(followed)
    }

    /// The primaries that this pserver follows, with their addresses.
    pub fn primaries(&self) -> Result<BTreeMap<Incarnation, String>, Refusal> {
        let Some(hosting) = self.hosting() else { return Ok(BTreeMap::new()) };
        let mut primaries = BTreeSet::new();
        for hosted in hosting.blocks.values() {
            let block = hosted.lock()?;
            if block.cursor().is_some() {
                primaries.insert(block.placement().primary);
            }
        }
        let address = |primary: Incarnation| Some((primary, hosting.address(primary)?.to_owned()));
        Ok(primaries.into_iter().filter_map(address).collect())
    }

    /// What this pserver says to a primary that it follows.
    pub fn following(&self, primary: Incarnation) -> Result<Vec<Following>, Refusal> {
        let hosting = self.hosting();
        let mut groups: BTreeMap<(Fill, Term, Option<Cursor>), Vec<BlockId>> = BTreeMap::new();
        for (id, hosted) in hosting.iter().flat_map(|hosting| &hosting.blocks) {
            let block = hosted.lock()?;
            if let Some(cursor) = block.cursor().filter(|_| block.placement().primary == primary) {
                groups.entry(cursor).or_default().push(*id);
            }
        }
        let group = |((fill, term, cursor), blocks)| Following { blocks, term, fill, cursor };
        Ok(groups.into_iter().map(group).collect())
    }

    /// Takes in what a primary has said.
    pub fn hear(&self, followed: Vec<Followed>) -> Result<(), Refusal> {
        self.check_arithmetic()?;
        let Some(hosting) = self.hosting() else { return Ok(()) };
        for Followed { block, term, fill, published, news } in followed {
            let Some(hosted) = hosting.block(block) else { continue };
            let bytes = size(&news) as u64;
            self.count(|counters| {
                counters.fills += u64::from(matches!(news, News::Copy(_)));
                counters.entries += u64::from(matches!(news, News::Entry(_)));
                counters.bytes_followed += bytes;
            });
            hosted.lock()?.hear(fill, term, published, news)?;
        }
        self.held.send();
        Ok(())
    }
}

fn size(news: &News) -> usize {
    match news {
        News::Copy(copy) => copy.bytes(),
        News::Entry(entry) => entry.gradient.len(),
        News::Nothing | News::NotHere | News::Broken => 0,
    }
}
