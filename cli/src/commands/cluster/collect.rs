//! `shoal collect`: an experiment on a live cluster, as a time series while it goes on and as figures when it is over.

use super::now;
use crate::cluster::ClusterChoice;
use crate::cluster::mirror::{Keeper, Mirror, mirror};
use serde_json::json;
use shoal_experiments::collector::{Collector, Look, Resource, Selector, selector};
use shoal_experiments::{self as experiments, Experiment, Sample};
use shoal_runner::output::{Output, print_outcome};
use shoal_runtime::host::files;
use shoal_runtime::host::output::Unprinted;
use shoal_runtime::host::shutdown::Shutdown;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// Watch an experiment on a Kubernetes cluster: its time series, and figures like those of shoal simulate
///
/// Looks at the cluster again and again and prints a line each time. Ends when all jobs are over, after --seconds, or
/// with Ctrl-C, and then prints the figures.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shoal collect\n  shoal collect --jobs 2 --serving app=nginx --html experiment.html\n  \
    shoal collect --resource gpu --seconds 600 -o json\n\ndocs/planner.md says what is measured."
)]
pub(crate) struct CollectArguments {
    /// Seconds from one look to the next
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    every: Duration,
    /// End after so many seconds, whatever jobs do
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Jobs that the experiment has: until so many were there, it goes on
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    jobs: u32,
    /// The jobs of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Labels of the pods that serve, in any namespace, such as app=nginx
    #[arg(long, value_name = "SELECTOR", value_parser = selector)]
    serving: Option<Selector>,
    /// The resource whose use counts
    #[arg(long, value_enum, default_value = "cpu", value_name = "RESOURCE")]
    resource: Resource,
    /// Write a page with the figures there
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterChoice,
    /// How to print the figures; with json the time series is in them, and goes to standard error meanwhile
    #[arg(short, long, default_value = "text")]
    output: Output,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=1e7).contains(seconds));
    let wrong = || format!("{text:?}: give a number of seconds, 0.1 or more");
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

pub(crate) async fn collect(arguments: CollectArguments) -> anyhow::Result<ExitCode> {
    let cluster = arguments.cluster.connect().await?;
    let (mirror, mut keeper) = mirror(&cluster, arguments.all_namespaces);
    let experiment = watched(&arguments, &mirror, &mut keeper).await?;
    if let Some(out) = &arguments.html {
        let about = "A cluster that was watched by shoal collect.";
        let page =
            experiments::html("Experiment on a cluster", about, std::slice::from_ref(&experiment), &[]);
        files::write(out, page.as_bytes())?;
        note!("Page: {}", out.display());
    }
    match arguments.output {
        Output::Json => {
            let figures = experiments::object(&experiment, true);
            print_outcome(json!({ "cluster": figures, "resource": experiment.resource }))?;
        }
        Output::Text => {
            print_outcome(experiments::job_table(&experiment))?;
            print_outcome(experiments::figures(&[experiment], &[]).trim_end())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks until the experiment is over.
async fn watched(
    arguments: &CollectArguments,
    mirror: &Mirror,
    keeper: &mut Keeper,
) -> anyhow::Result<Experiment> {
    let mut shutdown = Shutdown::on_signal()?;
    tokio::select! {
        why = keeper.keep() => return Err(why),
        whole = mirror.wait_until_whole() => whole?,
    }
    let serving = arguments.serving.clone();
    let mut collector = Collector::new(arguments.resource, serving, arguments.jobs, now());
    let began = Instant::now();
    let end = arguments.seconds.map(|seconds| began + seconds);
    let mut looks = interval(arguments.every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    tell(arguments.output, experiments::series_title())?;
    loop {
        tokio::select! {
            why = keeper.keep() => return Err(why),
            () = shutdown.wait() => break,
            () = sleep_until(end.unwrap_or(began)), if end.is_some() => break,
            _ = looks.tick() => {}
        }
        let sample = look(&mut collector, mirror, began);
        tell(arguments.output, &experiments::series_line(sample))?;
        if collector.is_over() {
            return Ok(collector.experiment());
        }
    }
    // What was so at the end counts as well.
    look(&mut collector, mirror, began);
    Ok(collector.experiment())
}

fn look<'a>(collector: &'a mut Collector, mirror: &Mirror, began: Instant) -> &'a Sample {
    collector.take(&Look {
        at_seconds: began.elapsed().as_secs_f64(),
        nodes: &mirror.nodes.state(),
        pods: &mirror.pods.state(),
        jobs: &mirror.jobs.state(),
    })
}

/// Whoever does not read the samples may still want the experiment.
fn tell(output: Output, line: &str) -> Result<(), Unprinted> {
    match output {
        Output::Text => print_outcome(line)?,
        Output::Json => note!("{line}"),
    }
    Ok(())
}
