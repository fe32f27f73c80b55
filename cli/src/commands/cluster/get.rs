//! `shoal get`: the jobs of a namespace, or one of them.

use super::now;
use crate::cluster::text::{object, table};
use crate::cluster::{ClusterChoice, explained};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use shoal_operator::api::TrainingJob;
use shoal_runner::output::{Output, print};
use std::process::ExitCode;

/// List the training jobs of a Kubernetes cluster, or show one
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  shoal get\n  shoal get digits -o json\n  shoal get --all-namespaces")]
pub(crate) struct GetArguments {
    /// Name of a job; by default all
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// The jobs of all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["job", "namespace"])]
    all_namespaces: bool,
    #[command(flatten)]
    cluster: ClusterChoice,
    /// How to print the answer
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) async fn get(arguments: GetArguments) -> anyhow::Result<ExitCode> {
    let GetArguments { job, all_namespaces, cluster, output } = arguments;
    let cluster = cluster.connect().await?;
    if let Some(name) = &job {
        let job = cluster.job(name).await?;
        match output {
            Output::Text => print(table(&[job], false, now()))?,
            Output::Json => print(object(&job))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let jobs: Api<TrainingJob> =
        if all_namespaces { Api::all(cluster.client.clone()) } else { cluster.jobs() };
    let mut jobs = jobs.list(&ListParams::default()).await.map_err(explained)?.items;
    jobs.sort_by_key(|job| (job.namespace(), job.name_any()));
    if jobs.is_empty() && !all_namespaces {
        cluster.check_namespace().await?;
    }
    match output {
        Output::Json => print(json!({ "jobs": jobs.iter().map(object).collect::<Vec<_>>() }))?,
        Output::Text if jobs.is_empty() && all_namespaces => note!("there are no training jobs"),
        Output::Text if jobs.is_empty() => {
            note!("there are no training jobs in namespace {}", cluster.namespace);
        }
        Output::Text => print(table(&jobs, all_namespaces, now()))?,
    }
    Ok(ExitCode::SUCCESS)
}
