//! What is known of a job when its run is over: what the invariants judge.

use super::coverage::Coverage;
use super::data_set::DataSet;
use super::history::History;
use super::observer::Observer;
use super::reference::Trained;
use super::scenario::Scenario;
use super::seen::Seen;
use super::trace::Trace;
use super::world::{JOB, World};
use shoal_runtime::cluster::{Exclusion, Exclusions, JobSettings, RefusalKind, Step, StepHashes};
use shoal_runtime::host::recorded;
use shoal_runtime::wire::{Fault, proto};
use shoal_trainer_sdk::{Ended, TrainError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// One life of a trainer, and its end.
#[derive(Debug)]
pub struct Life {
    /// Its host.
    pub host: String,
    /// Whether another life had its name.
    pub shares_name: bool,
    /// Whether it was asked to leave.
    pub is_asked_to_leave: bool,
    /// How it ended.
    pub end: End,
}

/// How a life ended.
#[derive(Debug)]
pub enum End {
    /// It was killed.
    Crashed,
    /// As it should.
    Well(Ended),
    /// It was told that another has its name.
    Superseded,
    /// Its program said that it cannot.
    Unfit,
    /// With another error.
    Failed(String),
    /// Not at all.
    NotYet,
}

/// All of it.
#[derive(Debug)]
pub struct Evidence {
    /// What was played.
    pub scenario: Scenario,
    /// The job.
    pub job: JobSettings,
    /// Its records.
    pub data: Arc<DataSet>,
    /// The master's last word.
    pub status: Option<proto::StatusReply>,
    /// Steps that the master told of, each behind the master's term and the rewind number, in the order of
    /// telling.
    pub steps: Vec<(u64, u64, u64)>,
    /// The longest time after healing without a step.
    pub stood_still: Duration,
    /// The longest that is allowed.
    pub may_stand_still: Duration,
    /// Faults of the causes that the master named while the job stood still.
    pub standstills: Vec<String>,
    /// Whether the run was stopped for calling without end.
    pub ran_away: bool,
    /// Trainers.
    pub lives: Vec<Life>,
    /// What the pservers hold at the end, or why that is not known.
    pub trained: Result<Vec<Trained>, String>,
    /// Hashes that were recorded, by step, or why they cannot be read.
    pub recorded: Result<BTreeMap<u64, StepHashes>, String>,
    /// All documents that masters wrote.
    pub history: History,
    /// What pservers said.
    pub seen: Seen,
    /// What the run met.
    pub coverage: Coverage,
    /// What happened.
    pub trace: Trace,
    /// How long the run took by its own clock.
    pub lasted: Duration,
}

impl Evidence {
    /// Waits up to `patience` for the job to be over, then as long for its trainers, then asks everybody.
    pub async fn when_over(world: World, observer: &Observer, patience: Duration) -> Evidence {
        let until = Instant::now() + patience;
        let mut steps = Vec::new();
        while Instant::now() < until {
            if let Some(status) = observer.status().await {
                steps.push((u64::from(status.master_term), status.rewind, status.front));
                if status.phase == "done" || status.phase == "failed" {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Evidence::gather(world, observer, steps, patience).await
    }

    /// Waits up to `patience` for trainers to end, then asks everybody.
    pub async fn gather(
        mut world: World,
        observer: &Observer,
        steps: Vec<(u64, u64, u64)>,
        patience: Duration,
    ) -> Evidence {
        let until = Instant::now() + patience;
        let mut lives = Vec::new();
        let names: Vec<String> = world.trainers.iter().map(|trainer| trainer.name.clone()).collect();
        for trainer in &mut world.trainers {
            let end = match tokio::time::timeout_at(until, trainer.ended()).await {
                Ok(ended) => end_of(ended),
                Err(_) => End::NotYet,
            };
            lives.push(Life {
                host: trainer.host.name.clone(),
                shares_name: names.iter().filter(|name| **name == trainer.name).count() > 1,
                is_asked_to_leave: trainer.is_asked_to_leave,
                end,
            });
        }
        // The last reports with the last counts.
        tokio::time::sleep(world.scenario.ttl).await;
        // A job ends well though what its last checkpoint rests on is damaged: nobody has read that since. What it wrote is judged.
        let storage = world.storage_as_written().await;
        let identity = world.history.documents().last().and_then(|document| document.identity.clone());
        let recorded =
            recorded::read(&storage, JOB, identity.as_deref()).await.map_err(|error| error.to_string());
        let (mut status, mut trained) = (None, Err(String::from("the master does not answer")));
        // Blocks may still be on their way to a pserver that has just come.
        for _ in 0..20 {
            status = observer.status().await;
            if let Some(status) = &status {
                trained = observer
                    .read(&storage, status, status.version)
                    .await
                    .map_err(|error| format!("{error:#}"));
            }
            if trained.is_ok() {
                break;
            }
            tokio::time::sleep(world.scenario.ttl / 8).await;
        }
        let mut coverage = world.coverage();
        if let Some(status) = &status {
            coverage.count(status);
        }
        Evidence {
            status,
            steps,
            stood_still: Duration::ZERO,
            may_stand_still: Duration::ZERO,
            standstills: Vec::new(),
            ran_away: world.network.ran_away(),
            lives,
            trained,
            recorded,
            history: world.history,
            seen: world.seen,
            coverage,
            trace: world.network.trace(),
            lasted: world.network.elapsed(),
            scenario: world.scenario,
            job: world.job,
            data: world.data,
        }
    }
}

impl Evidence {
    /// The values of all evaluations, by the master's last word.
    pub fn evaluations(&self) -> Vec<Vec<Option<f64>>> {
        let evaluations = self.status.iter().flat_map(|status| &status.evaluations);
        let values = |of: &proto::EvaluationStatus| of.values.iter().map(|metric| metric.value).collect();
        evaluations.map(values).collect()
    }

    /// What the master left out, by its last word.
    pub fn exclusions(&self) -> Exclusions {
        let troubles = self.status.iter().flat_map(|status| &status.troubles);
        let excluded = |trouble: &proto::TroubleStatus| {
            let records = trouble.records.as_ref()?;
            let (records, from) = (records.first..records.end, Step(trouble.excluded_from?));
            Some(Exclusion { records, from, why: trouble.why.clone() })
        };
        Exclusions { number: 0, list: troubles.filter_map(excluded).collect() }
    }
}

fn is_superseded(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused(refusal) if refusal.kind == RefusalKind::StaleIncarnation)
}

fn end_of(ended: anyhow::Result<Option<Result<Ended, TrainError>>>) -> End {
    match ended {
        Ok(None) => End::Crashed,
        Ok(Some(Ok(ended))) => End::Well(ended),
        Ok(Some(Err(TrainError::Refused { fault, .. }))) if is_superseded(fault.fault()) => End::Superseded,
        Ok(Some(Err(TrainError::Unfit(_)))) => End::Unfit,
        Ok(Some(Err(error))) => End::Failed(error.to_string()),
        Err(panic) => End::Failed(panic.to_string()),
    }
}
