//! Faults that last: what is wrong with which host, for how long. Pure.

use shoal_job::Role;
use shoal_runner::hosts::network::LinkLimits;
use shoal_runtime::host::random::Random;
use std::time::Duration;

/// A fault that lasts, and always ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimedFault {
    pub(crate) impairment: Impairment,
    pub(crate) role: Role,
    pub(crate) name: String,
    /// In tenths of a lease's time to live.
    pub(crate) tenths: u32,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Impairment {
    /// The process stands still.
    Paused,
    /// It gets no more memory.
    MemoryLimited,
    /// Packets between it and others vanish.
    Partitioned(Partition),
    /// Its link is slow, and drops what does not fit.
    Throttled(LinkLimits),
    /// The disk that the role writes to is full.
    DiskFull,
}

/// Between whom packets vanish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) direction: Direction,
    /// The others.
    pub(crate) peers: Vec<String>,
    /// Whether those are all others.
    pub(crate) is_isolation: bool,
}

/// Which packets vanish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Both,
    /// Those that the host sends.
    Outbound,
    /// Those that are for it.
    Inbound,
}

impl TimedFault {
    /// How long it lasts.
    pub(crate) fn lasts(&self, ttl: Duration) -> Duration {
        ttl * self.tenths / 10
    }

    /// What was done, for people.
    pub(crate) fn what(&self) -> String {
        let what = match &self.impairment {
            Impairment::Paused => "SIGSTOP".to_owned(),
            Impairment::MemoryLimited => "no more memory than it has".to_owned(),
            Impairment::DiskFull => "the disk of its state and its checkpoints is full".to_owned(),
            Impairment::Throttled(LinkLimits { kilobits_per_second, queue_millis }) => {
                format!(
                    "a link of {kilobits_per_second} kbit/s, what would wait {queue_millis} ms is dropped"
                )
            }
            Impairment::Partitioned(partition) => partition.what(),
        };
        format!("{what}, for {:.1} lease TTLs", f64::from(self.tenths) / 10.0)
    }
}

impl Partition {
    /// Who cannot send to whom.
    pub(crate) fn pairs(&self, name: &str) -> Vec<(String, String)> {
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let out =
            self.peers.iter().filter(|_| self.direction != Direction::Inbound).map(|peer| pair(name, peer));
        let to =
            self.peers.iter().filter(|_| self.direction != Direction::Outbound).map(|peer| pair(peer, name));
        out.chain(to).collect()
    }

    fn what(&self) -> String {
        let whom = if self.is_isolation { "all others".to_owned() } else { self.peers.join(", ") };
        match self.direction {
            Direction::Both => format!("cut off from {whom}"),
            Direction::Outbound => format!("cannot send to {whom}"),
            Direction::Inbound => format!("cannot be reached by {whom}"),
        }
    }
}

/// A partition between the host of that role and name and one or all of `others`: with `is_isolation` all.
pub(super) fn partition(random: &mut Random, others: Vec<String>, is_isolation: bool) -> Partition {
    let direction = [Direction::Both, Direction::Outbound, Direction::Inbound][random.below(3) as usize];
    let one = random.below(others.len().max(1) as u64) as usize;
    let peers = if is_isolation { others } else { others.into_iter().skip(one).take(1).collect() };
    Partition { direction, peers, is_isolation }
}

/// A link that is slow, but not so slow that nothing of a small model gets through.
pub(super) fn link_limits(random: &mut Random) -> LinkLimits {
    let kilobits_per_second = 128 << random.below(4) as u32;
    LinkLimits { kilobits_per_second, queue_millis: 100 + random.below(300) as u32 }
}
