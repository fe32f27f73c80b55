//! What must hold of a job's settings, whoever states them: numbers inside which no arithmetic of plan, course, tree or order
//! overflows, and nobody reserves memory by a number alone. Pure.

use super::job::DELAY_MAX;
use super::ledger::WINDOW_MAX;
use super::tree::MICROBATCHES_PER_STEP_MAX;
use super::{JobSettings, Mode, Period};

/// The most bytes of a job's name.
pub const JOB_BYTES_MAX: usize = 253;
/// The most records of one data set.
pub const RECORDS_MAX: u64 = 1 << 48;
/// The most steps or positions of a whole job, evaluations included: versions and counters stay far from their ends.
pub const UNITS_MAX: u64 = 1 << 56;
/// The longest time to live of leases: a day. Waits that are multiples of it stay sensible.
pub const LEASE_TTL_MILLIS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Why settings make no job: which one, and what it may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} {what}")]
pub struct SettingsFault {
    /// Its name on the wire.
    pub setting: &'static str,
    /// What it has to be.
    pub what: String,
}

/// A name that a person may give a job: it becomes part of files' names, labels and certificates.
///
/// # Errors
/// What a name is, where this is none.
pub fn name(name: &str) -> Result<(), SettingsFault> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && name.len() <= JOB_BYTES_MAX && name.bytes().all(is_plain) {
        return Ok(());
    }
    let what = format!(
        "is no name: give at most {JOB_BYTES_MAX} letters (a-z, A-Z), digits, '-', '_' and '.', a letter or a digit first"
    );
    fault("job", what)
}

impl JobSettings {
    /// Checks every setting and what follows from all of them. Returns the first fault.
    pub fn check(&self) -> Result<(), SettingsFault> {
        if self.job.0.len() > JOB_BYTES_MAX {
            return fault("job", format!("has at most {JOB_BYTES_MAX} bytes"));
        }
        // A job that only evaluates or predicts trains on nothing.
        if self.evaluated.is_none() || self.epochs > 0 || self.records > 0 {
            within("epochs", self.epochs, UNITS_MAX)?;
            within("records", self.records, RECORDS_MAX)?;
        }
        within("microbatch_records", self.microbatch_records.into(), u32::MAX.into())?;
        within("microbatches_per_step", self.microbatches_per_step.into(), MICROBATCHES_PER_STEP_MAX.into())?;
        within("shuffle_run", self.shuffle_run.into(), u32::MAX.into())?;
        within("lease_ttl_millis", self.lease_ttl_millis, LEASE_TTL_MILLIS_MAX)?;
        match self.mode {
            Mode::Sync { delay } if delay > DELAY_MAX => {
                return fault("delay", format!("is at most {DELAY_MAX}"));
            }
            Mode::Sync { .. } => {}
            Mode::Async { staleness_window, .. } => {
                within("staleness_window", staleness_window.into(), WINDOW_MAX)?;
            }
        }
        if let Some(evaluated) = &self.evaluated {
            within("evaluated.records", evaluated.records, RECORDS_MAX)?;
            let (Period::Epochs(every) | Period::Steps(every)) = evaluated.every;
            within("evaluated.every", every, u64::MAX)?;
        }
        match self.units_at_most().filter(|units| *units <= UNITS_MAX) {
            Some(_) => Ok(()),
            None => {
                fault("epochs", format!("make more than {UNITS_MAX} steps or microbatches: train for fewer"))
            }
        }
    }

    /// No fewer than there are steps, and positions. None beyond all numbers.
    fn units_at_most(&self) -> Option<u64> {
        let microbatches = |records: u64| records.div_ceil(self.microbatch_records.into());
        let training = self.epochs.checked_mul(microbatches(self.records))?;
        let Some(evaluated) = &self.evaluated else { return Some(training) };
        let (a_step, an_epoch) = (1, microbatches(self.records).div_ceil(self.microbatches_per_step.into()));
        // In steps: there are no fewer evaluations of a course of positions, for the last step of an epoch may be short.
        let period = match evaluated.every {
            Period::Epochs(epochs) => epochs.saturating_mul(an_epoch),
            Period::Steps(steps) => steps.saturating_mul(a_step),
        };
        let steps = self.epochs.checked_mul(an_epoch)?;
        let evaluations = steps.div_ceil(period.max(1)).max(1).checked_add(1)?;
        training.checked_add(evaluations.checked_mul(microbatches(evaluated.records))?)
    }
}

fn within(setting: &'static str, value: u64, most: u64) -> Result<(), SettingsFault> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    fault(
        setting,
        if value == 0 { String::from("must be at least 1") } else { format!("is {value}, at most {most}") },
    )
}

fn fault<T>(setting: &'static str, what: String) -> Result<T, SettingsFault> {
    Err(SettingsFault { setting, what })
}

#[cfg(test)]
mod tests;
