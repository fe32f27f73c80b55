//! What `shoal collect` makes of a cluster that it looks at again and again: the samples and figures of an experiment. Pure: it
//! is told what there is, and when.

mod job;

use crate::{Experiment, Sample};
use job::Watched;
use k8s_openapi::api::core::v1::{Node, Pod};
use shoal_operator::api::{Moment, TrainingJob};
use shoal_operator::decide::Role;
use shoal_operator::inventory::{Amounts, Site, Tenant};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The resource whose use counts.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Processors, in cores
    Cpu,
    /// Memory, in GiB
    Memory,
    /// Devices whose name ends with /gpu, of all vendors
    Gpu,
}

impl Resource {
    fn name(self) -> &'static str {
        match self {
            Resource::Cpu => "cpu",
            Resource::Memory => "memory",
            Resource::Gpu => "gpu",
        }
    }

    fn of(self, amounts: &Amounts) -> f64 {
        match self {
            Resource::Cpu => amounts.cpu_millis as f64 / 1000.0,
            Resource::Memory => amounts.memory as f64 / (1u64 << 30) as f64,
            Resource::Gpu => {
                let gpus = amounts.devices.iter().filter(|(name, _)| name.ends_with("/gpu"));
                gpus.map(|(_, amount)| *amount).sum::<i64>() as f64
            }
        }
    }
}

/// Labels that pods of services have, as `app=nginx,tier=front`: all of them.
pub type Selector = Vec<(String, String)>;

/// The labels that a text names.
///
/// # Errors
/// A part that is not `NAME=VALUE`.
pub fn selector(text: &str) -> Result<Selector, String> {
    let label = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let is_plain = !name.is_empty() && !name.ends_with('!') && !value.starts_with('=');
        is_plain.then(|| (name.to_owned(), value.to_owned()))
    };
    let wrong = || format!("{text:?} names no labels: give them as app=nginx or app=nginx,tier=front");
    text.split(',').map(|part| label(part).ok_or_else(wrong)).collect()
}

/// What there was at one moment.
pub struct Look<'a> {
    /// Seconds since the first look.
    pub at_seconds: f64,
    /// All nodes.
    pub nodes: &'a [Arc<Node>],
    /// All pods.
    pub pods: &'a [Arc<Pod>],
    /// The jobs that are watched.
    pub jobs: &'a [Arc<TrainingJob>],
}

/// How long a pod of a service has waited to be ready.
#[derive(Debug)]
struct Wait {
    since: f64,
    until: f64,
    is_over: bool,
}

/// What was seen so far.
#[derive(Debug)]
pub struct Collector {
    resource: Resource,
    serving: Option<Selector>,
    /// So many jobs are awaited.
    awaited: u32,
    /// The wall clock at the first look.
    began: Moment,
    looked: Option<f64>,
    jobs: Vec<Watched>,
    waits: BTreeMap<String, Wait>,
    samples: Vec<Sample>,
}

/// What a job has at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Has {
    /// Ready pods: master, pservers, trainers.
    ready: [u32; 3],
    /// What its pods on nodes ask for.
    asked: f64,
}

impl Collector {
    /// Nothing seen yet. `serving`: the pods that serve, if any do; `awaited`: how many jobs the experiment has; `began`: the wall
    /// clock at the first look.
    pub fn new(resource: Resource, serving: Option<Selector>, awaited: u32, began: Moment) -> Collector {
        let (jobs, waits, samples) = (Vec::new(), BTreeMap::new(), Vec::new());
        Collector { resource, serving, awaited, began, looked: None, jobs, waits, samples }
    }

    /// Takes in what there is. Returns the sample of that moment.
    pub fn take(&mut self, look: &Look<'_>) -> &Sample {
        let span = (self.looked.unwrap_or(f64::NEG_INFINITY), look.at_seconds);
        let pods: Vec<(&Pod, Tenant)> =
            look.pods.iter().filter_map(|pod| Some((&**pod, Tenant::of(pod)?))).collect();
        let has = self.had_by_jobs(&pods);
        self.take_jobs(look.jobs, &has, span);
        let serving = self.take_serving(&pods, span);
        let on_nodes = || pods.iter().filter(|(_, tenant)| tenant.node().is_some());
        // From 0, for the sum of nothing is -0 in Rust.
        let asked = on_nodes().fold(0.0, |sum, (_, tenant)| sum + self.resource.of(&tenant.amounts));
        let whole: f64 = look.nodes.iter().map(|node| self.resource.of(&Site::of(node).allocatable)).sum();
        let count =
            |is_so: &dyn Fn(&Watched) -> bool| self.jobs.iter().filter(|job| is_so(job)).count() as u32;
        let of = |job: &Watched| has.get(&job.uid).copied().unwrap_or_default();
        let placed = on_nodes().count();
        let sample = Sample {
            at_seconds: look.at_seconds,
            utilisation: if whole > 0.0 { asked / whole } else { 0.0 },
            jobs_absent: self.awaited.saturating_sub(self.jobs.len() as u32),
            jobs_pending: count(&|job| job.started.is_none() && job.ended.is_none()),
            jobs_running: count(&|job| job.started.is_some() && job.ended.is_none()),
            jobs_done: count(&|job| job.ended.is_some()),
            pods_pending: (pods.len() - placed) as u32,
            pods_placed: placed as u32,
            serving,
            trainers: self.jobs.iter().map(|job| of(job).ready[2]).collect(),
            asked: self.jobs.iter().map(|job| of(job).asked).collect(),
        };
        self.looked = Some(look.at_seconds);
        self.samples.push(sample);
        &self.samples[self.samples.len() - 1]
    }

    /// Whether as many jobs as are awaited were there, and all are over.
    pub fn is_over(&self) -> bool {
        self.jobs.len() >= self.awaited as usize && self.jobs.iter().all(|job| job.ended.is_some())
    }

    /// What was seen, as an experiment.
    pub fn experiment(self) -> Experiment {
        let mut notes = Vec::new();
        let mut note = |name: &str, sum: f64, count: usize| {
            if count > 0 {
                notes.push((name.to_owned(), sum / count as f64));
            }
        };
        let whole: Vec<f64> = self.jobs.iter().filter_map(Watched::until_whole).collect();
        note("mean until the least trainers are ready, s", whole.iter().sum(), whole.len());
        let waits: Vec<f64> = self.waits.values().map(|wait| wait.until - wait.since).collect();
        note("mean wait of serving pods, s", waits.iter().sum(), waits.len());
        let failed = self.jobs.iter().filter(|job| job.has_failed).count();
        note("jobs failed", failed as f64, failed.min(1));
        Experiment {
            policy: "cluster".to_owned(),
            resource: self.resource.name().to_owned(),
            samples: self.samples,
            jobs: self.jobs.into_iter().map(Watched::row).collect(),
            until_seconds: None,
            notes,
        }
    }

    /// By the uid of a job, what it has.
    fn had_by_jobs(&self, pods: &[(&Pod, Tenant)]) -> BTreeMap<String, Has> {
        let mut all: BTreeMap<String, Has> = BTreeMap::new();
        for (pod, tenant) in pods {
            let Some(member) = &tenant.member else { continue };
            let has = all.entry(member.job.clone()).or_default();
            if tenant.node().is_some() {
                has.asked += self.resource.of(&tenant.amounts);
            }
            if is_ready(pod) && !tenant.is_leaving {
                let role = match member.role {
                    Role::Master => 0,
                    Role::Pserver => 1,
                    Role::Trainer => 2,
                };
                has.ready[role] += 1;
            }
        }
        all
    }

    fn take_jobs(&mut self, jobs: &[Arc<TrainingJob>], has: &BTreeMap<String, Has>, span: (f64, f64)) {
        let mut jobs: Vec<&TrainingJob> = jobs.iter().map(|job| &**job).collect();
        jobs.sort_by_key(|job| (job.metadata.creation_timestamp.clone(), job.metadata.name.clone()));
        for job in &jobs {
            let uid = job.metadata.uid.clone().unwrap_or_default();
            let ready = has.get(&uid).copied().unwrap_or_default().ready;
            let known = self.jobs.iter_mut().find(|known| known.uid == uid);
            let one = match known {
                Some(known) => known,
                // Whose end was before the first look has no part in what is watched.
                None if job::was_over(job, self.began) => continue,
                None => {
                    self.jobs.push(Watched::new(job, self.began, span));
                    let newest = self.jobs.len() - 1;
                    &mut self.jobs[newest]
                }
            };
            one.take(job, ready, self.began, span);
        }
        let is_there = |known: &Watched| jobs.iter().any(|job| job.metadata.uid.as_ref() == Some(&known.uid));
        // Who was deleted before the end has ended by that.
        for gone in self.jobs.iter_mut().filter(|known| known.ended.is_none() && !is_there(known)) {
            gone.ended = Some(span.1);
        }
    }

    /// Notes how long pods of services wait. Returns how many are ready.
    fn take_serving(&mut self, pods: &[(&Pod, Tenant)], span: (f64, f64)) -> u32 {
        let Some(serving) = &self.serving else { return 0 };
        let mut count = 0;
        for (pod, tenant) in pods {
            let label = |name: &str| pod.metadata.labels.as_ref()?.get(name);
            let is_ours = serving.iter().all(|(name, value)| label(name) == Some(value));
            if !is_ours || tenant.is_leaving {
                continue;
            }
            let is_ready = is_ready(pod);
            count += u32::from(is_ready);
            let made = i64::try_from(tenant.since).map_or(span.1, |at| seconds_since(self.began, Moment(at)));
            // Who was ready at the first look has no part in this: how long it waited, nobody saw.
            let is_older = (self.looked.is_none() && is_ready) || (self.looked.is_some() && made < 0.0);
            if is_older && !self.waits.contains_key(&tenant.uid) {
                continue;
            }
            let since = within(made, span);
            let new = Wait { since, until: since, is_over: false };
            let wait = self.waits.entry(tenant.uid.clone()).or_insert(new);
            if !wait.is_over {
                wait.until = span.1;
            }
            wait.is_over |= is_ready;
        }
        count
    }
}

/// Whether a pod is ready.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

/// What the cluster dates to a second, as it was not so at the last look and is at this one.
fn within(stated: f64, (looked, now): (f64, f64)) -> f64 {
    stated.max(looked).min(now)
}

fn seconds_since(began: Moment, at: Moment) -> f64 {
    (at.0 - began.0) as f64
}

#[cfg(test)]
mod tests;
