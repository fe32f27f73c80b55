//! The run whose steps are played again: what is kept of it, and where a replay begins. Changes nothing in it.

use crate::commands::checkpoint::choice::{Chosen, PlaceChoice};
use anyhow::Context;
use shoal_master::document::{Document, KeptCheckpoint};
use shoal_runner::exit::Exit;
use shoal_runner::folder::RunFolder;
use shoal_runner::journal::{self, Begun, Entry};
use shoal_runtime::cluster::{Exclusions, StepHashes, Version};
use shoal_runtime::host::recorded::Recorded;
use shoal_runtime::host::storage::Storage;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;

/// The first and the last of some steps, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps(u64, u64);

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Steps, String> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
        let (first, last) = match text.split_once("..") {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        if first < 1 || last < first {
            return Err("give A..B, both of them played: 1 <= A <= B".to_owned());
        }
        Ok(Steps(first, last))
    }
}

/// A run as it has left itself.
#[derive(Debug)]
pub(super) struct Original {
    pub(super) begun: Begun,
    pub(super) document: Document,
    pub(super) storage: Storage,
}

/// Where a replay begins, and what it plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// None for the initial values.
    pub(super) from: Option<KeptCheckpoint>,
    /// Steps that the model has seen then.
    pub(super) made: u64,
    /// The first and the last step that are played for.
    pub(super) steps: RangeInclusive<u64>,
    /// Hashes that the run has recorded of steps that are played, by step.
    pub(super) recorded: BTreeMap<u64, StepHashes>,
}

impl Original {
    pub(super) async fn read(run: &Path) -> anyhow::Result<Original> {
        let Chosen { storage, document } = PlaceChoice::of_run(run).open().await?;
        let shown = run.display();
        let document = document.with_context(|| format!("{shown} holds no state of a job"))?;
        let begun = begun(&RunFolder(run.to_owned()))?;
        if !document.job.is_sync() {
            let why = "asynchronous jobs make no steps that could be made again";
            return Err(Exit::Usage(format!("{shown}: {why}")).into());
        }
        if document.declaration.is_none() || steps_of(&document) == 0 {
            return Err(Exit::Usage(format!("{shown} has made no step")).into());
        }
        Ok(Original { begun, document, storage })
    }

    /// Steps of the whole job.
    pub(super) fn steps(&self) -> u64 {
        steps_of(&self.document)
    }

    /// Steps that the model has seen at a version.
    fn step(&self, version: Version) -> u64 {
        self.document.job.course().trained(version.0)
    }

    /// Where to begin, so that `steps` are played: from the checkpoint of that number, 0 for the initial values, or from the newest
    /// that comes before them; without either from the initial values. The last step is the last one recorded, unless it is said.
    pub(super) async fn start(
        &self,
        from: Option<u64>,
        steps: Option<Steps>,
        inspects: bool,
    ) -> anyhow::Result<Start> {
        let from = self.from(from, steps)?;
        let (made, all) = (from.map_or(0, |kept| self.step(kept.version)), self.steps());
        if let Some(Steps(first, last)) = steps
            && (first <= made || last > all)
        {
            return Err(Exit::Usage(format!(
                "steps {first}..{last} cannot be played from step {made}: the run has steps 1..{all}; of checkpoints {}",
                self.kept()
            ))
            .into());
        }
        if made >= all {
            let why = format!(
                "that checkpoint has all {all} steps of the run, and nothing is left to play: {}",
                self.kept()
            );
            return Err(Exit::Usage(why).into());
        }
        let wanted = made..=steps.map_or(all, |Steps(_, last)| last);
        let identity = self.document.identity.as_deref();
        let mut recorded = Recorded::of(&self.document.job.job.0, identity, wanted);
        match recorded.look(&self.storage).await {
            Ok(()) => {}
            Err(error) if inspects => note!("recorded hashes cannot be read, and are not compared: {error}"),
            Err(error) => return Err(error.into()),
        }
        let last = match (recorded.last(), inspects) {
            (Some(last), _) => last,
            (None, true) => all,
            (None, false) => {
                let why = "it has recorded no hashes to compare with: start a run with --record-hashes STEPS; --inspect works without";
                return Err(Exit::Usage(why.to_owned()).into());
            }
        };
        let Steps(first, last) = steps.unwrap_or(Steps(made + 1, last.max(made + 1)));
        let mut recorded = recorded.take();
        recorded.retain(|_, step| self.counts(step, from));
        if recorded.range(..=last).next().is_none() && !inspects {
            let why = format!(
                "no step up to {last} from step {made} on is recorded, so that nothing could be compared"
            );
            return Err(Exit::Usage(why).into());
        }
        Ok(Start { from, made, steps: first..=last, recorded })
    }

    /// Whether what is recorded of a step is of the run's history, and made again by who begins there.
    fn counts(&self, step: &StepHashes, from: Option<KeptCheckpoint>) -> bool {
        let Exclusions { number, list } = &self.document.exclusions;
        // Before records were left out steps may have been made with them.
        let is_of_it =
            step.rewind.0 >= *number || list.iter().all(|excluded| step.version.0 <= excluded.from.0);
        // A checkpoint of a version that an evaluation has made is of no step's.
        is_of_it && from.is_none_or(|kept| step.version >= kept.version)
    }

    fn from(&self, from: Option<u64>, steps: Option<Steps>) -> Result<Option<KeptCheckpoint>, Exit> {
        let kept = &self.document.checkpoints;
        match (from, steps) {
            (Some(0), _) | (None, None) => Ok(None),
            (Some(number), _) => {
                let found = kept.iter().find(|kept| kept.record.checkpoint.0 == number).copied();
                let what = "there is no such checkpoint";
                let none = || {
                    Exit::Usage(format!(
                        "--from {number}: {what}: {}; 0 is for the initial values",
                        self.kept()
                    ))
                };
                found.map(Some).ok_or_else(none)
            }
            (None, Some(Steps(first, _))) => {
                Ok(kept.iter().rev().find(|kept| self.step(kept.version) < first).copied())
            }
        }
    }

    /// The checkpoints that there are, in words.
    fn kept(&self) -> String {
        let each = self.document.checkpoints.iter();
        let each = each.map(|kept| format!("{} (step {})", kept.record.checkpoint, self.step(kept.version)));
        match each.collect::<Vec<_>>() {
            none if none.is_empty() => "none is kept".to_owned(),
            all => format!("kept are {}", all.join(", ")),
        }
    }
}

/// Steps of the whole job.
fn steps_of(document: &Document) -> u64 {
    let course = document.job.course();
    course.trained(course.units())
}

/// What the run was begun with, as its journal says.
fn begun(folder: &RunFolder) -> anyhow::Result<Begun> {
    let journal = folder.journal();
    let shown = journal.display();
    let text = std::fs::read_to_string(&journal).map_err(|error| {
        Exit::Usage(format!("{shown}: {error}: name the folder of a run, as `shoal run` prints it"))
    })?;
    let entries = journal::read(&text).with_context(|| shown.to_string())?;
    let begun = entries.into_iter().rev().find_map(|entry| match entry {
        Entry::Begun(begun) => Some(begun),
        _ => None,
    });
    let begun = begun.with_context(|| format!("{shown} does not tell how the run began"))?;
    if begun.spec.is_none() {
        let why = "it does not say the job's settings: an earlier build has begun it, and it cannot be played again";
        return Err(Exit::Usage(format!("{shown}: {why}")).into());
    }
    Ok(begun)
}
