//! `shoal logs`: what the pods of a job say, each line with who said it.

mod position;
mod reader;

use crate::cluster::text::status_of;
use crate::cluster::{Cluster, ClusterChoice, explained};
use crate::silence::Silence;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use position::PATIENCE;
use reader::{Reader, state};
use serde_json::json;
use shoal_operator::manifest::{JOB_LABEL, ROLE_LABEL, program_of};
use shoal_runner::exit::Exit;
use shoal_runner::output::{Output, print};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How often new pods are looked for.
const LOOK: Duration = Duration::from_secs(2);
/// Lines that wait to be printed.
const LINES_MAX: usize = 1024;

/// Show what the pods of a training job of a Kubernetes cluster say
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shoal logs digits --follow\n  shoal logs digits trainer-3 --tail 100\n  shoal logs digits --role master"
)]
pub(crate) struct LogsArguments {
    /// Name of the job
    #[arg(value_name = "JOB")]
    job: String,
    /// Pods, such as trainer-3 or digits-trainer-3; by default all
    #[arg(value_name = "POD")]
    pods: Vec<String>,
    /// Only pods of this role
    #[arg(long, value_parser = ["master", "pserver", "trainer"], value_name = "ROLE", conflicts_with = "pods")]
    role: Option<String>,
    /// Go on with what they say from now on, and with pods that are made later, until the job has ended
    #[arg(short, long)]
    follow: bool,
    /// Only so many lines of each that have been said already
    #[arg(long, value_name = "LINES")]
    tail: Option<i64>,
    #[command(flatten)]
    cluster: ClusterChoice,
    /// How to print each line
    #[arg(short, long, default_value = "text")]
    output: Output,
}

/// A line, and which pod has said it; or why a pod's lines cannot be had.
type Said = (String, Result<String, String>);

pub(crate) async fn logs(arguments: LogsArguments) -> anyhow::Result<ExitCode> {
    let cluster = arguments.cluster.connect().await?;
    let job = cluster.job(&arguments.job).await?;
    let pods = chosen(&cluster, &arguments).await?;
    if pods.is_empty() && !(arguments.follow && arguments.pods.is_empty()) {
        let (of, name, phase) = (which(&arguments), &arguments.job, status_of(&job).phase);
        let what = format!("job {name} has no pods{of}; it is {phase}: see `shoal why {name}`");
        return Err(Exit::Usage(what).into());
    }
    // The name of a job stands before the names of all its pods: one that is alone needs none.
    let is_alone = arguments.pods.len() == 1;
    let (said, mut lines) = mpsc::channel(LINES_MAX);
    let reading = tokio::spawn(read(cluster, arguments.job.clone(), said, pods, Choice::of(&arguments)));
    let short = format!("{}-", arguments.job);
    let mut has_failed = false;
    while let Some((pod, line)) = lines.recv().await {
        let pod = pod.strip_prefix(&short).unwrap_or(&pod).to_owned();
        match (line, arguments.output) {
            (Ok(line), Output::Json) => print(json!({ "pod": pod, "line": line }))?,
            (Ok(line), Output::Text) if is_alone => print(line)?,
            (Ok(line), Output::Text) => print(format_args!("{pod} | {line}"))?,
            (Err(why), _) => {
                has_failed = true;
                note!("warning: {pod}: {why}");
            }
        }
    }
    reading.await??;
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn which(arguments: &LogsArguments) -> String {
    match (&arguments.pods[..], &arguments.role) {
        ([], None) => String::new(),
        ([], Some(role)) => format!(" of role {role}"),
        (pods, _) => format!(" called {}", pods.join(" or ")),
    }
}

/// Whose lines are read, and how.
struct Choice {
    selector: String,
    pods: Vec<String>,
    follow: bool,
    tail: Option<i64>,
}

impl Choice {
    fn of(arguments: &LogsArguments) -> Choice {
        let LogsArguments { job, pods, role, follow, tail, .. } = arguments;
        let role = role.as_ref().map(|role| format!(",{ROLE_LABEL}={role}")).unwrap_or_default();
        let prefix = format!("{job}-");
        let full =
            |pod: &String| if pod.starts_with(&prefix) { pod.clone() } else { format!("{prefix}{pod}") };
        Choice {
            selector: format!("{JOB_LABEL}={job}{role}"),
            pods: pods.iter().map(full).collect(),
            follow: *follow,
            tail: *tail,
        }
    }

    async fn pods(&self, cluster: &Cluster) -> anyhow::Result<Vec<Pod>> {
        let listed = cluster.pods().list(&ListParams::default().labels(&self.selector)).await;
        let mut pods = listed.map_err(explained)?.items;
        pods.retain(|pod| self.pods.is_empty() || self.pods.contains(&pod.name_any()));
        pods.sort_by_key(ResourceExt::name_any);
        Ok(pods)
    }
}

async fn chosen(cluster: &Cluster, arguments: &LogsArguments) -> anyhow::Result<Vec<Pod>> {
    Choice::of(arguments).pods(cluster).await
}

/// Reads pods until they, and with `--follow` the job, have ended. An API server that is away is waited for.
async fn read(
    cluster: Cluster,
    job: String,
    said: mpsc::Sender<Said>,
    mut pods: Vec<Pod>,
    choice: Choice,
) -> anyhow::Result<()> {
    let mut readers = JoinSet::new();
    let mut known = BTreeSet::new();
    let mut silence = Silence::of_at_most(PATIENCE);
    loop {
        for pod in pods.iter().filter(|pod| state(pod).is_some()) {
            if known.insert(pod.uid()) {
                let reader = Reader {
                    cluster: cluster.clone(),
                    said: said.clone(),
                    pod: pod.name_any(),
                    container: program_of(pod).map(str::to_owned),
                    uid: pod.uid(),
                    is_named: !choice.pods.is_empty(),
                    tail: choice.tail,
                };
                let follow = choice.follow;
                readers
                    .spawn(async move { if follow { reader.follow().await } else { reader.read().await } });
            }
        }
        if !choice.follow || said.is_closed() {
            break;
        }
        tokio::time::sleep(LOOK).await;
        match look(&cluster, &job, &choice).await {
            Ok(Some(found)) => {
                pods = found;
                silence.end();
            }
            Ok(None) => break,
            Err(error) => silence.bear(error, true)?,
        }
    }
    while readers.join_next().await.is_some() {}
    Ok(())
}

/// The pods of a job that goes on; none of one that is over.
async fn look(cluster: &Cluster, job: &str, choice: &Choice) -> anyhow::Result<Option<Vec<Pod>>> {
    let found = cluster.jobs().get_opt(job).await.map_err(explained)?;
    if found.is_none_or(|job| status_of(&job).phase.is_over()) {
        return Ok(None);
    }
    choice.pods(cluster).await.map(Some)
}
