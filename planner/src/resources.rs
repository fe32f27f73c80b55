//! Amounts of what nodes have and pods ask for. Knows no quantity's text but the one that people read.

use std::fmt;

/// How many kinds of resource are told apart; further kinds of devices are not planned for.
pub const KINDS: usize = 8;
/// Thousandths of a processor.
pub const CPU: usize = 0;
/// Bytes.
pub const MEMORY: usize = 1;
/// Pods.
pub const PODS: usize = 2;
/// The first kind of device; the cluster's list of devices names it and those that follow.
pub const DEVICES: usize = 3;

/// An amount of each kind of resource: cpu in thousandths, memory in bytes, pods, and devices by kind. What is free on a node
/// that has given more than it has is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resources(pub [i64; KINDS]);

impl Resources {
    /// What a pod asks for: so much cpu and memory, and its own place among a node's pods.
    pub fn of_pod(cpu_millis: i64, memory: i64) -> Resources {
        let mut all = Resources::default();
        (all.0[CPU], all.0[MEMORY], all.0[PODS]) = (cpu_millis, memory, 1);
        all
    }

    /// The same with so many devices of a kind, counted from 0.
    #[must_use]
    pub fn with_device(mut self, kind: usize, count: i64) -> Resources {
        if let Some(amount) = self.0.get_mut(DEVICES + kind) {
            *amount = count;
        }
        self
    }

    /// Whether so much of everything that is asked for is here. What is not asked for does not count: a node may owe it.
    pub fn fits(&self, asked: &Resources) -> bool {
        self.0.iter().zip(&asked.0).all(|(have, ask)| *ask <= 0 || have >= ask)
    }

    /// More by so much.
    pub fn add(&mut self, other: &Resources) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine = mine.saturating_add(*theirs));
    }

    /// Less by so much.
    pub fn take(&mut self, other: &Resources) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine = mine.saturating_sub(*theirs));
    }

    /// So many times as much.
    #[must_use]
    pub fn times(&self, count: u32) -> Resources {
        Resources(self.0.map(|amount| amount.saturating_mul(i64::from(count))))
    }

    /// The larger of both, kind by kind.
    #[must_use]
    pub fn most(&self, other: &Resources) -> Resources {
        let mut most = *self;
        most.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
        most
    }

    /// The largest share that this is of a whole, over the kinds that the whole has: the dominant share of Ghodsi and others,
    /// "Dominant Resource Fairness" (NSDI 2011). Pods themselves are no resource in this.
    pub fn share_of(&self, whole: &Resources) -> f64 {
        let shares = self.0.iter().zip(&whole.0).enumerate();
        let shares = shares.filter(|(kind, (_, whole))| *kind != PODS && **whole > 0);
        shares.map(|(_, (mine, whole))| (*mine).max(0) as f64 / *whole as f64).fold(0.0, f64::max)
    }

    /// For people: `cpu 1.5, memory 2.0Gi, nvidia.com/gpu 1`, of the kinds that `of` has.
    pub fn told<'a>(&'a self, of: &'a Resources, devices: &'a [String]) -> impl fmt::Display + 'a {
        Told { amounts: self, of, devices }
    }
}

/// The name of a kind.
pub(super) fn kind_name(kind: usize, devices: &[String]) -> &str {
    match kind {
        CPU => "cpu",
        MEMORY => "memory",
        PODS => "pods",
        device => devices.get(device - DEVICES).map_or("a device", String::as_str),
    }
}

struct Told<'a> {
    amounts: &'a Resources,
    of: &'a Resources,
    devices: &'a [String],
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.of.0.iter().enumerate();
        let asked = asked.filter(|(kind, amount)| **amount > 0 && *kind != PODS).map(|(kind, _)| kind);
        for (place, kind) in asked.enumerate() {
            let (comma, amount) = (if place == 0 { "" } else { ", " }, self.amounts.0[kind].max(0));
            write!(f, "{comma}{} ", kind_name(kind, self.devices))?;
            match kind {
                CPU if amount % 1000 == 0 => write!(f, "{}", amount / 1000)?,
                CPU => write!(f, "{:.2}", amount as f64 / 1000.0)?,
                MEMORY => write!(f, "{:.1}Gi", amount as f64 / (1u64 << 30) as f64)?,
                _ => write!(f, "{amount}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_must_fit() {
        let mut node = Resources::of_pod(4000, 8 << 30).with_device(0, 2);
        assert!(node.fits(&Resources::of_pod(4000, 1)) && !node.fits(&Resources::of_pod(4001, 1)));
        node.take(&Resources::of_pod(5000, 0));
        assert!(!node.fits(&Resources::of_pod(1, 1)));
        assert!(node.fits(&Resources::default().with_device(0, 2)), "a node may owe what is not asked for");
        assert!(!node.fits(&Resources::default().with_device(1, 1)));
    }

    #[test]
    fn the_dominant_share_is_the_largest_and_ignores_what_the_whole_lacks() {
        let whole = Resources::of_pod(10_000, 100).with_device(0, 4);
        assert_eq!(Resources::of_pod(1000, 50).share_of(&whole), 0.5);
        assert_eq!(Resources::of_pod(1000, 5).with_device(0, 3).share_of(&whole), 0.75);
        assert_eq!(Resources::of_pod(1000, 5).with_device(1, 9).share_of(&whole), 0.1);
        assert_eq!(Resources::of_pod(0, 0).share_of(&whole), 0.0, "a pod alone is no share");
    }

    #[test]
    fn amounts_are_told_in_the_units_of_manifests() {
        let devices = ["nvidia.com/gpu".to_owned()];
        let all = Resources::of_pod(1500, 3 << 29).with_device(0, 1);
        assert_eq!(all.told(&all, &devices).to_string(), "cpu 1.50, memory 1.5Gi, nvidia.com/gpu 1");
        assert_eq!(Resources::of_pod(2000, 0).told(&Resources::of_pod(1, 0), &devices).to_string(), "cpu 2");
    }
}
