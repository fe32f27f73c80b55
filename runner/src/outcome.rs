//! What a finished run is: its model, its counts, its record.

use super::Supervisor;
use crate::at_rest::AtRest;
use crate::breakdown::Breakdown;
use crate::data_size;
use crate::evaluations;
use crate::exclusions;
use crate::losses::{self, Losses};
use crate::model_state::ModelState;
use crate::programs::{Tally, oracle, rows};
use crate::reading::{gradients, pserver_totals};
use crate::rewinds;
use crate::staleness;
use crate::waste::Waste;
use serde_json::{Map, Value, json};
use shoal_job::counters::{Counters, LeaseCounters, TrainerCounters};
use shoal_runtime::cluster::parameter::DECISIONS;
use shoal_runtime::cluster::plan::EpochShape;
use shoal_runtime::cluster::{Decision, JobSettings, Rule, Step};
use shoal_runtime::wire::proto::{self, RecordRange, StatusReply};

/// A job that is done, read before its pservers are stopped.
#[derive(Debug)]
pub struct Outcome {
    /// What was trained.
    pub model: ModelState,
    /// The last status, with the counts of the whole run.
    pub status: StatusReply,
    /// How long the run took.
    pub seconds: f64,
    /// Of all parameters' bits, in hexadecimal.
    pub parameters_sha256: String,
}

impl Outcome {
    /// Reads the outcome of a job that is done, and writes its model into the run's folder.
    pub async fn read(job: &mut Supervisor) -> anyhow::Result<Outcome> {
        let seconds = job.record.seconds();
        job.let_trainers_end().await?;
        // The last words of trainers are in.
        job.record.sample(&job.status, &job.counts.over(&job.status));
        let model = ModelState::read(&AtRest::of_job(&job.status, job.client.dial())?).await?;
        let parameters_sha256 = model.export(&job.plan.folder.model(), false)?;
        if let Some(losses) = losses_of(&model, &job.status) {
            job.record.tell_losses(&losses, job.status.step);
        }
        job.record.conclude("done", "");
        Ok(Outcome { model, status: job.counts.over(&job.status), seconds, parameters_sha256 })
    }

    /// What was decided over all blocks last, in jobs that decide.
    fn decision(&self) -> Option<Decision> {
        // A program may have a parameter of this name and decide nothing.
        self.model.declaration().decisions()?;
        Decision::from_elements(self.model.values(DECISIONS).ok()?, self.model.slot(DECISIONS, 0)?)
    }

    /// The counts of the oracle, where the program carries it: the worst of its three parameters, or its table. Records that are
    /// left out are neither expected nor counted; a table, in which records share keys, says nothing of the others then. Where
    /// steps were skipped not everything counts, and by decision: the oracle has nothing to say.
    pub fn tally(&self) -> Option<Tally> {
        let has_skipped = self.decision().is_some_and(|decision| decision.skipped > 0.0);
        if has_skipped || self.status.is_stopped_early {
            return None;
        }
        let epochs = self.status.settings.as_ref().map_or(0, |settings| settings.epochs);
        let records = self.status.settings.as_ref().map_or(0, |settings| settings.records);
        // What is called so and trained is a program's own.
        let counts = |name: &str| {
            self.model.declaration().parameters.iter().any(|p| p.name == name && p.rule == Rule::Sum)
        };
        if let Some((_, table)) = self.model.tables().find(|(name, _)| *name == rows::COUNTS && counts(name))
        {
            return (self.status.records_excluded == 0)
                .then(|| rows::tally(table.firsts(), records, epochs).into());
        }
        let tally = |name: &&str| {
            let values = self.model.values(name).ok().filter(|_| counts(name))?.iter().zip(0..);
            let kept = values.filter(|(_, record)| !exclusions::excludes(&self.status, *record));
            Some(oracle::tally(&kept.map(|(count, _)| *count).collect::<Vec<f32>>(), epochs))
        };
        let tallies: Option<Vec<oracle::Tally>> = oracle::NAMES.iter().map(tally).collect();
        tallies?
            .into_iter()
            .max_by_key(|tally| (tally.wrong, tally.expected.abs_diff(tally.counted)))
            .map(Tally::from)
    }

    /// Records that were trained, each as often as it was. One that is left out fails wherever it is met: it was in none of the
    /// passes from the one on in which it was found.
    pub fn records_trained(&self) -> u64 {
        let trained = self.status.records_trained;
        let job = self.status.settings.clone().map(JobSettings::try_from);
        let Some(job) = job.and_then(Result::ok).filter(|job| job.records > 0) else { return trained };
        let (shape, steps, passes) = (job.shape().training(), job.shape().steps(), trained / job.records);
        let mut excluded: Vec<(RecordRange, u64)> = self
            .status
            .troubles
            .iter()
            .filter_map(|trouble| Some((trouble.records?, trouble.excluded_from?)))
            .collect();
        excluded.sort_by_key(|(records, _)| records.first);
        let (mut left_out, mut until) = (0, 0);
        for (records, from) in excluded {
            let (first, end) = (records.first.max(until), records.end.min(job.records));
            let passes = passes.saturating_sub(shape.epoch(Step(steps.trained(from))));
            left_out += end.saturating_sub(first) * passes;
            until = until.max(end);
        }
        trained.saturating_sub(left_out)
    }

    /// The closing object.
    pub fn json(&self, job: &Supervisor) -> Value {
        let mut closing = Map::new();
        for part in [self.result(job), self.counts(), self.members(job), Waste::of(&self.status).json()] {
            closing.extend(part.as_object().cloned().unwrap_or_default());
        }
        Value::Object(closing)
    }

    fn result(&self, job: &Supervisor) -> Value {
        let settings = self.status.settings.clone().unwrap_or_default();
        let mode = if settings.mode() == proto::Mode::Async { "async" } else { "sync" };
        let tally = self.tally();
        let odd_blocks = self.model.layout.iter().filter(|(_, block)| block.elements % 2 == 1).count();
        json!({
            "job": settings.job, "phase": self.status.phase, "mode": mode, "gradients": gradients(&settings),
            "parameters_sha256": self.parameters_sha256,
            "steps": self.status.steps, "epochs": settings.epochs, "records": settings.records,
            "data_set": data_size::json(&self.status),
            "seconds": self.seconds, "records_per_second": self.status.records_trained as f64 / self.seconds.max(1e-3),
            "records_expected": tally.map(|tally| tally.expected),
            "records_counted": tally.map(|tally| tally.counted),
            "records_wrong": tally.map(|tally| tally.wrong),
            "records_excluded": self.status.records_excluded, "excluded": exclusions::json(&self.status),
            "records_trained": self.records_trained(),
            "evaluations": evaluations::json(&self.status), "stopped_early": self.status.is_stopped_early,
            "steps_skipped": self.decision().map(|decision| decision.skipped as u64),
            "steps_clipped": self.decision().map(|decision| decision.clipped as u64),
            "loss_scale": self.decision().map(|decision| decision.loss_scale),
            "rows": self.model.tables().map(|(name, table)| (name.to_owned(), json!(table.row_count()))).collect::<Map<_, _>>(),
            "blocks": self.model.layout.len(), "odd_blocks": odd_blocks, "data_bytes": self.status.data_bytes,
            "replicas": self.status.replicas_wanted, "rewinds": self.status.rewind,
            "rewind_causes": rewinds::json(&self.status),
            "microbatches_verified": self.status.microbatches_verified,
            "microbatches_unverified": self.status.microbatches_unverified,
            "steps_recorded": self.status.steps_recorded, "steps_unrecorded": self.status.steps_unrecorded,
            "master_term": self.status.master_term, "model": job.plan.folder.model(),
        })
    }

    fn counts(&self) -> Value {
        let leases = LeaseCounters::from(self.status.leases.unwrap_or_default());
        let trainers = self.status.trainer_totals.unwrap_or_default();
        let mut counts = leases.json();
        counts.extend(pserver_totals(&self.status).json());
        counts.insert("time".to_owned(), Breakdown::of(&trainers).json());
        let staleness = staleness::of(&self.status).map(|staleness| staleness::json(&staleness));
        counts.insert("staleness".to_owned(), staleness.into());
        let trainers = TrainerCounters::from(trainers).json();
        // Its others are said of each trainer, or of the job.
        let shown = ["negative_zeros", "bytes_read", "retries"];
        counts.extend(trainers.into_iter().filter(|(name, _)| shown.contains(&name.as_str())));
        counts.into()
    }

    fn members(&self, job: &Supervisor) -> Value {
        let trainers = self.status.trainers.iter().map(|trainer| json!({
            "name": trainer.name, "state": trainer.state, "tasks": trainer.counters.unwrap_or_default().tasks,
        }));
        let pservers = self.status.pservers.iter().map(|pserver| json!({
            "name": pserver.name, "lost": pserver.lost, "blocks": pserver.blocks, "copies": pserver.followers,
            "pushes": pserver.counters.unwrap_or_default().pushes,
        }));
        let faults = job.record.faults.iter().map(|fault| {
            json!({
                "kind": fault.kind, "role": fault.role, "name": fault.name, "at_seconds": fault.at_seconds,
            })
        });
        json!({
            "trainers": trainers.collect::<Vec<_>>(), "pservers": pservers.collect::<Vec<_>>(),
            "faults": faults.collect::<Vec<_>>(),
        })
    }
}

/// What the program has counted, where it counts its losses.
fn losses_of(model: &ModelState, status: &StatusReply) -> Option<Losses> {
    let settings = status.settings.as_ref().filter(|settings| {
        settings.microbatch_records > 0
            && settings.microbatches_per_step > 0
            && model.declaration().parameters.iter().any(|p| p.name == losses::NAME && p.rule == Rule::Sum)
    })?;
    let shape =
        EpochShape::new(settings.records, settings.microbatch_records, settings.microbatches_per_step);
    Losses::new(model.values(losses::NAME).ok()?.to_vec(), shape, settings.epochs)
}
