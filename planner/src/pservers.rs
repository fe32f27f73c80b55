//! How many pservers a job needs, and which of them are hot, from their measured load. Pure.
//!
//! The thresholds follow DLRover: a pserver is hot when the mean of its last five samples is at least 0.9. Unlike there, a
//! job grows before all are, and one hot pserver among idle ones is no reason to grow: its blocks are.

use super::view::Seconds;
use std::collections::BTreeMap;

/// A pserver whose mean load is at least this is hot.
pub const HOT: f64 = 0.9;
/// Samples that a load is the mean of: fewer say nothing yet.
const SAMPLES: usize = 5;
/// More pservers come when all of them together are loaded so much, fewer are left below the second.
const GROW: f64 = 0.8;
const SHRINK: f64 = 0.3;
/// As many as there should be for this load each.
const AIM: f64 = 0.6;
/// After a change, no other for so many seconds: blocks have to move, and the load has to be measured anew.
const SETTLE_SECONDS: u64 = 300;

/// The newest samples of one pserver's load, from 0 (idle) to 1 (it does nothing else), the oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load(Vec<f64>);

impl Load {
    /// Takes in a sample.
    pub fn note(&mut self, load: f64) {
        if load.is_finite() {
            self.0.push(load.clamp(0.0, 1.0));
            let beyond = self.0.len().saturating_sub(SAMPLES);
            self.0.drain(..beyond);
        }
    }

    /// The mean, once there are enough samples.
    pub fn mean(&self) -> Option<f64> {
        (self.0.len() == SAMPLES).then(|| self.0.iter().sum::<f64>() / SAMPLES as f64)
    }
}

/// How many pservers there should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PserverPlan {
    /// So many.
    pub count: u32,
    /// Why.
    pub why: String,
    /// Pservers that are hot while the others are not.
    pub hot: Vec<String>,
}

/// How many pservers a job should have that has `now_wanted`, within `least` and `most`, and whose number was changed at
/// `changed`.
pub fn pservers(
    loads: &BTreeMap<String, Load>,
    now_wanted: u32,
    (least, most): (u32, u32),
    changed: Option<Seconds>,
    now: Seconds,
) -> PserverPlan {
    let count = now_wanted.clamp(least, most.max(least));
    let stay = |why: String, hot: Vec<String>| PserverPlan { count, why, hot };
    let means: Vec<(&String, f64)> =
        loads.iter().filter_map(|(name, load)| Some((name, load.mean()?))).collect();
    // One that has just come, or has not been heard of, would be left out of the sum.
    if means.is_empty() || means.len() < loads.len() || (means.len() as u32) < count {
        return stay("their load is not measured yet".to_owned(), Vec::new());
    }
    let mean = means.iter().map(|(_, mean)| mean).sum::<f64>() / means.len() as f64;
    let told = format!("their load is {:.0} % on average", 100.0 * mean);
    let hot = means.iter().filter(|(_, load)| *load >= HOT && mean < GROW);
    let hot: Vec<String> = hot.map(|(name, _)| (*name).clone()).collect();
    if changed.is_some_and(|changed| now < changed.saturating_add(SETTLE_SECONDS)) {
        return stay(format!("{told}; their number was changed less than {SETTLE_SECONDS} s ago"), hot);
    }
    let needed = (f64::from(count) * mean / AIM).ceil() as u32;
    let wanted = match mean {
        mean if mean >= GROW => needed.max(count + 1),
        mean if mean < SHRINK => needed.min(count),
        _ => count,
    };
    let wanted = wanted.clamp(least, most.max(least));
    PserverPlan { count: wanted, why: format!("{told}, of {:.0} % aimed at", 100.0 * AIM), hot }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(of: &[f64]) -> BTreeMap<String, Load> {
        let steady = |load: f64| Load(vec![load; SAMPLES]);
        (0..).zip(of).map(|(index, load)| (format!("p-{index}"), steady(*load))).collect()
    }

    fn count(of: &[f64], bounds: (u32, u32)) -> u32 {
        pservers(&loads(of), of.len() as u32, bounds, None, 1000).count
    }

    #[test]
    fn loaded_pservers_become_more_and_idle_ones_fewer_within_bounds() {
        assert_eq!(count(&[0.9, 0.9], (1, 8)), 3);
        assert_eq!(count(&[1.0, 1.0, 1.0, 1.0], (1, 8)), 7);
        assert_eq!(count(&[1.0, 1.0], (1, 2)), 2);
        assert_eq!(count(&[0.5, 0.7], (1, 8)), 2);
        assert_eq!(count(&[0.1, 0.1, 0.1, 0.1], (1, 8)), 1);
        assert_eq!(count(&[0.1, 0.1, 0.1, 0.1], (2, 8)), 2);
    }

    /// A load that is spread over what was decided asks for no other decision.
    #[test]
    fn a_steady_load_is_decided_once() {
        for load in 1..60_u32 {
            let (mut now, mut changes) = (4, 0);
            for _ in 0..8 {
                let each = (f64::from(load) / 10.0 / f64::from(now)).min(1.0);
                let wanted = count(&vec![each; now as usize], (1, 32));
                changes += u32::from(wanted != now);
                now = wanted;
            }
            // More than they can bear is found out step by step, and never in both directions.
            assert!(changes <= 3, "load {load}: {changes} changes");
        }
    }

    #[test]
    fn one_hot_pserver_among_idle_ones_is_named_and_is_no_reason_to_grow() {
        let plan = pservers(&loads(&[0.95, 0.3, 0.4]), 3, (1, 8), None, 1000);
        assert_eq!((plan.count, plan.hot), (3, vec!["p-0".to_owned()]));
    }

    #[test]
    fn nothing_is_decided_before_all_are_measured_or_just_after_a_change() {
        let mut few = loads(&[0.95, 0.95]);
        few.insert("new".to_owned(), Load::default());
        assert_eq!(pservers(&few, 2, (1, 8), None, 1000).count, 2);
        assert_eq!(pservers(&loads(&[0.95]), 2, (1, 8), None, 1000).count, 2);
        assert_eq!(pservers(&loads(&[0.95, 0.95]), 2, (1, 8), Some(800), 1000).count, 2);
        assert_eq!(pservers(&loads(&[0.95, 0.95]), 2, (1, 8), Some(700), 1000).count, 4);
        let mut load = Load::default();
        (0..4).for_each(|_| load.note(1.0));
        load.note(f64::NAN);
        assert_eq!(load.mean(), None);
        load.note(0.0);
        assert_eq!(load.mean(), Some(0.8));
    }
}
