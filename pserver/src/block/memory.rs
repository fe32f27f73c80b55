//! The memory that pieces of checkpoints hold beyond what training needs: one budget for a pserver. Pure: it counts and
//! allocates nothing, and must never keep a piece from being written.
//!
//! A dense block's piece shares its buffers, and costs nothing until the block's next update makes others. From then until
//! the piece is written it is charged whole. A bucket's piece is charged with the rows that had to be saved for it. An update
//! that would charge more than is left is put off; writing goes on whatever training does, so that some is free again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// What pieces of one pserver may hold.
pub struct Budget {
    bytes: u64,
    /// Told whenever some of it is free again.
    freed: Box<dyn Fn() + Send + Sync>,
    held: AtomicU64,
    peak: AtomicU64,
}

/// A piece's claim on the budget: it lasts for as long as somebody has it, and with it the piece.
#[derive(Debug)]
pub struct Hold {
    bytes: u64,
    charged: AtomicU64,
    budget: Arc<Budget>,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn of(bytes: u64) -> Arc<Budget> {
        Budget::telling(bytes, || {})
    }

    /// The same, and what is told whenever some of it is free again. That may be under a block's lock, and must not wait.
    pub fn telling(bytes: u64, freed: impl Fn() + Send + Sync + 'static) -> Arc<Budget> {
        let (held, peak) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Budget { bytes, freed: Box::new(freed), held, peak })
    }

    fn free(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        (self.freed)();
    }

    /// The most bytes that were held at a time.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// For a piece of so many bytes that was just taken.
    pub fn hold(self: &Arc<Self>, bytes: u64) -> Arc<Hold> {
        Arc::new(Hold { bytes, charged: AtomicU64::new(0), budget: Arc::clone(self) })
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
    /// Charges it whole, once. False if the budget has not so much left.
    fn charge(&self) -> bool {
        self.charge_up_to(self.bytes)
    }

    /// Charges it with so much, if it is not yet. False if the budget has not so much left.
    pub(super) fn charge_up_to(&self, bytes: u64) -> bool {
        // Under the block's lock: nobody else charges it.
        let charged = self.charged.load(Ordering::Relaxed);
        if bytes <= charged {
            return true;
        }
        let is_taken = self.budget.take(bytes - charged);
        if is_taken {
            self.charged.store(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    /// It holds exactly so much, whether the budget has it or not.
    pub(super) fn settle(&self, bytes: u64) {
        let before = self.charged.swap(bytes, Ordering::Relaxed);
        if bytes >= before {
            let held = self.budget.held.fetch_add(bytes - before, Ordering::Relaxed);
            self.budget.peak.fetch_max(held + bytes - before, Ordering::Relaxed);
        } else {
            self.budget.free(before - bytes);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Also where it had been charged nothing: its own block may have waited for that.
        self.budget.free(*self.charged.get_mut());
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {} bytes", self.held, self.bytes)
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
    fn a_piece_that_grows_is_charged_with_what_it_has() {
        let budget = Budget::of(10);
        let hold = budget.hold(0);
        assert!(hold.charge_up_to(6) && hold.charge_up_to(4) && !hold.charge_up_to(11));
        assert_eq!(budget.held.load(Ordering::Relaxed), 6);
        hold.settle(3);
        assert_eq!((budget.held.load(Ordering::Relaxed), budget.peak()), (3, 6));
        hold.settle(12);
        assert_eq!((budget.held.load(Ordering::Relaxed), budget.peak()), (12, 12));
        drop(hold);
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
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
