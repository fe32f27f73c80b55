//! What only a block's primary has: the nodes held of the steps under way, the newest log entries, and how far each
//! follower is. Pure.
//!
//! An acknowledgement is for one fill. A copy is *required* from before its admission is
//! asked for until a placement without that fill is learnt; nothing is published that some required copy lacks. A filling
//! copy is required as soon as it is only a few entries behind, or could not keep up: updates would outrun it for ever.

use super::answer::Cursor;
use super::entry::Entry;
use super::held_steps::HeldSteps;
use super::scalars::Scalars;
use crate::bucket::arena::Slot;
use shoal_runtime::cluster::{Fill, Incarnation, Ledger, StateName, Version};
use std::collections::{BTreeMap, VecDeque};

/// Entries kept for followers that are a little behind; one further behind is given the state again.
pub(super) const LOG_MAX: usize = 8;

/// A copy as the master has placed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedCopy {
    /// Where it is.
    pub pserver: Incarnation,
    /// Which copy it is.
    pub fill: Fill,
    /// Whether it may be promoted.
    pub is_in_sync: bool,
}

/// The primary's part of a block.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) held: HeldSteps,
    /// Jobs that decide over all blocks.
    pub(super) scalars: Box<Scalars>,
    /// The state that this primary was promoted with: those below it under the same term are its past.
    pub(super) inherited: Option<StateName>,
    /// Asynchronous jobs: positions that are published; none until all is published that was inherited.
    pub(super) ledger: Option<Ledger>,
    /// Asynchronous jobs: positions of updates that are not published yet.
    pub(super) pending: VecDeque<(Version, u64)>,
    log: VecDeque<Entry>,
    followers: BTreeMap<Incarnation, Follower>,
}

#[derive(Clone, Copy, Debug)]
struct Follower {
    fill: Fill,
    is_in_sync: bool,
    is_asked_for: bool,
    /// Whether nothing is published that it lacks, though it is not in-sync.
    is_waited_for: bool,
    /// Whether it was given the state.
    is_given: bool,
    /// Whether it has the whole state that it acknowledged, not some rows of it.
    is_whole: bool,
    acknowledged: Option<Version>,
}

/// What a primary has for a follower.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    /// It is level.
    Nothing,
    /// What follows its state.
    Entry(Entry),
    /// Its state is in our past, but the entries are gone.
    State,
    /// It is level, and lacks the rows from this slot on.
    Segment(Slot),
    /// Nothing of ours can follow its state.
    Broken,
}

impl Primary {
    pub(super) fn new(held: HeldSteps, inherited: Option<StateName>, copies: &[PlacedCopy]) -> Primary {
        let (log, followers, pending) = (VecDeque::new(), BTreeMap::new(), VecDeque::new());
        let scalars = Box::default();
        let mut primary = Primary { held, scalars, inherited, ledger: None, pending, log, followers };
        primary.place(copies);
        primary
    }

    /// The copies are now these. Whoever has another fill than before has acknowledged nothing.
    pub(super) fn place(&mut self, copies: &[PlacedCopy]) {
        let old = std::mem::take(&mut self.followers);
        for copy in copies {
            let kept = old.get(&copy.pserver).filter(|old| old.fill == copy.fill);
            let follower = kept.copied().unwrap_or(Follower::new(copy.fill));
            self.followers.insert(copy.pserver, Follower { is_in_sync: copy.is_in_sync, ..follower });
        }
        if self.followers.is_empty() {
            self.log.clear();
        }
        self.forget_acknowledged();
    }

    /// The highest version that every required copy has acknowledged, up to `version`; none while one has acknowledged
    /// nothing.
    pub(super) fn publishable(&self, version: Version) -> Option<Version> {
        let required = self.followers.values().filter(|follower| follower.is_required());
        required
            .map(|follower| follower.acknowledged)
            .try_fold(version, |lowest, acknowledged| Some(lowest.min(acknowledged?)))
    }

    /// Whether anybody follows, so that entries are worth keeping.
    pub(super) fn is_followed(&self) -> bool {
        !self.followers.is_empty()
    }

    pub(super) fn knows(&self, follower: Incarnation, fill: Fill) -> bool {
        self.followers.get(&follower).is_some_and(|known| known.fill == fill)
    }

    /// An update was made.
    pub(super) fn append(&mut self, entry: Entry) {
        self.log.push_back(entry);
        if self.log.len() > LOG_MAX {
            self.log.pop_front();
        }
    }

    /// A follower says that it holds `theirs`, a state of this block; `ours` is the newest. What it holds of our past
    /// it has acknowledged.
    pub(super) fn hear(&mut self, follower: Incarnation, theirs: Cursor, ours: StateName) -> Next {
        let next = match (self.next(theirs.name, ours), theirs.filled) {
            (Next::Nothing, Some(slot)) => Next::Segment(slot),
            (next, _) => next,
        };
        if next != Next::Broken
            && let Some(follower) = self.followers.get_mut(&follower)
        {
            follower.acknowledged = follower.acknowledged.max(Some(theirs.name.version));
            follower.is_whole = theirs.filled.is_none();
            follower.is_waited_for |= next != Next::State;
        }
        self.forget_acknowledged();
        next
    }

    /// A follower is given the state. One that needs it again could not keep up.
    pub(super) fn give_state(&mut self, follower: Incarnation) {
        if let Some(follower) = self.followers.get_mut(&follower) {
            follower.is_waited_for |= follower.is_given;
            follower.is_given = true;
        }
    }

    fn next(&self, theirs: StateName, ours: StateName) -> Next {
        if theirs == ours {
            return Next::Nothing;
        }
        if let Some(entry) = self.log.iter().find(|entry| entry.follows == theirs) {
            return Next::Entry(entry.clone());
        }
        // One copy writes under a term: a lower version of the same term is in our past.
        let is_past = |ours: StateName| theirs.term == ours.term && theirs.version <= ours.version;
        if is_past(ours) || self.inherited.is_some_and(is_past) { Next::State } else { Next::Broken }
    }

    /// Entries that everybody has are not needed.
    fn forget_acknowledged(&mut self) {
        let Some(lowest) = self.followers.values().map(|follower| follower.acknowledged).min().flatten()
        else {
            return;
        };
        while self.log.front().is_some_and(|entry| entry.makes().version <= lowest) {
            self.log.pop_front();
        }
    }

    /// What a copy must have to be admitted. All that was inherited counts as published: a predecessor that nobody
    /// hears any more may have published it.
    fn admissible(&self, published: Version) -> Version {
        self.inherited.map_or(published, |inherited| inherited.version.max(published))
    }

    /// The fill of an in-sync copy.
    pub(super) fn in_sync_fill(&self, pserver: Incarnation) -> Option<Fill> {
        self.followers.get(&pserver).filter(|follower| follower.is_in_sync).map(|follower| follower.fill)
    }

    pub(super) fn is_admission_due(&self, published: Version) -> bool {
        let published = self.admissible(published);
        let is_due = |follower: &Follower| follower.is_filling() && !follower.is_asked_for;
        self.followers.values().any(|follower| is_due(follower) && follower.has(published))
    }

    /// Filling copies that have all that is published: from now on they are required, and the master is asked to
    /// admit them.
    pub(super) fn ask_for(&mut self, published: Version) -> Vec<(Incarnation, Fill)> {
        let published = self.admissible(published);
        let is_level = |follower: &Follower| follower.is_filling() && follower.has(published);
        let level = self.followers.iter_mut().filter(|(_, follower)| is_level(follower));
        let asked = level.map(|(pserver, follower)| {
            (follower.is_asked_for, follower.is_waited_for) = (true, true);
            (*pserver, follower.fill)
        });
        asked.collect()
    }
}

impl Follower {
    /// It has said and was given nothing.
    fn new(fill: Fill) -> Follower {
        let (is_in_sync, is_asked_for, is_waited_for, is_given, is_whole) =
            (false, false, false, false, false);
        Follower { fill, is_in_sync, is_asked_for, is_waited_for, is_given, is_whole, acknowledged: None }
    }
    fn is_required(&self) -> bool {
        self.is_in_sync || self.is_waited_for
    }
    fn is_filling(&self) -> bool {
        !self.is_in_sync
    }
    fn has(&self, published: Version) -> bool {
        self.is_whole && self.acknowledged.is_some_and(|version| version >= published)
    }
}
