//! `shoal logs`: what the pods of a job say, each line with who said it.

use crate::cluster::text::status_of;
use crate::cluster::{Cluster, ClusterChoice, explained};
use crate::commands::{Output, print};
use crate::exit::Exit;
use futures_util::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{ListParams, LogParams};
use serde_json::json;
use shoal_operator::manifest::{JOB_LABEL, ROLE_LABEL};
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

/// Reads pods until they, and with `--follow` the job, have ended.
async fn read(
    cluster: Cluster,
    job: String,
    said: mpsc::Sender<Said>,
    mut pods: Vec<Pod>,
    choice: Choice,
) -> anyhow::Result<()> {
    let mut readers = JoinSet::new();
    let mut known = BTreeSet::new();
    loop {
        for pod in pods.iter().filter(|pod| has_begun(pod)) {
            if known.insert(pod.uid()) {
                let (cluster, said, pod) = (cluster.clone(), said.clone(), pod.name_any());
                let (follow, tail_lines) = (choice.follow, choice.tail);
                let parameters = LogParams { follow, tail_lines, ..LogParams::default() };
                let is_named = !choice.pods.is_empty();
                readers.spawn(async move { read_pod(&cluster, &pod, is_named, &parameters, &said).await });
            }
        }
        let is_over = !choice.follow
            || said.is_closed()
            || cluster
                .jobs()
                .get_opt(&job)
                .await
                .map_err(explained)?
                .is_none_or(|job| status_of(&job).phase.is_over());
        if is_over {
            break;
        }
        tokio::time::sleep(LOOK).await;
        pods = choice.pods(&cluster).await?;
    }
    while readers.join_next().await.is_some() {}
    Ok(())
}

/// Whether its container has said, or can say, something.
fn has_begun(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut states = containers.filter_map(|one| one.state.as_ref());
    states.any(|state| state.running.is_some() || state.terminated.is_some())
}

async fn read_pod(
    cluster: &Cluster,
    pod: &str,
    is_named: bool,
    parameters: &LogParams,
    said: &mpsc::Sender<Said>,
) {
    let read = async {
        let mut lines = cluster.pods().log_stream(pod, parameters).await?.lines();
        while let Some(line) = lines.try_next().await.map_err(kube::Error::ReadEvents)? {
            if said.send((pod.to_owned(), Ok(line))).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    if let Err(error) = read.await {
        let why = match error {
            // It went between the list and this: a job that is over removes its pods.
            kube::Error::Api(status) if status.code == 404 && !is_named => return,
            kube::Error::Api(status) => status.message.clone(),
            other => format!("{:#}", explained(other)),
        };
        let _ = said.send((pod.to_owned(), Err(why))).await;
    }
}
