//! A trainer's settings, from `SHOAL_*` variables: the same program runs on a laptop and in a pod.

use crate::error::TrainError;
use std::time::Duration;

/// Settings of one trainer.
#[derive(Clone, Debug)]
pub struct TrainerSettings {
    /// Where the master listens (`SHOAL_MASTER`, default `127.0.0.1:7400`).
    pub master: String,
    /// The job; empty to take whichever the master runs (`SHOAL_JOB`).
    pub job: String,
    /// Unique in the job (`SHOAL_TRAINER_NAME`, default `trainer-PID`).
    pub name: String,
    /// How long an unreachable role is tried before giving up (`SHOAL_PATIENCE_SECONDS`, default 120).
    pub patience: Duration,
    /// How long one attempt of a call may take.
    pub attempt: Duration,
    /// A pause before each microbatch, to make a job last (`SHOAL_PACE_MILLIS`, default 0). Changes no bit.
    pub pace: Duration,
    /// How the step function is run.
    pub compute: Compute,
}

/// How the step function is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compute {
    /// On a thread of its own, so that heartbeats go on meanwhile.
    Thread,
    /// In place: for simulations, whose order of events must not depend on threads.
    InPlace,
}

impl Default for TrainerSettings {
    fn default() -> TrainerSettings {
        TrainerSettings {
            master: "127.0.0.1:7400".to_owned(),
            job: String::new(),
            name: format!("trainer-{}", std::process::id()),
            patience: Duration::from_secs(120),
            attempt: Duration::from_secs(10),
            pace: Duration::ZERO,
            compute: Compute::Thread,
        }
    }
}

impl TrainerSettings {
    /// The settings that the environment gives.
    ///
    /// # Errors
    /// A number that is none; the message names the variable.
    pub fn from_env() -> Result<TrainerSettings, TrainError> {
        let mut settings = TrainerSettings::default();
        let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let number = |name: &str, default: Duration, unit: fn(u64) -> Duration| match read(name) {
            None => Ok(default),
            Some(value) => value
                .parse()
                .map(unit)
                .map_err(|_| TrainError::Settings(format!("{name}={value:?}: give a whole number"))),
        };
        settings.master = read("SHOAL_MASTER").unwrap_or(settings.master);
        settings.job = read("SHOAL_JOB").unwrap_or(settings.job);
        settings.name = read("SHOAL_TRAINER_NAME").unwrap_or(settings.name);
        settings.patience = number("SHOAL_PATIENCE_SECONDS", settings.patience, Duration::from_secs)?;
        settings.pace = number("SHOAL_PACE_MILLIS", settings.pace, Duration::from_millis)?;
        Ok(settings)
    }
}
