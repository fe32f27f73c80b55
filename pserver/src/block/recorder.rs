//! Hashes of blocks after every so many steps: one queue for all copies of a pserver, until the master has them. Pure.
//!
//! Whoever makes a version hashes it, the primary and each follower, so that what one of them has told nobody yet another still has,
//! and so that copies which should be alike are compared by the master. A queue that nobody takes from is bounded: the oldest are
//! lost, and those steps are not recorded.

use super::Block;
use super::shape::BlockShape;
use super::state::Kept;
use crate::bucket::Bucket;
use shoal_runtime::cluster::recording::{pieces_of_hash, recorded_step};
use shoal_runtime::cluster::{BlockHashes, Course, Rewind, Version};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use twox_hash::XxHash3_64;

/// Hashes that wait at most. Where a block has one, they take 88 bytes each: 88 MiB.
const WAITING_MAX: usize = 1 << 20;

/// What is recorded of the copies of a pserver.
#[derive(Debug, Default)]
pub struct Recorder {
    /// After every so many steps; 0: nothing is.
    every: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// In the order in which they came, each with its number.
    hashes: VecDeque<(u64, BlockHashes)>,
    /// The number of the next.
    next: u64,
    /// Hashes in all of them.
    count: usize,
    /// The history that all of them are of.
    rewind: Option<Rewind>,
    /// Of that history none below are needed.
    settled: Version,
}

impl Recorder {
    /// From now on hashes are recorded after every so many steps; 0 for none.
    pub fn go_by(&self, every: u64) {
        self.every.store(every, Ordering::Relaxed);
    }

    /// Whether hashes of a version are recorded.
    fn records(&self, course: &Course, version: Version) -> bool {
        recorded_step(course, self.every.load(Ordering::Relaxed), version).is_some()
    }

    /// Of an earlier history than what waits nothing is taken, of a later one nothing else is kept.
    fn push(&self, of: BlockHashes) {
        let mut waiting = self.waiting();
        if Some(of.rewind) < waiting.rewind {
            return;
        }
        if Some(of.rewind) > waiting.rewind {
            waiting.forget();
            waiting.rewind = Some(of.rewind);
        }
        waiting.count += of.hashes.len();
        let number = waiting.next;
        waiting.next += 1;
        waiting.hashes.push_back((number, of));
        while waiting.count > WAITING_MAX
            && let Some((_, oldest)) = waiting.hashes.pop_front()
        {
            waiting.count -= oldest.hashes.len();
        }
    }

    /// Those that wait with this number or a higher one, about so many hashes of them, and the number of the next.
    pub fn after(&self, number: u64, hashes_max: usize) -> (Vec<BlockHashes>, u64) {
        let waiting = self.waiting();
        let (mut those, mut count, mut next) = (Vec::new(), 0, number);
        let first = waiting.hashes.partition_point(|(at, _)| *at < number);
        for (at, of) in waiting.hashes.range(first..) {
            if count >= hashes_max {
                break;
            }
            count += of.hashes.len();
            next = at + 1;
            those.push(of.clone());
        }
        (those, next)
    }

    /// Whether some wait with this number or a higher one.
    pub fn has_after(&self, number: u64) -> bool {
        self.waiting().hashes.back().is_some_and(|(last, _)| *last >= number)
    }

    /// Forgets hashes of that history below version `below`, which are durable, as far as the master has received them (numbers below
    /// `told`): the master compares those of several copies.
    pub fn settle(&self, rewind: Rewind, below: Version, told: u64) {
        let mut waiting = self.waiting();
        if Some(rewind) == waiting.rewind && below > waiting.settled {
            waiting.settled = below;
            waiting.hashes.retain(|(number, of)| of.version >= below || *number >= told);
            waiting.count = waiting.hashes.iter().map(|(_, of)| of.hashes.len()).sum();
        }
    }

    /// The history, and the version below which a master has said that all is settled in it.
    pub fn settled(&self) -> (Rewind, Version) {
        let waiting = self.waiting();
        (waiting.rewind.unwrap_or(Rewind(0)), waiting.settled)
    }

    /// Nothing waits any more: the blocks are gone.
    pub fn forget(&self) {
        self.waiting().forget();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting { hashes: VecDeque::new(), next: 0, count: 0, rewind: None, settled: Version(0) }
    }
}

impl Waiting {
    fn forget(&mut self) {
        self.hashes.clear();
        (self.count, self.settled) = (0, Version(0));
    }
}

impl Block {
    /// The newest version was made here, or restored: its hashes are recorded, if they are due and all of it is here. What a device
    /// has made is recorded once it is here.
    pub(super) fn record(&mut self) {
        let Some(state) = self.state.as_ref().filter(|state| state.filled().is_none()) else { return };
        if self.job.recorder.records(&self.job.course, state.version()) {
            self.unrecorded.push(state.version());
        }
        self.record_what_is_here();
    }

    /// Records the versions that were not here before.
    pub(super) fn record_what_is_here(&mut self) {
        let Some(state) = &self.state else { return self.unrecorded.clear() };
        let (shape, recorder, rewind) = (&self.shape, &self.job.recorder, self.placement.rewind);
        self.unrecorded.retain(|version| {
            let hashes = match state.rows_at(*version) {
                Some(bucket) => vec![of_rows(bucket)],
                None => match state.read(shape, *version, &[]) {
                    Kept::Here(values) => of_values(shape, &values),
                    Kept::Coming => return true,
                    Kept::Gone => return false,
                },
            };
            recorder.push(BlockHashes {
                block: shape.id,
                version: *version,
                rewind,
                term: state.name().term,
                hashes,
            });
            false
        });
    }
}

/// The hashes of a dense block's values, as they lie in memory.
fn of_values(shape: &BlockShape, values: &[u8]) -> Vec<u64> {
    let ranges: Vec<_> = shape.pieces().map(|(_, _, range)| 4 * range.start..4 * range.end).collect();
    let together = ranges.chunks(pieces_of_hash(ranges.len()));
    together
        .map(|pieces| XxHash3_64::oneshot(&values[pieces[0].start..pieces[pieces.len() - 1].end]))
        .collect()
}

/// The hash of a bucket: which slot a row has is no part of the model, so the rows' hashes are added up.
fn of_rows(bucket: &Bucket) -> u64 {
    let records = bucket.rows().records();
    records.map(|record| XxHash3_64::oneshot(bytemuck::cast_slice(record))).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_runtime::cluster::{BlockId, Term};

    fn of(version: u64, rewind: u64, hashes: usize) -> BlockHashes {
        let (block, version, rewind, term) = (BlockId(1), Version(version), Rewind(rewind), Term(1));
        BlockHashes { block, version, rewind, term, hashes: vec![version.0; hashes] }
    }

    fn versions(those: &[BlockHashes]) -> Vec<u64> {
        those.iter().map(|of| of.version.0).collect()
    }

    #[test]
    fn what_waits_is_told_in_turns_until_it_is_settled() {
        let recorder = Recorder::default();
        (1..=4).for_each(|version| recorder.push(of(version, 1, 10)));
        let (first, next) = recorder.after(0, 15);
        assert_eq!((versions(&first), next), (vec![1, 2], 2), "as soon as there are enough, no more");
        assert!(recorder.has_after(next));
        let (rest, last) = recorder.after(next, 100);
        assert_eq!((versions(&rest), last), (vec![3, 4], 4));
        assert!(!recorder.has_after(last));
        recorder.settle(Rewind(2), Version(9), last);
        assert_eq!(
            versions(&recorder.after(0, 100).0),
            [1, 2, 3, 4],
            "of another history nothing is settled"
        );
        recorder.settle(Rewind(1), Version(3), last);
        assert_eq!(versions(&recorder.after(0, 100).0), [3, 4]);
    }

    /// Another copy's hashes made the step durable: these are still to be compared.
    #[test]
    fn what_is_settled_is_told_once_before_it_is_forgotten() {
        let recorder = Recorder::default();
        (1..=3).for_each(|version| recorder.push(of(version, 1, 10)));
        let (_, told) = recorder.after(0, 10);
        recorder.settle(Rewind(1), Version(4), told);
        assert_eq!(versions(&recorder.after(0, 100).0), [2, 3]);
        // Late hashes are reported as well.
        recorder.push(of(3, 1, 10));
        let (rest, told) = recorder.after(told, 100);
        assert_eq!(versions(&rest), [2, 3, 3]);
        recorder.push(of(4, 1, 10));
        recorder.settle(Rewind(1), Version(5), told);
        assert_eq!(versions(&recorder.after(0, 100).0), [4]);
        assert_eq!(recorder.settled(), (Rewind(1), Version(5)));
        recorder.push(of(2, 2, 10));
        assert_eq!(recorder.settled(), (Rewind(2), Version(0)), "in another history it is not");
    }

    #[test]
    fn what_is_of_an_earlier_history_is_forgotten_and_does_not_come_back() {
        let recorder = Recorder::default();
        recorder.push(of(5, 1, 1));
        recorder.push(of(4, 2, 1));
        recorder.push(of(6, 1, 1));
        assert_eq!(versions(&recorder.after(0, 100).0), [4]);
        recorder.forget();
        assert_eq!(recorder.after(0, 100), (vec![], 0));
    }

    #[test]
    fn nothing_is_recorded_unless_it_is_asked_for() {
        let (recorder, course) = (Recorder::default(), Course::new(9, 9, 0));
        let recorded = |recorder: &Recorder| -> Vec<u64> {
            (0..=9).filter(|version| recorder.records(&course, Version(*version))).collect()
        };
        assert_eq!(recorded(&recorder), Vec::<u64>::new());
        recorder.go_by(4);
        assert_eq!(recorded(&recorder), [0, 4, 8]);
    }

    proptest! {
        /// Whoever takes nothing costs no more memory than is said, and what is left is the newest.
        #[test]
        fn what_nobody_takes_is_bounded(sizes in proptest::collection::vec(1usize..(WAITING_MAX / 3), 1..12)) {
            let recorder = Recorder::default();
            for (version, size) in (1..).zip(&sizes) {
                recorder.push(of(version, 1, *size));
            }
            let (left, _) = recorder.after(0, usize::MAX);
            prop_assert!(left.iter().map(|of| of.hashes.len()).sum::<usize>() <= WAITING_MAX);
            let newest = sizes.iter().rev().scan(0, |sum, size| { *sum += size; Some(*sum) });
            prop_assert_eq!(left.len(), newest.take_while(|sum| *sum <= WAITING_MAX).count());
            let lost = sizes.len() - left.len();
            prop_assert_eq!(versions(&left), (1 + lost as u64..=sizes.len() as u64).collect::<Vec<_>>());
        }
    }
}
