//! What was counted in a run, over the lives of all its processes: a master counts its own life, and forgets members
//! of the one before. Pure.

use shoal_runtime::wire::proto::{LeaseCounters, PserverStatus, StatusReply, TrainerStatus};
use std::collections::BTreeMap;

/// The newest counts of every process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    trainers: BTreeMap<String, TrainerStatus>,
    pservers: BTreeMap<String, PserverStatus>,
    /// By master term.
    leases: BTreeMap<u32, LeaseCounters>,
}

impl Counts {
    /// Takes a status into account.
    pub(crate) fn see(&mut self, status: &StatusReply) {
        for new in &status.trainers {
            let mut new = new.clone();
            // A later life of one process has said nothing yet: its counts go on from those of the life before.
            if let Some(old) = self.trainers.get(&new.name)
                && old.counters.unwrap_or_default().microbatches
                    > new.counters.unwrap_or_default().microbatches
            {
                new.counters = old.counters;
            }
            self.trainers.insert(new.name.clone(), new);
        }
        for new in &status.pservers {
            let mut new = new.clone();
            let counted = |pserver: &PserverStatus| {
                pserver.counters.map_or(0, |counters| counters.pushes + counters.entries + counters.fills)
            };
            if let Some(old) = self.pservers.get(&new.name).filter(|old| counted(old) > counted(&new)) {
                new.counters = old.counters;
            }
            self.pservers.insert(new.name.clone(), new);
        }
        self.leases.insert(status.master_term, status.leases.unwrap_or_default());
    }

    /// A status with the counts of the whole run in place of those of its master.
    pub(crate) fn over(&self, status: &StatusReply) -> StatusReply {
        let mut leases = LeaseCounters::default();
        for of_term in self.leases.values() {
            leases.leased += of_term.leased;
            leases.leased_again += of_term.leased_again;
            leases.speculative += of_term.speculative;
            leases.expired += of_term.expired;
            leases.handed_back += of_term.handed_back;
        }
        let mut trainers: Vec<TrainerStatus> = self.trainers.values().cloned().collect();
        let mut pservers: Vec<PserverStatus> = self.pservers.values().cloned().collect();
        // Names end in numbers.
        trainers.sort_by_key(|trainer| (trainer.name.len(), trainer.name.clone()));
        pservers.sort_by_key(|pserver| (pserver.name.len(), pserver.name.clone()));
        StatusReply { leases: Some(leases), trainers, pservers, ..status.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::{PserverCounters, TrainerCounters};

    fn trainer(name: &str, microbatches: u64) -> TrainerStatus {
        let counters = Some(TrainerCounters { microbatches, ..Default::default() });
        TrainerStatus { name: name.to_owned(), counters, ..Default::default() }
    }
    fn pserver(name: &str, pushes: u64) -> PserverStatus {
        let counters = Some(PserverCounters { pushes, ..Default::default() });
        PserverStatus { name: name.to_owned(), counters, ..Default::default() }
    }
    fn status(
        master_term: u32,
        leased: u64,
        trainers: Vec<TrainerStatus>,
        pservers: Vec<PserverStatus>,
    ) -> StatusReply {
        let leases = Some(LeaseCounters { leased, ..Default::default() });
        StatusReply { master_term, leases, trainers, pservers, step: 7, ..Default::default() }
    }

    #[test]
    fn what_a_dead_master_and_dead_members_have_counted_stays_counted() {
        let mut counts = Counts::default();
        let (two, dead) = (trainer("trainer-2", 5), pserver("pserver-0", 8));
        counts.see(&status(1, 10, vec![two.clone(), trainer("trainer-10", 3)], vec![dead.clone()]));
        counts.see(&status(1, 12, vec![two.clone(), trainer("trainer-10", 4)], vec![dead.clone()]));
        let last = status(2, 3, vec![trainer("trainer-10", 0)], vec![pserver("pserver-1", 1)]);
        counts.see(&last);
        let over = counts.over(&last);
        assert_eq!((over.leases.unwrap().leased, over.step), (15, 7));
        assert_eq!(over.trainers, [two, trainer("trainer-10", 4)]);
        assert_eq!(over.pservers, [dead, pserver("pserver-1", 1)]);
    }
}
