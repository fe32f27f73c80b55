//! `shoal run`: a job on this machine, with the same processes and protocol as on a cluster.

use super::status::pserver_totals;
use super::{Output, print};
use crate::breakdown::Breakdown;
use crate::evaluations;
use crate::runner::chaos::Chaos;
use crate::runner::chaos::deck::{Kind, Kinds, Weather};
use crate::runner::folder::RunFolder;
use crate::runner::outcome::Outcome;
use crate::runner::plan::{Bounds, Resumed};
use crate::runner::progress::Progress;
use crate::runner::{JobPlan, Supervisor};
use serde_json::Value;
use shoal_master::settings::JobArguments;
use shoal_runtime::cluster::plan::EpochShape;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::shutdown::Shutdown;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// With chaos, a job is paced to last about so long, so that there is something to break.
const CHAOS_LASTS: Duration = Duration::from_secs(4);
/// With chaos, the lease TTL where none was asked for.
const CHAOS_TTL_MILLIS: u64 = 1000;
const DEFAULT_TTL_MILLIS: u64 = 5000;
/// After so long a start is worth a word.
const SLOW_START: Duration = Duration::from_secs(5);

/// Run a training job on this machine
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shoal run --trainers 2:4 --pservers 2 --replicas 1 --data 'data/train-*.recordio' --epochs 2 -- target/release/examples/digits\n  \
shoal run --data 's3://bucket/train-*.recordio' -- target/release/my-program --learning-rate 0.05 --layers 3"
)]
pub(crate) struct RunArguments {
    /// Number of trainers, or the bounds between which `shoal scale` and --chaos may move it; starts with MIN [default: 1]
    #[arg(long, value_name = "MIN[:MAX]")]
    trainers: Option<Bounds>,
    /// Number of parameter servers, or the bounds between which --chaos may move it; starts with MIN [default: 1]
    #[arg(long, value_name = "MIN[:MAX]")]
    pservers: Option<Bounds>,
    /// Name of the job; by default the program's name
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    job: JobArguments,
    /// Go on with the run in --folder (by default runs/latest), whose processes have ended. Data, settings and program
    /// are given as before; numbers of trainers and pservers may differ
    #[arg(long, conflicts_with = "name")]
    resume: bool,
    /// Kill, freeze, stop, move and add trainers, pservers and the master while the job runs, as this seed decides;
    /// with --replicas at most one pserver at a time is down. Paces the job to last some seconds and, unless stated,
    /// shortens the lease TTL to 1000 ms
    #[arg(long, value_name = "SEED")]
    chaos: Option<u64>,
    /// With --chaos: strike pservers even while copies are missing
    #[arg(long, requires = "chaos")]
    chaos_hard: bool,
    /// With --chaos: only these faults
    #[arg(long, requires = "chaos", value_enum, value_delimiter = ',', value_name = "KINDS")]
    chaos_kinds: Vec<Kind>,
    /// Memory of each pserver for pieces of a checkpoint that wait to be written, in MiB [default: 1024]
    #[arg(long, env = "SHOAL_CHECKPOINT_MEMORY", value_name = "MIB")]
    checkpoint_memory: Option<u64>,
    /// Pause before each microbatch, in milliseconds; changes no bit
    #[arg(long, env = "SHOAL_PACE_MILLIS", value_name = "MILLIS")]
    pace_millis: Option<u64>,
    /// Address of the master's pages /metrics, /healthz and /readyz; none by default. Other processes of a local run show
    /// none
    #[arg(long, env = "SHOAL_HTTP", value_name = "HOST:PORT")]
    http: Option<SocketAddr>,
    /// Speak TLS: an authority is made in the folder, and every process of the run is given a certificate of it
    #[arg(long)]
    tls: bool,
    /// Folder for logs, the job's state and the model; by default a new one under runs/
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// How to print the closing output
    #[arg(short, long, default_value = "text")]
    output: Output,
    /// The training program, and arguments of its own: they reach it as they are, in every trainer that is ever started
    #[arg(last = true, required = true, value_name = "PROGRAM ARGS")]
    program: Vec<OsString>,
}

impl RunArguments {
    async fn plan(&self) -> anyhow::Result<JobPlan> {
        let mut job = self.job.clone();
        if self.chaos.is_some() && job.lease_ttl_millis == DEFAULT_TTL_MILLIS {
            job.lease_ttl_millis = CHAOS_TTL_MILLIS;
        }
        // `runs/latest` is another run once this one has begun.
        if let Some(file) = job.warm_start.as_deref().and_then(|file| std::fs::canonicalize(file).ok()) {
            job.warm_start = Some(file.display().to_string());
        }
        let (name, folder) = self.place()?;
        let trainers = self.trainers.unwrap_or(Bounds::exactly(1));
        let pace = match (self.pace_millis, self.chaos) {
            (Some(millis), _) => Duration::from_millis(millis),
            (None, Some(_)) => chaos_pace(&job, trainers.min).await?,
            (None, None) => Duration::ZERO,
        };
        Ok(JobPlan {
            name,
            job,
            pservers: self.pservers.unwrap_or(Bounds::exactly(1)),
            trainers,
            trainers_at_start: trainers.min,
            program: self.program.clone(),
            pace,
            checkpoint_memory: self.checkpoint_memory,
            http: self.http,
            tls: self.tls,
            folder,
            resumed: self.resume.then_some(Resumed { trainers: self.trainers, pservers: self.pservers }),
        })
    }

    /// The job's name and folder: new ones, or those of the run that is to go on.
    fn place(&self) -> anyhow::Result<(String, RunFolder)> {
        if self.resume {
            let latest = || std::fs::canonicalize("runs/latest").unwrap_or_else(|_| "runs/latest".into());
            let folder = RunFolder(self.folder.clone().unwrap_or_else(latest));
            return Ok((folder.job_to_resume()?, folder));
        }
        let program = Path::new(&self.program[0]);
        let stem =
            program.file_stem().map_or_else(|| "job".to_owned(), |stem| stem.to_string_lossy().into_owned());
        // The suffix tells this job from another of the same name, whose processes must not get into it.
        let unique = format!("{}-{}", wall_seconds(), std::process::id());
        let name = format!("{}-{unique}", self.name.clone().unwrap_or(stem));
        let folder = RunFolder(self.folder.clone().unwrap_or_else(|| PathBuf::from("runs").join(&name)));
        folder.check_new()?;
        Ok((name, folder))
    }

    fn weather(&self, job: &Supervisor) -> Option<Weather> {
        let JobPlan { trainers, pservers, job, .. } = &job.plan;
        Some(Weather {
            seed: self.chaos?,
            ttl: Duration::from_millis(job.lease_ttl_millis),
            trainers: *trainers,
            pservers: *pservers,
            has_copies: job.replicas > 0,
            is_hard: self.chaos_hard,
            kinds: Kinds::of(&self.chaos_kinds),
        })
    }
}

/// The pause before each microbatch with which `trainers` trainers take [`CHAOS_LASTS`].
async fn chaos_pace(job: &JobArguments, trainers: u32) -> anyhow::Result<Duration> {
    let (trained, evaluated) = job.data()?;
    let (manifest, trained) = shoal_master::data_set::scan(trained, evaluated).await?;
    let cut = |records| EpochShape::new(records, job.microbatch_records, job.microbatches_per_step);
    let evaluated = cut(manifest.record_count() - trained).microbatches();
    let microbatches = (cut(trained).microbatches() * job.epochs + evaluated).max(1);
    Ok(CHAOS_LASTS.mul_f64(f64::from(trainers) / microbatches as f64).min(Duration::from_millis(300)))
}

pub(crate) async fn run(arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let mut shutdown = Shutdown::on_signal()?;
    let mut progress = Progress::new();
    let mut job = tokio::select! {
        biased;
        () = shutdown.wait() => return Err(interrupted()),
        job = start(&arguments, &mut progress) => job?,
    };
    remember_as_latest(job.plan.folder.path());
    progress.say("look at it: shoal status   change it: shoal scale --trainers N   end it: Ctrl-C");
    let mut chaos = arguments.weather(&job).map(Chaos::new);
    let trained = tokio::select! {
        biased;
        () = shutdown.wait() => Err(interrupted()),
        trained = train(&mut job, &mut progress, chaos.as_mut()) => trained,
    };
    progress.end();
    if let Err(error) = &trained {
        let how = if shutdown.is_due() { "interrupted" } else { "failed" };
        job.record.conclude(how, &format!("{error:#}"));
    }
    job.stop().await;
    let (outcome, closing) = trained?;
    std::fs::write(job.plan.folder.result(), format!("{closing}\n"))?;
    match arguments.output {
        Output::Json => print(&closing),
        Output::Text => print(text(&outcome, &job)),
    }
    let is_exact = outcome.tally().is_none_or(|tally| tally.wrong == 0);
    Ok(if is_exact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn start(arguments: &RunArguments, progress: &mut Progress) -> anyhow::Result<Supervisor> {
    let plan = arguments.plan().await?;
    progress.say(&format!("job {} in {}", plan.name, plan.folder.path().display()));
    let mut started = std::pin::pin!(Supervisor::start(plan));
    if let Ok(job) = tokio::time::timeout(SLOW_START, &mut started).await {
        return job;
    }
    progress.say("the master still reads the headers of the data set");
    started.await
}

fn interrupted() -> anyhow::Error {
    anyhow::anyhow!("interrupted: nothing is left running")
}

async fn train(
    job: &mut Supervisor,
    progress: &mut Progress,
    mut chaos: Option<&mut Chaos>,
) -> anyhow::Result<(Outcome, Value)> {
    while job.tick().await? {
        if let Some(chaos) = chaos.as_deref_mut() {
            chaos.tick(job).await;
        }
        job.notes.drain(..).for_each(|note| progress.say(&note));
        progress.show(&job.status);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if let Some(chaos) = chaos {
        chaos.end(job).await;
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
        status.step, status.records_trained, outcome.seconds
    )];
    if let Some(tally) = outcome.tally() {
        let mark = if tally.wrong == 0 { '✔' } else { '✘' };
        lines.push(format!(
            "{mark} {}/{} records counted, {} of them wrongly",
            tally.counted, tally.expected, tally.wrong
        ));
    }
    lines.push(format!("✔ parameters sha256 {}", outcome.parameters_sha256));
    lines.extend(evaluations::lines(status).into_iter().map(|line| format!("  {line}")));
    let shares = Breakdown::of(&status.trainer_totals.unwrap_or_default()).shares();
    lines.extend(shares.map(|shares| format!("  time: {shares}")));
    if status.rewind > 0 {
        let times = if status.rewind == 1 { "once" } else { "times" };
        let count = if status.rewind == 1 { String::new() } else { format!("{} ", status.rewind) };
        lines.push(format!("  went back {count}{times}: a pserver was lost of which there was no copy"));
    }
    let totals = pserver_totals(status);
    if totals.fills + totals.entries > 0 {
        let (fills, entries, bytes) = (totals.fills, totals.entries, totals.bytes_followed);
        lines.push(format!("  copies: {fills} filled, {entries} updates followed, {bytes} bytes"));
    }
    if !job.record.faults.is_empty() {
        lines.push(format!("  {} faults survived", job.record.faults.len()));
    }
    lines.push(format!("Model: {}", job.plan.folder.model().display()));
    lines.join("\n")
}
