//! `shoal run`: a job on this machine, with the same processes and protocol as on a cluster.

use serde_json::Value;
use shoal_drill::chaos::kind::{Kind, Kinds};
use shoal_drill::chaos::{Chaos, privileges};
use shoal_drill::flags::{ChaosFlags, ChaosPlan};
use shoal_drill::hands_on::Hands;
use shoal_runner::Supervisor;
use shoal_runner::breakdown::Breakdown;
use shoal_runner::evaluations;
use shoal_runner::exclusions;
use shoal_runner::exit::Exit;
use shoal_runner::flags::{Conditions, JobFlags, RunIdentity};
use shoal_runner::folder::RunFolder;
use shoal_runner::outcome::Outcome;
use shoal_runner::output::{Output, print_outcome};
use shoal_runner::programs::Tally;
use shoal_runner::progress::Progress;
use shoal_runner::reading::pserver_totals;
use shoal_runner::rewinds;
use shoal_runner::{latest, life};
use shoal_runtime::cluster::job_check;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::files;
use shoal_runtime::host::shutdown::Shutdown;
use shoal_ui::{Conclusion, Hash, Source, UiFlags};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// The most letters of a name: what tells two jobs of one name from another comes after it.
const NAME_MAX: usize = 200;

/// Examples for help, after those of manifests.
macro_rules! examples {
    ($manifests:literal) => {
        concat!("Examples:\n  ", $manifests, "shoal run --trainers 2:4 --pservers 2 --replicas 1 --data 'data/train-*.recordio' --epochs 2 -- target/release/examples/digits\n  \
shoal run --data 's3://bucket/train-*.recordio' -- target/release/my-program --learning-rate 0.05 --layers 3\n  \
shoal run --chaos 7 --chaos-kinds kill,partition --trainers 2:4 --pservers 3 --replicas 1 --data 'data/train-*.recordio' -- target/release/my-program")
    };
}
#[cfg(feature = "cluster")]
const EXAMPLES: &str = examples!(
    "shoal run -f job.yaml\n  shoal run -f job.yaml --data 'data/*.recordio' -- target/release/my-program\n  "
);
#[cfg(not(feature = "cluster"))]
const EXAMPLES: &str = examples!("");

/// Run a training job on this machine
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, mut_arg("program", |program| program.required_unless_present("file")))]
pub(crate) struct RunArguments {
    /// A TrainingJob as a cluster runs it, in YAML or JSON, or - for standard input: its data, settings, numbers and program are
    /// taken where no flag and no variable says otherwise. Places, images, resources and volumes are left to clusters
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    #[cfg_attr(not(feature = "cluster"), arg(help = "Not in this build: a TrainingJob as a cluster runs it", long_help = "Not in this build: a TrainingJob as a cluster runs it", value_parser = not_here))]
    file: Option<PathBuf>,
    #[command(flatten)]
    flags: JobFlags<ChaosFlags>,
    /// Name of the job, of letters, digits, '-', '_' and '.'; by default the program's name, or its script's
    #[arg(long)]
    name: Option<String>,
    /// Go on with the run in --folder (by default runs/latest), whose processes have ended. Data, settings and program
    /// are given as before; numbers of trainers and pservers may differ
    #[arg(long, conflicts_with = "name")]
    resume: bool,
    /// Kill, freeze, stop, move and add trainers, pservers and the master while the job runs, as this seed decides;
    /// with --replicas at most one pserver at a time is down. Paces the job to last some seconds and, unless stated,
    /// shortens the lease TTL to 1000 ms. Judged over many seeds by `shoal chaos`
    #[arg(long, value_name = "SEED")]
    chaos: Option<u64>,
    #[command(flatten)]
    ui: UiFlags,
    /// Address of the master's pages /metrics, /healthz and /readyz; none by default. Other processes of a local run show
    /// none
    #[arg(long, env = "SHOAL_HTTP", value_name = "HOST:PORT")]
    http: Option<SocketAddr>,
    /// Write event files for TensorBoard as the run goes: evaluations, losses, rates, members, wasted work and hyperparameters,
    /// below DIR in a folder of the job's name, so that runs of one DIR are compared by `tensorboard --logdir DIR`
    #[arg(long, env = "SHOAL_TENSORBOARD", value_name = "DIR")]
    tensorboard: Option<PathBuf>,
    /// Folder for logs, the job's state and the model; by default a new one under runs/
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl RunArguments {
    /// The arguments with what the manifest says where they say nothing.
    #[cfg(feature = "cluster")]
    fn with_manifest(mut self) -> anyhow::Result<RunArguments> {
        let Some(file) = &self.file else { return Ok(self) };
        let flags = &mut self.flags;
        let said = crate::manifest::of_run(file, !flags.program.is_empty())?;
        said.notes.iter().for_each(|note| note!("{note}"));
        // A run that goes on has its name.
        if !self.resume {
            self.name = self.name.or(said.name);
        }
        flags.trainers.get_or_insert(said.trainers);
        flags.pservers.get_or_insert(said.pservers);
        flags.spec = flags.spec.over(&said.spec);
        flags.pace_millis = flags.pace_millis.or(said.pace_millis);
        // Of variables of one name the last counts.
        flags.env.splice(..0, said.environment);
        if flags.device.is_empty() {
            flags.device = said.devices;
        }
        if flags.program.is_empty() {
            flags.program = said.program;
        }
        Ok(self)
    }

    #[cfg(not(feature = "cluster"))]
    fn with_manifest(self) -> anyhow::Result<RunArguments> {
        Ok(self)
    }

    /// The faults that are injected; an error for flags of chaos where there is none.
    fn chaos_plan(&self) -> anyhow::Result<Option<ChaosPlan>> {
        let ChaosFlags { chaos_hard, chaos_kinds } = &self.flags.more;
        let Some(seed) = self.chaos else {
            if *chaos_hard || !chaos_kinds.is_empty() {
                return Err(
                    Exit::Usage("--chaos-hard and --chaos-kinds go with --chaos SEED".to_owned()).into()
                );
            }
            return Ok(None);
        };
        if self.resume && chaos_kinds.contains(&Kind::Disk) {
            let why = "--chaos-kinds disk: a run that goes on has its state on another disk already";
            return Err(Exit::Usage(why.to_owned()).into());
        }
        Ok(Some(ChaosPlan { seed, is_hard: *chaos_hard, kinds: Kinds::of(chaos_kinds) }))
    }

    /// Of which kinds all faults are, a person's included.
    fn kinds(&self, faults: Option<ChaosPlan>) -> Result<Kinds, Exit> {
        if self.ui.reaches_links()
            && !privileges::is_inside()
            && let Some(why) = privileges::missing(Kind::Partition)
        {
            return Err(Exit::Usage(format!("--hands-on=links: {why}; --hands-on alone does not")));
        }
        let links = self.ui.reaches_links().then_some(Kind::Partition);
        Ok(faults.iter().flat_map(|faults| faults.kinds.iter()).chain(links).collect())
    }

    /// The job's name and folder: new ones, or those of the run that is to go on.
    fn identity(&self) -> anyhow::Result<RunIdentity> {
        let (is_resumed, http, tensorboard) = (self.resume, self.http, self.tensorboard.clone());
        let check_events =
            |folder: &RunFolder| tensorboard.as_deref().map_or(Ok(()), |place| folder.check_events(place));
        if is_resumed {
            let latest = || std::fs::canonicalize("runs/latest").unwrap_or_else(|_| "runs/latest".into());
            let folder = RunFolder(self.folder.clone().unwrap_or_else(latest));
            // Only what is a run's is claimed, and what it is counts once nobody else is there.
            folder.job_to_resume()?;
            check_events(&folder)?;
            let claim = folder.claim()?;
            return Ok(RunIdentity {
                name: folder.job_to_resume()?,
                folder,
                claim,
                is_resumed,
                http,
                tensorboard,
            });
        }
        // The suffix tells this job from another of the same name, whose processes must not get into it.
        let unique = format!("{}-{}", wall_seconds(), std::process::id());
        let name = match &self.name {
            Some(name) => format!("{}-{unique}", named(name)?),
            None => format!("{}-{unique}", self.flags.program_name()),
        };
        let folder = RunFolder(self.folder.clone().unwrap_or_else(|| PathBuf::from("runs").join(&name)));
        folder.check_foreign()?;
        check_events(&folder)?;
        let claim = folder.claim()?;
        folder.check_new()?;
        self.flags.check_program()?;
        Ok(RunIdentity { name, folder, claim, is_resumed, http, tensorboard })
    }
}

pub(crate) async fn run(arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let arguments = arguments.with_manifest()?;
    let faults = arguments.chaos_plan()?;
    arguments.flags.check()?;
    let (page, hands) = arguments.ui.prepare()?.unzip();
    let kinds = arguments.kinds(faults)?;
    privileges::enter(kinds, page.as_ref().map(|page| &page.listener))?;
    let mut shutdown = Shutdown::on_signal()?;
    let mut progress = Progress::begin();
    let started = async {
        let conditions = faults.map(ChaosPlan::conditions).unwrap_or_default();
        let has_network = conditions.has_network || arguments.ui.reaches_links();
        let conditions = Conditions { has_network, ..conditions };
        let plan = arguments.flags.plan(arguments.identity()?, conditions).await?;
        life::start(plan, &mut progress).await
    };
    let mut job = tokio::select! {
        biased;
        () = shutdown.wait() => return Err(Exit::interrupted(&shutdown).into()),
        job = started => job?,
    };
    latest::remember(job.plan.folder.path());
    let inside = if job.plan.has_network {
        format!("nsenter --target {} --net ", std::process::id())
    } else {
        String::new()
    };
    progress.say(&format!(
        "look at it: {inside}{}   change it: {inside}{} --trainers N   end it: Ctrl-C",
        job.plan.folder.command("status"),
        job.plan.folder.command("scale")
    ));
    let ui = page.map(|page| page.start(Source::of_run(&job.plan))).transpose()?;
    if let Some(ui) = &ui {
        progress.say(&format!("live page: {}", ui.address()));
    }
    let chaos = faults.map(|faults| Chaos::new(faults, &job.plan));
    let interference = (chaos, hands.flatten().map(Hands::new));
    let trained = tokio::select! {
        biased;
        () = shutdown.wait() => Err(Exit::interrupted(&shutdown).into()),
        trained = life::train(&mut job, &mut progress, interference) => trained,
    };
    progress.end();
    if let Err(error) = &trained {
        let how = if shutdown.is_due() { "interrupted" } else { "failed" };
        job.record.conclude(how, &format!("{error:#}"));
    }
    // What is known is written first: ending the processes may take its time.
    let written = trained.as_ref().map_or(Ok(()), |(_, closing)| {
        files::write(&job.plan.folder.result(), format!("{closing}\n").as_bytes())
    });
    job.stop().await;
    if shutdown.is_due() && trained.is_err() {
        let again = job.plan.folder.resuming();
        progress.say(&format!("interrupted: all processes are ended. Go on with the same flags: {again}"));
    }
    if let Some(ui) = ui {
        ui.conclude(conclusion(&trained, &job)).await;
    }
    let (outcome, closing) = trained?;
    written?;
    match arguments.flags.output {
        Output::Json => print_outcome(&closing)?,
        Output::Text => print_outcome(text(&outcome, &job))?,
    }
    let is_exact = outcome.tally().is_none_or(|tally| tally.wrong == 0);
    Ok(if is_exact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the live page shows of a run that is over.
fn conclusion(trained: &anyhow::Result<(Outcome, Value)>, job: &Supervisor) -> Conclusion {
    let again = Some(job.plan.folder.command("ui"));
    match trained {
        Err(error) => {
            Conclusion { verdicts: vec![(false, format!("{error:#}"))], again, ..Conclusion::default() }
        }
        Ok((outcome, _)) => {
            let sha256 = outcome.parameters_sha256.clone();
            let counted = |tally: Tally| {
                let text = format!(
                    "{}/{} records counted, {} of them wrongly",
                    tally.counted, tally.expected, tally.wrong
                );
                (tally.wrong == 0, text)
            };
            let verdicts = outcome.tally().map(counted).into_iter().collect();
            Conclusion { hashes: vec![Hash { of: "parameters".to_owned(), sha256 }], verdicts, again }
        }
    }
}

/// A name, if with what is put after it it can be a job's.
fn named(name: &str) -> Result<&str, Exit> {
    let wrong = |what: &str| Exit::Usage(format!("--name {name:?} {what}"));
    job_check::name(name).map_err(|fault| wrong(&fault.what))?;
    if name.len() > NAME_MAX {
        return Err(wrong(&format!("has {} letters, and at most {NAME_MAX} are taken", name.len())));
    }
    Ok(name)
}

fn text(outcome: &Outcome, job: &Supervisor) -> String {
    let status = &outcome.status;
    let excluded = match status.records_excluded {
        0 => String::new(),
        excluded => format!(", {excluded} excluded"),
    };
    let (step, records, seconds) = (status.step, outcome.records_trained(), outcome.seconds);
    let mut lines = vec![format!("✔ {step} steps, {records} records in {seconds:.1} s{excluded}")];
    if let Some(tally) = outcome.tally() {
        let mark = if tally.wrong == 0 { '✔' } else { '✘' };
        lines.push(format!(
            "{mark} {}/{} records counted, {} of them wrongly{excluded}",
            tally.counted, tally.expected, tally.wrong
        ));
    }
    lines.push(format!("✔ parameters sha256 {}", outcome.parameters_sha256));
    lines.extend(evaluations::lines(status).into_iter().map(|line| format!("  {line}")));
    let shares = Breakdown::of(&status.trainer_totals.unwrap_or_default()).shares();
    lines.extend(shares.map(|shares| format!("  time: {shares}")));
    lines.extend(exclusions::lines(status).into_iter().map(|line| format!("  {line}")));
    if status.rewind > 0 {
        lines.push(format!("  went back {}", rewinds::text(status.rewind, &rewinds::causes(status))));
    }
    let totals = pserver_totals(status);
    if totals.fills + totals.entries > 0 {
        let (fills, entries, bytes) = (totals.fills, totals.entries, totals.bytes_followed);
        lines.push(format!("  copies: {fills} filled, {entries} updates followed, {bytes} bytes"));
    }
    let faults = job.record.injected().count();
    if faults > 0 {
        lines.push(format!("  {faults} faults survived"));
    }
    lines.push(format!("Model: {}", job.plan.folder.model().display()));
    lines.join("\n")
}

/// Refuses a manifest where nobody is there to read it.
#[cfg(not(feature = "cluster"))]
fn not_here(_: &str) -> Result<PathBuf, Exit> {
    Err(crate::absent::flag("--file", "cluster"))
}

#[cfg(test)]
#[cfg(feature = "cluster")]
mod manifest_tests;
