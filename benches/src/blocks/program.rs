//! The training program of the measured jobs: this bench itself, started with `--train` by `shoal run`. Its step does nothing but
//! fill in a gradient. As the only trainer it is where a step begins, so it is who looks at what the processes of the job have
//! taken: by then the step before is published, copied and pulled.

use super::parts::Shape;
use crate::measure::{pause, wall_nanos};
use crate::process::{Processors, peak_resident_bytes, processors};
use crate::programs::{Joined, joined};
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use shoal_trainer_sdk::{
    Batch, Decisions, Declaration, Gradient, Initial, Job, Model, Parameter, Parameters, Rule, Schedule,
};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

const WEIGHTS: &str = "w";
/// A power of two, as is every gradient: so every value on the way is exact.
const RATE: f32 = 1.0 / 1024.0;
const GRADIENT: f32 = 2.0;
/// No norm is larger: decided on it is, and values come out as without.
const CLIP_NORM: f32 = 1e30;
/// Steps that do not count: memory is asked for the first time, and connections are made.
pub(super) const WARM: u64 = 2;

/// What the program is told, as one argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Training {
    pub(super) shape: Shape,
    /// The folder of the run.
    pub(super) run: PathBuf,
    /// Where it writes a [`Look`] down on a line at the begin of each step that counts, and of the one after them.
    pub(super) looks: PathBuf,
}

impl FromStr for Training {
    type Err = String;

    fn from_str(text: &str) -> Result<Training, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

/// What each process of a job has taken at the begin of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Look {
    pub(super) step: u64,
    /// By the clock that all processes of a machine share.
    pub(super) wall_nanos: u64,
    /// By the processes' numbers.
    pub(super) processes: BTreeMap<u32, Taken>,
}

/// What a process has taken since it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Taken {
    pub(super) role: String,
    pub(super) processors: Processors,
    /// The most that was resident at a time.
    pub(super) peak_bytes: u64,
}

impl Look {
    /// At all processes that the run in `folder` has started.
    pub(super) fn at(step: u64, folder: &Path) -> anyhow::Result<Look> {
        let mut processes = BTreeMap::new();
        for Joined { role, process } in joined(folder) {
            let processors = processors(process).with_context(|| format!("{role} {process} has ended"))?;
            processes.insert(process, Taken { role, processors, peak_bytes: peak_resident_bytes(process)? });
        }
        Ok(Look { step, wall_nanos: wall_nanos(), processes })
    }
}

pub(crate) struct Program {
    training: Training,
    looks: File,
    begun: Option<u64>,
}

impl Program {
    pub(crate) fn new(training: Training) -> anyhow::Result<Program> {
        let path = &training.looks;
        let looks = OpenOptions::new().create(true).append(true).open(path);
        let looks = looks.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Program { training, looks, begun: None })
    }

    /// Once at the begin of each step.
    fn begin(&mut self, step: u64, parameters: &Parameters) -> anyhow::Result<()> {
        let last = WARM + self.training.shape.steps;
        if step < WARM {
            return Ok(());
        }
        let look = Look::at(step, &self.training.run)?;
        if step == last {
            check(step, parameters.slice(WEIGHTS)?, self.training.shape.elements())?;
        }
        writeln!(self.looks, "{}", serde_json::to_string(&look)?)?;
        if step == last {
            rest();
        }
        Ok(())
    }
}

/// Whoever reads the last look ends the job, whose model nobody wants to be written.
fn rest() -> ! {
    loop {
        pause(Duration::from_secs(1));
    }
}

/// Whether these are the parameters after so many steps of plain descent.
fn check(steps: u64, values: &[f32], elements: u64) -> anyhow::Result<()> {
    let expected = -(steps as f32) * GRADIENT * RATE;
    let wrong = values.iter().filter(|value| **value != expected).count();
    ensure!(
        wrong == 0 && values.len() as u64 == elements,
        "step {steps}: {wrong} of {} values are not {expected}",
        values.len()
    );
    Ok(())
}

impl Model for Program {
    fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
        let shape = &self.training.shape;
        let (dimensions, rate) = ([shape.elements()], Schedule::constant(RATE));
        let weights = Parameter::new(WEIGHTS, &dimensions, Rule::Sgd, rate, Initial::Zeros);
        let declaration = Declaration { parameters: vec![weights], block_elements: shape.block_elements() };
        let clipping = Decisions { clip_norm: Some(CLIP_NORM), ..Decisions::default() };
        Ok(if shape.clips { declaration.deciding(clipping) } else { declaration })
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        if self.begun != Some(batch.step) {
            self.begun = Some(batch.step);
            self.begin(batch.step, parameters)?;
        }
        gradient.slice_mut(WEIGHTS)?.fill(GRADIENT);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_is_told_comes_as_it_was_said_and_nonsense_is_named() {
        let shape = Shape { mib: 1, blocks: 16, followers: 1, clips: true, records: 0, steps: 3 };
        let training = Training { shape, run: "/a b".into(), looks: "/c".into() };
        let said = serde_json::to_string(&training).unwrap();
        assert_eq!(said.parse::<Training>().unwrap(), training);
        assert!("{}".parse::<Training>().unwrap_err().contains("shape"));
    }

    #[test]
    fn a_step_too_few_or_too_many_and_a_value_too_few_show() {
        let after = |steps: u64| vec![-(steps as f32) * GRADIENT * RATE; 4];
        check(10, &after(10), 4).unwrap();
        assert!(
            [after(9), after(11), after(10)[1..].to_vec()].iter().all(|values| check(10, values, 4).is_err())
        );
    }
}
