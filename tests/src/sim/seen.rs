//! What pservers said in a run: which updates they called applied, which log entries and states they gave to others. It
//! must never ask anybody anything.

use super::call::Call;
use super::history::History;
use super::network::Network;
use super::trace::hash_of;
use prost::Message;
use shoal_runtime::wire::proto::{self, PushAnswer, followed_block::News};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What one update is known by to trainers: the step or the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Update {
    /// The block.
    pub block: u32,
    /// The block's rewind number.
    pub rewind: u64,
    /// The step or the position.
    pub unit: u64,
}

/// A block's state, by its name.
pub type Named = (u32, u64, u64);

/// What was said.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    applied: BTreeMap<(Update, String), usize>,
    entries: BTreeMap<Named, Entry>,
    copies: BTreeMap<Named, proto::BlockCopy>,
    faults: BTreeSet<String>,
}

/// A log entry, and who gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Incarnation of the primary.
    pub primary: u64,
    /// The position that it applies, in asynchronous jobs.
    pub position: Option<u64>,
    content: u64,
}

impl Seen {
    /// Begins to look at a network.
    pub fn watch(network: &Network, history: &History) -> Seen {
        let seen = Seen::default();
        let (inner, history) = (Arc::clone(&seen.inner), history.clone());
        network.witness_replies(move |call, reply| {
            let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
            match call.method.as_str() {
                "Push" => inner.push(call, reply, history.count()),
                "Follow" => inner.follow(call, reply),
                _ => {}
            }
        });
        seen
    }

    /// Updates that were called applied or already applied, where, and how many documents there were by then.
    pub fn applied(&self) -> Vec<(Update, String, usize)> {
        self.inner().applied.iter().map(|((update, at), count)| (*update, at.clone(), *count)).collect()
    }
    /// Entries by the state that they make.
    pub fn entries(&self) -> BTreeMap<Named, Entry> {
        self.inner().entries.clone()
    }
    /// States that were given to followers.
    pub fn copies(&self) -> BTreeMap<Named, proto::BlockCopy> {
        self.inner().copies.clone()
    }
    /// What no two pservers may do: write under one term, or write two things under one name.
    pub fn faults(&self) -> Vec<String> {
        self.inner().faults.iter().cloned().collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn push(&mut self, call: &Call, reply: &[u8], documents: usize) {
        let push: proto::PushRequest = call.message();
        let Ok(reply) = proto::PushReply::decode(reply) else { return };
        let unit = if push.node.is_some() { push.step } else { push.position };
        for (gradient, answer) in push.blocks.iter().zip(reply.answers()) {
            if matches!(answer, PushAnswer::Applied | PushAnswer::AlreadyApplied) {
                let update = Update { block: gradient.block, rewind: gradient.rewind, unit };
                // The first time that this pserver said so.
                self.applied.entry((update, call.to.clone())).or_insert(documents);
            }
        }
    }

    fn follow(&mut self, call: &Call, reply: &[u8]) {
        let Ok(reply) = proto::FollowReply::decode(reply) else { return };
        let primary = call.message::<proto::FollowRequest>().primary;
        for block in reply.blocks {
            match block.news {
                Some(News::Entry(entry)) => self.entry(block.block, primary, &entry),
                Some(News::Copy(copy)) => self.copy(copy),
                _ => {}
            }
        }
    }

    fn entry(&mut self, block: u32, primary: u64, entry: &proto::LogEntry) {
        let follows = entry.follows.unwrap_or_default();
        let name = (block, entry.term, follows.version + 1);
        let content = hash_of(&entry.encode_to_vec());
        let entry = Entry { primary, position: entry.position, content };
        let known = self.entries.entry(name).or_insert_with(|| entry.clone());
        if *known != entry {
            self.faults
                .insert(format!("(block, term, version) {name:?} was written as {known:?} and {entry:?}"));
        }
    }

    fn copy(&mut self, copy: proto::BlockCopy) {
        if copy.segment.is_some() {
            // What of its state it has depends on who asks.
            return;
        }
        let state = copy.name.unwrap_or_default();
        let name = (copy.block, state.term, state.version);
        let known = self.copies.entry(name).or_insert_with(|| copy.clone());
        let is_same =
            known.parameters == copy.parameters && known.slots == copy.slots && known.ledger == copy.ledger;
        if !is_same {
            self.faults
                .insert(format!("the state (block, term, version) {name:?} was given in two versions"));
        }
    }
}
