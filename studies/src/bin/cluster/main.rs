//! A simulator's scenario on a real control plane, watched by `shoal collect` and held against the simulator:
//!
//! `cargo build -p shoal-cli -p shoal-operator --features shoal-cli/full && \
//! KUBEBUILDER_ASSETS=$(bash .ci/control-plane) cargo run -p shoal-studies --bin cluster -- benches/scenarios/paddlecloud-1.yaml`
//!
//! API server, scheduler, controller manager (with it Deployments and HorizontalPodAutoscalers) and the operator are real, the
//! operator with the rights that it is installed with. Pods are pretended: they take the scenario's time to start and to stop,
//! jobs make steps at the speed of its model while their pods are ready, and pods of services use what its load asks for.
//! With `--processes` jobs are real: master, pservers and trainers are processes of this machine, once their scenario's time to
//! start is over, and only the device's time is pretended, by a pause before each microbatch.
//! `--shorten` divides the work of jobs and the times of loads; nothing else runs faster than in life, and the simulator is given
//! the very same scenario. Exits 0 if as many jobs were done as in the simulation.
#![allow(clippy::print_stderr, reason = "a study says how far it is")]
#![allow(clippy::print_stdout, reason = "its table is what it is for")]

mod manifests;
mod real;
mod table;
mod training;

use anyhow::{Context, anyhow, ensure};
use clap::Parser;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use real::Real;
use serde_json::Value;
use shoal_experiments::simulator::scenario::Scenario;
use shoal_experiments::simulator::{Policy, simulate};
use shoal_test_cluster::{ControlPlane, Kubelet, KubeletSettings, Metrics, Run};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// With the rights that it is installed with.
const OPERATOR: &str = "system:serviceaccount:shoal-system:shoal-operator";
const MASTER: &str = "shoal-master:test";
const PSERVER: &str = "shoal-pserver:test";
/// How often steps are counted and use is told.
const TURN: Duration = Duration::from_millis(200);
/// How long anything but the experiment may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A simulator's scenario on a real control plane
#[derive(Parser)]
struct Arguments {
    /// The scenario
    #[arg(value_name = "SCENARIO.yaml")]
    scenario: PathBuf,
    /// Work of jobs and times of loads are divided by it
    #[arg(long, default_value_t = 30.0)]
    shorten: f64,
    /// Run jobs as processes; a trainer pauses for as long as its device would compute
    #[arg(long)]
    processes: bool,
    /// Write what shoal collect saw there, and a page beside it
    #[arg(long, value_name = "FILE.json")]
    out: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let text = std::fs::read_to_string(&arguments.scenario)?;
    let scenario = Scenario::read(&text).map_err(|wrong| anyhow!(wrong.join("\n")))?;
    let scenario = scenario.shortened(arguments.shorten);
    refuse_unplayable(&scenario)?;
    let simulated = shoal_experiments::object(&simulate(&scenario, Policy::Shoal, |_| ()), true);
    let real = arguments.processes.then(|| Real::prepared(&scenario)).transpose()?;
    let observed = observed(&arguments, &scenario, real.as_ref()).await?;
    if let Some(out) = &arguments.out {
        std::fs::write(out, observed.to_string())?;
    }
    table::print(&scenario, &simulated, &observed["cluster"]);
    if let Some(real) = &real {
        for job in &scenario.jobs {
            println!("model of {}: {}", job.name, real.model(job)?);
        }
    }
    let done = |figures: &Value| figures["jobs_done"].as_u64();
    ensure!(done(&simulated) == done(&observed["cluster"]), "not as many jobs were done");
    Ok(())
}

/// A program beside this one.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name(name);
    ensure!(
        program.is_file(),
        "{} is missing: cargo build -p shoal-cli -p shoal-operator --features shoal-cli/full",
        program.display()
    );
    Ok(program)
}

/// What a simulator can play and this cannot.
fn refuse_unplayable(scenario: &Scenario) -> anyhow::Result<()> {
    ensure!(scenario.nodes.len() == 1, "one kind of nodes can be had here");
    ensure!(scenario.failures.is_empty(), "nodes are not lost here");
    for job in &scenario.jobs {
        ensure!(job.count == 1 && !job.drawn, "{}: jobs are submitted one by one here", job.name);
        let takes_compute_alone = job.speed.fixed_seconds == 0.0 && job.speed.model_mb == 0.0;
        ensure!(takes_compute_alone, "{}: a step takes compute alone here", job.name);
    }
    Ok(())
}

/// Plays the scenario. Returns what the collector printed.
async fn observed(arguments: &Arguments, scenario: &Scenario, real: Option<&Real>) -> anyhow::Result<Value> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let plane = ControlPlane::start(&deploy.join("crds.yaml")).await?;
    plane.install(&deploy)?;
    let client = plane.client().await?;
    let nodes = &scenario.nodes[0];
    let run = if real.is_some() { Run::Processes } else { Run::Pretended };
    let mut settings = KubeletSettings::of(nodes.count as usize, run, &[MASTER, PSERVER, manifests::IMAGE]);
    settings.path = real.iter().flat_map(|real| real.path.clone()).collect();
    let capacity: std::collections::BTreeMap<String, String> =
        serde_json::from_value(manifests::amounts(&nodes.amounts))?;
    settings.capacity.extend(capacity);
    let _kubelet = Kubelet::start(client.clone(), settings).await?;
    let metrics = Metrics::start(&plane).await?;
    let _operator = Command::new(program("shoal-operator")?)
        .args(["--master-image", MASTER, "--pserver-image", PSERVER])
        .env("KUBECONFIG", plane.kubeconfig_as(OPERATOR)?)
        .env("SHOAL_LOG", "error")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    wait_for_leader(&plane).await?;
    let pods = pods(&client).await?;
    let mut collector = collector(arguments, scenario, &plane)?;
    let said = collector.stderr.take().context("no standard error")?;
    let mut said = BufReader::new(said).lines();
    timeout(PATIENCE, said.next_line()).await.context("the collector says nothing")??;
    let told = tokio::spawn(async move {
        while let Ok(Some(line)) = said.next_line().await {
            eprintln!("{line}");
        }
    });
    let mut figures = String::new();
    let mut out = collector.stdout.take().context("no standard output")?;
    tokio::select! {
        played = play(scenario, real, &plane, &client, &pods, &metrics) => played?,
        read = out.read_to_string(&mut figures) => drop(read?),
    }
    let status = collector.wait().await?;
    ensure!(status.success(), "shoal collect ended with {status}");
    told.await?;
    Ok(serde_json::from_str(&figures)?)
}

fn collector(arguments: &Arguments, scenario: &Scenario, plane: &ControlPlane) -> anyhow::Result<Child> {
    let mut collect = Command::new(program("shoal")?);
    collect.arg("collect").args(["--seconds", &scenario.seconds.to_string(), "-o", "json"]);
    // To the end: it waits for a job that never comes.
    let jobs = scenario.jobs.len() + usize::from(scenario.to_the_end);
    collect.args([
        "--jobs",
        &jobs.to_string(),
        "--serving",
        "part=serving",
        "--resource",
        &scenario.resource,
    ]);
    if let Some(out) = &arguments.out {
        collect.arg("--html").arg(out.with_extension("html"));
    }
    collect.env("KUBECONFIG", plane.kubeconfig()).stdin(Stdio::null()).kill_on_drop(true);
    Ok(collect.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
}

async fn wait_for_leader(plane: &ControlPlane) -> anyhow::Result<()> {
    let holder =
        ["get", "lease", "shoal-operator", "-n", "shoal-system", "-o", "jsonpath={.spec.holderIdentity}"];
    let deadline = Instant::now() + PATIENCE;
    while plane.kubectl(&holder).is_ok_and(|holder| holder.is_empty()) || plane.kubectl(&holder).is_err() {
        ensure!(Instant::now() < deadline, "no operator leads");
        sleep(TURN).await;
    }
    Ok(())
}

/// All pods, kept up to date.
async fn pods(client: &Client) -> anyhow::Result<Store<Pod>> {
    let (store, writer) = reflector::store();
    let all = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default());
    let events = all.default_backoff().reflect(writer);
    tokio::spawn(async move {
        let mut events = std::pin::pin!(events);
        while futures_util::StreamExt::next(&mut events).await.is_some() {}
    });
    timeout(PATIENCE, store.wait_until_ready()).await??;
    Ok(store)
}

/// Submits jobs when it is time, lets them make steps, lets services be loaded. Never ends.
async fn play(
    scenario: &Scenario,
    real: Option<&Real>,
    plane: &ControlPlane,
    client: &Client,
    pods: &Store<Pod>,
    metrics: &Metrics,
) -> anyhow::Result<()> {
    let began = Instant::now();
    for service in &scenario.serving {
        for manifest in manifests::service(scenario, service) {
            plane.apply(&manifest.to_string())?;
        }
    }
    let mut waiting: Vec<_> = scenario.jobs.iter().collect();
    waiting.sort_by(|a, b| b.submit_seconds.total_cmp(&a.submit_seconds));
    let mut training = training::Training::new(scenario);
    let mut last = 0.0;
    loop {
        let now = began.elapsed().as_secs_f64();
        while let Some(job) = waiting.pop_if(|job| job.submit_seconds <= now) {
            plane.apply(&manifests::job(scenario, job, real).to_string())?;
        }
        let there = pods.state();
        for job in training.go_on(now - last, &there) {
            // Real ones end by themselves.
            if real.is_none() {
                training::end(client, &job).await?;
            }
        }
        metrics.set(training::uses(&scenario.serving, now, &there));
        last = now;
        sleep(TURN).await;
    }
}
