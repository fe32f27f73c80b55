//! The rebalance beside the true optimum, found by trying every placement of few blocks on few hosts.

use super::*;
use std::fmt;

/// A xorshift generator (Marsaglia 2003): the same cases in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// At most 8 blocks on at most 3 hosts.
fn small_case(dice: &mut Dice, size: fn(&mut Dice) -> u64) -> Case {
    let blocks = 1 + dice.below(8);
    let hosts = 1 + dice.below(3);
    let used = 1 + dice.below(hosts);
    let some_are_lost = dice.below(3) == 0;
    let sizes = (0..blocks).map(|_| size(dice)).collect();
    let mut host = || Some(dice.below(used) as u32).filter(|_| !some_are_lost || dice.below(3) > 0);
    Case { present: (0..blocks).map(|_| host()).collect(), sizes, hosts: hosts as u32 }
}

/// The fewest bytes that any placement moves which keeps the promise, and any inside the band, if there is such.
fn optima(case: &Case) -> (u64, Option<u64>) {
    let blocks = case.sizes.len() as u32;
    let placement = |number: u32| -> Vec<u32> {
        (0..blocks).map(|block| number / case.hosts.pow(block) % case.hosts).collect()
    };
    let (mut least, mut in_band) = (u64::MAX, None);
    for at in (0..case.hosts.pow(blocks)).map(placement) {
        let bytes = moved(case, &at);
        if bytes < least && keeps_promise(&case.sizes, &at, case.hosts) {
            least = bytes;
        }
        if in_band.is_none_or(|least| bytes < least) && is_in_band(case, &at) {
            in_band = Some(bytes);
        }
    }
    (least, in_band)
}

fn is_in_band(case: &Case, at: &[u32]) -> bool {
    let loads = loads(&case.sizes, at, case.hosts);
    let total = loads.iter().sum();
    loads.iter().all(|load| is_near_fair(*load, total, case.hosts))
}

fn moved(case: &Case, at: &[u32]) -> u64 {
    let blocks = case.sizes.iter().zip(case.present.iter().zip(at));
    blocks.filter(|(_, (from, to))| **from != Some(**to)).map(|(size, _)| *size).sum()
}

/// What came of many cases.
#[derive(Default)]
struct Tally {
    cases: u32,
    optimal: u32,
    bound_reached: u32,
    moved: u64,
    optimum: u64,
    worst: f64,
    band_exists: u32,
    band_reached: u32,
    worst_in_band: f64,
}

impl Tally {
    fn of(cases: u32, size: fn(&mut Dice) -> u64) -> Tally {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
        let mut tally = Tally::default();
        for _ in 0..cases {
            tally.add(&small_case(&mut dice, size));
        }
        tally
    }

    /// Counts a case; one in which nothing has to move must be left alone, and is not counted.
    fn add(&mut self, case: &Case) {
        let at = rebalance(&case.sizes, &case.present, case.hosts);
        let (moved, (optimum, in_band)) = (moved(case, &at), optima(case));
        let bound = least_bytes(&case.sizes, &case.present, case.hosts);
        assert!(bound <= optimum && optimum <= moved, "{bound}, {optimum}, {moved}: {case:?}");
        if optimum == 0 {
            assert_eq!(moved, 0, "{case:?}");
            return;
        }
        self.cases += 1;
        self.optimal += u32::from(moved == optimum);
        self.bound_reached += u32::from(bound == optimum);
        self.moved += moved;
        self.optimum += optimum;
        self.worst = self.worst.max(moved as f64 / optimum as f64);
        if let Some(in_band) = in_band {
            self.band_exists += 1;
            if is_in_band(case, &at) {
                self.band_reached += 1;
                self.worst_in_band = self.worst_in_band.max(moved as f64 / in_band as f64);
            }
        }
    }

    fn excess_percent(&self) -> f64 {
        100.0 * (self.moved as f64 / self.optimum as f64 - 1.0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: u32, all: u32| 100 * part / all.max(1);
        let [optimal, bound] = [self.optimal, self.bound_reached].map(|count| percent(count, self.cases));
        write!(f, "{} cases, {optimal} % optimal, {:.1} % more bytes, ", self.cases, self.excess_percent())?;
        write!(f, "worst {:.2} times, bound exact in {bound} %; ", self.worst)?;
        let reached = percent(self.band_reached, self.band_exists);
        write!(f, "band reached in {reached} % of {}, ", self.band_exists)?;
        write!(f, "there worst {:.2} times the least in the band", self.worst_in_band)
    }
}

type Kind = (&'static str, fn(&mut Dice) -> u64);
const KINDS: [Kind; 4] = [
    ("equal", |_| 7),
    ("near", |dice| 90 + dice.below(21)),
    ("mixed", |dice| 1 + dice.below(20)),
    ("wild", |dice| 1 << dice.below(12)),
];

#[test]
fn few_bytes_move_beyond_the_optimum_and_none_where_blocks_have_one_size() {
    let [equal, near, mixed, wild] = KINDS.map(|(_, size)| Tally::of(1000, size));
    assert_eq!((equal.optimal, equal.bound_reached), (equal.cases, equal.cases));
    // Near what was measured, so that a rule that no longer works is missed.
    let bounds = [(near, 2.5, 96, 1.2), (mixed, 6.0, 90, 1.7), (wild, 1.7, 99, 1.3)];
    for (tally, excess_percent, reached_percent, worst) in bounds {
        assert!(tally.excess_percent() <= excess_percent, "{tally}");
        assert!(100 * tally.band_reached >= reached_percent * tally.band_exists, "{tally}");
        assert!(tally.worst_in_band <= worst, "{tally}");
    }
}

#[test]
#[ignore = "prints a table"]
#[allow(clippy::print_stdout, reason = "its output is what it is for")]
fn how_near_the_optimum_it_comes() {
    for (name, size) in KINDS {
        println!("{name:>6}: {}", Tally::of(10_000, size));
    }
}
