//! Batches that wait for room, by pserver: one of them asks, for all. Gradients sent only to be refused would keep out the one
//! that is waited for. Pure.

use std::collections::{BTreeMap, VecDeque};

/// Of each pserver that may have no room the batches that wait for some; the first asks.
///
/// The last to be sent asks first, for it finds room last. But where blocks differ, another may be the one that is waited for:
/// so they ask in turns.
#[derive(Debug, Default)]
pub(crate) struct Queues(BTreeMap<u64, VecDeque<u64>>);

impl Queues {
    /// Whether batches wait for a pserver.
    pub(crate) fn has(&self, pserver: u64) -> bool {
        self.0.contains_key(&pserver)
    }

    /// Whether none waits for any.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Batches, in the order in which they are to be sent, wait. Returns the one that is to ask now, if none does yet.
    pub(crate) fn join(&mut self, pserver: u64, batches: impl IntoIterator<Item = u64>) -> Option<u64> {
        let is_first = !self.has(pserver);
        let queue = self.0.entry(pserver).or_default();
        let mut batches: VecDeque<u64> = batches.into_iter().collect();
        batches.rotate_right(usize::from(!batches.is_empty()));
        queue.extend(batches);
        queue.front().copied().filter(|_| is_first)
    }

    /// The one that asks found no room. Returns the one that is to ask now.
    pub(crate) fn turn(&mut self, pserver: u64) -> Option<u64> {
        let queue = self.0.get_mut(&pserver)?;
        queue.rotate_left(1);
        queue.front().copied()
    }

    /// There is room. Returns those that waited for it, in the order in which they are to be sent.
    pub(crate) fn open(&mut self, pserver: u64) -> Vec<u64> {
        let mut waited: Vec<u64> = self.0.remove(&pserver).unwrap_or_default().into();
        waited.sort_unstable();
        waited
    }

    /// A batch is no more. Returns the one that is to ask in its place, if it was the one that did.
    pub(crate) fn leave(&mut self, batch: u64) -> Option<u64> {
        let (pserver, queue) = self.0.iter_mut().find(|(_, queue)| queue.contains(&batch))?;
        let asked = queue.front() == Some(&batch);
        queue.retain(|other| *other != batch);
        let (pserver, next) = (*pserver, queue.front().copied());
        if next.is_none() {
            self.0.remove(&pserver);
        }
        next.filter(|_| asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_asks_for_all_and_they_are_sent_in_order() {
        let mut queues = Queues::default();
        assert_eq!(queues.join(1, [10, 11, 12]), Some(12));
        assert_eq!(queues.join(2, [20]), Some(20), "another pserver has its own");
        assert_eq!(queues.join(1, [13]), None, "one asks already");
        assert_eq!(queues.open(1), [10, 11, 12, 13]);
        assert!(!queues.has(1) && queues.has(2) && queues.open(1).is_empty());
    }

    #[test]
    fn all_have_their_turn_to_ask() {
        let mut queues = Queues::default();
        queues.join(1, [10, 11, 12]);
        let turns: Vec<Option<u64>> = (0..4).map(|_| queues.turn(1)).collect();
        assert_eq!(turns, [Some(10), Some(11), Some(12), Some(10)]);
        assert_eq!(queues.turn(2), None);
    }

    #[test]
    fn another_asks_in_the_place_of_one_that_is_no_more() {
        let mut queues = Queues::default();
        queues.join(1, [10, 11]);
        assert_eq!(queues.leave(10), None, "it did not ask");
        queues.join(1, [12]);
        assert_eq!(queues.leave(11), Some(12));
        assert_eq!(queues.leave(12), None);
        assert!(queues.is_empty() && queues.leave(12).is_none());
    }
}
