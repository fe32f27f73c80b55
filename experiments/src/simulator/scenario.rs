//! A scenario as people write it: a cluster, jobs, services, failures. Reads YAML, opens no file, simulates nothing.

use crate::Published;
use serde::Deserialize;

/// An experiment that can be simulated.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it shows, and where it is from.
    #[serde(default)]
    pub about: String,
    /// It ends after so many seconds, if jobs have not ended before.
    pub seconds: f64,
    /// It lasts for all of them, even if all jobs have ended.
    #[serde(default)]
    pub to_the_end: bool,
    /// The series has a sample every so many seconds.
    #[serde(default = "five")]
    pub sample_seconds: f64,
    /// The resource whose use counts: cpu, memory or gpu.
    #[serde(default = "cpu")]
    pub resource: String,
    /// Use counts until then; by default until the last job has ended.
    #[serde(default)]
    pub until_seconds: Option<f64>,
    /// Seeds what is drawn: start times within their bounds, jobs of a crowd.
    #[serde(default)]
    pub seed: u64,
    /// How often each policy looks at the cluster.
    #[serde(default)]
    pub every: EverySeconds,
    /// From a pod's place on a node to its running, in seconds: one number, or the least and the most.
    #[serde(default)]
    pub start_seconds: StartSeconds,
    /// From a pod's deletion to its end.
    #[serde(default = "one")]
    pub stop_seconds: f64,
    /// The share of cpu and memory that our planner keeps free.
    #[serde(default = "headroom")]
    pub headroom: f64,
    /// The cluster.
    pub nodes: Vec<NodeGroup>,
    /// The jobs.
    #[serde(default)]
    pub jobs: Vec<JobGroup>,
    /// Services that are not trained.
    #[serde(default)]
    pub serving: Vec<Service>,
    /// Nodes that are lost for a while.
    #[serde(default)]
    pub failures: Vec<Failure>,
    /// What others published of the same experiment.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// How often each policy looks at the cluster, in seconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EverySeconds {
    /// With static jobs.
    pub gang: f64,
    /// EDL's rules.
    pub edl: f64,
    /// Our planner.
    pub shoal: f64,
}

impl Default for EverySeconds {
    fn default() -> EverySeconds {
        EverySeconds { gang: 1.0, edl: 30.0, shoal: 5.0 }
    }
}

/// How long pods take to start, by role.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StartSeconds {
    /// Of masters.
    pub master: Span,
    /// Of pservers.
    pub pserver: Span,
    /// Of trainers.
    pub trainer: Span,
    /// Of pods that serve.
    pub serving: Span,
}

/// One number of seconds, or the least and the most.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Span {
    /// Always this long.
    Exactly(f64),
    /// At least and at most so long.
    Between(f64, f64),
}

impl Default for Span {
    fn default() -> Span {
        Span::Exactly(5.0)
    }
}

impl Span {
    /// The one at this place between least and most, from 0 to 1.
    pub fn at(self, place: f64) -> f64 {
        match self {
            Span::Exactly(seconds) => seconds,
            Span::Between(least, most) => least + (most - least) * place,
        }
    }
}

/// Nodes alike.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeGroup {
    /// Their names begin with it.
    #[serde(default = "node")]
    pub name: String,
    /// How many.
    pub count: u32,
    /// What each has.
    #[serde(flatten)]
    pub amounts: Amounts,
    /// Pods on each at most.
    #[serde(default = "pods")]
    pub pods: i64,
    /// The share of them that is lost in an hour, each at random: spot machines.
    #[serde(default)]
    pub lost_per_hour: f64,
    /// How long it takes until another comes in the place of one that was lost.
    #[serde(default)]
    pub away_seconds: Span,
}

/// What a node has, or a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Amounts {
    /// Cores.
    pub cpu: f64,
    /// GiB.
    pub memory: f64,
    /// Whole devices.
    pub gpu: i64,
}

/// Jobs alike.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobGroup {
    /// Their name; of several it is followed by a dash and a number from 0.
    pub name: String,
    /// How many.
    #[serde(default = "one_job")]
    pub count: u32,
    /// When the first is submitted.
    #[serde(default)]
    pub submit_seconds: f64,
    /// The others follow each after so many seconds; with `drawn`, at random within `count` times as many.
    #[serde(default)]
    pub every_seconds: f64,
    /// Whether times, sizes (half to twice) and work (a quarter to four times) are drawn.
    #[serde(default)]
    pub drawn: bool,
    /// Their pods' priority.
    #[serde(default)]
    pub priority: i32,
    /// What the master of each asks for.
    #[serde(default)]
    pub master: Amounts,
    /// The pservers of each.
    pub pservers: Role,
    /// The trainers of each.
    pub trainers: TrainerRole,
    /// Steps to make.
    pub steps: f64,
    /// A checkpoint is made every so many seconds. Whoever loses a pod without which it cannot go on makes the steps since then again: where jobs
    /// are static any pod, else a pserver, unless there are copies. 0: nothing is made again.
    #[serde(default)]
    pub checkpoint_seconds: f64,
    /// Whether pservers have copies of one another's blocks.
    #[serde(default)]
    pub copies: bool,
    /// How fast each is.
    pub speed: Speed,
}

/// Pservers of a job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Role {
    /// How many.
    pub count: u32,
    /// What each asks for.
    #[serde(flatten)]
    pub amounts: Amounts,
}

/// Trainers of a job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TrainerRole {
    /// The least.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// How many the job has where jobs are not elastic; by default the most.
    #[serde(rename = "static")]
    pub fixed: Option<u32>,
    /// Whether their author said what they ask for.
    #[serde(default = "yes")]
    pub stated: bool,
    /// What each asks for.
    #[serde(flatten)]
    pub amounts: Amounts,
}

/// How fast a job is: a step takes `computeSeconds / n + fixedSeconds + 2 n modelMB / (pservers pserverMBps)`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Speed {
    /// A step's work for one trainer.
    pub compute_seconds: f64,
    /// What takes as long with any number of trainers.
    pub fixed_seconds: f64,
    /// The model's size, in MB: each trainer sends as much and gets as much.
    #[serde(rename = "modelMB")]
    pub model_mb: f64,
    /// What a pserver takes in and gives out, in MB/s.
    #[serde(rename = "pserverMBps")]
    pub pserver_mbps: f64,
}

impl Default for Speed {
    fn default() -> Speed {
        Speed { compute_seconds: 1.0, fixed_seconds: 0.0, model_mb: 0.0, pserver_mbps: 1000.0 }
    }
}

impl Speed {
    /// Steps in a second.
    pub fn per_second(&self, trainers: u32, pservers: u32) -> f64 {
        let n = f64::from(trainers);
        let traffic = 2.0 * n * self.model_mb / (f64::from(pservers.max(1)) * self.pserver_mbps);
        let step = self.compute_seconds / n + self.fixed_seconds + traffic;
        if trainers == 0 { 0.0 } else { 1.0 / step }
    }
}

/// Pods that serve requests, scaled by what they are asked for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// What each of its pods asks for.
    #[serde(flatten)]
    pub amounts: Amounts,
    /// Its pods' priority.
    #[serde(default)]
    pub priority: i32,
    /// From these seconds on, so many requests a second.
    pub load: Vec<(f64, f64)>,
    /// Requests a second that one pod bears: what a HorizontalPodAutoscaler aims at.
    pub per_pod: f64,
    /// The least pods.
    #[serde(default = "one_job")]
    pub min: u32,
    /// The most pods.
    pub max: u32,
    /// It is scaled every so many seconds; 15 as by default in Kubernetes.
    #[serde(default = "fifteen")]
    pub every_seconds: f64,
}

impl Service {
    /// Requests a second that it is asked for then.
    pub fn load_at(&self, seconds: f64) -> f64 {
        self.load.iter().rev().find(|(from, _)| *from <= seconds).map_or(0.0, |(_, load)| *load)
    }

    /// How many pods there should be then.
    pub fn wanted(&self, seconds: f64) -> u32 {
        ((self.load_at(seconds) / self.per_pod).ceil().max(0.0) as u32).clamp(self.min, self.max)
    }
}

/// A node that is lost for a while.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failure {
    /// Its name: that of its group, a dash, and its number.
    pub node: String,
    /// When it is lost.
    pub from_seconds: f64,
    /// When it is back.
    pub to_seconds: f64,
}

fn five() -> f64 {
    5.0
}
fn fifteen() -> f64 {
    15.0
}
fn one() -> f64 {
    1.0
}
fn headroom() -> f64 {
    0.03
}
fn one_job() -> u32 {
    1
}
fn pods() -> i64 {
    110
}
fn yes() -> bool {
    true
}
fn cpu() -> String {
    "cpu".to_owned()
}
fn node() -> String {
    "node".to_owned()
}

impl Scenario {
    /// The scenario that a text describes.
    ///
    /// # Errors
    /// What is no YAML, fields that there are not, values that cannot be; each by its place.
    pub fn read(text: &str) -> Result<Scenario, Vec<String>> {
        let scenario: Scenario = serde_saphyr::from_str(text).map_err(|why| vec![why.to_string()])?;
        let wrong = super::faults::faults(&scenario);
        if wrong.is_empty() { Ok(scenario) } else { Err(wrong) }
    }

    /// The scenario with less to do, and a load that changes sooner, by a factor, sampled every second. Starting, stopping and
    /// submitting, and whoever looks at the cluster, take their time.
    pub fn shortened(&self, factor: f64) -> Scenario {
        let mut shorter = self.clone();
        shorter.seconds /= factor;
        shorter.sample_seconds = 1.0;
        shorter.jobs.iter_mut().for_each(|job| job.steps /= factor);
        let loads = shorter.serving.iter_mut().flat_map(|service| &mut service.load);
        loads.for_each(|(from, _)| *from /= factor);
        shorter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "
name: least
seconds: 100
nodes: [{count: 2, cpu: 4, memory: 8, gpu: 1}]
jobs:
- name: a
  pservers: {count: 1, cpu: 1}
  trainers: {min: 1, max: 4, static: 2, cpu: 1, memory: 0.5}
  steps: 10
  speed: {computeSeconds: 2, modelMB: 100, pserverMBps: 1000}
";

    #[test]
    fn a_scenario_is_read_and_what_it_does_not_say_has_its_default() {
        let scenario = Scenario::read(LEAST).unwrap();
        assert_eq!(
            (scenario.sample_seconds, scenario.resource.as_str(), scenario.every.edl),
            (5.0, "cpu", 30.0)
        );
        assert_eq!(
            (scenario.nodes[0].amounts.gpu, scenario.nodes[0].pods, scenario.jobs[0].count),
            (1, 110, 1)
        );
        assert_eq!(scenario.jobs[0].trainers.fixed, Some(2));
        assert_eq!(scenario.jobs[0].speed.per_second(2, 1), 1.0 / 1.4);
        assert_eq!(scenario.jobs[0].speed.per_second(0, 1), 0.0);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_place() {
        let told = |text: &str| Scenario::read(text).unwrap_err().join("\n");
        assert!(
            told(&LEAST.replace("  steps: 10\n", "  steps: 0\n")).contains("jobs[0].steps: give more than 0")
        );
        assert!(
            told(&LEAST.replace("min: 1, max: 4", "min: 5, max: 4"))
                .contains("jobs[0].trainers: give 1 <= min")
        );
        assert!(told(&LEAST.replace("count: 2, cpu", "count: 0, cpu")).contains("nodes: give at least one"));
        assert!(
            told(&LEAST.replace("seconds: 100", "secnds: 100")).contains("secnds"),
            "{}",
            told(&LEAST.replace("seconds: 100", "secnds: 100"))
        );
        assert!(told("[").contains("line"), "{}", told("["));
        let lost = format!("{LEAST}failures: [{{node: node-2, fromSeconds: 1, toSeconds: 1}}]\n");
        assert!(
            told(&lost).contains("failures[0].node: name a node")
                && told(&lost).contains("failures[0].toSeconds")
        );
    }

    #[test]
    fn a_service_is_as_large_as_its_load() {
        let service = Service {
            load: vec![(0.0, 100.0), (60.0, 1000.0)],
            per_pod: 30.0,
            min: 2,
            max: 20,
            ..Service::default()
        };
        assert_eq!([0.0, 59.0, 60.0].map(|at| service.wanted(at)), [4, 4, 20]);
    }

    #[test]
    fn a_shorter_scenario_has_less_to_do_and_starts_its_pods_as_slowly() {
        let served = "serving: [{name: s, cpu: 1, load: [[0, 1], [60, 9]], perPod: 2, max: 5}]\n";
        let scenario = Scenario::read(&format!("{LEAST}{served}")).unwrap();
        let shorter = scenario.shortened(10.0);
        assert_eq!((shorter.seconds, shorter.sample_seconds, shorter.jobs[0].steps), (10.0, 1.0, 1.0));
        assert_eq!(shorter.serving[0].load, [(0.0, 1.0), (6.0, 9.0)]);
        assert_eq!((shorter.start_seconds, shorter.nodes), (scenario.start_seconds, scenario.nodes));
        assert_eq!(shorter.jobs[0].speed, scenario.jobs[0].speed);
    }
}
