//! `shoal wait`: until a job of a cluster is as it was asked for. Its exit code says which it was.

use crate::cluster::follow::{Followed, follow};
use crate::cluster::text::{condition, duration, line, object, status_of};
use crate::cluster::{Cluster, ClusterChoice};
use kube::ResourceExt;
use shoal_operator::api::{Phase, TrainingJob};
use shoal_runner::exit::Exit;
use shoal_runner::output::{Output, print_outcome};
use std::process::ExitCode;
use std::time::Duration;

/// Wait for a training job of a Kubernetes cluster
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shoal wait digits --timeout 2h && shoal get digits -o json\n  shoal wait digits --for running\n\
Exit codes: 0 it is so, 1 the job has failed or ended otherwise, 3 the cluster does not answer, 4 not in time,\n5 not permitted."
)]
pub(crate) struct WaitArguments {
    /// Name of the job
    #[arg(value_name = "JOB")]
    job: String,
    /// What to wait for
    #[arg(long = "for", value_enum, default_value = "succeeded", value_name = "WHAT")]
    what: What,
    /// How long at most, such as 90s, 10m or 2h; by default for ever
    #[arg(long, value_parser = duration, value_name = "TIME")]
    timeout: Option<Duration>,
    #[command(flatten)]
    cluster: ClusterChoice,
    /// How to print the job in the end
    #[arg(short, long, default_value = "text")]
    output: Output,
}

/// What of a job is waited for.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It trains
    Running,
    /// All that is wanted is there
    Ready,
    /// It has stopped, and can go on
    Suspended,
    /// It is done
    Succeeded,
    /// It will not go on
    Failed,
}

impl What {
    /// Whether it is so; an error where it can never be.
    fn is_so(self, job: &TrainingJob) -> Option<Result<(), String>> {
        let status = status_of(job);
        // What is said of another spec says nothing of this one.
        if status.observed_generation < job.metadata.generation {
            return None;
        }
        let type_ = format!("{self:?}");
        if condition(&status, &type_).is_some() {
            return Some(Ok(()));
        }
        let why = || {
            condition(&status, "Failed")
                .map_or(status.message.clone(), |(reason, message)| format!("{reason}: {message}"))
        };
        match status.phase {
            Phase::Failed => Some(Err(format!("the job has failed: {}", why()))),
            Phase::Succeeded => {
                Some(Err(format!("the job has succeeded, and will not be {}", type_.to_lowercase())))
            }
            _ => None,
        }
    }
}

pub(crate) async fn wait(arguments: WaitArguments) -> anyhow::Result<ExitCode> {
    let WaitArguments { job, what, timeout, cluster, output } = arguments;
    let cluster = cluster.connect().await?;
    cluster.job(&job).await?;
    until(&cluster, &job, what, timeout, output).await
}

/// Waits, and tells on standard error how the job is meanwhile.
pub(super) async fn until(
    cluster: &Cluster,
    name: &str,
    what: What,
    timeout: Option<Duration>,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let mut told = String::new();
    let seen = |job: &TrainingJob| {
        let now = line(job);
        if now != told {
            note!("{now}");
            told = now;
        }
        Some((job.clone(), what.is_so(job)?))
    };
    let (job, end) = match follow(cluster, name, timeout, seen).await? {
        Followed::Seen(found) => found,
        Followed::Gone => anyhow::bail!("job {name} was deleted"),
        Followed::TimedOut => {
            let why = format!(
                "job {name} is not {what:?} in time; `shoal why {name}` tells why, and the job goes on"
            );
            return Err(Exit::TimedOut(why).into());
        }
    };
    match output {
        Output::Json => print_outcome(object(&job))?,
        Output::Text => print_outcome(format_args!("{} is {}", job.name_any(), status_of(&job).phase))?,
    }
    end.map(|()| ExitCode::SUCCESS).map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(generation: i64, status: Value) -> TrainingJob {
        serde_json::from_value(json!({
            "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": { "name": "j", "generation": generation }, "spec": {}, "status": status,
        }))
        .unwrap()
    }

    fn status(phase: &str, type_: &str) -> Value {
        let condition = json!({
            "type": type_, "status": "True", "reason": "Because", "message": "so", "lastTransitionTime": "2026-11-24T12:00:00Z",
        });
        json!({ "phase": phase, "observedGeneration": 2, "conditions": [condition] })
    }

    #[test]
    fn what_is_waited_for_is_so_only_of_the_newest_spec() {
        let running = status("Running", "Running");
        assert_eq!(What::Running.is_so(&job(2, running.clone())), Some(Ok(())));
        assert_eq!(What::Running.is_so(&job(3, running.clone())), None);
        assert_eq!(What::Succeeded.is_so(&job(2, running)), None);
        assert_eq!(What::Running.is_so(&job(1, json!({}))), None, "nobody has looked at it");
    }

    #[test]
    fn what_can_never_be_is_not_waited_for() {
        let failed = job(2, status("Failed", "Failed"));
        assert_eq!(What::Failed.is_so(&failed), Some(Ok(())));
        assert_eq!(What::Succeeded.is_so(&failed), Some(Err("the job has failed: Because: so".to_owned())));
        let done = job(2, status("Succeeded", "Succeeded"));
        assert_eq!(What::Succeeded.is_so(&done), Some(Ok(())));
        assert!(What::Suspended.is_so(&done).unwrap().unwrap_err().contains("will not be suspended"));
    }
}
