//! `shoal submit`: what a file says of jobs becomes what a cluster runs.

use super::wait::{What, until};
use crate::cluster::{Cluster, ClusterChoice, explained};
use crate::manifest;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shoal_operator::api::WrittenJob;
use shoal_runner::exit::Exit;
use shoal_runner::output::{Output, print_outcome};
use std::path::PathBuf;
use std::process::ExitCode;

/// Who wrote the fields that are submitted.
const FIELD_MANAGER: &str = "shoal";

/// Give training jobs to a Kubernetes cluster, or change them there
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shoal submit -f job.yaml --watch\n  shoal submit -f job.yaml --dry-run\n\
`shoal run -f job.yaml` runs the same job on this machine."
)]
pub(crate) struct SubmitArguments {
    /// TrainingJobs in YAML or JSON, or - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Stay until the job has ended, and tell how it is; its end is the exit code. Interrupted, the job goes on
    #[arg(short, long, conflicts_with = "dry_run")]
    watch: bool,
    /// Let the cluster check the jobs, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    cluster: ClusterChoice,
    /// How to print what was done, or with --watch the job in the end
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) async fn submit(arguments: SubmitArguments) -> anyhow::Result<ExitCode> {
    let SubmitArguments { file, watch, dry_run, cluster: choice, output } = arguments;
    let written = manifest::read(&file)?;
    if watch && written.len() > 1 {
        return Err(
            Exit::Usage(format!("--watch is of one job: {} has {}", file.display(), written.len())).into()
        );
    }
    let mut cluster = choice.connect().await?;
    let mut done = Vec::new();
    for one in &written {
        cluster.namespace = namespace(one, &choice, &cluster)?;
        done.push((one.job.name_any(), applied(&cluster, one, dry_run).await?));
    }
    if let (true, Some((name, what))) = (watch, done.first()) {
        note!("{name} {what}");
        return until(&cluster, name, What::Succeeded, None, output).await;
    }
    match output {
        Output::Json => {
            let jobs = done.iter().map(|(name, what)| json!({ "name": name, "outcome": what }));
            print_outcome(json!({ "jobs": jobs.collect::<Vec<_>>(), "dry_run": dry_run }))?;
        }
        Output::Text => {
            done.iter().try_for_each(|(name, what)| print_outcome(format_args!("{name} {what}")))?;
            if let (false, Some((name, _))) = (dry_run, done.first()) {
                note!(
                    "look at it: shoal get {name}   wait for it: shoal wait {name}   its logs: shoal logs {name} --follow"
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a job is to be: where its file says, or else where the command line or the context say.
fn namespace(written: &WrittenJob, choice: &ClusterChoice, cluster: &Cluster) -> Result<String, Exit> {
    match (written.job.namespace(), &choice.namespace) {
        (Some(its), Some(asked)) if its != *asked => Err(Exit::Usage(format!(
            "metadata.namespace: {its}, but --namespace says {asked}: take one of them out"
        ))),
        (Some(its), _) => Ok(its),
        (None, Some(asked)) => Ok(asked.clone()),
        (None, None) => Ok(cluster.namespace.clone()),
    }
}

/// Applies a job as it was written. Says what that has changed.
async fn applied(cluster: &Cluster, written: &WrittenJob, dry_run: bool) -> anyhow::Result<&'static str> {
    let (jobs, name) = (cluster.jobs(), written.job.name_any());
    let before = jobs.get_opt(&name).await.map_err(explained)?;
    let mut parameters = PatchParams::apply(FIELD_MANAGER).force();
    parameters.dry_run = dry_run;
    let after = jobs.patch(&name, &parameters, &Patch::Apply(&written.manifest)).await.map_err(explained)?;
    Ok(match before {
        None => "created",
        Some(before) if before.spec == after.spec => "unchanged",
        Some(_) => "changed",
    })
}
