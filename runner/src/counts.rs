//! What was counted in a run, over the lives of all its processes: a master counts its own life, and forgets members
//! of the one before. Pure.

use shoal_job::Role;
use shoal_job::counters::{Counters, LeaseCounters, TrainerCounters};
use shoal_job::ends::Part;
use shoal_runtime::wire::proto::{PserverStatus, StatusReply, TrainerStatus};
use std::collections::BTreeMap;

/// The newest counts of every process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    trainers: BTreeMap<String, TrainerStatus>,
    pservers: BTreeMap<String, PserverStatus>,
    /// By master term.
    leases: BTreeMap<u32, LeaseCounters>,
    /// Records applied and lost again, by master term.
    lost: BTreeMap<u32, u64>,
    /// The first master's term, and the records that counted when it began.
    began: Option<(u32, u64)>,
}

/// What a master hears of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// It takes part, or has said goodbye.
    Heard,
    /// It has never joined the job.
    NotYet,
    /// It has joined, and nothing is heard of it any more.
    Silent,
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
        self.leases.insert(status.master_term, status.leases.unwrap_or_default().into());
        self.lost.insert(status.master_term, status.records_lost);
        let (term, counted) = self.began.get_or_insert((status.master_term, 0));
        if *term == status.master_term {
            // Too low while the master does not know yet how far the job is.
            let began = (status.records_trained + status.records_lost).saturating_sub(status.records_applied);
            *counted = began.max(*counted);
        }
    }

    /// How far the process of this name came in the job, and whether it has said goodbye.
    pub(crate) fn part(&self, role: Role, name: &str) -> (Part, bool) {
        match role {
            Role::Master => (Part::Worked, true),
            Role::Pserver if self.pservers.contains_key(name) => (Part::Worked, false),
            Role::Trainer if let Some(trainer) = self.trainers.get(name) => {
                let has_worked = trainer.counters.unwrap_or_default().microbatches > 0;
                (if has_worked { Part::Worked } else { Part::Joined }, trainer.state == "left")
            }
            Role::Pserver | Role::Trainer => (Part::NeverJoined, false),
        }
    }

    /// What the master that has said `status`, the newest that was seen, hears of a process. A master that has taken over knows nobody
    /// who has not spoken to it.
    pub(crate) fn hearing(&self, role: Role, name: &str, status: &StatusReply) -> Hearing {
        let newest = |of: &&TrainerStatus| of.incarnation;
        let is_lost = match role {
            Role::Master => Some(false),
            Role::Pserver => status
                .pservers
                .iter()
                .filter(|one| one.name == name)
                .map(|one| one.lost)
                .reduce(|a, b| a && b),
            Role::Trainer => {
                let of_name = status.trainers.iter().filter(|one| one.name == name);
                of_name.max_by_key(newest).map(|one| one.state == "lost")
            }
        };
        match (is_lost, self.part(role, name)) {
            (Some(false), _) | (None, (_, true)) => Hearing::Heard,
            (None, (Part::NeverJoined, false)) => Hearing::NotYet,
            (Some(true), _) | (None, _) => Hearing::Silent,
        }
    }

    /// Whether the pserver of this name was leaving when the master spoke of it last: one that has left is in no status any more.
    pub(crate) fn was_leaving(&self, pserver: &str) -> bool {
        self.pservers.get(pserver).is_some_and(|pserver| pserver.is_leaving)
    }

    /// Whether any process of a role has joined the job.
    pub(crate) fn has_any(&self, role: Role) -> bool {
        match role {
            Role::Master => true,
            Role::Pserver => !self.pservers.is_empty(),
            Role::Trainer => !self.trainers.is_empty(),
        }
    }

    /// A status with the counts of the whole run in place of those of its master.
    pub(crate) fn over(&self, status: &StatusReply) -> StatusReply {
        let leases = self.leases.values().fold(LeaseCounters::default(), |sum, of_term| sum.merged(*of_term));
        let mut trainers: Vec<TrainerStatus> = self.trainers.values().cloned().collect();
        let mut pservers: Vec<PserverStatus> = self.pservers.values().cloned().collect();
        // Names end in numbers.
        trainers.sort_by_key(|trainer| (trainer.name.len(), trainer.name.clone()));
        pservers.sort_by_key(|pserver| (pserver.name.len(), pserver.name.clone()));
        let counted = trainers.iter().filter_map(|trainer| trainer.counters).map(TrainerCounters::from);
        let trainer_totals = Some(counted.fold(TrainerCounters::default(), Counters::merged).into());
        let records_lost: u64 = self.lost.values().sum();
        // The last words of a master that was killed are missing: what counts now is known.
        let began = self.began.map_or(0, |(_, counted)| counted);
        let records_applied = (status.records_trained + records_lost).saturating_sub(began);
        let leases = Some(leases.into());
        StatusReply {
            leases,
            trainers,
            pservers,
            trainer_totals,
            records_applied,
            records_lost,
            ..status.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::{LeaseCounters, PserverCounters, TrainerCounters};

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
    fn whom_a_master_has_lost_or_does_not_know_is_silent_and_who_has_left_is_not() {
        let mut counts = Counts::default();
        let trainer = |name: &str, state: &str| TrainerStatus { state: state.to_owned(), ..trainer(name, 1) };
        let pserver = |name: &str, lost| PserverStatus { lost, ..pserver(name, 1) };
        let trainers = vec![trainer("t-0", "live"), trainer("t-1", "left"), trainer("t-2", "lost")];
        let first = status(1, 0, trainers, vec![pserver("p-0", false), pserver("p-1", true)]);
        counts.see(&first);
        let taken_over = status(2, 0, vec![], vec![]);
        let hearing = |role, name, status| counts.hearing(role, name, status);
        let of_trainers =
            |status| ["t-0", "t-1", "t-2", "t-3"].map(|name| hearing(Role::Trainer, name, status));
        let of_pservers = |status| ["p-0", "p-1", "p-2"].map(|name| hearing(Role::Pserver, name, status));
        use Hearing::{Heard, NotYet, Silent};
        assert_eq!(of_trainers(&first), [Heard, Heard, Silent, NotYet]);
        assert_eq!(of_pservers(&first), [Heard, Silent, NotYet]);
        assert_eq!(of_trainers(&taken_over), [Silent, Heard, Silent, NotYet]);
        assert_eq!(of_pservers(&taken_over), [Silent, Silent, NotYet]);
        // A life that was lost, and the next one of the same process.
        let lost = TrainerStatus { incarnation: 1, ..trainer("t-0", "lost") };
        let next = TrainerStatus { incarnation: 2, ..trainer("t-0", "live") };
        let again = status(1, 0, vec![next, lost], vec![pserver("p-0", true), pserver("p-0", false)]);
        assert_eq!((of_trainers(&again)[0], of_pservers(&again)[0]), (Heard, Heard));
    }

    #[test]
    fn what_counts_of_a_run_is_what_was_trained_since_it_began_under_however_many_masters() {
        let mut counts = Counts::default();
        let word = |master_term, records_trained, records_applied, records_lost| StatusReply {
            records_trained,
            records_applied,
            records_lost,
            ..status(master_term, 0, vec![], vec![])
        };
        // A run that goes on from record 300; its second master never heard of the last 20 applied under the first.
        for said in [word(4, 0, 0, 0), word(4, 300, 0, 0), word(4, 380, 100, 20), word(5, 400, 0, 0)] {
            counts.see(&said);
        }
        let last = word(5, 470, 70, 0);
        counts.see(&last);
        let over = counts.over(&last);
        assert_eq!((over.records_applied, over.records_lost), (190, 20));
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
        assert_eq!(over.trainer_totals.unwrap().microbatches, 9);
        assert_eq!(over.pservers, [dead, pserver("pserver-1", 1)]);
    }
}
