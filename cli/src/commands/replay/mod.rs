//! `shoal replay`: steps of a past run, played again in a folder of its own, and compared with what the run has recorded.

mod comparison;
mod inspected;
mod original;
mod page;

use anyhow::{Context, bail};
use comparison::Comparison;
use inspected::Inspected;
use original::{Original, Start, Steps};
use serde_json::json;
use shoal_job::spec::{CheckpointSpec, EnvironmentRule, Spec};
use shoal_master::document::Wanted;
use shoal_pserver::device::DeviceChoice;
use shoal_runner::exit::Exit;
use shoal_runner::folder::RunFolder;
use shoal_runner::output::{Output, print_outcome};
use shoal_runner::plan::{Bounds, JobPlan, Resumed};
use shoal_runner::progress::Progress;
use shoal_runner::{Supervisor, life};
use shoal_runtime::cluster::recording::HashDifference;
use shoal_runtime::host::checkpoints;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::files;
use shoal_runtime::host::recorded::Recorded;
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::host::storage::Storage;
use shoal_runtime::host::store;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// What was inspected, in a replay's folder.
const INSPECTED_PAGE: &str = "inspected.html";
/// What tells trainers what to look at.
const INSPECT: &str = "SHOAL_INSPECT";
/// Between two looks at what the replay has recorded.
const GLANCE: Duration = Duration::from_millis(100);

/// Play steps of a run again, on as many members as you like, and compare every hash that the run has recorded
///
/// It begins from a checkpoint of the run, or from its initial values, with the run's own data, settings and program, in a folder of its
/// own. The run is not touched. The first step, block and parameters that differ are named, and the exit code is 1 then.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shoal run --record-hashes 10 --data 'data/train-*.recordio' -- target/release/my-program\n  \
shoal replay runs/latest\n  shoal replay runs/latest --steps 50..60 --trainers 3"
)]
pub(crate) struct ReplayArguments {
    /// Folder of the run
    #[arg(env = "SHOAL_RUN", default_value = "runs/latest", value_name = "RUN")]
    run: PathBuf,
    /// Number of the checkpoint to begin from, as `shoal checkpoint ls` lists them; 0 for the initial values. By default the newest
    /// before the first step
    #[arg(long, value_name = "CHECKPOINT")]
    from: Option<u64>,
    /// The first and the last step to play, counted from 1. By default all, up to the last one that the run has recorded
    #[arg(long, value_name = "A..B")]
    steps: Option<Steps>,
    /// Number of trainers
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    trainers: u32,
    /// Number of parameter servers
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pservers: u32,
    /// Show what each step was made of: the loss and the gradient's norms of the step, of its microbatches and of records alone, where
    /// these lie, and what was clipped or skipped. Of each microbatch a record with a large gradient is looked for by halves, or
    /// with `all` every record is put through alone. On one trainer
    #[arg(long, value_name = "RECORDS", num_args = 0..=1, require_equals = true, default_missing_value = "largest")]
    inspect: Option<Records>,
    /// Where pservers update dense blocks, as for `shoal run` [default: cpu]
    #[arg(long, env = "SHOAL_DEVICE", value_delimiter = ',', value_name = "DEVICES")]
    device: Vec<DeviceChoice>,
    /// A variable in the environment of the trainers, beside this command's own; those that the run was given have to be given again
    #[arg(long, value_name = "NAME=VALUE", value_parser = shoal_runner::flags::variable)]
    env: Vec<(String, String)>,
    /// Folder for the replay's logs and state; by default a new one under runs/
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// How to print what was found
    #[arg(short, long, default_value = "text")]
    output: Output,
}

/// Which records are put through the step function alone.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Records {
    /// Of each microbatch the one with the largest gradient
    Largest,
    /// Every one
    All,
}

pub(crate) async fn run(arguments: ReplayArguments) -> anyhow::Result<ExitCode> {
    if arguments.inspect.is_some() && arguments.trainers > 1 {
        let why = "--inspect goes with one trainer: the norm of a step's gradient takes all of its microbatches in one place";
        return Err(Exit::Usage(why.to_owned()).into());
    }
    let original = Original::read(&arguments.run).await?;
    let start = original.start(arguments.from, arguments.steps, arguments.inspect.is_some()).await?;
    let missing: Vec<&str> = (original.begun.variables.iter().map(String::as_str))
        // An inspected replay's own, if the run is one.
        .filter(|name| *name != INSPECT && !arguments.env.iter().any(|(given, _)| given == name))
        .collect();
    if !missing.is_empty() {
        let why =
            format!("the run's program was given {}: give the same by --env NAME=VALUE", missing.join(", "));
        return Err(Exit::Usage(why).into());
    }
    let mut shutdown = Shutdown::on_signal()?;
    let mut progress = Progress::begin();
    let mut comparison = original.comparison(&start, arguments.inspect.is_some());
    let begins = async {
        let plan = arguments.prepare(&original, &start, &mut progress).await?;
        life::start(plan, &mut progress).await
    };
    let mut job = tokio::select! {
        biased;
        () = shutdown.wait() => return Err(Exit::interrupted(&shutdown).into()),
        job = begins => job?,
    };
    let played = tokio::select! {
        biased;
        () = shutdown.wait() => Err(Exit::interrupted(&shutdown).into()),
        played = play(&mut job, &mut comparison, &mut progress) => played,
    };
    progress.end();
    let how = match &played {
        Ok(()) => "done",
        Err(_) if shutdown.is_due() => "interrupted",
        Err(_) => "failed",
    };
    job.record.conclude(how, "a replay");
    job.stop().await;
    played?;
    let folder = job.plan.folder.path();
    let inspected = match arguments.inspect {
        Some(_) => {
            let inspected = original.inspected(folder, &start).await?;
            let title =
                format!("Steps {}..{} of {}", start.steps.start(), start.steps.end(), original.begun.job);
            files::write(&folder.join(INSPECTED_PAGE), inspected.html(&title).as_bytes())?;
            Some(inspected)
        }
        None => None,
    };
    let found = Found { arguments: &arguments, start: &start, comparison: &comparison, folder, inspected };
    match arguments.output {
        Output::Text => print_outcome(found.text())?,
        Output::Json => print_outcome(found.json())?,
    }
    let is_equal = comparison.first_difference().is_none() && comparison.open() == 0;
    Ok(if is_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Until the last step was played, or the first that differs is found.
async fn play(
    job: &mut Supervisor,
    comparison: &mut Comparison,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let storage = Storage::open(&place(&job.plan.folder)).await?;
    let mut recorded = Recorded::of(&job.plan.name, None, 0..=u64::MAX);
    loop {
        let goes_on = job.tick().await;
        job.notes.drain(..).for_each(|note| progress.say(&note));
        let goes_on = goes_on?;
        recorded.look(&storage).await?;
        comparison.see(&recorded.take());
        if let Some(damaged) = job.status.damaged.first() {
            bail!("the checkpoint to begin from is not what was written: {damaged:?}");
        }
        if !goes_on || comparison.is_over() {
            return Ok(());
        }
        progress.show(&job.status);
        tokio::time::sleep(GLANCE).await;
    }
}

/// Where a local run keeps its checkpoints unless it is said otherwise.
fn place(folder: &RunFolder) -> String {
    folder.state().join("checkpoints").display().to_string()
}

impl Original {
    /// The step that tells what was decided over another: it reads what that one has made.
    fn told_by(&self, step: u64) -> u64 {
        step + 1 + self.document.job.mode.delay()
    }

    fn comparison(&self, start: &Start, inspects: bool) -> Comparison {
        let declaration = self.document.declaration.clone().unwrap_or_default();
        let last = *start.steps.end();
        let plays = if inspects { self.told_by(last).min(self.steps()) } else { last };
        let mut recorded = start.recorded.clone();
        recorded.retain(|step, _| *step <= last);
        Comparison::new(declaration, recorded, plays)
    }
}

impl Original {
    /// What the replay's trainer has written.
    async fn inspected(&self, folder: &Path, start: &Start) -> anyhow::Result<Inspected> {
        let spec = self.begun.spec.clone().unwrap_or_default();
        let (trained, evaluated) = spec.trained_and_evaluated();
        let (manifest, _) = shoal_master::data_set::scan(trained, evaluated).await?;
        Inspected::read(&inspections(folder), *start.steps.end(), &manifest)
    }
}

impl ReplayArguments {
    /// What trainers find in their environment.
    fn environment(&self, folder: &RunFolder, steps: RangeInclusive<u64>) -> Vec<(String, String)> {
        let Some(records) = self.inspect else { return self.env.clone() };
        let records = if records == Records::All { "all" } else { "largest" };
        let (first, last) = steps.into_inner();
        let to = inspections(folder.path());
        let said = (INSPECT.to_owned(), format!("{records}:{first}..{last}:{}", to.display()));
        self.env.iter().cloned().chain([said]).collect()
    }

    /// The replay's folder with its state, so that a job goes on from there.
    async fn prepare(
        &self,
        original: &Original,
        start: &Start,
        progress: &mut Progress,
    ) -> anyhow::Result<JobPlan> {
        let Original { begun, document, storage, .. } = original;
        let name = document.job.job.0.clone();
        let folder = self.folder.clone().unwrap_or_else(|| {
            Path::new("runs").join(format!("{name}-replay-{}-{}", wall_seconds(), std::process::id()))
        });
        let folder = RunFolder(std::path::absolute(folder)?);
        folder.check_foreign()?;
        let claim = folder.claim()?;
        folder.check_new()?;
        let from = start.from.map(|kept| kept.record.checkpoint);
        let wanted =
            Wanted { pservers: self.pservers, trainers: self.trainers, replicas: 0, ..document.wanted };
        let replayed = document.replayed(from, wanted).context("the checkpoint is none of the run's")?;
        std::fs::create_dir_all(folder.state())?;
        let to = Storage::open(&place(&folder)).await?;
        // With all that it may rest on, whether or not that is kept as one to go back to.
        let needed = |entry: &checkpoints::Entry| {
            let is_complete = matches!(entry.completeness, checkpoints::Completeness::Complete(_));
            is_complete && start.from.is_some_and(|kept| kept.needs(entry.checkpoint))
        };
        for entry in checkpoints::list(storage).await?.iter().filter(|entry| needed(entry)) {
            progress.say(&format!("copies checkpoint {} of {}", entry.checkpoint, storage.place()));
            let copied = checkpoints::copy(storage, &to, entry.checkpoint).await;
            copied.context("the run goes on, and may have removed it for newer ones: try again")?;
        }
        // Its name is no other replay's, so that it has no identity beside.
        checkpoints::claim(&to, &name, None).await?;
        let state = store::open(&folder.state().display().to_string(), &Security::Loopback, None)?;
        state.swap(None, replayed.to_bytes().into()).await?;
        // Relative paths are the run's.
        if let Some(directory) = &begun.directory {
            std::env::set_current_dir(directory).map_err(|error| {
                Exit::Usage(format!("{}, where the run was begun: {error}", directory.display()))
            })?;
        }
        Ok(JobPlan {
            name,
            job: replayed_spec(*begun.spec.clone().unwrap_or_default()),
            pservers: Bounds::exactly(self.pservers),
            trainers: Bounds::exactly(self.trainers),
            trainers_at_start: self.trainers,
            program: begun.program.iter().map(OsString::from).collect(),
            environment: self
                .environment(&folder, *start.steps.start()..=original.told_by(*start.steps.end())),
            pace: Duration::ZERO,
            checkpoint_memory: None,
            devices: if self.device.is_empty() { vec![DeviceChoice::Cpu] } else { self.device.clone() },
            http: None,
            tensorboard: None,
            tls: false,
            has_network: false,
            has_disk: false,
            folder,
            _claim: claim,
            resumed: Some(Resumed { trainers: None, pservers: None }),
        })
    }
}

/// Where what was inspected lies in a replay's folder.
fn inspections(folder: &Path) -> PathBuf {
    folder.join("inspected")
}

/// The same job, which keeps no checkpoints of its own but the last.
fn replayed_spec(spec: Spec) -> Spec {
    Spec {
        checkpoint: CheckpointSpec {
            every_steps: Some(0),
            every_seconds: Some(0),
            ..CheckpointSpec::default()
        },
        copies: Some(0),
        environment: Some(EnvironmentRule::Warn),
        verify: None,
        record_hashes: Some(1),
        ..spec
    }
}

/// What came of it.
struct Found<'a> {
    arguments: &'a ReplayArguments,
    start: &'a Start,
    comparison: &'a Comparison,
    folder: &'a Path,
    inspected: Option<Inspected>,
}

impl Found<'_> {
    fn begin(&self) -> String {
        match self.start.from {
            Some(kept) => format!("checkpoint {} (step {})", kept.record.checkpoint, self.start.made),
            None => "the initial values".to_owned(),
        }
    }

    fn text(&self) -> String {
        let ReplayArguments { run, trainers, pservers, .. } = self.arguments;
        let (first, last) = (self.start.steps.start(), self.start.steps.end());
        let many = |count: u32, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let mut lines = vec![format!(
            "Steps {first}..{last} of {} from {}, on {} and {}",
            run.display(),
            self.begin(),
            many(*trainers, "trainer"),
            many(*pservers, "pserver")
        )];
        match self.comparison.first_difference() {
            None => {
                lines.push(format!("✔ {} recorded steps, each with the same hashes", self.comparison.same()));
            }
            Some((step, HashDifference { block, parameters, hashes: (differing, all) })) => {
                lines.push(format!(
                    "✘ step {step} is the first that differs: block {block}, {}; {differing} of {all} hashes",
                    named(parameters)
                ));
                lines.push(format!(
                    "  {} recorded steps before it have the same hashes",
                    self.comparison.same()
                ));
                lines.push(
                    "  The program or its libraries may be others than they were, the processor another, or the step function no function of \
                     its batch and its parameters: see `--verify`"
                        .to_owned(),
                );
            }
        }
        if self.comparison.open() > 0 && self.comparison.first_difference().is_none() {
            lines.push(format!("✘ {} recorded steps were not made: see the logs", self.comparison.open()));
        }
        lines.extend(self.inspected.iter().flat_map(Inspected::lines));
        if self.inspected.is_some() {
            lines.push(format!("Page: {}", self.folder.join(INSPECTED_PAGE).display()));
        }
        lines.push(format!("Replay: {}", self.folder.display()));
        lines.join("\n")
    }

    fn json(&self) -> serde_json::Value {
        let ReplayArguments { run, trainers, pservers, .. } = self.arguments;
        let difference = self.comparison.first_difference().map(|(step, difference)| {
            let HashDifference { block, parameters, hashes: (differing, all) } = difference;
            json!({ "step": step, "block": block.0, "parameters": parameters, "hashes_differing": differing, "hashes": all })
        });
        json!({
            "run": run, "folder": self.folder, "checkpoint": self.start.from.map(|kept| kept.record.checkpoint.0),
            "from_step": self.start.made, "first_step": self.start.steps.start(), "last_step": self.start.steps.end(),
            "trainers": trainers, "pservers": pservers,
            "inspected": self.inspected.as_ref().map(Inspected::json), "steps_same": self.comparison.same(), "steps_not_made": self.comparison.open(), "difference": difference,
        })
    }
}

/// Parameters in a sentence.
fn named(parameters: &[String]) -> String {
    let quoted: Vec<String> = parameters.iter().map(|name| format!("{name:?}")).collect();
    match quoted.as_slice() {
        [one] => format!("parameter {one}"),
        all => format!("parameters {}", all.join(", ")),
    }
}
