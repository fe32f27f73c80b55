//! What members of a job count, told once: each counter has one place in a list ([`trainer_counters`](crate::trainer_counters),
//! [`pserver_counters`](crate::pserver_counters), [`lease_counters`](crate::lease_counters)), with its sentence, how it is added up over
//! several members, and its names in metrics and in JSON. Types, sums, exports and what goes over the wire follow from there.

#[macro_use]
mod lists;

use Export::{As, Nowhere, Part};
use lists::{LEASES, PUSHES_REFUSED, SECONDS};
use serde_json::{Map, Value, json};

/// All that is said of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its field, here and on the wire. What is counted in microseconds ends in `_micros`.
    pub name: &'static str,
    /// Its sentence: the field's comment, and the help of a metric of its own.
    pub help: &'static str,
    /// How it is added up.
    pub kind: Kind,
    /// Where metrics have it.
    pub export: Export,
    /// Its name in JSON where that is not `name`.
    json: Option<&'static str>,
}

/// How a counter is added up over several members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows while its process lives: the sum of all, those that are gone included.
    Sum,
    /// What a member has at present: the sum of those that are there, for others have what a lost one had.
    Holding,
    /// The most at a time: the largest. The peaks of several need not have been at one time; so much would do for the worst of them.
    Peak,
    /// A set of numbers below 64, a bit each: all of them.
    Bits,
}

/// Where metrics have a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    /// Nowhere.
    Nowhere,
    /// In a metric of its own of this name, without the prefix of who shows it and without `_total`.
    As(&'static str),
    /// In a family, under this value of its label.
    Part(&'static Family, &'static str),
}

/// Counters that are one metric, told apart by a label.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// As in [`Export::As`].
    pub name: &'static str,
    /// The label that tells its counters apart.
    pub label: &'static str,
    /// What all of them mean.
    pub help: &'static str,
}

/// A counter, or a family of them, as a page of metrics shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Without the prefix of who shows it.
    pub name: String,
    /// What it means.
    pub help: &'static str,
    /// Whether it comes and goes; otherwise it only grows.
    pub is_gauge: bool,
    /// Whether its values are microseconds; pages show seconds.
    pub is_in_micros: bool,
    /// Its values, each with the label and the label's value that tell it from others of a family.
    pub samples: Vec<(Option<(&'static str, &'static str)>, u64)>,
}

/// A group of counters, all of one member or added up over several.
pub trait Counters: Copy + Default {
    /// What there is to know of each, in the order in which they are shown.
    const COUNTERS: &'static [Counter];

    /// Their values, in the same order.
    fn values(&self) -> Vec<u64>;

    /// Both, counter by counter.
    fn zip(self, other: Self, both: impl FnMut(Kind, u64, u64) -> u64) -> Self;

    /// Each counter with its value.
    fn each(&self) -> impl Iterator<Item = (&'static Counter, u64)> {
        Self::COUNTERS.iter().zip(self.values())
    }

    /// What two members have counted together.
    fn merged(self, other: Self) -> Self {
        self.zip(other, Kind::merged)
    }

    /// What stays counted of a member that is gone.
    fn left_behind(self) -> Self {
        self.zip(Self::default(), |kind, value, none| if kind == Kind::Holding { none } else { value })
    }

    /// All of them for programs.
    fn json(&self) -> Map<String, Value> {
        self.each().map(|(counter, value)| (counter.json_name().to_owned(), counter.json(value))).collect()
    }

    /// Those that are exported.
    fn metrics(&self) -> Vec<Metric> {
        let mut metrics: Vec<Metric> = Vec::new();
        for (counter, value) in self.each() {
            let Some((mut metric, label)) = counter.metric() else { continue };
            match metrics.iter_mut().find(|known| label.is_some() && known.name == metric.name) {
                Some(family) => family.samples.push((label, value)),
                None => {
                    metric.samples.push((label, value));
                    metrics.push(metric);
                }
            }
        }
        metrics
    }
}

impl Kind {
    fn merged(self, one: u64, other: u64) -> u64 {
        match self {
            Kind::Sum | Kind::Holding => one.saturating_add(other),
            Kind::Peak => one.max(other),
            Kind::Bits => one | other,
        }
    }
}

impl Counter {
    /// Its name in JSON.
    pub const fn json_name(&self) -> &'static str {
        match self.json {
            Some(name) => name,
            None => self.name,
        }
    }

    fn json(&self, value: u64) -> Value {
        match self.kind {
            Kind::Sum | Kind::Holding | Kind::Peak => value.into(),
            Kind::Bits => json!((0..u64::BITS).filter(|bit| value >> bit & 1 == 1).collect::<Vec<_>>()),
        }
    }

    /// The metric that it is, or of which it is a part, without a value; and the label that tells it from the other parts.
    fn metric(&self) -> Option<(Metric, Option<(&'static str, &'static str)>)> {
        let (name, help, label) = match self.export {
            Nowhere => return None,
            As(name) => (name, self.help, None),
            Part(family, part) => (family.name, family.help, Some((family.label, part))),
        };
        let only_grows = self.kind == Kind::Sum;
        let name = if only_grows { format!("{name}_total") } else { name.to_owned() };
        let is_in_micros = self.name.ends_with("_micros");
        Some((Metric { name, help, is_gauge: !only_grows, is_in_micros, samples: Vec::new() }, label))
    }

    /// The same under another name in JSON.
    const fn json_as(self, name: &'static str) -> Counter {
        Counter { json: Some(name), ..self }
    }
}

/// A counter of a list before its name and sentence.
const fn counter(kind: Kind, export: Export) -> Counter {
    Counter { name: "", help: "", kind, export, json: None }
}

const fn sum(export: Export) -> Counter {
    counter(Kind::Sum, export)
}

const fn holding(export: Export) -> Counter {
    counter(Kind::Holding, export)
}

const fn peak(export: Export) -> Counter {
    counter(Kind::Peak, export)
}

/// No page can show a set.
const fn bits() -> Counter {
    counter(Kind::Bits, Nowhere)
}

/// Makes the type of a list.
macro_rules! group {
    ($(#[$about:meta])* $group:ident { $($(#[doc = $help:literal])+ $name:ident: $counter:expr;)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $group {
            $($(#[doc = $help])+ pub $name: u64,)+
        }

        impl Counters for $group {
            const COUNTERS: &'static [Counter] = &[
                $(Counter { name: stringify!($name), help: concat!($($help),+).trim_ascii(), ..$counter },)+
            ];

            fn values(&self) -> Vec<u64> {
                vec![$(self.$name),+]
            }

            fn zip(self, other: Self, mut both: impl FnMut(Kind, u64, u64) -> u64) -> Self {
                $group { $($name: both(($counter).kind, self.$name, other.$name),)+ }
            }
        }
    };
}

trainer_counters!(group);
pserver_counters!(group);
lease_counters!(group);

#[cfg(test)]
mod tests;
