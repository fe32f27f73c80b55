//! `shoal why`: the cause of a standstill, by the master's report; of a cluster's job the operator's decisions, too.

use serde_json::json;
use shoal_runner::client::JobChoice;
use shoal_runner::output::{Output, print};
use shoal_runner::standstill;
use shoal_runtime::wire::proto::StatusReply;
use std::process::ExitCode;

/// Name the cause of a standstill
///
/// Without JOB: of the newest local run, or of the job of --master. With JOB: of a job of a Kubernetes cluster, with its plan, its pods and
/// the operator's decisions.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shoal why\n  shoal why digits --namespace team-a\n  shoal why --master 10.0.0.7:7160 -o json"
)]
pub(crate) struct WhyArguments {
    /// Name of a job of a Kubernetes cluster
    #[arg(value_name = "JOB")]
    name: Option<String>,
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    cluster: crate::cluster::ClusterChoice,
    #[command(flatten)]
    job: JobChoice,
    /// Output format
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) async fn run(arguments: WhyArguments) -> anyhow::Result<ExitCode> {
    let WhyArguments { name, job, output, .. } = arguments;
    if let Some(name) = &name {
        #[cfg(feature = "cluster")]
        return super::cluster::why(name, arguments.cluster, output).await;
        #[cfg(not(feature = "cluster"))]
        return Err(crate::absent::flag(&format!("`shoal why {name}`"), "cluster").into());
    }
    #[cfg(feature = "cluster")]
    if arguments.cluster.context.is_some() {
        return Err(shoal_runner::exit::Exit::Usage(
            "--context goes with the name of a job: shoal why JOB --context CONTEXT".to_owned(),
        )
        .into());
    }
    let status = job.connect().await?.status().await?;
    match output {
        Output::Text => print(text(&status))?,
        Output::Json => print(json!({
            "job": status.settings.as_ref().map(|settings| settings.job.as_str()),
            "phase": status.phase, "failure": status.failure, "step": status.step, "steps": status.steps,
            "standstill": standstill::json(&status),
        }))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text(status: &StatusReply) -> String {
    let job = status.settings.as_ref().map_or("the job", |settings| settings.job.as_str());
    let at = format!("step {} of {}", status.step, status.steps);
    let mut lines = match (status.phase.as_str(), standstill::lines(status)) {
        ("failed", _) => vec![format!("{job} has failed: {}", status.failure)],
        ("done", _) => vec![format!("{job} is done")],
        (_, lines) if lines.is_empty() => vec![format!("{job} goes on: {at}")],
        (_, lines) => {
            std::iter::once(format!("{job}, {at}, {}", lines[0])).chain(lines[1..].iter().cloned()).collect()
        }
    };
    lines.extend(shoal_runner::exclusions::troubles(status));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::{JobSettings, Standstill};

    #[test]
    fn a_job_is_told_with_what_it_waits_for_or_that_it_goes_on() {
        let settings = JobSettings { job: "digits".to_owned(), ..JobSettings::default() };
        let going = StatusReply {
            settings: Some(settings),
            phase: "training".to_owned(),
            steps: 9,
            ..StatusReply::default()
        };
        assert_eq!(text(&going), "digits goes on: step 0 of 9");
        let standstill = Standstill {
            cause: "no trainer has joined".to_owned(),
            way_out: "start one".to_owned(),
            front_millis: 9000,
            is_idle: true,
            ..Standstill::default()
        };
        let stands = StatusReply { standstill: Some(standstill), ..going.clone() };
        assert_eq!(
            text(&stands),
            "digits, step 0 of 9, stands still for 9 s: no trainer has joined\nstart one"
        );
        let failed = StatusReply { phase: "failed".to_owned(), failure: "bad record".to_owned(), ..going };
        assert_eq!(text(&failed), "digits has failed: bad record");
    }
}
