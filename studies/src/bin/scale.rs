//! What an operator costs that keeps thousands of jobs:
//!
//! `KUBEBUILDER_ASSETS=$(bash .ci/control-plane) cargo run --release -p shoal-studies --bin scale [-- --jobs 50,500,5000]`
//!
//! One job of ten pods is recorded on a real control plane with pretended nodes: its objects, the life of a pod, its end. Then copies of
//! it are replayed to an operator by a server in memory, for each number of jobs on twice as many nodes. The operator begins and comes
//! to rest; rests; then a trainer of each job is evicted once in `--lost-every` and each node's kubelet says once in five minutes
//! that it lives. Masters are pretended and answer nothing, which is said of each job within its first minute. Time, memory and calls
//! are those of the operator, which is a process; so is the time from when a pod is gone until its successor is made. Exits 0 only if every pod that was lost was made again.
#![allow(clippy::print_stderr, reason = "a study's figures")]
#![allow(clippy::print_stdout, reason = "its table is what it is for")]

use anyhow::ensure;
use clap::Parser;
use serde_json::json;
use shoal_runtime::host::random::Random;
use shoal_studies::operator::{Begun, OPERATOR, Operator, Pretended, begin, calls, number, quantile};
use shoal_studies::replay::{Recording, Replay, record};
use shoal_tests::costs::percentile;
use shoal_tests::processes::programs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// Trainers of the job.
const TRAINERS: u32 = 8;
/// Kubelets write the status of their node so often when nothing of it changes.
const HEARTBEAT: Duration = Duration::from_secs(300);
/// By then the operator has said of every job that its master does not answer.
const SILENCE_IS_SAID: Duration = Duration::from_secs(75);
/// Every pod that was lost is there again so long after the last.
const PATIENCE: Duration = Duration::from_secs(60);

/// What an operator costs that keeps thousands of jobs.
#[derive(Parser)]
struct Arguments {
    /// How many jobs; one row for each number
    #[arg(long, value_delimiter = ',', default_value = "50,500,5000")]
    jobs: Vec<u32>,
    /// How long the jobs rest, and how long they lose trainers
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seconds in which each job loses one trainer: more than --seconds
    #[arg(long, default_value_t = 600)]
    lost_every: u64,
    /// The operator's program; by default it is built as this program was
    #[arg(long)]
    operator: Option<PathBuf>,
}

/// What the operator has used and done so far.
struct Spent {
    at: Instant,
    cpu_micros: u64,
    page: String,
}

impl Spent {
    async fn of(operator: &Operator) -> anyhow::Result<Spent> {
        Ok(Spent { at: Instant::now(), cpu_micros: operator.cpu_micros()?, page: operator.page().await? })
    }

    /// Percent of a processor, calls a second, and milliseconds that a plan took.
    fn since(&self, before: &Spent) -> anyhow::Result<(f64, f64, f64)> {
        let seconds = (self.at - before.at).as_secs_f64();
        let more = |name: &str| anyhow::Ok(number(&self.page, name)? - number(&before.page, name)?);
        let plans = more("shoal_operator_plans_total")?.max(1.0);
        let (now, then) = (calls(&self.page), calls(&before.page));
        for (kind, count) in &now {
            let more = count - then.get(kind).copied().unwrap_or_default();
            if more > 0 {
                eprintln!("  {kind}: {:.2} a second", more as f64 / seconds);
            }
        }
        let asked = now.values().sum::<u64>() - then.values().sum::<u64>();
        Ok((
            (self.cpu_micros - before.cpu_micros) as f64 / 1e4 / seconds,
            asked as f64 / seconds,
            more("shoal_operator_plans_seconds_total")? * 1000.0 / plans,
        ))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.lost_every > arguments.seconds, "--lost-every is longer than --seconds");
    let program = match &arguments.operator {
        Some(program) => program.clone(),
        None => programs()?.shoal.with_file_name("shoal-operator"),
    };
    let recording = recorded(&program).await?;
    println!(
        "| jobs | pods | nodes | JSON of pods, MiB | begins: s, calls a job | MiB at most | at rest: CPU % | MiB | calls a s | plan, ms | pods lost a s | CPU % | calls a s | plan, ms | gone -> made, ms: p50, p99, most | reconcile p99, ms at most | MiB at most |"
    );
    println!("|{}", " ---: |".repeat(17));
    for jobs in &arguments.jobs {
        measure(&arguments, &program, &recording, *jobs).await?;
    }
    Ok(())
}

/// Makes the job on a real control plane, with this operator, and records it.
async fn recorded(program: &Path) -> anyhow::Result<Recording> {
    let cluster = Pretended::start(4).await?;
    let _operator = Operator::start(program, &cluster.plane.kubeconfig_as(OPERATOR)?).await?;
    let container = json!({ "name": "trainer", "image": "trainer:test", "command": ["train", "--verbose"],
        "resources": { "requests": { "cpu": "2", "memory": "4Gi" }, "limits": { "memory": "4Gi" } } });
    let job = json!({
        "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": "recorded", "namespace": "default" },
        "spec": {
            "data": ["/data/*.recordio"], "checkpoint": { "place": "/shared/place" },
            "trainer": { "minReplicas": 2, "maxReplicas": TRAINERS,
                "template": { "spec": { "terminationGracePeriodSeconds": 2, "containers": [container] } } },
        },
    });
    record(&cluster.client, &job).await
}

async fn measure(
    arguments: &Arguments,
    program: &Path,
    recording: &Recording,
    jobs: u32,
) -> anyhow::Result<()> {
    let nodes = 2 * jobs;
    let replay = Replay::start(recording.clone(), jobs, nodes).await?;
    eprintln!("{jobs} jobs begin:");
    let Begun { operator, took, calls } = begin(program, &replay.kubeconfig()).await?;
    let (_, begun_mib) = operator.memory_mib()?;

    sleep(SILENCE_IS_SAID).await;
    eprintln!("{jobs} jobs rest:");
    let before = Spent::of(&operator).await?;
    sleep(Duration::from_secs(arguments.seconds)).await;
    let rested = Spent::of(&operator).await?.since(&before)?;
    let (rested_mib, _) = operator.memory_mib()?;

    eprintln!("{jobs} jobs lose trainers:");
    let before = Spent::of(&operator).await?;
    let lost = lose(arguments, &replay, jobs, nodes).await?;
    let after = Spent::of(&operator).await?;
    let busy = after.since(&before)?;
    let began = Instant::now();
    while replay.missing() > 0 {
        ensure!(began.elapsed() < PATIENCE, "{} pods were not made again", replay.missing());
        sleep(Duration::from_millis(100)).await;
    }
    let mut made_again = replay.take_made_again();
    let (_, peak_mib) = operator.memory_mib()?;
    let reconcile = quantile(&before.page, &after.page, "shoal_operator_reconcile_seconds", 0.99)?;
    println!(
        "| {jobs} | {} | {nodes} | {} | {:.1}, {:.1} | {begun_mib} | {:.1} | {rested_mib} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {}, {}, {} | {:.0} | {peak_mib} |",
        jobs * recording.pods(),
        replay.pod_bytes() >> 20,
        took.as_secs_f64(),
        calls as f64 / f64::from(jobs),
        rested.0,
        rested.1,
        rested.2,
        f64::from(lost) / arguments.seconds as f64,
        busy.0,
        busy.1,
        busy.2,
        percentile(&mut made_again, 50),
        percentile(&mut made_again, 99),
        percentile(&mut made_again, 100),
        reconcile * 1000.0,
    );
    Ok(())
}

/// Has jobs lose trainers and kubelets write. Returns how many trainers were lost.
async fn lose(arguments: &Arguments, replay: &Replay, jobs: u32, nodes: u32) -> anyhow::Result<u32> {
    let mut losses = interval(Duration::from_secs(arguments.lost_every) / jobs);
    let mut heartbeats = interval(HEARTBEAT / nodes);
    losses.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let until = sleep(Duration::from_secs(arguments.seconds));
    let mut until = std::pin::pin!(until);
    let mut random = Random::seeded(7);
    // Each at most once: whose trainers go again before a step was made gets the next later, and no step is made here.
    let mut left: Vec<u32> = (0..jobs).collect();
    let (mut lost, mut node) = (0, 0);
    loop {
        tokio::select! {
            () = &mut until => return Ok(lost),
            _ = losses.tick() => {
                let job = left.swap_remove((random.bits() % left.len() as u64) as usize);
                replay.evict(job, (random.bits() % u64::from(TRAINERS)) as u32)?;
                lost += 1;
            }
            _ = heartbeats.tick() => {
                replay.heartbeat(node % nodes);
                node += 1;
            }
        }
    }
}
