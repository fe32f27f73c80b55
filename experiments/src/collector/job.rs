//! A job that is watched: when it was made, trained first, and ended. Pure.

use super::{seconds_since, within};
use crate::JobRow;
use shoal_operator::api::{Moment, Phase, TrainingJob, TrainingJobStatus};
use shoal_operator::decide::pservers_wanted;

/// A job. Times are seconds since the first look.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) uid: String,
    name: String,
    submitted: f64,
    pub(super) started: Option<f64>,
    /// When all its least trainers were ready for the first time.
    whole: Option<f64>,
    pub(super) ended: Option<f64>,
    pub(super) has_failed: bool,
}

/// Whether a job goes on no more.
fn is_over(job: &TrainingJob) -> bool {
    job.status.as_ref().is_some_and(|status| status.phase.is_over())
}

/// Whether a job that is seen for the first time had ended before there was anybody to see it.
pub(super) fn was_over(job: &TrainingJob, began: Moment) -> bool {
    let ended = job.status.as_ref().and_then(|status| status.completion_time);
    is_over(job) && ended.is_none_or(|at| at < began)
}

impl Watched {
    /// One that was not there at the last look: `span` is from then to now.
    pub(super) fn new(job: &TrainingJob, began: Moment, span: (f64, f64)) -> Watched {
        let made = job.metadata.creation_timestamp.as_ref().map(|at| seconds_since(began, at.0.into()));
        Watched {
            uid: job.metadata.uid.clone().unwrap_or_default(),
            name: job.metadata.name.clone().unwrap_or_default(),
            submitted: within(made.unwrap_or(span.1), span),
            started: None,
            whole: None,
            ended: None,
            has_failed: false,
        }
    }

    /// Takes in how it is, with so many ready pods: master, pservers, trainers.
    pub(super) fn take(&mut self, job: &TrainingJob, ready: [u32; 3], began: Moment, span: (f64, f64)) {
        let status: TrainingJobStatus = job.status.clone().unwrap_or_default();
        let [masters, pservers, trainers] = ready;
        let trains = masters > 0 && pservers >= pservers_wanted(&job.spec, Some(&status)) && trainers > 0;
        // At the first look, one that trains has done so for as long as it says.
        let is_first = span.0 == f64::NEG_INFINITY;
        let since = status.conditions.iter().find(|one| one.type_ == "Running" && one.status == "True");
        let since = since.filter(|_| is_first).map(|one| seconds_since(began, one.last_transition_time));
        let since = within(since.unwrap_or(span.1), span).max(self.submitted);
        if trains && self.started.is_none() {
            self.started = Some(since);
        }
        if trains && trainers >= job.spec.trainer.min_replicas && self.whole.is_none() {
            self.whole = Some(since);
        }
        if self.ended.is_none() && is_over(job) {
            let stated = status.completion_time.map(|at| seconds_since(began, at));
            self.ended = Some(within(stated.unwrap_or(span.1), span));
            self.has_failed = status.phase == Phase::Failed;
        }
    }

    /// From its submission until its least trainers were ready; none if they never were.
    pub(super) fn until_whole(&self) -> Option<f64> {
        self.whole.map(|whole| whole - self.submitted)
    }

    pub(super) fn row(self) -> JobRow {
        let Watched { name, submitted, started, ended, .. } = self;
        JobRow { name, submitted, started, ended }
    }
}
