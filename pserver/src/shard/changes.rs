//! The log of changes: which blocks have changed, and in what. Whoever waits for something of many blocks has a cursor in it, and
//! looks at those that have changed since; at all of them only when the log has forgotten what came after the cursor.
//!
//! It must never say what has become of a block: that is asked of the block, under its lock.

use crate::block::effects::Effects;
use shoal_runtime::cluster::BlockId;
use shoal_runtime::host::signal::{Changes, Signal};
use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Block numbers that the log keeps at least, and for each block that is held.
const KEPT_LEAST: usize = 4096;
const KEPT_PER_BLOCK: usize = 4;

/// In what a block has changed; see [`Effects`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Published,
    Logged,
    Undecided,
    Piece,
    Standing,
}

impl Kind {
    const COUNT: usize = 5;
    const ALL: [Kind; Kind::COUNT] =
        [Kind::Published, Kind::Logged, Kind::Undecided, Kind::Piece, Kind::Standing];

    fn bit(self) -> u8 {
        1 << self as u8
    }

    fn of(effects: &Effects) -> u8 {
        let Effects { published, logged, undecided, piece, standing, .. } = *effects;
        let is = [published, logged, undecided, piece, standing];
        Kind::ALL.into_iter().zip(is).filter(|(_, is)| *is).fold(0, |kinds, (kind, _)| kinds | kind.bit())
    }
}

/// What has changed, newest last.
#[derive(Debug)]
pub(super) struct ChangeLog {
    entries: Mutex<Entries>,
    told: [Signal; Kind::COUNT],
}

#[derive(Debug)]
struct Entries {
    entries: VecDeque<Entry>,
    /// The number of the oldest.
    first: u64,
    /// Block numbers in all of them, and the most there may be.
    kept: usize,
    kept_most: usize,
}

/// What one call has changed.
#[derive(Debug)]
struct Entry {
    /// Of all its blocks.
    kinds: u8,
    range: RangeInclusive<BlockId>,
    blocks: Vec<(BlockId, u8)>,
}

/// What has changed since a listener looked last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// These blocks, and no others.
    Blocks(BTreeSet<BlockId>),
    /// Any of them: more has changed than the log keeps, or other blocks are held.
    Any,
}

/// One who waits for changes of a kind.
#[derive(Debug)]
pub(super) struct Listener {
    kind: Kind,
    /// The number of the first entry that it has not looked at.
    next: u64,
    told: Changes,
}

impl ChangeLog {
    /// Nothing has changed yet.
    pub(super) fn new() -> ChangeLog {
        let entries = Entries { entries: VecDeque::new(), first: 0, kept: 0, kept_most: KEPT_LEAST };
        ChangeLog { entries: Mutex::new(entries), told: Default::default() }
    }

    /// Blocks have changed.
    pub(super) fn note<'a>(&self, changed: impl Iterator<Item = &'a (BlockId, Effects)>) {
        let blocks = changed.map(|(block, effects)| (*block, Kind::of(effects)));
        let blocks: Vec<(BlockId, u8)> = blocks.filter(|(_, kinds)| *kinds > 0).collect();
        let ids = || blocks.iter().map(|(block, _)| *block);
        let (Some(lowest), Some(highest)) = (ids().min(), ids().max()) else { return };
        let kinds = blocks.iter().fold(0, |all, (_, kinds)| all | kinds);
        self.entries().push(Entry { kinds, range: lowest..=highest, blocks });
        self.tell(kinds);
    }

    /// Other blocks are held, so many: nothing that was known of any can be relied upon.
    pub(super) fn note_all(&self, blocks: usize) {
        self.entries().forget(KEPT_LEAST + KEPT_PER_BLOCK * blocks);
        self.tell(u8::MAX);
    }

    /// Hears of every change of a kind from now on, and of nothing but that there is one.
    pub(super) fn told(&self, kind: Kind) -> Changes {
        self.told[kind as usize].listen()
    }

    /// Listens for changes of a kind from now on.
    pub(super) fn listen(&self, kind: Kind) -> Listener {
        let told = self.told[kind as usize].listen();
        Listener { kind, next: self.entries().end(), told }
    }

    fn tell(&self, kinds: u8) {
        for (kind, told) in Kind::ALL.into_iter().zip(&self.told) {
            if kinds & kind.bit() != 0 {
                told.send();
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn push(&mut self, entry: Entry) {
        self.kept += entry.blocks.len();
        self.entries.push_back(entry);
        while self.kept > self.kept_most
            && let Some(oldest) = self.entries.pop_front()
        {
            self.kept -= oldest.blocks.len();
            self.first += 1;
        }
    }

    /// Whoever listens has missed something.
    fn forget(&mut self, kept_most: usize) {
        self.first = self.end() + 1;
        self.entries.clear();
        (self.kept, self.kept_most) = (0, kept_most);
    }
}

impl Listener {
    /// Waits for something that it has not looked at. May be dropped at any time.
    pub(super) async fn changed(&mut self) {
        self.told.changed().await;
    }

    /// What has changed since it looked last, of the blocks in `range`.
    pub(super) fn take_within(&mut self, log: &ChangeLog, range: &RangeInclusive<BlockId>) -> Since {
        self.told.mark_heard();
        let entries = log.entries();
        let Some(skipped) = self.next.checked_sub(entries.first) else {
            self.next = entries.end();
            return Since::Any;
        };
        self.next = entries.end();
        let mut changed = BTreeSet::new();
        for entry in entries.entries.range(skipped as usize..) {
            let overlaps = entry.range.start() <= range.end() && range.start() <= entry.range.end();
            if entry.kinds & self.kind.bit() != 0 && overlaps {
                let blocks = entry.blocks.iter().filter(|(_, kinds)| kinds & self.kind.bit() != 0);
                changed.extend(blocks.map(|(block, _)| *block).filter(|block| range.contains(block)));
            }
        }
        Since::Blocks(changed)
    }

    /// What has changed since it looked last.
    pub(super) fn take(&mut self, log: &ChangeLog) -> Since {
        self.take_within(log, &(BlockId(0)..=BlockId(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use proptest::prelude::*;

    fn effects(published: bool, logged: bool) -> Effects {
        Effects { published, logged, ..Effects::default() }
    }

    fn blocks(ids: &[u32]) -> Since {
        Since::Blocks(ids.iter().map(|id| BlockId(*id)).collect())
    }

    fn note(log: &ChangeLog, ids: &[u32], effects: Effects) {
        let changed: Vec<_> = ids.iter().map(|id| (BlockId(*id), effects)).collect();
        log.note(changed.iter());
    }

    #[test]
    fn each_listener_hears_once_of_what_is_of_its_kind_and_in_its_range() {
        let log = ChangeLog::new();
        note(&log, &[9], effects(true, true));
        let (mut pull, mut follower) = (log.listen(Kind::Published), log.listen(Kind::Logged));
        assert!(pull.changed().now_or_never().is_none(), "that was before its time");
        note(&log, &[3, 1], effects(true, false));
        note(&log, &[7], effects(true, true));
        assert!(pull.changed().now_or_never().is_some() && follower.changed().now_or_never().is_some());
        assert_eq!(pull.take_within(&log, &(BlockId(2)..=BlockId(8))), blocks(&[3, 7]));
        assert_eq!(pull.take(&log), blocks(&[]));
        assert_eq!(follower.take(&log), blocks(&[7]));
        assert!(pull.changed().now_or_never().is_none());
        note(&log, &[4], effects(false, true));
        assert!(pull.changed().now_or_never().is_none() && follower.changed().now_or_never().is_some());
        note(&log, &[4], Effects { starved: true, ..Effects::default() });
        assert_eq!((pull.take(&log), follower.take(&log)), (blocks(&[]), blocks(&[4])));
    }

    #[test]
    fn other_blocks_make_everyone_look_at_all_of_them_once() {
        let log = ChangeLog::new();
        let (mut early, mut late) = (log.listen(Kind::Piece), log.listen(Kind::Standing));
        log.note_all(5);
        assert!(early.changed().now_or_never().is_some() && late.changed().now_or_never().is_some());
        let mut new = log.listen(Kind::Piece);
        assert_eq!((early.take(&log), new.take(&log)), (Since::Any, blocks(&[])));
        assert_eq!(early.take(&log), blocks(&[]));
        assert_eq!(late.take(&log), Since::Any);
    }

    proptest! {
        /// What a listener is told covers what has changed since, and nothing else unless the log has lapped it.
        #[test]
        fn nothing_is_missed_and_the_log_stays_within_its_bound(
            calls in proptest::collection::vec((proptest::collection::vec(0u32..50, 1..400), any::<bool>()), 1..60)
        ) {
            let log = ChangeLog::new();
            let (mut listener, mut missed, mut since) = (log.listen(Kind::Published), BTreeSet::new(), 0);
            for (ids, looks) in calls {
                note(&log, &ids, effects(true, false));
                missed.extend(ids.iter().map(|id| BlockId(*id)));
                since += ids.len();
                prop_assert!(log.entries().kept <= KEPT_LEAST.max(ids.len()));
                if looks {
                    match listener.take(&log) {
                        Since::Blocks(blocks) => prop_assert_eq!(blocks, std::mem::take(&mut missed)),
                        Since::Any => prop_assert!(since > KEPT_LEAST),
                    }
                    (missed, since) = (BTreeSet::new(), 0);
                }
            }
        }
    }
}
