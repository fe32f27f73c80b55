//! `shoal demo`: a real model trained elastically under faults, and the proof that nothing was lost.

mod proof;
mod schedule;

use crate::hands_on::Hands;
use crate::programs::data;
use anyhow::Context;
use proof::Proof;
use shoal_job::spec::{CheckpointSpec, Spec};
use shoal_pserver::device::DeviceChoice;
use shoal_runner::exit::Exit;
use shoal_runner::folder::RunFolder;
use shoal_runner::latest;
use shoal_runner::life::Interference;
use shoal_runner::outcome::Outcome;
use shoal_runner::output::print_outcome;
use shoal_runner::plan::Bounds;
use shoal_runner::{JobPlan, Supervisor};
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::files;
use shoal_runtime::host::shutdown::Shutdown;
use shoal_ui::{Reach, Source, UiFlags};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const EPOCHS: u64 = 12;
const LEASE_TTL_MILLIS: u64 = 1500;
/// Where a demo lies unless it is said.
const FOLDER: &str = "runs/demo";
/// The elastic run is slowed down so that one can watch: a pause before each microbatch.
const PACE: Duration = Duration::from_millis(20);

/// Train a real model under faults, and prove that nothing was lost
///
/// Trains a perceptron on 1,498 real digits twice: undisturbed with one trainer and one pserver, then with two
/// pservers while trainers join, leave, are killed and are frozen. Both must end in the same bits.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  shoal demo --seed 41\n  shoal demo --ui")]
pub struct DemoArguments {
    /// Seeds shuffling and initial values
    #[arg(long, env = "SHOAL_SEED", default_value_t = 7)]
    seed: u64,
    /// Folder for models, logs and the report
    #[arg(long, default_value = FOLDER, value_name = "DIR")]
    folder: PathBuf,
    /// Serve a live page of the elastic run, which then is three times as slow, with buttons to break it: kill, freeze, add, remove, move.
    /// In the end it shows the two models' hashes beside one another. Its address, which has a token, is printed once; HOST:PORT says
    /// where it is served, by default at any free port of this machine's loopback address
    #[arg(long, env = "SHOAL_UI", value_name = "HOST:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    ui: Option<SocketAddr>,
    /// Print one closing JSON object
    #[arg(long)]
    json: bool,
}

/// Trains twice, the second time under faults, and prints the proof that both ended in the same bits.
///
/// # Errors
/// An interruption, or a run that cannot be made.
pub async fn run(arguments: DemoArguments) -> anyhow::Result<ExitCode> {
    let mut shutdown = Shutdown::on_signal()?;
    tokio::select! {
        biased;
        () = shutdown.wait() => Err(Exit::interrupted(&shutdown).into()),
        demonstrated = demonstrate(&arguments) => demonstrated,
    }
}

async fn demonstrate(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    let _claim = RunFolder(arguments.folder.clone()).claim()?;
    let flags = UiFlags { ui: arguments.ui, hands_on: arguments.ui.map(|_| Reach::Processes) };
    let (page, hands) = flags.prepare()?.unzip();
    let mut hands = hands.flatten().map(Hands::new);
    forget_last_demo(&arguments.folder)?;
    let data = arguments.folder.join("data");
    data::pack(&data)?;
    note!(
        "The same job twice: a perceptron on 1,498 real digits, {EPOCHS} epochs, synchronous, seed {}.\n",
        arguments.seed
    );
    note!("1. Undisturbed: one trainer, one pserver");
    let undisturbed = undisturbed(arguments, &data).await?;
    note!("   done in {:.1} s, sha256 {}…\n", undisturbed.seconds, &undisturbed.parameters_sha256[..12]);
    note!("2. Elastic, on two pservers, slowed down so that you can watch. While it runs:");
    let pace = if page.is_some() { PACE * 3 } else { PACE };
    let mut job = start(arguments, "elastic", &data, 2, 2, pace).await?;
    latest::remember(job.plan.folder.path());
    let ui = page.map(|page| page.start(Source::of_run(&job.plan))).transpose()?;
    if let Some(ui) = &ui {
        note!("   live page, with buttons to break it: {}", ui.address());
    }
    let injected = schedule::inject(&mut job, &mut hands).await;
    hands.end(&mut job).await;
    let outcome = match injected {
        Ok(()) => Outcome::read(&mut job).await,
        Err(error) => Err(error),
    };
    job.stop().await;
    let proof = Proof::new(arguments, &job, &undisturbed, &outcome?)?;
    let report = proof::write_report(arguments, &job, &proof)?;
    if let Some(ui) = ui {
        ui.conclude(proof.conclusion(&job)).await;
    }
    if arguments.json {
        print_outcome(&proof.closing)?;
    } else {
        print_outcome(proof.text(&report))?;
    }
    Ok(if proof.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says in a folder that a demo made it. Whatever else lies in one without it is not the demo's to remove.
const MARK: &str = "made-by-shoal-demo";

/// Removes what an earlier demo left in the folder, and nothing else that may lie there.
fn forget_last_demo(folder: &Path) -> anyhow::Result<()> {
    let mark = folder.join(MARK);
    let parts = ["data", "undisturbed", "elastic"].map(|part| folder.join(part));
    let there: Vec<_> = parts.iter().filter(|part| std::fs::symlink_metadata(part).is_ok()).collect();
    // Earlier versions made no mark.
    let is_ours = mark.exists() || folder.join("undisturbed/job.name").exists();
    if let (Some(part), false) = (there.first(), is_ours) {
        let (part, folder) = (part.display(), folder.display());
        return Err(Exit::Usage(format!(
            "{part} is there, and no demo made it: name another folder than {folder} by --folder"
        ))
        .into());
    }
    // A run that was resumed there may live.
    let _claims = there
        .iter()
        .filter(|part| part.is_dir())
        .map(|part| RunFolder(part.to_path_buf()).claim())
        .collect::<Result<Vec<_>, _>>()?;
    for part in there {
        std::fs::remove_dir_all(part).with_context(|| format!("cannot clear {}", part.display()))?;
    }
    Ok(files::write(
        &mark,
        b"Each `shoal demo` removes data, undisturbed and elastic here, and makes them anew.\n",
    )?)
}

async fn undisturbed(arguments: &DemoArguments, data: &Path) -> anyhow::Result<Outcome> {
    let mut job = start(arguments, "undisturbed", data, 1, 1, Duration::ZERO).await?;
    let trained = async {
        while job.tick().await? {
            schedule::say_notes(&mut job);
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
    let job = Spec {
        data: vec![data.join("train-*.recordio").to_string_lossy().into_owned()],
        epochs: Some(EPOCHS),
        seed: Some(arguments.seed),
        microbatch_records: Some(4),
        lease_ttl_millis: Some(LEASE_TTL_MILLIS),
        checkpoint: CheckpointSpec { every_seconds: Some(0), ..CheckpointSpec::default() },
        ..Spec::default()
    };
    let folder = RunFolder(arguments.folder.join(name));
    Supervisor::start(JobPlan {
        name: format!("demo-{name}-{}-{}", wall_seconds(), std::process::id()),
        job,
        pservers: Bounds::exactly(pservers),
        trainers: Bounds { min: 1, max: 8 },
        trainers_at_start: trainers,
        program: vec![shoal, "demo-trainer".into()],
        environment: Vec::new(),
        pace,
        checkpoint_memory: None,
        devices: vec![DeviceChoice::Cpu],
        http: None,
        tensorboard: None,
        tls: false,
        has_network: false,
        has_disk: false,
        _claim: folder.claim()?,
        folder,
        resumed: None,
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_demo_made_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let refusal = forget_last_demo(folder.path()).unwrap_err().to_string();
        assert!(refusal.contains("no demo made it") && data.is_dir(), "{refusal}");
        std::fs::remove_dir(&data).unwrap();
        forget_last_demo(folder.path()).unwrap();
        std::fs::create_dir(&data).unwrap();
        std::fs::write(folder.path().join("mine"), "precious").unwrap();
        forget_last_demo(folder.path()).unwrap();
        assert!(!data.exists() && folder.path().join("mine").exists());
    }
}
