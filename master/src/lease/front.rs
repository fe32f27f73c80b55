//! Leases of the front alone, where something else comes before what is read ahead; and numbers for leases that are no node's.

use super::held::Lease;
use super::{Grant, Leases};
use crate::dispatch::Holder;
use shoal_runtime::cluster::{Incarnation, LeaseId, Node, Step};
use std::time::Duration;

/// The most tasks one call may take.
pub(super) const GRANTS_PER_CALL_MAX: u32 = 4;

impl Leases {
    /// Leases up to `want` tasks of the front to `trainer`, of what is free there.
    pub fn lease_front(&mut self, trainer: Incarnation, live: u32, want: u32, now: Duration) -> Vec<Grant> {
        let mut grants = Vec::new();
        for _ in 0..want.min(GRANTS_PER_CALL_MAX) {
            let front = self.open.iter().position(|open| open.step == self.front);
            let Some((at, node)) = front.and_then(|at| self.take(at, trainer, live.max(1), now)) else {
                break;
            };
            grants.push(self.grant(at, trainer, node, now));
        }
        grants
    }

    /// The front step and its root; `None`: it is not open.
    pub fn front_root(&self) -> Option<(Step, Node)> {
        self.at(self.front).map(|open| (open.step, open.tree.root()))
    }

    /// The lease of a slot of the front that was renewed last; `None`: the slot is free.
    pub fn holder(&self, slot: u32) -> Option<Holder> {
        let open = self.at(self.front)?;
        let holds = |lease: &&Lease| (lease.node.first()..lease.node.end()).contains(&slot);
        let lease = open.leases.all().filter(holds).max_by_key(|lease| lease.renewed)?;
        Some(Holder {
            trainer: lease.trainer,
            computed: lease.microbatches,
            width: lease.node.end().min(open.tree.present()).saturating_sub(lease.node.first()),
            is_pushed: lease.pushed,
            waits: lease.waits,
            renewed: lease.renewed.max(self.front_since),
        })
    }

    /// The number of a lease that is no node's: nothing here knows of it.
    pub fn number(&mut self) -> LeaseId {
        self.next += 1;
        LeaseId(self.next - 1)
    }
}
