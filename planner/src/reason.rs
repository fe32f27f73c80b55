//! Why a job has what it has, and no more: for people, with the figures that it was decided on. Pure.

use super::resources::{Resources, kind_name};
use std::fmt;

/// Why a quota's refusals are told, in one word.
pub const QUOTA: &str = "QuotaExceeded";

/// Why a job has no more trainers, or is not let in.
#[derive(Clone, Debug, PartialEq)]
pub enum Blocker {
    /// It has the most that it may have.
    Most(u32),
    /// One more would add too little.
    Slow {
        /// The most of which each is worth its room.
        useful: u32,
        /// What the next one adds, as a share of what one does on average.
        marginal: f64,
    },
    /// Nobody has measured yet how fast it is with as many as it has; its author did not say what trainers ask for.
    Unmeasured(u32),
    /// It gave trainers up to something else a moment ago, and grows again in so many seconds.
    Settles(u64),
    /// The rest of this kind is kept free.
    Headroom(String),
    /// No node has room: what is asked for, and the most that nodes have free.
    NoRoom {
        /// What a pod of it asks for.
        asked: String,
        /// The most that any node has free of each of these; perhaps not the same node.
        most_free: String,
        /// Whether others have room that they may keep: they have no more than it would have.
        is_fair: bool,
    },
    /// Its least does not fit: who lacks room, what it asks for, the most that nodes have free.
    Least {
        /// Such as `its pserver`.
        who: &'static str,
        /// How many of them are missing.
        count: u32,
        /// What it asks for.
        asked: String,
        /// The most that any node could have of each of these.
        most_free: String,
    },
    /// No node that takes pods is one on which it may be: who, of how many nodes that take pods.
    Unsuited {
        /// Such as `its master`.
        who: String,
        /// Nodes that take pods.
        nodes: usize,
    },
    /// An older job of its priority or more has waited long, and is not overtaken any more.
    Behind(String),
    /// A quota has refused pods of it: what the API server said. No plan says so by itself: whoever makes pods does.
    Quota(String),
}

impl Blocker {
    pub(super) fn headroom(kind: usize, devices: &[String]) -> Blocker {
        Blocker::Headroom(kind_name(kind, devices).to_owned())
    }

    pub(super) fn no_room(asked: &Resources, free: &Resources, is_fair: bool, devices: &[String]) -> Blocker {
        let asked_told = asked.told(asked, devices).to_string();
        Blocker::NoRoom { asked: asked_told, most_free: free.told(asked, devices).to_string(), is_fair }
    }

    /// In one word, for conditions and metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Blocker::Most(_) => "AtMost",
            Blocker::Slow { .. } => "NotWorthIt",
            Blocker::Unmeasured(_) => "Unmeasured",
            Blocker::Settles(_) => "Settles",
            Blocker::Headroom(_) => "Headroom",
            Blocker::NoRoom { is_fair: true, .. } => "FairShare",
            Blocker::NoRoom { .. } => "NoRoom",
            Blocker::Least { .. } => "NoRoomForLeast",
            Blocker::Unsuited { .. } => "NoSuitableNode",
            Blocker::Behind(_) => "Behind",
            Blocker::Quota(_) => QUOTA,
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocker::Most(most) => write!(
                f,
                "it has the most that it may have, {most}: raise maxReplicas, or replicas where the spec has it"
            ),
            Blocker::Slow { useful, marginal } => write!(
                f,
                "more than {useful} are not worth their room: the next would add {:.0} % of what one does on average",
                100.0 * marginal
            ),
            Blocker::Unmeasured(now) => write!(
                f,
                "its speed with {now} is not measured yet: a job that states no resources grows step by step"
            ),
            Blocker::Settles(seconds) => {
                write!(f, "it gave trainers up to other pods, and grows again in {seconds} s at the earliest")
            }
            Blocker::Headroom(kind) => write!(f, "the rest of the cluster's {kind} is kept free"),
            Blocker::NoRoom { asked, most_free, is_fair } => {
                write!(
                    f,
                    "no node has room for one more: it asks for {asked}, nodes have at most {most_free} free"
                )?;
                if *is_fair {
                    write!(f, ", and the other jobs have no more than their share")?;
                }
                Ok(())
            }
            Blocker::Least { who, count, asked, most_free } => {
                write!(f, "it waits for room for its least: ")?;
                match count {
                    1 => write!(f, "{who} asks for {asked}")?,
                    _ => write!(f, "{count} of {who}s, each asking for {asked}, have no room together")?,
                }
                write!(
                    f,
                    "; nodes have at most {most_free} free, even without trainers that others may give up"
                )
            }
            Blocker::Unsuited { nodes: 0, .. } => {
                write!(f, "no node takes pods: there is none, or all are cordoned or not ready")
            }
            Blocker::Unsuited { who, nodes } => write!(
                f,
                "none of the {nodes} nodes that take pods suits {who}: see its node selector, its affinity and its tolerations of \
                 the nodes' taints"
            ),
            Blocker::Behind(job) => {
                write!(f, "it waits behind {job}, which has waited so long that it is not overtaken any more")
            }
            Blocker::Quota(why) => write!(f, "{why}"),
        }
    }
}
