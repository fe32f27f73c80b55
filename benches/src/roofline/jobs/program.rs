//! The training program of the measured jobs: this bench itself, started with `--train` by `shoal run`. It pauses instead of
//! computing, checks what it pulls, and writes down when its steps began.

use super::load::{Load, RATE};
use crate::measure::{pause, wall_nanos};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use shoal_trainer_sdk::{
    Batch, Declaration, Gradient, Initial, Job, Model, Parameter, Parameters, Rule, Schedule,
};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

/// The trainer that is slow where one is; there is always this one.
const SLOW: &str = "trainer-0";
const WEIGHTS: &str = "w";

/// What the program is told, as one argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Training {
    pub(crate) load: Load,
    /// Of the job.
    pub(crate) steps: u32,
    /// How many times as long one of the trainers takes for everything.
    pub(crate) slowness: u32,
    /// Where each trainer writes when its steps began.
    pub(crate) begins: PathBuf,
}

impl FromStr for Training {
    type Err = String;

    fn from_str(text: &str) -> Result<Training, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

pub(crate) struct Program {
    training: Training,
    slowness: u32,
    begins: File,
    begun: Option<u64>,
}

impl Program {
    /// Of the trainer that the environment names.
    pub(crate) fn new(training: Training) -> anyhow::Result<Program> {
        let name = std::env::var("SHOAL_TRAINER_NAME")
            .context("--train is for `shoal run`: no SHOAL_TRAINER_NAME")?;
        let path = training.begins.join(&name);
        let begins = File::create_new(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let slowness = if name == SLOW { training.slowness } else { 1 };
        Ok(Program { training, slowness, begins, begun: None })
    }
}

impl Model for Program {
    fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
        let shape = [self.training.load.elements as u64];
        let weights = Parameter::new(WEIGHTS, &shape, Rule::Sgd, Schedule::constant(RATE), Initial::Zeros);
        Ok(Declaration { parameters: vec![weights], block_elements: 0 })
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        let load = self.training.load;
        if self.begun != Some(batch.step) {
            self.begun = Some(batch.step);
            writeln!(self.begins, "{} {}", batch.step, wall_nanos())?;
            load.check(batch.step, parameters.slice(WEIGHTS)?)?;
        }
        // A step takes one microbatch from each of M equal stretches of the one pass.
        let slot = (batch.microbatch / u64::from(self.training.steps)) as u32;
        pause(load.pause(batch.step, slot) * self.slowness);
        gradient.slice_mut(WEIGHTS)?.fill(load.gradient(slot));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_is_told_comes_as_it_was_said_and_nonsense_is_named() {
        let load = Load { elements: 7, microbatches: 24, micros: 5, jitter_percent: 10, delay: 1 };
        let training = Training { load, steps: 9, slowness: 10, begins: "/a b".into() };
        let said = serde_json::to_string(&training).unwrap();
        assert_eq!(said.parse::<Training>().unwrap(), training);
        assert!("{}".parse::<Training>().unwrap_err().contains("load"));
    }
}
