//! `shoal run`: a job on this machine, with the same processes and protocol as on a cluster.

use super::{Output, print};
use crate::runner::chaos::Chaos;
use crate::runner::outcome::Outcome;
use crate::runner::progress::Progress;
use crate::runner::{JobPlan, Supervisor};
use serde_json::Value;
use shoal_master::settings::JobArguments;
use shoal_runtime::cluster::plan::EpochShape;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::shutdown::Shutdown;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

/// With chaos, a job is paced to last about so long, so that there is something to break.
const CHAOS_LASTS: Duration = Duration::from_secs(4);
/// With chaos, the lease TTL where none was asked for.
const CHAOS_TTL_MILLIS: u64 = 1000;
const DEFAULT_TTL_MILLIS: u64 = 5000;

/// Run a training job on this machine
#[derive(clap::Args)]
#[command(
    after_help = "Example: shoal run --trainers 2:4 --pservers 2 --data 'data/train-*.recordio' --epochs 2 -- target/release/examples/digits"
)]
pub(crate) struct RunArguments {
    /// Number of trainers, or the bounds between which `shoal scale` and --chaos may move it; starts with MIN
    #[arg(long, default_value = "1", value_name = "MIN[:MAX]")]
    trainers: Bounds,
    /// Number of parameter servers
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pservers: u32,
    /// Name of the job; by default the program's name
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    job: JobArguments,
    /// Kill, freeze, stop and add trainers while the job runs, as this seed decides; paces the job to last some
    /// seconds and, unless stated, shortens the lease TTL to 1000 ms
    #[arg(long, value_name = "SEED")]
    chaos: Option<u64>,
    /// Pause before each microbatch, in milliseconds; changes no bit
    #[arg(long, env = "SHOAL_PACE_MILLIS", value_name = "MILLIS")]
    pace_millis: Option<u64>,
    /// Folder for logs and the model; by default a new one under runs/
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// How to print the closing output
    #[arg(short, long, default_value = "text")]
    output: Output,
    /// The training program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM ARGS")]
    program: Vec<OsString>,
}

/// Bounds on the number of trainers.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    min: u32,
    max: u32,
}

impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Bounds, String> {
        let number =
            |text: &str| text.parse::<u32>().map_err(|_| format!("{text:?} is no number of trainers"));
        let (min, max) = match text.split_once(':') {
            Some((min, max)) => (number(min)?, number(max)?),
            None => (number(text)?, number(text)?),
        };
        if min < 1 || max < min || max > 10_000 {
            return Err("give 1 <= MIN <= MAX <= 10000".to_owned());
        }
        Ok(Bounds { min, max })
    }
}

impl RunArguments {
    fn plan(&self) -> anyhow::Result<JobPlan> {
        let mut job = self.job.clone();
        if self.chaos.is_some() && job.lease_ttl_millis == DEFAULT_TTL_MILLIS {
            job.lease_ttl_millis = CHAOS_TTL_MILLIS;
        }
        let program = Path::new(&self.program[0]);
        let stem =
            program.file_stem().map_or_else(|| "job".to_owned(), |stem| stem.to_string_lossy().into_owned());
        // The suffix tells this job from another of the same name, whose processes must not get into it.
        let unique = format!("{}-{}", wall_seconds(), std::process::id());
        let name = format!("{}-{unique}", self.name.clone().unwrap_or(stem));
        let folder = self.folder.clone().unwrap_or_else(|| PathBuf::from("runs").join(&name));
        let pace = match (self.pace_millis, self.chaos) {
            (Some(millis), _) => Duration::from_millis(millis),
            (None, Some(_)) => chaos_pace(&job, self.trainers.min)?,
            (None, None) => Duration::ZERO,
        };
        Ok(JobPlan {
            name,
            job,
            pservers: self.pservers,
            trainers_min: self.trainers.min,
            trainers_max: self.trainers.max,
            trainers_wanted: self.trainers.min,
            program: self.program.clone(),
            pace,
            folder,
        })
    }
}

/// The pause before each microbatch with which `trainers` trainers take [`CHAOS_LASTS`].
fn chaos_pace(job: &JobArguments, trainers: u32) -> anyhow::Result<Duration> {
    let records = shoal_master::data_set::scan(&job.data)?.record_count();
    let shape = EpochShape::new(records, job.microbatch_records, job.microbatches_per_step);
    let microbatches = (shape.microbatches() * job.epochs).max(1);
    Ok(CHAOS_LASTS.mul_f64(f64::from(trainers) / microbatches as f64).min(Duration::from_millis(300)))
}

pub(crate) async fn run(arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let plan = arguments.plan()?;
    let mut shutdown = Shutdown::on_signal()?;
    let mut progress = Progress::new();
    progress.say(&format!("job {} in {}", plan.name, plan.folder.display()));
    let ttl = Duration::from_millis(plan.job.lease_ttl_millis);
    let mut job = Supervisor::start(plan).await?;
    remember_as_latest(&job.plan.folder);
    progress.say("look at it: shoal status   change it: shoal scale --trainers N   end it: Ctrl-C");
    let mut chaos = arguments.chaos.map(|seed| Chaos::new(seed, ttl));
    let trained = tokio::select! {
        biased;
        () = shutdown.wait() => Err(anyhow::anyhow!("interrupted: nothing is left running")),
        trained = train(&mut job, &mut progress, chaos.as_mut()) => trained,
    };
    progress.end();
    job.stop().await;
    let (outcome, closing) = trained?;
    std::fs::write(job.plan.folder.join("result.json"), format!("{closing}\n"))?;
    match arguments.output {
        Output::Json => print(&closing),
        Output::Text => print(text(&outcome, &job)),
    }
    let is_exact = outcome.tally().is_none_or(|tally| tally.wrong == 0);
    Ok(if is_exact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn train(
    job: &mut Supervisor,
    progress: &mut Progress,
    mut chaos: Option<&mut Chaos>,
) -> anyhow::Result<(Outcome, Value)> {
    while job.tick().await? {
        progress.show(&job.status);
        if let Some(chaos) = chaos.as_deref_mut() {
            chaos.tick(job, &mut |line| progress.say(line)).await?;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let outcome = Outcome::read(job).await?;
    let closing = outcome.json(job);
    Ok((outcome, closing))
}

/// Points `runs/latest` at a run, so that `shoal status` finds it without being told.
pub(crate) fn remember_as_latest(folder: &Path) {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else { return };
    let latest = parent.join("latest");
    let _ = std::fs::remove_file(&latest);
    if let Err(error) = std::os::unix::fs::symlink(name, &latest) {
        eprintln!("warning: {} cannot be made ({error}): give --run {}", latest.display(), folder.display());
    }
}

fn text(outcome: &Outcome, job: &Supervisor) -> String {
    let status = &outcome.status;
    let mut lines = vec![format!(
        "✔ {} steps, {} records in {:.1} s",
        status.steps, status.records_trained, outcome.seconds
    )];
    if let Some(tally) = outcome.tally() {
        let mark = if tally.wrong == 0 { '✔' } else { '✘' };
        lines.push(format!(
            "{mark} {}/{} records counted, {} of them wrongly",
            tally.counted, tally.expected, tally.wrong
        ));
    }
    lines.push(format!("✔ parameters sha256 {}", outcome.parameters_sha256));
    lines.push(format!("Model: {}", job.plan.folder.join("model.safetensors").display()));
    lines.join("\n")
}
