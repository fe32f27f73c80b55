//! What was seen of a cluster over time, and the figures that follow from it. Times are seconds since the experiment began.

use serde::{Deserialize, Serialize};

/// One run of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Experiment {
    /// What ran it: `gang`, `edl`, `shoal`, or the cluster that was watched.
    pub policy: String,
    /// The resource whose use counts: `cpu`, `memory`, or a device.
    pub resource: String,
    /// What was seen, in order of time.
    pub samples: Vec<Sample>,
    /// The jobs, in the order in which they were submitted.
    pub jobs: Vec<JobRow>,
    /// Use counts until then; by default until the last job has ended.
    pub until_seconds: Option<f64>,
    /// What else there is to say: name and value.
    pub notes: Vec<(String, f64)>,
}

/// A cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// When.
    pub at_seconds: f64,
    /// Of the resource, the share that pods on nodes ask for, from 0 to 1.
    pub utilisation: f64,
    /// Jobs that are yet to be submitted.
    pub jobs_absent: u32,
    /// Jobs that are submitted and have no running trainer yet.
    pub jobs_pending: u32,
    /// Jobs that have had one.
    pub jobs_running: u32,
    /// Jobs that have ended.
    pub jobs_done: u32,
    /// Pods without a node.
    pub pods_pending: u32,
    /// Pods with one.
    pub pods_placed: u32,
    /// Pods of services that run.
    pub serving: u32,
    /// Running trainers by job, in the order of the jobs.
    pub trainers: Vec<u32>,
    /// What its pods on nodes ask for of the resource, by job in the same order: cores, GiB or devices.
    pub asked: Vec<f64>,
}

/// A job's life.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobRow {
    /// Its name.
    pub name: String,
    /// When it was submitted.
    pub submitted: f64,
    /// When its first trainer ran.
    pub started: Option<f64>,
    /// When it ended.
    pub ended: Option<f64>,
}

/// The closing figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// From submission to the first running trainer, over jobs; who never ran has waited until the end.
    pub mean_pending_seconds: f64,
    /// From there to the job's end; who has not ended ran until the end of the experiment.
    pub mean_running_seconds: f64,
    /// When the last job ended, or the end of the experiment.
    pub makespan_seconds: f64,
    /// The mean share of the resource that was asked for until then, from 0 to 1.
    pub utilisation: f64,
    /// Jobs that had ended.
    pub jobs_done: u32,
    /// Jobs altogether.
    pub jobs: u32,
}

/// A figure that somebody else has published of the same experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Published {
    /// Of which policy.
    pub policy: String,
    /// Which figure, as in the summary.
    pub figure: String,
    /// Its value.
    pub value: f64,
    /// Where it is from, and what is to be known of it.
    #[serde(default)]
    pub note: String,
}

impl Experiment {
    /// The figures that follow from what was seen.
    pub fn summary(&self) -> Summary {
        let end = self.samples.last().map_or(0.0, |sample| sample.at_seconds);
        let count = self.jobs.len().max(1) as f64;
        let pending = |job: &JobRow| (job.started.unwrap_or(end) - job.submitted).max(0.0);
        let running =
            |job: &JobRow| job.started.map_or(0.0, |began| (job.ended.unwrap_or(end) - began).max(0.0));
        let ended = self.jobs.iter().map(|job| job.ended.unwrap_or(end)).fold(0.0, f64::max);
        let makespan = if self.jobs.is_empty() { end } else { ended };
        Summary {
            mean_pending_seconds: self.jobs.iter().map(pending).sum::<f64>() / count,
            mean_running_seconds: self.jobs.iter().map(running).sum::<f64>() / count,
            makespan_seconds: makespan,
            utilisation: self.utilisation(self.until_seconds.unwrap_or(makespan)),
            jobs_done: self.jobs.iter().filter(|job| job.ended.is_some()).count() as u32,
            jobs: self.jobs.len() as u32,
        }
    }

    /// The mean until then: each sample counts until the next.
    pub fn utilisation(&self, until: f64) -> f64 {
        let next = self.samples.iter().skip(1).map(|sample| sample.at_seconds).chain([f64::INFINITY]);
        let mut whole = (0.0, 0.0);
        for (sample, next) in self.samples.iter().zip(next) {
            let length = (next.min(until) - sample.at_seconds).max(0.0);
            if length.is_finite() {
                whole = (whole.0 + length, whole.1 + length * sample.utilisation);
            }
        }
        if whole.0 > 0.0 { whole.1 / whole.0 } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_seconds: f64, utilisation: f64) -> Sample {
        Sample { at_seconds, utilisation, ..Sample::default() }
    }

    #[test]
    fn figures_are_means_over_jobs_and_time() {
        let job = |submitted, started, ended| JobRow { name: String::new(), submitted, started, ended };
        let experiment = Experiment {
            samples: vec![sample(0.0, 1.0), sample(10.0, 0.5), sample(40.0, 0.0), sample(100.0, 0.0)],
            jobs: vec![job(0.0, Some(5.0), Some(30.0)), job(10.0, Some(15.0), Some(50.0))],
            ..Experiment::default()
        };
        let summary = experiment.summary();
        assert_eq!((summary.mean_pending_seconds, summary.mean_running_seconds), (5.0, 30.0));
        assert_eq!(
            (summary.makespan_seconds, summary.utilisation),
            (50.0, 0.5),
            "ten at 1, thirty at a half, of fifty"
        );
        assert_eq!(experiment.utilisation(20.0), 0.75);
    }

    #[test]
    fn who_never_runs_waits_until_the_end_and_nothing_is_divided_by_nothing() {
        let job = JobRow { submitted: 20.0, ..JobRow::default() };
        let samples = vec![sample(0.0, 0.0), sample(100.0, 0.0)];
        let stuck = Experiment { samples, jobs: vec![job], ..Experiment::default() }.summary();
        assert_eq!((stuck.mean_pending_seconds, stuck.makespan_seconds, stuck.jobs_done), (80.0, 100.0, 0));
        assert_eq!(Experiment::default().summary(), Summary::default());
    }
}
