//! What a fleet of jobs costs an operator and its API server:
//!
//! `KUBEBUILDER_ASSETS=$(bash .ci/control-plane) cargo run --release -p shoal-studies --bin fleet [-- --jobs 50,100,200]`
//!
//! A real control plane and the operator as a process, with the rights that it is installed with; pods are pretended, so masters
//! answer nothing. For each number of jobs a cluster of its own: all jobs are made at once and come up; then they rest; then one
//! after another is scaled by one trainer, and the time is taken until the API server has the pod; then all are deleted.
//! Calls are counted in a proxy between operator and server. Exits 0 only if nothing of the jobs is left.
#![allow(clippy::print_stderr, reason = "a study's figures")]
#![allow(clippy::print_stdout, reason = "its table is what it is for")]

use anyhow::{Context, ensure};
use clap::Parser;
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use shoal_operator::api::{TrainingJob, TrainingJobSpec};
use shoal_runtime::host::random::Random;
use shoal_studies::operator::{OPERATOR, Operator, Pretended, number};
use shoal_test_cluster::Faults;
use shoal_tests::costs::percentile;
use shoal_tests::processes::programs;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "default";
/// How long any stage may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// Requests of this program that are under way at a time.
const AT_A_TIME: usize = 16;

/// What a fleet of jobs costs an operator and its API server.
#[derive(Clone, Parser)]
struct Arguments {
    /// How many jobs; one row for each number
    #[arg(long, value_delimiter = ',', default_value = "50,100,200")]
    jobs: Vec<u32>,
    /// Pods of each job: a master, a pserver and trainers
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..100))]
    pods: u32,
    /// Nodes, of 110 pods each
    #[arg(long, default_value_t = 50)]
    nodes: usize,
    /// How long the jobs rest
    #[arg(long, default_value_t = 60)]
    rest_seconds: u64,
    /// How many jobs are scaled
    #[arg(long, default_value_t = 100)]
    scaled: u32,
}

/// What the operator has used and done so far.
#[derive(Clone, Debug, Default)]
struct Spent {
    cpu_micros: u64,
    looks: f64,
    look_seconds: f64,
    calls: BTreeMap<String, u64>,
}

impl Spent {
    fn since(&self, before: &Spent) -> Spent {
        let calls = self
            .calls
            .iter()
            .map(|(call, count)| (call.clone(), count - before.calls.get(call).copied().unwrap_or_default()));
        Spent {
            cpu_micros: self.cpu_micros - before.cpu_micros,
            looks: self.looks - before.looks,
            look_seconds: self.look_seconds - before.look_seconds,
            calls: calls.filter(|(_, count)| *count > 0).collect(),
        }
    }

    fn calls_in_all(&self) -> u64 {
        self.calls.values().sum()
    }

    fn look_millis(&self) -> f64 {
        self.look_seconds * 1000.0 / self.looks.max(1.0)
    }
}

/// A cluster with an operator in it.
struct Fleet {
    // In the order in which they end.
    operator: Operator,
    faults: Faults,
    _cluster: Pretended,
    client: Client,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    println!(
        "| jobs | pods | all ready, s | calls a job | ms a look | operator's CPU ms a job | at rest: calls a job and minute | CPU % | MiB | scaled -> pod made, ms: p50, p99, most | all gone, s | calls a job |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for jobs in &arguments.jobs {
        measure(&arguments, *jobs).await?;
    }
    Ok(())
}

async fn measure(arguments: &Arguments, jobs: u32) -> anyhow::Result<()> {
    let fleet = Fleet::start(arguments.nodes).await?;
    let pods = jobs * arguments.pods;

    let (before, began) = (fleet.spent().await?, Instant::now());
    fleet.make(jobs, arguments.pods - 2).await?;
    fleet.wait_until("all jobs are ready", async |fleet| Ok(fleet.ready().await? == jobs as usize)).await?;
    let (made_in, made) = (began.elapsed(), fleet.spent().await?.since(&before));

    let before = fleet.spent().await?;
    sleep(Duration::from_secs(arguments.rest_seconds)).await;
    let rested = fleet.spent().await?.since(&before);
    let (memory_mib, _) = fleet.operator.memory_mib()?;

    let mut took = fleet.scale(jobs, arguments.pods - 2, arguments.scaled).await?;

    let (before, began) = (fleet.spent().await?, Instant::now());
    fleet.delete().await?;
    fleet.wait_until("nothing is left", async |fleet| Ok(fleet.left().await? == 0)).await?;
    let (gone_in, gone) = (began.elapsed(), fleet.spent().await?.since(&before));

    let a_job = |spent: &Spent| spent.calls_in_all() as f64 / f64::from(jobs);
    let rest_seconds = arguments.rest_seconds as f64;
    println!(
        "| {jobs} | {pods} | {:.0} | {:.1} | {:.1} | {:.1} | {:.2} | {:.1} | {memory_mib} | {}, {}, {} | {:.0} | {:.1} |",
        made_in.as_secs_f64(),
        a_job(&made),
        made.look_millis(),
        made.cpu_micros as f64 / 1000.0 / f64::from(jobs),
        a_job(&rested) * 60.0 / rest_seconds,
        rested.cpu_micros as f64 / 1e4 / rest_seconds,
        percentile(&mut took, 50),
        percentile(&mut took, 99),
        percentile(&mut took, 100),
        gone_in.as_secs_f64(),
        a_job(&gone),
    );
    for (what, spent) in [("made", &made), ("rested", &rested), ("gone", &gone)] {
        eprintln!(
            "{jobs} jobs {what}: {} looks, {:.2} ms each; {:?}",
            spent.looks,
            spent.look_millis(),
            spent.calls
        );
    }
    Ok(())
}

impl Fleet {
    async fn start(nodes: usize) -> anyhow::Result<Fleet> {
        let cluster = Pretended::start(nodes).await?;
        let client = cluster.client.clone();
        let faults = Faults::start(&cluster.plane.kubeconfig_as(OPERATOR)?).await?;
        let program = programs()?.shoal.with_file_name("shoal-operator");
        let operator = Operator::start(&program, &faults.kubeconfig()).await?;
        Ok(Fleet { operator, faults, _cluster: cluster, client })
    }

    fn jobs(&self) -> Api<TrainingJob> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn wait_until(
        &self,
        what: &str,
        is_so: impl AsyncFn(&Fleet) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self).await? {
            ensure!(Instant::now() < deadline, "{what}: not after {PATIENCE:?}");
            sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    async fn spent(&self) -> anyhow::Result<Spent> {
        let page = self.operator.page().await?;
        Ok(Spent {
            cpu_micros: self.operator.cpu_micros()?,
            looks: number(&page, "shoal_operator_reconcile_seconds_count")?,
            look_seconds: number(&page, "shoal_operator_reconcile_seconds_sum")?,
            calls: self.faults.counts().iter().map(|(call, count)| (call.to_string(), *count)).collect(),
        })
    }

    async fn make(&self, jobs: u32, trainers: u32) -> anyhow::Result<()> {
        let container = json!({ "name": "trainer", "image": "trainer:test", "resources": { "requests": { "cpu": "50m", "memory": "64Mi" } } });
        let spec = json!({
            "data": ["/data/*.recordio"],
            "checkpoint": { "place": "/shared/place" },
            "trainer": { "minReplicas": 2, "maxReplicas": trainers + 1, "replicas": trainers,
                "template": { "spec": { "terminationGracePeriodSeconds": 2, "containers": [container] } } },
        });
        let spec: TrainingJobSpec = serde_json::from_value(spec)?;
        let jobs_of = self.jobs();
        let made = (0..jobs).map(|number| {
            let (all, job) = (&jobs_of, TrainingJob::new(&name(number), spec.clone()));
            async move { all.create(&PostParams::default(), &job).await.map(drop) }
        });
        Ok(futures_util::stream::iter(made).buffer_unordered(AT_A_TIME).try_collect().await?)
    }

    async fn ready(&self) -> anyhow::Result<usize> {
        let jobs = self.jobs().list(&ListParams::default()).await?;
        let is_ready = |job: &&TrainingJob| {
            let conditions = job.status.iter().flat_map(|status| &status.conditions);
            conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
        };
        Ok(jobs.items.iter().filter(is_ready).count())
    }

    /// Scales one job after another by a trainer. Returns how long each took until its pod was there, in milliseconds.
    async fn scale(&self, jobs: u32, trainers: u32, times: u32) -> anyhow::Result<Vec<u32>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut events = std::pin::pin!(watcher(pods, watcher::Config::default()));
        while !matches!(events.try_next().await?, Some(watcher::Event::InitDone)) {}
        let mut random = Random::seeded(9);
        let mut waiting: Vec<u32> = (0..jobs).collect();
        let mut took = Vec::new();
        for _ in 0..times.min(jobs) {
            let number = waiting.swap_remove((random.bits() % waiting.len() as u64) as usize);
            let pod = format!("{}-trainer-{trainers}", name(number));
            // Jobs are looked at by turns anyway: from moment to moment, a change has longer or shorter to wait for that.
            sleep(Duration::from_millis(random.bits() % 300)).await;
            let began = Instant::now();
            let patch = json!({ "spec": { "trainer": { "replicas": trainers + 1 } } });
            self.jobs().patch(&name(number), &PatchParams::default(), &Patch::Merge(patch)).await?;
            let made = async {
                loop {
                    match events.try_next().await? {
                        Some(watcher::Event::Apply(seen)) if seen.name_any() == pod => break,
                        Some(_) => {}
                        None => anyhow::bail!("the watch ended"),
                    }
                }
                Ok(())
            };
            tokio::time::timeout(PATIENCE, made).await.with_context(|| format!("{pod} was not made"))??;
            took.push(began.elapsed().as_millis() as u32);
        }
        Ok(took)
    }

    async fn delete(&self) -> anyhow::Result<()> {
        Ok(self.jobs().delete_collection(&DeleteParams::default(), &ListParams::default()).await.map(drop)?)
    }

    /// Jobs and pods that are still there.
    async fn left(&self) -> anyhow::Result<usize> {
        let (jobs, pods) = (self.jobs(), Api::<Pod>::namespaced(self.client.clone(), NAMESPACE));
        let all = ListParams::default();
        let (jobs, pods) = tokio::try_join!(jobs.list_metadata(&all), pods.list_metadata(&all))?;
        Ok(jobs.items.len() + pods.items.len())
    }
}

fn name(number: u32) -> String {
    format!("job-{number}")
}
