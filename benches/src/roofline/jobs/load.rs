//! What one microbatch takes and gives: the same in a job of ours and in the rival's, so that only who does it when differs.
//! Pure: pauses are a function of (step, slot), never of who pauses or when.

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use shoal_runtime::cluster::permutation::key;
use std::time::Duration;

/// A power of two: so every value on the way is exact.
pub(crate) const RATE: f32 = 1.0 / 1024.0;
const JITTER: u64 = 0x4A17;

/// A job's work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Of the one parameter.
    pub(crate) elements: usize,
    /// In a step.
    pub(crate) microbatches: u32,
    /// What a microbatch takes.
    pub(crate) micros: u64,
    /// By how much it may take more or less.
    pub(crate) jitter_percent: u32,
    /// How many versions before the one that it replaces a step reads.
    pub(crate) delay: u32,
}

impl Load {
    /// What a microbatch takes.
    pub(crate) fn pause(&self, step: u64, slot: u32) -> Duration {
        // Evenly over [-1, 1).
        let drawn = (key(&[JITTER, step, slot.into()]) >> 32) as f64 / f64::from(1u32 << 31) - 1.0;
        let share = 1.0 + drawn * f64::from(self.jitter_percent) / 100.0;
        Duration::from_secs_f64(self.micros as f64 * share / 1e6)
    }

    /// Every element of a microbatch's gradient: another in each slot, so that one left out shows.
    pub(crate) fn gradient(&self, slot: u32) -> f32 {
        (slot + 1) as f32
    }

    /// Whether these are the parameters that a step reads: all microbatches of all steps before it, less as many as the delay,
    /// took effect once.
    pub(crate) fn check(&self, step: u64, values: &[f32]) -> anyhow::Result<()> {
        let expected = self.expected(step.saturating_sub(self.delay.into()));
        let wrong = values.iter().filter(|value| **value != expected).count();
        ensure!(
            wrong == 0 && values.len() == self.elements,
            "step {step}: {wrong} of {} values are not {expected}",
            values.len()
        );
        Ok(())
    }

    /// Every element after so many steps of plain descent along the mean gradient.
    fn expected(&self, steps: u64) -> f32 {
        -(steps as f32) * ((self.microbatches + 1) as f32 / 2.0) * RATE
    }

    /// Bytes of the parameter.
    pub(crate) fn bytes(&self) -> usize {
        4 * self.elements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load { elements: 4, microbatches: 56, micros: 10_000, jitter_percent: 10, delay: 0 };

    #[test]
    fn pauses_differ_by_step_and_slot_within_the_jitter_and_even_out() {
        let pause = |step, slot| LOAD.pause(step, slot).as_secs_f64();
        let pauses: Vec<f64> = (0..40).flat_map(|step| (0..50).map(move |slot| pause(step, slot))).collect();
        assert_eq!(pauses[51], LOAD.pause(1, 1).as_secs_f64(), "nothing else decides");
        assert_ne!(pauses[0], pauses[1]);
        assert_ne!(pauses[0], pauses[50]);
        let (least, most) =
            (pauses.iter().fold(1.0, |a: f64, b| a.min(*b)), pauses.iter().fold(0.0, |a: f64, b| a.max(*b)));
        assert!((0.009..0.0091).contains(&least) && (0.0109..0.011).contains(&most), "{least} {most}");
        let mean = pauses.iter().sum::<f64>() / pauses.len() as f64;
        assert!((mean - 0.01).abs() < 5e-5, "{mean}");
    }

    #[test]
    fn without_jitter_all_pauses_are_one() {
        let even = Load { jitter_percent: 0, ..LOAD };
        assert!((0..99).all(|slot| even.pause(slot.into(), slot) == Duration::from_millis(10)));
    }

    #[test]
    fn a_microbatch_that_is_left_out_doubled_or_swapped_for_another_shows() {
        let after = |slots: &dyn Fn(u64) -> Vec<u32>| {
            let mut value = 0.0;
            for step in 0..30 {
                let sum: f32 = slots(step).iter().map(|slot| LOAD.gradient(*slot)).sum();
                value -= RATE * (sum / LOAD.microbatches as f32);
            }
            vec![value; LOAD.elements]
        };
        let all: Vec<u32> = (0..LOAD.microbatches).collect();
        LOAD.check(30, &after(&|_| all.iter().rev().copied().collect())).unwrap();
        for wrong in [&all[1..], &[&all[..], &[7]].concat(), &[&all[1..], &[7]].concat()] {
            assert!(
                LOAD.check(30, &after(&|step| if step == 9 { wrong.to_vec() } else { all.clone() })).is_err()
            );
        }
        assert!(LOAD.check(29, &after(&|_| all.clone())).is_err());
    }

    #[test]
    fn a_step_reads_the_version_of_the_delay_before_its_own_and_no_other() {
        let delayed = Load { delay: 2, ..LOAD };
        let version = |steps| vec![delayed.expected(steps); LOAD.elements];
        for (step, reads) in [(0, 0), (1, 0), (2, 0), (3, 1), (9, 7)] {
            for other in 0..10 {
                assert_eq!(delayed.check(step, &version(other)).is_ok(), other == reads, "{step}, {other}");
            }
        }
    }
}
