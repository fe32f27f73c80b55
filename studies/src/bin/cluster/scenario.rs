//! What of a simulator's scenario a real control plane can be given, and how it is made shorter.

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::Value;

/// A scenario.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Scenario {
    pub(crate) seconds: f64,
    pub(crate) resource: String,
    #[serde(default)]
    pub(crate) to_the_end: bool,
    #[serde(default)]
    pub(crate) start_seconds: StartSeconds,
    pub(crate) stop_seconds: f64,
    pub(crate) nodes: Vec<Nodes>,
    pub(crate) jobs: Vec<Job>,
    #[serde(default)]
    pub(crate) serving: Vec<Service>,
}

/// From a pod's place on a node to its running, by role.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StartSeconds {
    pub(crate) master: Span,
    pub(crate) pserver: Span,
    pub(crate) trainer: Span,
    pub(crate) serving: Span,
}

/// One number of seconds, or the least and the most.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Span {
    Exactly(f64),
    Between(f64, f64),
}

impl Default for Span {
    fn default() -> Span {
        Span::Exactly(5.0)
    }
}

/// Nodes alike.
#[derive(Debug, Deserialize)]
pub(crate) struct Nodes {
    pub(crate) count: usize,
    #[serde(flatten)]
    pub(crate) amounts: Amounts,
}

/// Cores, GiB, GPUs.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Amounts {
    pub(crate) cpu: f64,
    pub(crate) memory: f64,
    #[serde(default)]
    pub(crate) gpu: u32,
}

/// A job.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Job {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) submit_seconds: f64,
    pub(crate) master: Amounts,
    pub(crate) pservers: Pservers,
    pub(crate) trainers: Trainers,
    pub(crate) steps: f64,
    pub(crate) speed: Speed,
}

/// Pservers of a job.
#[derive(Debug, Deserialize)]
pub(crate) struct Pservers {
    pub(crate) count: u32,
    #[serde(flatten)]
    pub(crate) amounts: Amounts,
}

/// Trainers of a job.
#[derive(Debug, Deserialize)]
pub(crate) struct Trainers {
    pub(crate) min: u32,
    pub(crate) max: u32,
    #[serde(flatten)]
    pub(crate) amounts: Amounts,
}

/// The simulator's model of speed, as far as scenarios use it that are run here: compute alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Speed {
    pub(crate) compute_seconds: f64,
}

impl Speed {
    /// Steps in a second.
    pub(crate) fn per_second(&self, trainers: u32) -> f64 {
        f64::from(trainers) / self.compute_seconds
    }
}

/// Pods that serve.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Service {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) amounts: Amounts,
    pub(crate) priority: i32,
    pub(crate) load: Vec<(f64, f64)>,
    /// Load that a pod bears, in cores.
    pub(crate) per_pod: f64,
    pub(crate) min: u32,
    pub(crate) max: u32,
}

impl Service {
    /// What it is asked for then.
    pub(crate) fn load_at(&self, seconds: f64) -> f64 {
        self.load.iter().rev().find(|(from, _)| *from <= seconds).map_or(0.0, |(_, load)| *load)
    }

    /// How many pods that takes.
    pub(crate) fn wanted(&self, seconds: f64) -> u32 {
        ((self.load_at(seconds) / self.per_pod).ceil() as u32).clamp(self.min, self.max)
    }
}

impl Scenario {
    /// Reads what [`shortened`] made.
    pub(crate) fn of(value: &Value) -> anyhow::Result<Scenario> {
        let scenario: Scenario = serde_json::from_value(value.clone()).context("not for a control plane")?;
        ensure!(scenario.nodes.len() == 1, "one kind of nodes can be had here");
        Ok(scenario)
    }
}

/// A scenario with less to do, and a load that changes sooner, by a factor. Starting, stopping and submitting, and whoever looks
/// at the cluster, take their time.
pub(crate) fn shortened(mut scenario: Value, factor: f64) -> Value {
    let shorten = |value: &mut Value| {
        if let Some(number) = value.as_f64() {
            *value = (number / factor).into();
        }
    };
    shorten(&mut scenario["seconds"]);
    scenario["sampleSeconds"] = 1.into();
    each(&mut scenario, "jobs", &|job| shorten(&mut job["steps"]));
    each(&mut scenario, "serving", &|service| each(service, "load", &|point| shorten(&mut point[0])));
    scenario
}

fn each(of: &mut Value, list: &str, change: &dyn Fn(&mut Value)) {
    of.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().for_each(change);
}
