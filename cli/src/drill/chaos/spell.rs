//! Faults that last: what is wrong with which host, for how long. Pure.

use shoal_job::Role;
use shoal_runner::hosts::network::LinkLimits;
use shoal_runtime::host::random::Random;
use std::time::Duration;

/// A fault that lasts, and always ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spell {
    pub(crate) ill: Ill,
    pub(crate) role: Role,
    pub(crate) name: String,
    /// In tenths of a lease's time to live.
    pub(crate) tenths: u32,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ill {
    /// The process stands still.
    Frozen,
    /// It gets no more memory.
    Starved,
    /// Packets between it and others vanish.
    Cut(Cut),
    /// Its link is slow, and drops what does not fit.
    Slow(LinkLimits),
    /// The disk that the role writes to is full.
    Full,
}

/// Between whom packets vanish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) way: Way,
    /// The others.
    pub(crate) peers: Vec<String>,
    /// Whether those are all others.
    pub(crate) is_isolation: bool,
}

/// Which packets vanish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Both,
    /// Those that the struck host sends.
    Out,
    /// Those that are for it.
    In,
}

impl Spell {
    /// How long it lasts.
    pub(crate) fn lasts(&self, ttl: Duration) -> Duration {
        ttl * self.tenths / 10
    }

    /// What was done, for people.
    pub(crate) fn what(&self) -> String {
        let what = match &self.ill {
            Ill::Frozen => "SIGSTOP".to_owned(),
            Ill::Starved => "no more memory than it has".to_owned(),
            Ill::Full => "the disk of its state and its checkpoints is full".to_owned(),
            Ill::Slow(LinkLimits { kilobits_per_second, queue_millis }) => {
                format!(
                    "a link of {kilobits_per_second} kbit/s, what would wait {queue_millis} ms is dropped"
                )
            }
            Ill::Cut(cut) => cut.what(),
        };
        format!("{what}, for {:.1} lease TTLs", f64::from(self.tenths) / 10.0)
    }
}

impl Cut {
    /// Who cannot send to whom.
    pub(crate) fn pairs(&self, name: &str) -> Vec<(String, String)> {
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let out = self.peers.iter().filter(|_| self.way != Way::In).map(|peer| pair(name, peer));
        let to = self.peers.iter().filter(|_| self.way != Way::Out).map(|peer| pair(peer, name));
        out.chain(to).collect()
    }

    fn what(&self) -> String {
        let whom = if self.is_isolation { "all others".to_owned() } else { self.peers.join(", ") };
        match self.way {
            Way::Both => format!("cut off from {whom}"),
            Way::Out => format!("cannot send to {whom}"),
            Way::In => format!("cannot be reached by {whom}"),
        }
    }
}

/// A cut between the host of that role and name and one or all of `others`: with `is_isolation` all.
pub(super) fn cut(random: &mut Random, others: Vec<String>, is_isolation: bool) -> Cut {
    let way = [Way::Both, Way::Out, Way::In][random.below(3) as usize];
    let one = random.below(others.len().max(1) as u64) as usize;
    let peers = if is_isolation { others } else { others.into_iter().skip(one).take(1).collect() };
    Cut { way, peers, is_isolation }
}

/// A link that is slow, but not so slow that nothing of a small model gets through.
pub(super) fn link(random: &mut Random) -> LinkLimits {
    let kilobits_per_second = 128 << random.below(4) as u32;
    LinkLimits { kilobits_per_second, queue_millis: 100 + random.below(300) as u32 }
}
