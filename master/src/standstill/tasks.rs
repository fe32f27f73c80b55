//! Tasks that hold the front up: the holder of the lowest one, and its waits. Pure.

use super::{Cause, Peer, Reason, Watch, lasting, seconds};
use crate::dispatch::Holder;
use crate::machine::Placed;
use shoal_runtime::cluster::waits::WaitKind;

impl Watch<'_> {
    /// The front is open and known.
    pub(super) fn front(&self, job: &Placed) -> Cause {
        let shape = self.machine.settings().shape();
        let Some(place) = job.dispatch.lowest_lacking(&shape, &job.reports) else {
            return self.unpublished(job).unwrap_or_else(|| self.deciding("the next step is not open yet"));
        };
        match job.dispatch.holder(place, &shape) {
            Some(holder) => self.held(job, &holder),
            None => self.free(),
        }
    }

    /// The lowest task is under a lease.
    fn held(&self, job: &Placed, holder: &Holder) -> Cause {
        let Some(peer) = self.trainer(holder.trainer) else { return self.free() };
        let renewed = self.now.saturating_sub(holder.renewed);
        let task = format!(
            "trainer {:?} has {} of {} microbatches of the lowest task",
            peer.name, holder.computed, holder.width
        );
        if self.is_silent(&peer) {
            return Cause {
                reason: Reason::TrainerSilent,
                subject: peer.name.to_owned(),
                age: peer.silence,
                text: format!("{task}, and has been silent for {}", seconds(peer.silence)),
                way_out: format!(
                    "after {} its task is given to another trainer; if it is the only one, start another",
                    seconds(self.ttl)
                ),
            };
        }
        let is_computed = holder.is_pushed || holder.waits;
        let unpublished = || if is_computed { self.blocked_pservers(job) } else { None };
        self.unanswered(&peer).or_else(unpublished).unwrap_or_else(|| match () {
            () if holder.waits => Cause {
                reason: Reason::NoRoom,
                subject: peer.name.to_owned(),
                age: renewed.max(self.front_age()),
                text: format!("{task}, and pservers have no room for its sum"),
                way_out: String::from(
                    "room comes as steps are published: see the pservers' logs if it does not",
                ),
            },
            () => self.computing(&peer, &task, renewed),
        })
    }

    /// A pserver does not answer the trainer.
    fn unanswered(&self, peer: &Peer<'_>) -> Option<Cause> {
        let wait = peer.wait(WaitKind::Pserver)?;
        let Some(pserver) = self.pserver_at(&wait.subject) else {
            return Some(Cause {
                reason: Reason::PserverUnreachable,
                subject: wait.subject.clone(),
                age: wait.age,
                text: format!(
                    "trainer {:?} gets no answer from the pserver at {} {}",
                    peer.name,
                    wait.subject,
                    lasting(wait)
                ),
                way_out: String::from("see that a pserver listens there and that trainers reach it"),
            });
        };
        if self.is_silent(&pserver) {
            return Some(self.pserver_silent(&pserver, &format!("trainer {:?} waits for", peer.name)));
        }
        Some(Cause {
            reason: Reason::PserverUnreachable,
            subject: pserver.name.to_owned(),
            age: wait.age,
            text: format!(
                "trainer {:?} gets no answer from pserver {:?} ({}) {}, although the master hears of both",
                peer.name,
                pserver.name,
                wait.subject,
                lasting(wait)
            ),
            way_out: String::from(
                "see that the address can be reached from the trainer: routes, firewalls, network policies",
            ),
        })
    }

    /// A pserver that holds up a sum it has. A primary without any reported wait is no cause yet: the sum may just have arrived.
    fn blocked_pservers(&self, job: &Placed) -> Option<Cause> {
        self.unpublished(job).filter(|cause| cause.reason != Reason::PserverStuck)
    }

    /// The trainer waits for data, or for a place of predictions.
    fn input(&self, peer: &Peer<'_>) -> Option<Cause> {
        if let Some(wait) = peer.wait(WaitKind::Storage) {
            return Some(self.storage(&format!("trainer {:?}", peer.name), wait));
        }
        let wait = peer.wait(WaitKind::Data)?;
        Some(Cause {
            reason: Reason::Data,
            subject: wait.subject.clone(),
            age: wait.age,
            text: format!("trainer {:?} reads {} {}", peer.name, wait.subject, lasting(wait)),
            way_out: String::from(
                "see that the data can be reached from the trainer's host: mounts, buckets, credentials",
            ),
        })
    }

    /// The trainer has yet to compute.
    fn computing(&self, peer: &Peer<'_>, task: &str, renewed: std::time::Duration) -> Cause {
        if let Some(cause) = self.input(peer) {
            return cause;
        }
        if let Some(wait) = peer.wait(WaitKind::Program) {
            return Cause {
                reason: Reason::Computing,
                subject: peer.name.to_owned(),
                age: wait.age,
                text: format!("{task}; its program has been computing for {}", seconds(wait.age)),
                way_out: String::from(
                    "long steps are no fault; a program that hangs is seen by its stack (py-spy dump --pid PID), and smaller microbatches renew its lease",
                ),
            };
        }
        Cause {
            reason: Reason::TrainerStuck,
            subject: peer.name.to_owned(),
            age: renewed,
            text: format!("{task}, and has not got on with it for {}", seconds(renewed)),
            way_out: String::from("see its log; its task is given to another trainer once its lease is over"),
        }
    }

    /// The lowest task is under no lease.
    fn free(&self) -> Cause {
        let live = || self.machine.trainers.live().filter_map(|(who, _)| self.trainer(who));
        if live().next().is_none() {
            return self.no_trainer();
        }
        let speaking = live().filter(|peer| !self.is_silent(peer)).min_by_key(|peer| peer.silence);
        let Some(peer) = speaking else {
            let peer = live().min_by_key(|peer| peer.silence);
            let (name, silence) = peer.map_or(("", self.front_age()), |peer| (peer.name, peer.silence));
            return Cause {
                reason: Reason::TrainerSilent,
                subject: name.to_owned(),
                age: silence,
                text: format!(
                    "there is a task, and every trainer is silent: {name:?} for {}",
                    seconds(silence)
                ),
                way_out: String::from(
                    "see whether their hosts and the network to the master are well; start others",
                ),
            };
        };
        if let Some(cause) = self.unanswered(&peer).or_else(|| self.input(&peer)) {
            return cause;
        }
        Cause {
            reason: Reason::NobodyAsks,
            subject: peer.name.to_owned(),
            age: self.front_age(),
            text: format!("there is a task, and no trainer asks for it: {}", doing(&peer)),
            way_out: String::from(
                "see the trainers' logs; a task that trainers were lost with is tried by one at a time",
            ),
        }
    }
}

/// Formats a trainer's oldest wait.
fn doing(peer: &Peer<'_>) -> String {
    match peer.waits.first() {
        Some(wait) => format!("{:?} waits for {} {}", peer.name, wait.subject, lasting(wait)),
        None => format!("{:?} was heard of {} ago", peer.name, seconds(peer.silence)),
    }
}
