//! `shoal demo`: a real model trained elastically under faults, and the proof that nothing was lost.

use super::print;
use super::run::remember_as_latest;
use crate::programs::{data, digits};
use crate::report::{self, Run, Verdict};
use crate::runner::outcome::Outcome;
use crate::runner::{JobPlan, Supervisor};
use anyhow::Context;
use rustix::process::Signal;
use serde_json::{Value, json};
use shoal_master::settings::JobArguments;
use shoal_runtime::cluster::JobSettings;
use shoal_runtime::cluster::Step;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::shutdown::Shutdown;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

const EPOCHS: u64 = 12;
const ACCURACY_MIN: f64 = 0.95;
const FAULTS_MIN: usize = 5;
const FAULT_KINDS_MIN: usize = 4;
const LEASE_TTL_MILLIS: u64 = 1500;
/// The elastic run is slowed down so that one can watch: a pause before each microbatch.
const PACE: Duration = Duration::from_millis(20);
/// The report's loss is the mean over so many steps: half an epoch.
const LOSS_STEPS: u64 = 12;
/// The longest that one scene of the demo may wait for what it needs.
const SCENE_MAX: Duration = Duration::from_secs(15);

/// Train a real model under faults, and prove that nothing was lost
///
/// Trains a perceptron on 1,498 real digits twice: undisturbed with one trainer and one pserver, then with two
/// pservers while trainers join, leave, are killed and are frozen. Both must end in the same bits.
#[derive(clap::Args)]
#[command(after_help = "Example: shoal demo --seed 41")]
pub(crate) struct DemoArguments {
    /// Seeds shuffling and initial values
    #[arg(long, env = "SHOAL_SEED", default_value_t = 7)]
    seed: u64,
    /// Folder for models, logs and the report
    #[arg(long, default_value = "runs/demo", value_name = "DIR")]
    folder: PathBuf,
    /// Print one closing JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: DemoArguments) -> anyhow::Result<ExitCode> {
    let mut shutdown = Shutdown::on_signal()?;
    tokio::select! {
        biased;
        () = shutdown.wait() => anyhow::bail!("interrupted: nothing is left running"),
        demonstrated = demonstrate(&arguments) => demonstrated,
    }
}

async fn demonstrate(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    // A folder of an earlier demo must not be taken for this one's.
    if arguments.folder.join("master.address").exists() || arguments.folder.join("elastic").exists() {
        std::fs::remove_dir_all(&arguments.folder).context("cannot clear the folder of the last demo")?;
    }
    let data = arguments.folder.join("data");
    data::pack(&data)?;
    eprintln!("The same job twice: a perceptron on 1,498 real digits, {EPOCHS} epochs, synchronous.\n");
    eprintln!("1. Undisturbed: one trainer, one pserver");
    let undisturbed = undisturbed(arguments, &data).await?;
    eprintln!("   done in {:.1} s, sha256 {}…\n", undisturbed.seconds, &undisturbed.parameters_sha256[..12]);
    eprintln!("2. Elastic, on two pservers, slowed down so that you can watch. While it runs:");
    let mut job = start(arguments, "elastic", &data, 2, 2, PACE).await?;
    remember_as_latest(&job.plan.folder);
    let acted = act(&mut job).await;
    let outcome = match acted {
        Ok(()) => Outcome::read(&mut job).await,
        Err(error) => Err(error),
    };
    job.stop().await;
    let proof = Proof::new(arguments, &job, &undisturbed, &outcome?)?;
    let report = write_report(arguments, &job, &proof)?;
    if arguments.json {
        print(&proof.closing);
    } else {
        print(proof.text(&report));
    }
    Ok(if proof.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn undisturbed(arguments: &DemoArguments, data: &Path) -> anyhow::Result<Outcome> {
    let mut job = start(arguments, "undisturbed", data, 1, 1, Duration::ZERO).await?;
    let trained = async {
        while job.tick().await? {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Outcome::read(&mut job).await
    };
    let outcome = trained.await;
    job.stop().await;
    outcome
}

async fn start(
    arguments: &DemoArguments,
    name: &str,
    data: &Path,
    trainers: u32,
    pservers: u32,
    pace: Duration,
) -> anyhow::Result<Supervisor> {
    let shoal = std::env::current_exe()?.into_os_string();
    let job = JobArguments {
        data: vec![data.join("train-*.recordio").to_string_lossy().into_owned()],
        epochs: EPOCHS,
        seed: arguments.seed,
        microbatch_records: 4,
        microbatches_per_step: 16,
        shuffle_run: 1,
        lease_ttl_millis: LEASE_TTL_MILLIS,
    };
    Supervisor::start(JobPlan {
        name: format!("demo-{name}-{}-{}", wall_seconds(), std::process::id()),
        job,
        pservers,
        trainers_min: 1,
        trainers_max: 8,
        trainers_wanted: trainers,
        program: vec![shoal, "demo-trainer".into()],
        pace,
        folder: arguments.folder.join(name),
    })
    .await
}

fn say(job: &Supervisor, line: &str) {
    eprintln!("   {:>5.1} s  step {:>3}/{}  {line}", job.record.seconds(), job.status.step, job.status.steps);
}

/// Lets the job run until `is_reached`, the scene's patience is over, or the job is. Returns whether it goes on.
async fn until(
    job: &mut Supervisor,
    mut is_reached: impl FnMut(&Supervisor) -> bool,
) -> anyhow::Result<bool> {
    let deadline = Instant::now() + SCENE_MAX;
    while job.tick().await? {
        if is_reached(job) || Instant::now() >= deadline {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(false)
}

async fn pause(job: &mut Supervisor, seconds: f64) -> anyhow::Result<bool> {
    let until_seconds = job.record.seconds() + seconds;
    until(job, |job| job.record.seconds() >= until_seconds).await
}

/// The scenes: trainers 2 -> 4 -> 3 -> 1 -> 3.
async fn act(job: &mut Supervisor) -> anyhow::Result<()> {
    until(job, |job| job.members().len() == 2 && job.status.step > 2).await?;
    for (name, pid, _) in job.members() {
        say(job, &format!("{name} is process {pid}: kill -9 it yourself, it does no harm"));
    }
    pause(job, 1.0).await?;
    grow(job, 4, "two trainers join").await?;
    pause(job, 1.5).await?;
    leave(job).await?;
    pause(job, 1.0).await?;
    let frozen = freeze(job).await?;
    kill(job).await?;
    pause(job, 2.5 * LEASE_TTL_MILLIS as f64 / 1000.0).await?;
    thaw(job, frozen);
    grow(job, 3, "trainers join again").await?;
    pause(job, 1.0).await?;
    while job.tick().await? {
        // Whatever the timing was: a frozen trainer whose work was done by others must have come too late once.
        let is_seen = || {
            let totals = super::status::pserver_totals(&job.status);
            totals.duplicates_refused + totals.late_pushes > 0
        };
        if !is_seen() && job.status.step * 10 < job.status.steps * 8 {
            let frozen = freeze(job).await?;
            pause(job, 2.0 * LEASE_TTL_MILLIS as f64 / 1000.0).await?;
            thaw(job, frozen);
            pause(job, 0.5).await?;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    say(job, "every step is applied by every block");
    Ok(())
}

async fn grow(job: &mut Supervisor, trainers: u32, what: &str) -> anyhow::Result<()> {
    let before: BTreeSet<u32> = job.trainers.iter().map(|trainer| trainer.pid).collect();
    say(job, &format!("{what}: {} -> {trainers}", before.len()));
    job.client.scale(trainers).await?;
    until(job, |job| job.members().len() as u32 >= trainers).await?;
    for (name, pid, _) in job.members().into_iter().filter(|(_, pid, _)| !before.contains(pid)) {
        say(job, &format!("{name} (process {pid}) has joined"));
        job.record.fault("join", &name, "joins in mid-training");
    }
    Ok(())
}

async fn leave(job: &mut Supervisor) -> anyhow::Result<()> {
    let Some((name, pid, _)) = job.members().pop() else { return Ok(()) };
    say(job, &format!("{name} (process {pid}) is asked to leave, and hands back its tasks"));
    job.record.fault("leave", &name, "SIGTERM: hands back its tasks");
    let remaining = job.members().len() as u32 - 1;
    job.ask_to_leave(pid);
    job.client.scale(remaining).await?;
    until(job, |job| job.trainers.iter().all(|trainer| trainer.pid != pid)).await?;
    Ok(())
}

/// Freezes a trainer in mid-task.
async fn freeze(job: &mut Supervisor) -> anyhow::Result<Option<(String, u32)>> {
    let Some((name, pid)) = busy_member(job).await? else { return Ok(None) };
    job.signal(pid, Signal::STOP);
    say(job, &format!("{name} (process {pid}) is frozen in mid-task, for longer than its lease"));
    job.record.fault("freeze", &name, "SIGSTOP in mid-task, past its lease");
    Ok(Some((name, pid)))
}

fn thaw(job: &mut Supervisor, frozen: Option<(String, u32)>) {
    let Some((name, pid)) = frozen else { return };
    job.signal(pid, Signal::CONT);
    say(job, &format!("{name} (process {pid}) wakes, and pushes what others have done meanwhile"));
    job.record.fault("thaw", &name, "SIGCONT: pushes late");
}

/// Kills a trainer in mid-task that is not frozen; its place stays empty.
async fn kill(job: &mut Supervisor) -> anyhow::Result<()> {
    let Some((name, pid)) = busy_member(job).await? else { return Ok(()) };
    job.kill(pid).await;
    say(job, &format!("{name} (process {pid}) is killed in mid-task: kill -9"));
    job.record.fault("kill", &name, "kill -9 in mid-task");
    let remaining = job.trainers.len() as u32 - 1;
    job.client.scale(remaining).await?;
    until(job, |job| job.trainers.iter().all(|trainer| trainer.pid != pid)).await?;
    Ok(())
}

/// A live trainer that holds a task and is not frozen.
async fn busy_member(job: &mut Supervisor) -> anyhow::Result<Option<(String, u32)>> {
    let find = |job: &Supervisor| {
        let is_frozen = |name: &str| {
            let member = job.record.members.iter().rev().find(|member| member.name == name);
            member.is_some_and(|member| member.frozen.last().is_some_and(|freeze| freeze.1.is_infinite()))
        };
        job.members().into_iter().find(|(name, _, in_hand)| *in_hand > 0 && !is_frozen(name))
    };
    until(job, |job| find(job).is_some()).await?;
    Ok(find(job).map(|(name, pid, _)| (name, pid)))
}

/// What the demo shows in the end.
struct Proof {
    verdicts: Vec<Verdict>,
    closing: Value,
    losses: Vec<f32>,
    settings: JobSettings,
    facts: Vec<(String, String)>,
}

impl Proof {
    fn new(
        arguments: &DemoArguments,
        job: &Supervisor,
        undisturbed: &Outcome,
        outcome: &Outcome,
    ) -> anyhow::Result<Proof> {
        let tally = outcome.tally().context("the model has no counts")?;
        let accuracy = digits::held_out_accuracy(|name| outcome.model.values(name))?;
        let undisturbed_model = arguments.folder.join("undisturbed").join("model.safetensors");
        let mut closing = outcome.json(job);
        let kinds: BTreeSet<&str> = job.record.faults.iter().map(|fault| fault.kind.as_str()).collect();
        let number = |name: &str| closing[name].as_u64().unwrap_or(0);
        let (again, refused, late) =
            (number("tasks_leased_again"), number("duplicates_refused"), number("late_pushes"));
        let (ours, theirs) = (&outcome.parameters_sha256, &undisturbed.parameters_sha256);
        let per_epoch = tally.expected / EPOCHS;
        let verdict = |holds, text| Verdict { holds, text };
        let verdicts = vec![
            verdict(
                tally.wrong == 0 && tally.counted == tally.expected,
                format!(
                    "{per_epoch} records counted exactly once in each of {EPOCHS} epochs: {}/{}",
                    tally.counted, tally.expected
                ),
            ),
            verdict(
                ours == theirs,
                format!("parameters sha256 {}… = undisturbed {}…", &ours[..12], &theirs[..12]),
            ),
            verdict(
                accuracy >= ACCURACY_MIN,
                format!("{:.1} % of 299 held-out digits told right", 100.0 * accuracy),
            ),
            verdict(
                job.record.faults.len() >= FAULTS_MIN && kinds.len() >= FAULT_KINDS_MIN,
                format!("{} faults of {} kinds really hit", job.record.faults.len(), kinds.len()),
            ),
            verdict(
                again >= 1 && refused + late >= 1,
                format!(
                    "{again} tasks lost or handed back and done again; {refused} pushes refused as duplicates, {late} came too late"
                ),
            ),
        ];
        let records_refused = number("records_refused");
        let facts = vec![
            (
                "without exactly-once".to_owned(),
                format!("{records_refused} records would have counted twice"),
            ),
            ("seed".to_owned(), arguments.seed.to_string()),
            ("elastic run".to_owned(), format!("{:.1} s, paced", outcome.seconds)),
            ("undisturbed run".to_owned(), format!("{:.1} s", undisturbed.seconds)),
        ];
        closing["undisturbed_sha256"] = json!(theirs);
        closing["accuracy"] = json!(accuracy);
        closing["undisturbed_model"] = json!(undisturbed_model);
        closing["report"] = json!(arguments.folder.join("report.html"));
        closing["ok"] = json!(verdicts.iter().all(|verdict| verdict.holds));
        let settings = JobSettings::try_from(outcome.status.settings.clone().unwrap_or_default())?;
        Ok(Proof { verdicts, closing, losses: outcome.model.values("loss")?.to_vec(), settings, facts })
    }

    fn holds(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.holds)
    }

    fn text(&self, report: &Path) -> String {
        let mark = |verdict: &Verdict| format!("{} {}", if verdict.holds { '✔' } else { '✘' }, verdict.text);
        let mut lines: Vec<String> = self.verdicts.iter().map(mark).collect();
        lines.extend(self.facts.iter().take(1).map(|(name, value)| format!("  {name}: {value}")));
        lines.push(format!("Picture: {}   Again: shoal demo --seed 41", report.display()));
        lines.join("\n")
    }

    /// Mean loss per record of the steps `from..to`.
    fn loss(&self, from: u64, to: u64) -> Option<f64> {
        let shape = self.settings.shape();
        let records = |step: u64| -> u64 {
            let slots = 0..shape.tree(Step(step)).present();
            slots
                .map(|slot| shape.positions(shape.microbatch(Step(step), slot)))
                .map(|p| p.end - p.start)
                .sum()
        };
        let count: u64 = (from..to).map(records).sum();
        let sum: f64 = self.losses.get(from as usize..to as usize)?.iter().map(|loss| f64::from(*loss)).sum();
        (count > 0).then(|| sum / count as f64)
    }
}

fn write_report(arguments: &DemoArguments, job: &Supervisor, proof: &Proof) -> anyhow::Result<PathBuf> {
    let mut samples = job.record.samples.clone();
    for sample in &mut samples {
        sample.loss = proof.loss(sample.step.saturating_sub(LOSS_STEPS), sample.step);
    }
    let run = Run {
        title: "Shoal demo: digits, trained under faults".to_owned(),
        job: job.plan.name.clone(),
        seconds: job.record.seconds(),
        steps: job.status.steps,
        epochs: EPOCHS,
        samples,
        members: job.record.members.clone(),
        faults: job.record.faults.clone(),
        verdicts: proof.verdicts.clone(),
        facts: proof.facts.clone(),
    };
    let page = arguments.folder.join("report.html");
    std::fs::write(&page, report::html(&run))?;
    std::fs::write(arguments.folder.join("report.svg"), report::svg(&run))?;
    Ok(page)
}
