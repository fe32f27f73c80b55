//! The sums of computed tasks, until their step is published everywhere. A sum that some block lacks is *due*: it is pushed,
//! the lowest first. A block whose primary was lost lacks the sums that the primary held: they become due again, so that nobody
//! computes them twice. Pure.
//!
//! Forgetting a sum costs work and nothing else: its task is computed again, or the master leases again what a block lacks.

use crate::acks::Acks;
use crate::origin::StepNode;
use crate::reduce::NodeSum;
use shoal_runtime::cluster::{Routing, Step};
use std::sync::Arc;

/// The most sums that a trainer keeps. When there are more, some are forgotten, never the one computed last.
const KEPT_MAX: usize = 4;
/// The most bytes of kept sums together; the one computed last is kept however large it is.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// One computed task's sum.
#[derive(Clone, Debug)]
pub(crate) struct KeptSum {
    pub(crate) of: StepNode,
    pub(crate) sum: Arc<NodeSum>,
    pub(crate) acks: Acks,
    /// Whether some block lacks the sum.
    is_due: bool,
}

/// The kept sums of one trainer, in the order in which they were computed.
#[derive(Debug, Default)]
pub(crate) struct KeptSums {
    sums: Vec<KeptSum>,
}

impl KeptSums {
    /// Keeps the sum of a computed task and what blocks have acknowledged of it, unless every block has applied it.
    pub(crate) fn keep(&mut self, of: StepNode, sum: Arc<NodeSum>, acks: Acks, routing: &Routing) {
        self.forget(of);
        if acks.is_applied() || of.rewind != routing.rewind() {
            return;
        }
        let is_full =
            |kept: &KeptSums| kept.sums.len() >= KEPT_MAX || kept.bytes() + sum.bytes() > KEPT_BYTES_MAX;
        while !self.sums.is_empty() && is_full(self) {
            // Sums that are not due are forgotten first, the oldest before others; then the highest, which pservers have room
            // for last.
            let held = self.sums.iter().position(|kept| !kept.is_due);
            let highest = || (0..self.sums.len()).max_by_key(|at| place(self.sums[*at].of)).unwrap_or(0);
            let at = held.unwrap_or_else(highest);
            self.sums.remove(at);
        }
        let is_due = !acks.lacking(routing).is_empty();
        self.sums.push(KeptSum { of, sum, acks, is_due });
    }

    /// Forgets the sum of a node.
    pub(crate) fn forget(&mut self, of: StepNode) {
        self.sums.retain(|kept| kept.of != of);
    }

    /// Whether a task may be computed before the due sums are pushed: beside one at most, of no more than half of
    /// `KEPT_BYTES_MAX`.
    pub(crate) fn has_room(&self) -> bool {
        let mut due = self.sums.iter().filter(|kept| kept.is_due).map(|kept| kept.sum.bytes());
        due.next().is_none_or(|first| 2 * first <= KEPT_BYTES_MAX) && due.next().is_none()
    }

    fn bytes(&self) -> usize {
        self.sums.iter().map(|kept| kept.sum.bytes()).sum()
    }

    /// Forgets the sums of steps before `step`, which every block has published: no block can lose them any more.
    pub(crate) fn published(&mut self, step: Step) {
        self.sums.iter().filter(|kept| kept.of.step < step).for_each(|kept| kept.sum.applied());
        self.sums.retain(|kept| kept.of.step >= step);
    }

    /// Follows the routing: sums of another history are forgotten, and a block under another term lacks what it held.
    pub(crate) fn follow(&mut self, routing: &Routing) {
        self.sums.retain(|kept| kept.of.rewind == routing.rewind());
        for kept in &mut self.sums {
            kept.is_due = !kept.acks.lacking(routing).is_empty();
        }
    }

    /// The sum to push: the lowest that some block lacks, for which pservers have room first. `None`: no block lacks any.
    pub(crate) fn due(&self) -> Option<&KeptSum> {
        self.sums.iter().filter(|kept| kept.is_due).min_by_key(|kept| place(kept.of))
    }

    /// Whether the sum is still kept.
    #[cfg(test)]
    pub(crate) fn has(&self, of: StepNode) -> bool {
        self.sums.iter().any(|kept| kept.of == of)
    }

    /// Whether the sum is kept, and some block lacks it.
    pub(crate) fn has_due(&self, of: StepNode) -> bool {
        self.sums.iter().any(|kept| kept.of == of && kept.is_due)
    }

    /// Notes which blocks have acknowledged a sum, and forgets it once all have applied it.
    pub(crate) fn pushed(&mut self, of: StepNode, acks: Acks, routing: &Routing) {
        if let Some(kept) = self.sums.iter().find(|kept| kept.of == of && acks.is_applied()) {
            kept.sum.applied();
        }
        self.sums.retain(|kept| kept.of != of || !acks.is_applied());
        if let Some(kept) = self.sums.iter_mut().find(|kept| kept.of == of) {
            kept.is_due = !acks.lacking(routing).is_empty();
            kept.acks = acks;
        }
    }
}

fn place(of: StepNode) -> (Step, u32) {
    (of.step, of.node.first())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending::tests::routing;
    use shoal_runtime::cluster::{BlockId, Node, Rewind, Term};

    fn of(step: u64, index: u32) -> StepNode {
        StepNode { step: Step(step), node: Node::leaf(index), rewind: Rewind(1) }
    }
    fn sum(elements: usize) -> Arc<NodeSum> {
        Arc::new(NodeSum { values: vec![vec![0.0; elements]].into(), weight: 1, ..NodeSum::default() })
    }
    /// Held by both blocks under term 1.
    fn held() -> Acks {
        let mut acks = Acks::by_none(2);
        acks.held(BlockId(0), Term(1));
        acks.held(BlockId(1), Term(1));
        acks
    }
    fn terms(version: u64, first: u64, second: u64) -> Routing {
        routing(version, &[(0, first, 1), (1, second, 1)])
    }

    #[test]
    fn a_sum_is_pushed_again_only_after_a_change_of_term_and_only_to_the_block_concerned() {
        let mut kept = KeptSums::default();
        kept.keep(of(3, 0), sum(1), held(), &terms(1, 1, 1));
        assert!(kept.due().is_none());
        let changed = terms(4, 1, 4);
        kept.follow(&changed);
        let due = kept.due().unwrap();
        assert_eq!(due.acks.lacking(&changed).into_iter().collect::<Vec<_>>(), [BlockId(1)]);
        let mut acks = due.acks.clone();
        acks.held(BlockId(1), Term(4));
        kept.pushed(of(3, 0), acks, &changed);
        assert!(kept.due().is_none() && kept.has(of(3, 0)));
    }

    #[test]
    fn a_sum_that_is_late_for_a_change_of_term_is_due_at_once() {
        let mut kept = KeptSums::default();
        kept.keep(of(3, 0), sum(1), held(), &terms(4, 1, 4));
        assert_eq!(kept.due().unwrap().of, of(3, 0));
    }

    #[test]
    fn sums_go_when_their_step_is_published_or_applied_or_belongs_to_another_history() {
        let mut kept = KeptSums::default();
        let now = terms(1, 1, 1);
        for step in 3..6 {
            kept.keep(of(step, 0), sum(1), held(), &now);
        }
        kept.published(Step(4));
        assert!(!kept.has(of(3, 0)) && kept.has(of(4, 0)) && kept.has(of(5, 0)));
        let mut applied = held();
        applied.applied(BlockId(0));
        applied.applied(BlockId(1));
        kept.pushed(of(4, 0), applied.clone(), &now);
        kept.keep(of(4, 1), sum(1), applied, &now);
        assert!(!kept.has(of(4, 0)) && !kept.has(of(4, 1)) && kept.has(of(5, 0)));
        let restored = routing(7, &[(0, 7, 7), (1, 7, 7)]);
        kept.follow(&restored);
        assert!(!kept.has(of(5, 0)));
        kept.keep(of(5, 0), sum(1), held(), &restored);
        assert!(!kept.has(of(5, 0)), "a sum of an older history comes too late");
    }

    #[test]
    fn the_lowest_that_some_block_lacks_is_due() {
        let mut kept = KeptSums::default();
        let changed = terms(4, 4, 4);
        for (step, index) in [(3, 5), (3, 2), (4, 0)] {
            kept.keep(of(step, index), sum(1), held(), &changed);
        }
        assert_eq!(kept.due().unwrap().of, of(3, 2));
        let mut acks = held();
        acks.held(BlockId(0), Term(4));
        kept.pushed(of(3, 2), acks.clone(), &changed);
        assert_eq!(kept.due().unwrap().of, of(3, 2), "a block lacks it still");
        acks.held(BlockId(1), Term(4));
        kept.pushed(of(3, 2), acks, &changed);
        assert_eq!(kept.due().unwrap().of, of(3, 5));
    }

    #[test]
    fn of_what_is_due_the_highest_is_forgotten_and_only_once_nothing_is_held() {
        let mut kept = KeptSums::default();
        let (now, quarter) = (terms(1, 1, 1), sum(KEPT_BYTES_MAX / 16));
        let due = Acks::by_none(2);
        for (index, acks) in [(7, due.clone()), (2, due.clone()), (3, held()), (5, due.clone())] {
            kept.keep(of(3, index), quarter.clone(), acks, &now);
        }
        kept.keep(of(3, 4), quarter.clone(), due.clone(), &now);
        assert!(!kept.has(of(3, 3)) && kept.has(of(3, 7)));
        kept.keep(of(3, 6), quarter, due, &now);
        assert!(!kept.has(of(3, 7)) && kept.has(of(3, 2)) && kept.has(of(3, 6)));
    }

    #[test]
    fn another_is_computed_beside_one_that_is_due_but_not_beside_two_or_a_large_one() {
        let (now, due) = (terms(1, 1, 1), Acks::by_none(2));
        let mut kept = KeptSums::default();
        kept.keep(of(3, 0), sum(1), held(), &now);
        kept.keep(of(3, 1), sum(1), due.clone(), &now);
        assert!(kept.has_room());
        kept.keep(of(3, 2), sum(1), due.clone(), &now);
        assert!(!kept.has_room());
        let mut kept = KeptSums::default();
        kept.keep(of(3, 1), sum(KEPT_BYTES_MAX / 8 + 1), due, &now);
        assert!(!kept.has_room());
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_newest_sum_is_always_kept() {
        let mut kept = KeptSums::default();
        let (now, half) = (terms(1, 1, 1), sum(KEPT_BYTES_MAX / 8));
        for index in 0..3 {
            kept.keep(of(3, index), half.clone(), held(), &now);
        }
        assert!(!kept.has(of(3, 0)) && kept.has(of(3, 1)) && kept.has(of(3, 2)));
        kept.keep(of(3, 3), sum(KEPT_BYTES_MAX), held(), &now);
        assert!(!kept.has(of(3, 2)) && kept.has(of(3, 3)));
    }
}
