//! The memory that pieces of checkpoints hold beyond what training needs: one budget for a pserver. Pure: it counts and
//! allocates nothing, and must never keep a piece from being written.
//!
//! A piece shares its block's buffers, and costs nothing until the block's next update makes others. From then until
//! the piece is written it is charged whole. An update that would charge more than is left is put off; writing goes on
//! whatever training does, so that room comes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// What pieces of one pserver may hold.
#[derive(Debug)]
pub struct Budget {
    bytes: u64,
    held: AtomicU64,
    peak: AtomicU64,
}

/// A piece's claim on the budget: it lasts for as long as somebody has it, and with it the piece.
#[derive(Debug)]
pub struct Hold {
    bytes: u64,
    is_charged: AtomicBool,
    budget: Arc<Budget>,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn of(bytes: u64) -> Arc<Budget> {
        Arc::new(Budget { bytes, held: AtomicU64::new(0), peak: AtomicU64::new(0) })
    }

    /// The most bytes that were held at a time.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// For a piece of so many bytes that was just taken.
    pub fn hold(self: &Arc<Self>, bytes: u64) -> Arc<Hold> {
        Arc::new(Hold { bytes, is_charged: AtomicBool::new(false), budget: Arc::clone(self) })
    }

    fn take(&self, bytes: u64) -> bool {
        let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= self.bytes);
        let before = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if let Ok(before) = before {
            self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        }
        before.is_ok()
    }
}

impl Hold {
    /// Charges it, once. False if there is no room.
    fn charge(&self) -> bool {
        // Under the block's lock: nobody else charges it.
        if !self.is_charged.load(Ordering::Relaxed) && self.budget.take(self.bytes) {
            self.is_charged.store(true, Ordering::Relaxed);
        }
        self.is_charged.load(Ordering::Relaxed)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if *self.is_charged.get_mut() {
            self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// Whether a block may be updated whose pieces have these holds: those that somebody still has are charged.
pub(super) fn may_update(holds: &mut Vec<Weak<Hold>>) -> bool {
    holds.retain(|hold| hold.strong_count() > 0);
    holds.iter().filter_map(Weak::upgrade).all(|hold| hold.charge())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_charged_once_at_the_first_update_and_until_nobody_has_it() {
        let budget = Budget::of(10);
        let hold = budget.hold(7);
        let mut holds = vec![Arc::downgrade(&hold)];
        assert_eq!(budget.held.load(Ordering::Relaxed), 0, "nothing is held before an update");
        assert!(may_update(&mut holds) && may_update(&mut holds));
        assert_eq!((budget.held.load(Ordering::Relaxed), budget.peak()), (7, 7));
        let other = budget.hold(4);
        let mut others = vec![Arc::downgrade(&other)];
        assert!(!may_update(&mut others), "11 of 10 bytes");
        drop(hold);
        assert!(may_update(&mut others) && may_update(&mut holds));
        assert_eq!((holds.len(), budget.held.load(Ordering::Relaxed), budget.peak()), (0, 4, 7));
    }

    #[test]
    fn a_piece_that_was_never_charged_gives_nothing_back() {
        let budget = Budget::of(10);
        drop(budget.hold(3));
        let hold = budget.hold(11);
        assert!(!may_update(&mut vec![Arc::downgrade(&hold)]), "it waits until it is written, however large");
        drop(hold);
        assert_eq!((budget.held.load(Ordering::Relaxed), budget.peak()), (0, 0));
    }
}
