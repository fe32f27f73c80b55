//! A block's state and the log that makes it. It must never know who holds it.

use super::words::{Number, PARTIALS_MAX, Setting, Unit, Version};

/// Entries a copy keeps.
const KEPT: usize = 2;

/// The root of a step's gradients, or a microbatch's gradient: what it is for, the rewind number that it was computed
/// under, and whether the record that may be excluded was left out. Everything is deterministic, so equal roots of one
/// block are equal bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) rewind: Number,
    pub(crate) unit: Unit,
    pub(crate) without: bool,
}

/// What is decided for a step is a function of the roots that all blocks' partials were taken of, in block order.
pub(crate) type Decision = [Option<Root>; PARTIALS_MAX];

/// One update of a block. Equal histories are equal bits, and the scalar block's is like that of every other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) root: Root,
    /// Of a job with scalars.
    pub(crate) decision: Option<Decision>,
}

/// The name of a state: the term under which it was written, and its version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) term: Number,
    pub(crate) version: Version,
}

/// An entry of a block's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) follows: Name,
    pub(crate) name: Name,
    pub(crate) update: Update,
}

/// A block's state. Versions `oldest..=name.version` can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) name: Name,
    pub(crate) history: Vec<Update>,
    pub(crate) oldest: Version,
    pub(crate) kept: Vec<Entry>,
}

impl State {
    /// What a restore leaves: what the checkpoint carries, of a new term.
    pub(crate) fn restored(term: Number, history: Vec<Update>, setting: &Setting) -> State {
        let version = history.len();
        let oldest = setting.oldest_saved(version);
        State { name: Name { term, version }, history, oldest, kept: Vec::new() }
    }
    pub(crate) fn version(&self) -> Version {
        self.name.version
    }
    /// The next entry under `term`.
    pub(crate) fn next(&self, term: Number, update: Update) -> Entry {
        let name = Name { term, version: self.version() + 1 };
        Entry { follows: self.name, name, update }
    }
    /// Appends, and lets go of what is too far back.
    pub(crate) fn append(&mut self, entry: Entry, setting: &Setting) {
        self.oldest = self.oldest.max(entry.name.version.saturating_sub(setting.earlier()));
        self.name = entry.name;
        self.history.push(entry.update);
        self.kept.push(entry);
        if self.kept.len() > KEPT {
            self.kept.remove(0);
        }
    }
}
