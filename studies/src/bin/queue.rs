//! What an operator costs that has nothing to do: jobs that wait for room, jobs that are over, pods of others.
//!
//! `KUBEBUILDER_ASSETS=$(bash .ci/control-plane) cargo run --release -p shoal-studies --bin queue [-- --waiting 50,500,5000]`
//!
//! A real control plane and the operator as a process, with the rights that it is installed with. For each size a cluster of its
//! own, with all of that in it before the operator begins: no node has room for the jobs that wait; pods of others are on nodes
//! that nobody runs. The operator comes to rest; then what it uses and asks in `--rest-seconds` is counted, by its own metrics and
//! /proc; then it is killed and started again, and comes to rest again.
#![allow(clippy::print_stderr, reason = "a study's figures")]
#![allow(clippy::print_stdout, reason = "its table is what it is for")]

use anyhow::ensure;
use clap::Parser;
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shoal_operator::api::TrainingJob;
use shoal_studies::operator::{OPERATOR, begin, calls};
use shoal_test_cluster::ControlPlane;
use shoal_tests::processes::programs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

const NAMESPACE: &str = "default";
/// Requests of this program that are under way at a time.
const AT_A_TIME: usize = 16;
/// Pods of others on a node.
const PODS_A_NODE: u32 = 100;
/// What an operator costs that has nothing to do.
#[derive(Parser)]
struct Arguments {
    /// Jobs that wait; one row for each number
    #[arg(long, value_delimiter = ',', default_value = "50,500,5000,0,0,0")]
    waiting: Vec<u32>,
    /// Jobs that are over, of each row
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000,0,0,0")]
    finished: Vec<u32>,
    /// Pods of others, of each row
    #[arg(long, value_delimiter = ',', default_value = "0,0,0,1000,5000,20000")]
    pods: Vec<u32>,
    /// How long the operator rests
    #[arg(long, default_value_t = 60)]
    rest_seconds: u64,
    /// The operator's program; by default it is built as this program was
    #[arg(long)]
    operator: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let rows = arguments.waiting.len();
    ensure!(
        arguments.finished.len() == rows && arguments.pods.len() == rows,
        "--waiting, --finished and --pods have as many numbers each"
    );
    println!(
        "| waiting | finished | pods of others | first: s, calls | at rest: CPU % | MiB | calls a s | again: s, calls | MiB at most |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let program = match &arguments.operator {
        Some(program) => program.clone(),
        None => programs()?.shoal.with_file_name("shoal-operator"),
    };
    let sizes = arguments.waiting.iter().zip(&arguments.finished).zip(&arguments.pods);
    for ((waiting, finished), pods) in sizes {
        measure(&arguments, &program, (*waiting, *finished, *pods)).await?;
    }
    Ok(())
}

async fn measure(
    arguments: &Arguments,
    program: &Path,
    (waiting, finished, pods): (u32, u32, u32),
) -> anyhow::Result<()> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let plane = ControlPlane::start(&deploy.join("crds.yaml")).await?;
    plane.install(&deploy)?;
    let client = plane.client().await?;
    make_pods(&client, pods).await?;
    make_jobs(&client, waiting, finished).await?;
    let kubeconfig = plane.kubeconfig_as(OPERATOR)?;
    let first = begin(program, &kubeconfig).await?;

    let (before, cpu) = (calls(&first.operator.page().await?), first.operator.cpu_micros()?);
    sleep(Duration::from_secs(arguments.rest_seconds)).await;
    let seconds = arguments.rest_seconds as f64;
    let cpu = (first.operator.cpu_micros()? - cpu) as f64 / 1e4 / seconds;
    let after = calls(&first.operator.page().await?);
    let (memory, _) = first.operator.memory_mib()?;
    let rested: u64 = after.values().sum::<u64>() - before.values().sum::<u64>();
    for (kind, count) in &after {
        let more = count - before.get(kind).copied().unwrap_or(0);
        if more > 0 {
            eprintln!("at rest: {kind}: {:.2} a second", more as f64 / seconds);
        }
    }
    let (first_took, first_calls) = (first.took, first.calls);
    drop(first);
    let again = begin(program, &kubeconfig).await?;
    let (_, peak) = again.operator.memory_mib()?;
    println!(
        "| {waiting} | {finished} | {pods} | {:.0}, {first_calls} | {cpu:.2} | {memory} | {:.2} | {:.1}, {} | {peak} |",
        first_took.as_secs_f64(),
        rested as f64 / seconds,
        again.took.as_secs_f64(),
        again.calls,
    );
    Ok(())
}

/// Makes pods that are on nodes which nobody runs, with as much in them as usual ones have.
async fn make_pods(client: &Client, count: u32) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for number in 0..count.div_ceil(PODS_A_NODE) {
        let node = json!({ "metadata": { "name": node(number) } });
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let made = (0..count).map(|number| {
        let pods = &pods;
        async move {
            let pod = serde_json::from_value(other_pod(number))?;
            pods.create(&PostParams::default(), &pod).await?;
            let status = Patch::Strategic(json!({ "status": running() }));
            pods.patch_status(&format!("other-{number}"), &PatchParams::default(), &status).await?;
            anyhow::Ok(())
        }
    });
    stream::iter(made).buffer_unordered(AT_A_TIME).try_collect().await
}

fn node(number: u32) -> String {
    format!("other-{number}")
}

fn other_pod(number: u32) -> Value {
    let variable = |at: u32| json!({ "name": format!("VARIABLE_{at}"), "value": format!("http://service-{at}.namespace.svc:8080") });
    let probe = json!({ "httpGet": { "path": "/healthz", "port": 8080 }, "periodSeconds": 10 });
    let container = json!({
        "name": "web", "image": "registry.example/team/web:2026-01-01-0123456789abcdef", "args": ["--serve", "--verbose"],
        "env": (0..12).map(variable).collect::<Vec<Value>>(), "livenessProbe": probe, "readinessProbe": probe,
        "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "256Mi" } },
        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
    });
    json!({
        "metadata": {
            "name": format!("other-{number}"),
            "labels": { "app.kubernetes.io/name": "web", "app.kubernetes.io/instance": format!("web-{}", number / 10), "tier": "front" },
            "annotations": { "checksum/config": "0123456789abcdef".repeat(4), "prometheus.io/scrape": "true" },
        },
        "spec": {
            "nodeName": node(number / PODS_A_NODE), "containers": [container],
            "volumes": [{ "name": "data", "emptyDir": {} }],
            // Nobody runs its node, and it stays there.
            "tolerations": [{ "operator": "Exists" }],
        },
    })
}

fn running() -> Value {
    let at = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": at });
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    let digest = "0123456789abcdef".repeat(4);
    json!({
        "phase": "Running", "podIP": "10.1.2.3", "hostIP": "10.0.0.1", "startTime": at,
        "conditions": conditions,
        "containerStatuses": [{ "name": "web", "image": "registry.example/team/web:2026-01-01-0123456789abcdef",
            "imageID": format!("registry.example/team/web@sha256:{digest}"),
            "containerID": format!("containerd://{digest}"), "ready": true, "restartCount": 0,
            "started": true, "state": { "running": { "startedAt": at } } }],
    })
}

/// Makes jobs that no node has room for, and jobs that are over.
async fn make_jobs(client: &Client, waiting: u32, finished: u32) -> anyhow::Result<()> {
    let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), NAMESPACE);
    let made = (0..waiting + finished).map(|number| {
        let jobs = &jobs;
        async move {
            let name = format!("job-{number}");
            let container = json!({ "name": "trainer", "image": "trainer:test", "command": ["train", "--verbose"],
                "resources": { "requests": { "cpu": "4", "memory": "8Gi" } } });
            let spec = json!({
                "data": ["/data/*.recordio"], "checkpoint": { "place": "/shared/place" },
                "trainer": { "minReplicas": 2, "maxReplicas": 8, "template": { "spec": { "containers": [container] } } },
            });
            let job = TrainingJob::new(&name, serde_json::from_value(spec)?);
            jobs.create(&PostParams::default(), &job).await?;
            if number >= waiting {
                let status = json!({ "status": { "phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z",
                    "message": "done", "conditions": [] } });
                jobs.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
            }
            anyhow::Ok(())
        }
    });
    stream::iter(made).buffer_unordered(AT_A_TIME).try_collect().await
}
