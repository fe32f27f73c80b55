//! The watch over the front: the cause of a standstill, in one sentence with the way out.
//!
//! The machine has all the facts: leases, reports, marks of copies, the checkpoint under way, and the waits that members report. This
//! module follows them from the front to the first process or place that holds it up. It decides nothing, and no decision may rest on
//! it. Pure. `docs/waits.md` lists every reason.

mod blocks;
mod end;
mod reason;
mod tasks;

use crate::machine::{Machine, Phase};
use crate::members::State;
pub(crate) use reason::Reason;
use shoal_runtime::cluster::Incarnation;
use shoal_runtime::cluster::waits::{Wait, WaitKind};
use shoal_runtime::wire::proto;
use std::time::Duration;

/// Times to live without progress after which the log, conditions and events report a standstill.
const TOLD_TTLS: u32 = 3;

/// The cause of a standstill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// In one word.
    pub reason: Reason,
    /// The member or the place that holds the front up, by name; empty where it is none.
    pub subject: String,
    /// Its duration.
    pub age: Duration,
    /// In a sentence.
    pub text: String,
    /// Advice.
    pub way_out: String,
}

/// A front that has not advanced for a time to live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standstill {
    /// The time since the last advance.
    pub age: Duration,
    /// `true` if nothing is computed either; `false` while a trainer computes a long step.
    pub is_idle: bool,
    /// The cause.
    pub cause: Cause,
}

impl Standstill {
    /// Returns true once the log, conditions and events report it, where leases live for `ttl` without progress.
    pub(crate) fn is_told(&self, ttl: Duration) -> bool {
        self.is_idle && self.age >= ttl * TOLD_TTLS
    }
}

impl From<&Standstill> for proto::Standstill {
    fn from(standstill: &Standstill) -> proto::Standstill {
        let Standstill { age, is_idle, cause } = standstill;
        proto::Standstill {
            reason: cause.reason.word().to_owned(),
            cause: cause.text.clone(),
            way_out: cause.way_out.clone(),
            front_millis: age.as_millis() as u64,
            cause_millis: cause.age.as_millis() as u64,
            is_idle: *is_idle,
            subject: cause.subject.clone(),
        }
    }
}

/// The state of one process of the job, as far as the master knows.
#[derive(Clone, Copy, Debug)]
struct Peer<'a> {
    name: &'a str,
    /// A pserver's listen address; empty for a trainer.
    address: &'a str,
    /// The time since its last sign of life.
    silence: Duration,
    is_live: bool,
    waits: &'a [Wait],
}

impl Peer<'_> {
    /// The oldest wait of a kind.
    fn wait(&self, kind: WaitKind) -> Option<&Wait> {
        self.waits.iter().find(|wait| wait.kind == kind)
    }
}

/// Facts about the master's process that the machine does not have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outside {
    /// The waits of the process.
    pub(crate) waits: Vec<Wait>,
    /// The newest refusal of a trainer that would join; `None` once one has joined since.
    pub(crate) refused: Option<RefusedJoin>,
}

/// A trainer that was refused as it would join.
#[derive(Clone, Debug)]
pub(crate) struct RefusedJoin {
    /// The trainer's name.
    pub(crate) trainer: String,
    /// The time of the refusal, by the machine's clock.
    pub(crate) at: Duration,
    pub(crate) why: String,
}

/// One look at a machine whose front stands.
struct Watch<'a> {
    machine: &'a Machine,
    outside: &'a Outside,
    now: Duration,
    ttl: Duration,
}

impl Machine {
    /// Returns the cause of a front that has not advanced for a time to live.
    pub(crate) fn standstill(&self, outside: &Outside, now: Duration) -> Option<Standstill> {
        let age = now.saturating_sub(self.front_since);
        let ttl = Duration::from_millis(self.settings().lease_ttl_millis);
        let is_over = matches!(self.phase(), Phase::Done | Phase::Failed(_));
        if is_over || age < ttl {
            return None;
        }
        let computed = self.heard_trainers.values().map(|heard| heard.computed).max();
        let is_idle = computed.is_none_or(|computed| now.saturating_sub(computed) >= 2 * ttl);
        let cause = Watch { machine: self, outside, now, ttl }.cause();
        Some(Standstill { age, is_idle, cause })
    }
}

impl Watch<'_> {
    /// Looks for the cause: the store first, then blocks, then tasks, then the job's end.
    fn cause(&self) -> Cause {
        if let Some(cause) = self.store() {
            return cause;
        }
        match &self.machine.job {
            None => self.beginning(),
            Some(job) => self
                .homeless()
                .or_else(|| self.unheard(job))
                .or_else(|| self.at_end(job))
                .unwrap_or_else(|| self.front(job)),
        }
    }

    /// The store does not take the document, and nothing that needs it is decided.
    fn store(&self) -> Option<Cause> {
        let wait = self
            .outside
            .waits
            .iter()
            .find(|wait| wait.kind == WaitKind::Store && wait.age >= self.ttl / 2)?;
        Some(Cause {
            reason: Reason::Store,
            subject: wait.subject.clone(),
            age: wait.age,
            text: format!("the store ({}) has not taken the job's document {}", wait.subject, lasting(wait)),
            way_out: String::from(
                "see that the store runs, can be reached and has room; a master that cannot write for 10 s stands by",
            ),
        })
    }

    /// The job waits for its first trainer, or for pservers.
    fn beginning(&self) -> Cause {
        let machine = self.machine;
        let (there, wanted) = (machine.pservers.live_count(), machine.wanted().pservers.max(1));
        if machine.declaration().is_none() {
            return self.no_trainer();
        }
        if there < wanted as usize {
            return Cause {
                reason: Reason::TooFewPservers,
                subject: String::new(),
                age: self.front_age(),
                text: format!("{there} of {wanted} pservers have joined"),
                way_out: String::from(
                    "see why the others do not join (their logs), or ask for fewer: shoal scale --pservers N",
                ),
            };
        }
        self.deciding("blocks are not placed yet")
    }

    /// No trainer is there: none has joined, all are gone, or they are refused.
    fn no_trainer(&self) -> Cause {
        if let Some(RefusedJoin { trainer, at, why }) = &self.outside.refused {
            let age = self.now.saturating_sub(*at);
            return Cause {
                reason: Reason::ProgramRefused,
                subject: trainer.clone(),
                age,
                text: format!("trainer {trainer:?} was refused {} ago: {why}", seconds(age)),
                way_out: String::from(
                    "mend the program or its environment as the refusal says, and start it again",
                ),
            };
        }
        let last = self.machine.trainers.iter().max_by_key(|(_, member)| member.last_heard());
        let (subject, text) = match last {
            None => (String::new(), String::from("no trainer has joined")),
            Some((_, member)) => {
                let silence = seconds(self.now.saturating_sub(member.last_heard()));
                let how = match member.state {
                    State::Left => "left",
                    State::Live | State::Lost | State::Superseded => "was last heard of",
                };
                (
                    member.name.clone(),
                    format!("no trainer is there: the last one, {:?}, {how} {silence} ago", member.name),
                )
            }
        };
        Cause {
            reason: Reason::NoTrainer,
            subject,
            age: self.front_age(),
            text,
            way_out: String::from("start trainers, or see in their logs why they do not join"),
        }
    }

    fn deciding(&self, text: &str) -> Cause {
        Cause {
            reason: Reason::Deciding,
            subject: String::new(),
            age: self.front_age(),
            text: text.to_owned(),
            way_out: String::from("see the master's log"),
        }
    }

    fn front_age(&self) -> Duration {
        self.now.saturating_sub(self.machine.front_since)
    }

    /// A member that is silent for longer than one that is well: it speaks four times in a time to live.
    fn is_silent(&self, peer: &Peer<'_>) -> bool {
        !peer.is_live || peer.silence >= self.ttl / 2
    }

    fn pserver(&self, who: Incarnation) -> Option<Peer<'_>> {
        let member = self.machine.pservers.get(who)?;
        let record = self.machine.pserver_records.get(&who)?;
        Some(Peer {
            name: &member.name,
            address: &record.address,
            silence: self.now.saturating_sub(member.last_heard()),
            is_live: member.state == State::Live,
            waits: &record.waits,
        })
    }

    fn pserver_at(&self, address: &str) -> Option<Peer<'_>> {
        let mut live = self.machine.pservers.live();
        live.find_map(|(who, _)| self.pserver(who).filter(|peer| peer.address == address))
    }

    fn trainer(&self, who: Incarnation) -> Option<Peer<'_>> {
        let member = self.machine.trainers.get(who)?;
        let waits = self.machine.heard_trainers.get(&who).map_or(&[][..], |heard| &heard.waits);
        Some(Peer {
            name: &member.name,
            address: "",
            silence: self.now.saturating_sub(member.last_heard()),
            is_live: member.state == State::Live,
            waits,
        })
    }

    /// A silent pserver that holds the front up.
    fn pserver_silent(&self, peer: &Peer<'_>, part: &str) -> Cause {
        Cause {
            reason: Reason::PserverSilent,
            subject: peer.name.to_owned(),
            age: peer.silence,
            text: format!(
                "pserver {:?} ({}), which {part}, has been silent for {}",
                peer.name,
                peer.address,
                seconds(peer.silence)
            ),
            way_out: format!(
                "after {} its copies lead; without one the job goes back to its newest checkpoint once another pserver is there",
                seconds(self.ttl)
            ),
        }
    }

    /// A place that a member waits for.
    fn storage(&self, of: &str, wait: &Wait) -> Cause {
        Cause {
            reason: Reason::Storage,
            subject: wait.subject.clone(),
            age: wait.age,
            text: format!("{of} waits for storage: {} {}", wait.subject, lasting(wait)),
            way_out: String::from(
                "see that the place can be reached and written, and has room: the job goes on by itself once it answers",
            ),
        }
    }
}

/// Formats a wait's age and its last error.
fn lasting(wait: &Wait) -> String {
    match wait.error.as_str() {
        "" => format!("for {}, without an answer", seconds(wait.age)),
        error => format!("for {}: {error}", seconds(wait.age)),
    }
}

/// A time for people.
fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        short if short < 10.0 => format!("{short:.1} s"),
        long => format!("{long:.0} s"),
    }
}
