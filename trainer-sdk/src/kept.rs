//! The sums of finished tasks, kept until their step is published everywhere: a block whose primary was lost with what
//! it held is given them again, and nobody has to compute them twice. Pure.
//!
//! Forgetting one costs work and nothing else: the master leases again what a block lacks.

use crate::origin::NodeOf;
use crate::reduce::NodeSum;
use crate::taken::Taken;
use shoal_runtime::cluster::{Routing, Step};
use std::sync::Arc;

/// Bytes of sums that a trainer keeps besides the one it finished last: when there are more, the oldest are forgotten.
pub(crate) const KEPT_BYTES_MAX: usize = 256 << 20;

/// One finished task's sum.
#[derive(Clone, Debug)]
pub(crate) struct KeptSum {
    pub(crate) of: NodeOf,
    pub(crate) sum: Arc<NodeSum>,
    pub(crate) taken: Taken,
    /// Whether some block must be given it.
    is_due: bool,
    /// How often a block had no room for it.
    put_off: u32,
}

/// In the order in which they were finished.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    sums: Vec<KeptSum>,
}

impl Kept {
    /// Keeps the sum of a finished task, unless every block has applied it.
    pub(crate) fn keep(&mut self, of: NodeOf, sum: Arc<NodeSum>, taken: Taken, routing: &Routing) {
        self.sums.retain(|kept| kept.of != of);
        if !taken.is_applied() && of.rewind == routing.rewind() {
            let is_due = !taken.lacking(routing).is_empty();
            self.sums.push(KeptSum { of, sum, taken, is_due, put_off: 0 });
        }
        while self.sums.len() > 1
            && self.sums.iter().map(|kept| bytes(&kept.sum)).sum::<usize>() > KEPT_BYTES_MAX
        {
            self.sums.remove(0);
        }
    }

    /// Every block has published `step`: sums of earlier steps can be lost no more.
    pub(crate) fn published(&mut self, step: Step) {
        self.sums.retain(|kept| kept.of.step >= step);
    }

    /// Follows the routing: sums of another history are worth nothing, and blocks of another term lack what they held.
    pub(crate) fn follow(&mut self, routing: &Routing) {
        self.sums.retain(|kept| kept.of.rewind == routing.rewind());
        for kept in &mut self.sums {
            kept.is_due = !kept.taken.lacking(routing).is_empty();
        }
    }

    /// The sum to push again: of those that some block lacks, the one put off least often, lowest step and node first.
    pub(crate) fn due(&self) -> Option<KeptSum> {
        let due = self.sums.iter().filter(|kept| kept.is_due);
        due.min_by_key(|kept| (kept.put_off, kept.of.step, kept.of.node.first())).cloned()
    }

    /// Whether the sum is still kept.
    pub(crate) fn has(&self, of: NodeOf) -> bool {
        self.sums.iter().any(|kept| kept.of == of)
    }

    /// It was pushed again, as far as `taken` says. What then still lacks it had no room.
    pub(crate) fn pushed(&mut self, of: NodeOf, taken: Taken, routing: &Routing) {
        self.sums.retain(|kept| kept.of != of || !taken.is_applied());
        if let Some(kept) = self.sums.iter_mut().find(|kept| kept.of == of) {
            kept.is_due = !taken.lacking(routing).is_empty();
            kept.put_off += u32::from(kept.is_due);
            kept.taken = taken;
        }
    }
}

fn bytes(sum: &NodeSum) -> usize {
    let rows = sum.rows.iter().map(|rows| 12 * rows.len() + 4 * rows.values().len());
    sum.values.iter().map(|values| 4 * values.len()).chain(rows).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending::tests::routing;
    use shoal_runtime::cluster::{BlockId, Node, Rewind, Term};

    fn of(step: u64, index: u32) -> NodeOf {
        NodeOf { step: Step(step), node: Node::leaf(index), rewind: Rewind(1) }
    }
    fn sum(elements: usize) -> Arc<NodeSum> {
        Arc::new(NodeSum { values: vec![vec![0.0; elements]], weight: 1, ..NodeSum::default() })
    }
    /// Held by both blocks under term 1.
    fn held() -> Taken {
        let mut taken = Taken::by_none(2);
        taken.held(BlockId(0), Term(1));
        taken.held(BlockId(1), Term(1));
        taken
    }
    fn terms(version: u64, first: u64, second: u64) -> Routing {
        routing(version, &[(0, first, 1), (1, second, 1)])
    }

    #[test]
    fn a_sum_is_pushed_again_only_after_a_change_of_term_and_only_to_the_block_concerned() {
        let mut kept = Kept::default();
        kept.keep(of(3, 0), sum(1), held(), &terms(1, 1, 1));
        assert!(kept.due().is_none());
        let changed = terms(4, 1, 4);
        kept.follow(&changed);
        let due = kept.due().unwrap();
        assert_eq!(due.taken.lacking(&changed).into_iter().collect::<Vec<_>>(), [BlockId(1)]);
        let mut taken = due.taken;
        taken.held(BlockId(1), Term(4));
        kept.pushed(of(3, 0), taken, &changed);
        assert!(kept.due().is_none() && kept.has(of(3, 0)));
    }

    #[test]
    fn a_sum_that_is_late_for_a_change_of_term_is_due_at_once() {
        let mut kept = Kept::default();
        kept.keep(of(3, 0), sum(1), held(), &terms(4, 1, 4));
        assert_eq!(kept.due().unwrap().of, of(3, 0));
    }

    #[test]
    fn sums_go_when_their_step_is_published_or_applied_or_belongs_to_another_history() {
        let mut kept = Kept::default();
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
    fn one_that_finds_no_room_lets_the_others_go_first() {
        let mut kept = Kept::default();
        let changed = terms(4, 4, 4);
        kept.keep(of(3, 5), sum(1), held(), &changed);
        kept.keep(of(3, 2), sum(1), held(), &changed);
        kept.keep(of(4, 0), sum(1), held(), &changed);
        assert_eq!(kept.due().unwrap().of, of(3, 2));
        kept.pushed(of(3, 2), held(), &changed);
        assert_eq!(kept.due().unwrap().of, of(3, 5));
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_newest_sum_is_always_kept() {
        let mut kept = Kept::default();
        let (now, half) = (terms(1, 1, 1), sum(KEPT_BYTES_MAX / 8));
        for index in 0..3 {
            kept.keep(of(3, index), half.clone(), held(), &now);
        }
        assert!(!kept.has(of(3, 0)) && kept.has(of(3, 1)) && kept.has(of(3, 2)));
        kept.keep(of(3, 3), sum(KEPT_BYTES_MAX), held(), &now);
        assert!(!kept.has(of(3, 2)) && kept.has(of(3, 3)));
    }
}
