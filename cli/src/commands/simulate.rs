//! `shoal simulate`: a scenario on a simulated cluster, under static jobs, EDL's rules and our planner, side by side.

use serde_json::{Map, Value, json};
use shoal_experiments::simulator::{Policy, Scenario, simulate};
use shoal_experiments::{self as experiments, Experiment};
use shoal_runner::exit::Exit;
use shoal_runner::output::{Output, print};
use shoal_runtime::host::{files, output};
use std::path::PathBuf;
use std::process::ExitCode;

/// Simulate a cluster's jobs, services and failures under several schedulers, ours with the operator's own planner
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  shoal simulate benches/scenarios/elasticdl-1.yaml\n  \
    shoal simulate day.yaml --policy shoal -o json\n\nA scenario is YAML; docs/planner.md describes it.")]
pub(crate) struct SimulateArguments {
    /// The scenario
    #[arg(value_name = "SCENARIO.yaml")]
    scenario: PathBuf,
    /// Who decides; may be repeated. By default all
    #[arg(long, value_enum, value_name = "POLICY")]
    policy: Vec<Policy>,
    /// Write a page with the figures there
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Print the time series as well: a line for each sample, with -o json as `samples`
    #[arg(long)]
    series: bool,
    /// How to print the figures
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) fn run(arguments: &SimulateArguments) -> anyhow::Result<ExitCode> {
    let shown = arguments.scenario.display();
    let text = std::fs::read_to_string(&arguments.scenario)
        .map_err(|why| Exit::Usage(format!("{shown}: it cannot be read: {why}")))?;
    let scenario = Scenario::read(&text).map_err(|wrong| {
        Exit::Usage(wrong.iter().map(|one| format!("{shown}: {one}")).collect::<Vec<_>>().join("\n"))
    })?;
    let all = [Policy::Gang, Policy::Edl, Policy::Shoal];
    let policies = if arguments.policy.is_empty() { &all[..] } else { &arguments.policy[..] };
    let experiments: Vec<Experiment> = policies.iter().map(|policy| watched(&scenario, *policy)).collect();
    if let Some(out) = &arguments.html {
        let page = experiments::html(&scenario.name, &scenario.about, &experiments, &scenario.published);
        files::write(out, page.as_bytes())?;
        note!("Page: {}", out.display());
    }
    match arguments.output {
        Output::Json => print(json(&scenario, &experiments, arguments.series))?,
        Output::Text => {
            for one in experiments.iter().filter(|_| arguments.series) {
                let lines: Vec<String> = one.samples.iter().map(experiments::series_line).collect();
                print(format_args!("{}: {}\n{}", one.policy, experiments::series_title(), lines.join("\n")))?;
            }
            for one in experiments.iter().filter(|one| one.jobs.len() <= JOBS_SHOWN) {
                print(format_args!("{}:\n{}", one.policy, experiments::job_table(one)))?;
            }
            print(experiments::figures(&experiments, &scenario.published).trim_end())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Of more jobs the figures alone are shown.
const JOBS_SHOWN: usize = 20;

/// A simulation whose progress is told, on a terminal alone.
fn watched(scenario: &Scenario, policy: Policy) -> Experiment {
    let is_terminal = output::Stream::Notes.is_terminal();
    let mut told = -1;
    let experiment = simulate(scenario, policy, |done| {
        let percent = (100.0 * done) as i32;
        if is_terminal && percent > told {
            told = percent;
            output::rewrite(format_args!("{}: {percent} %", policy.name()));
        }
    });
    if is_terminal {
        note!("");
    }
    experiment
}

/// The figures by policy, and what others published.
fn json(scenario: &Scenario, experiments: &[Experiment], has_series: bool) -> Value {
    let mut policies = Map::new();
    for one in experiments {
        policies.insert(one.policy.clone(), experiments::object(one, has_series));
    }
    let mut all = Value::Object(policies);
    all["scenario"] = json!(scenario.name);
    all["resource"] = json!(scenario.resource);
    all["published"] = json!(scenario.published);
    all
}
