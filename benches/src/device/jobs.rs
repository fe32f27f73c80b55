//! Whole jobs as a user runs them, of one trainer and one pserver, each a process of its own: steps per second with the pserver's
//! updates on the processor and on the device, and with the trainer's gradients here and there.
//!
//! The program computes nothing: its gradients are zeros. What is left is the way of a gradient and back. And one job that does
//! compute, whose blocks go to the device and back.

use super::Arguments;
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use shoal_recordio::{Writer, WriterOptions};
use shoal_runtime::cluster::permutation::mix;
use shoal_trainer_sdk::{
    Batch, Declaration, Gradient, Initial, Job, Model, OnDevice, Parameter, Parameters, Rule, Schedule,
};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;

/// Of parameters.
const SIZES: [u64; 3] = [64 << 20, 256 << 20, 1 << 30];
const STEPS: u64 = 24;
/// Steps before the first that is measured.
const BEFORE: usize = 4;
const MICROBATCHES: u64 = 2;

/// What a trainer of such a job is told.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Training {
    pub(crate) elements: u64,
    pub(crate) device: Option<u32>,
    /// Where it writes down when each step begins.
    pub(crate) begins: PathBuf,
    /// Whether its gradients are not zeros.
    pub(crate) moves: bool,
}

/// Where updates run, and where gradients are.
struct Row {
    name: &'static str,
    is_pserver_on_device: bool,
    is_trainer_on_device: bool,
}

const ROWS: [Row; 4] = [
    Row { name: "processor, messages", is_pserver_on_device: false, is_trainer_on_device: false },
    Row { name: "processor, from a device", is_pserver_on_device: false, is_trainer_on_device: true },
    Row { name: "device, messages", is_pserver_on_device: true, is_trainer_on_device: false },
    Row { name: "device, in device memory", is_pserver_on_device: true, is_trainer_on_device: true },
];

/// Measures all of it.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let programs = Programs::build()?;
    let rounds = arguments.rounds.div_ceil(3);
    println!(
        "\nsteps per second of whole jobs with Adam, medians of {rounds}; bytes that updates found on the device"
    );
    println!("{:>8}  {:<26} {:>10} {:>8} {:>14}", "MiB", "updates, gradients", "steps/s", "ratio", "found");
    // Parameters and state, two gradients of the trainer, two areas, and what is pulled.
    for bytes in SIZES.into_iter().filter(|bytes| 8 * bytes <= arguments.bytes_max) {
        let mut first = None;
        for row in &ROWS {
            let mut rates = Vec::new();
            let mut found = 0;
            for _ in 0..rounds {
                let (rate, bytes) = measure(arguments, &programs, row, bytes)?;
                rates.push(rate);
                found = bytes;
            }
            rates.sort_by(f64::total_cmp);
            let rate = rates[rates.len() / 2];
            let ratio = rate / *first.get_or_insert(rate);
            println!("{:>8}  {:<26} {rate:>10.2} {ratio:>8.2} {found:>14}", bytes >> 20, row.name);
        }
    }
    Ok(())
}

/// As they were when the measurement began: whoever builds meanwhile changes nothing.
pub(crate) struct Programs {
    _folder: TempDir,
    pub(crate) shoal: PathBuf,
    pub(crate) digits: PathBuf,
    pub(crate) train: PathBuf,
}

impl Programs {
    pub(crate) fn build() -> anyhow::Result<Programs> {
        let folder = tempfile::tempdir()?;
        let [shoal, digits, train] = ["shoal", "digits", "train"].map(|name| folder.path().join(name));
        std::fs::copy("/proc/self/exe", &train).context("copying this program")?;
        let built = build()?;
        std::fs::copy(built.join("shoal"), &shoal).context("copying `shoal`")?;
        std::fs::copy(built.join("examples/digits"), &digits).context("copying `digits`")?;
        Ok(Programs { _folder: folder, shoal, digits, train })
    }

    /// A job of one trainer and one pserver.
    pub(crate) fn job(&self) -> Command {
        let mut command = Command::new(&self.shoal);
        command.args([
            "run",
            "--pservers",
            "1",
            "--trainers",
            "1",
            "--microbatch-records",
            "1",
            "-o",
            "json",
        ]);
        command.args(["--microbatches-per-step", &MICROBATCHES.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

/// As many as there are microbatches in so many steps; what is in them is nobody's business.
pub(crate) fn write_records(path: &Path, steps: u64) -> anyhow::Result<()> {
    let mut writer = Writer::new(File::create(path)?, WriterOptions::default());
    (0..steps * MICROBATCHES).try_for_each(|record| writer.write(&record.to_le_bytes()))?;
    writer.finish()?;
    Ok(())
}

/// A job whose blocks go from the processor to the device and back while it trains: whether its parameters have the bits of one
/// whose blocks stay.
///
/// # Errors
/// They have not.
pub(crate) fn migrate(arguments: &Arguments) -> anyhow::Result<()> {
    let (programs, folder) = (Programs::build()?, tempfile::tempdir()?);
    let data = folder.path().join("data.recordio");
    write_records(&data, STEPS)?;
    let job = |run: &Path, devices: &str| {
        let (device, begins) = (None, folder.path().join(format!("{devices}-begins")));
        let training = Training { elements: 1 << 20, device, begins, moves: true };
        let mut command = programs.job();
        command.args(["--pace-millis", "200", "--device", devices]).arg("--data").arg(&data);
        command.arg("--folder").arg(run).arg("--").arg(&programs.train);
        command.args(["--train", &serde_json::to_string(&training)?]);
        anyhow::Ok(command.stderr(File::create(folder.path().join("said"))?).spawn()?)
    };
    let ended = |run: &Path, mut running: Child| {
        let status = running.wait()?;
        let said = || std::fs::read_to_string(folder.path().join("said")).unwrap_or_default();
        ensure!(status.success(), "`shoal run` ended with {status}:\n{}", said());
        let closing: serde_json::Value = serde_json::from_slice(&std::fs::read(run.join("result.json"))?)?;
        ensure!(closing["rewinds"] == 0, "it went back: {closing}");
        anyhow::Ok((closing["parameters_sha256"].to_string(), closing["pservers"].to_string()))
    };
    let [stays, goes] = ["stays", "goes"].map(|name| folder.path().join(name));
    let (stayed, _) = ended(&stays, job(&stays, "cpu")?)?;
    let mut running = job(&goes, &format!("cpu,cuda:{}", arguments.device))?;
    for pserver in ["pserver-0", "pserver-1"] {
        let mut command = Command::new(&programs.shoal);
        command.args(["migrate", "--wait", "--pserver", pserver, "--run"]).arg(&goes).stdout(Stdio::null());
        // Until the job is there.
        while !command.stderr(Stdio::null()).status()?.success() {
            ensure!(running.try_wait()?.is_none(), "the job has ended before {pserver} was given up");
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }
    let (went, pservers) = ended(&goes, running)?;
    ensure!(stayed == went, "parameters {stayed} where blocks stay, {went} where they go");
    println!(
        "\nblocks that went from the processor to the device and back: {went}, as where they stay\n{pservers}"
    );
    Ok(())
}

/// Builds what jobs need in this build's own profile; the folder that has it.
fn build() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let built = own.parent().context("this program lies in no folder")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "shoal-cli", "--bin", "shoal"]);
    cargo.args(["--package", "shoal-trainer-sdk", "--example", "digits"]);
    cargo.args(built.ends_with("release").then_some("--release"));
    // What cargo tells this program of its package would have some of the dependencies built anew.
    let of_package = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.starts_with(of));
    for (name, _) in std::env::vars_os().filter(|(name, _)| of_package(&name.to_string_lossy())) {
        cargo.env_remove(name);
    }
    let target = built.parent().context("this program was not built by cargo")?;
    cargo.env("CARGO_TARGET_DIR", target).current_dir(env!("CARGO_MANIFEST_DIR"));
    match cargo.status() {
        Ok(status) => ensure!(status.success(), "`shoal` or `digits` does not build"),
        // On a machine without cargo they have to be there.
        Err(_) => {
            for (name, package) in [("shoal", "shoal-cli"), ("examples/digits", "shoal-trainer-sdk")] {
                let place = built.join(name);
                ensure!(place.exists(), "{} is not there: build {package}", place.display());
            }
        }
    }
    Ok(built.to_owned())
}

/// Steps per second of one job, and bytes of gradients that its updates found on the device.
fn measure(arguments: &Arguments, programs: &Programs, row: &Row, bytes: u64) -> anyhow::Result<(f64, u64)> {
    let folder = tempfile::tempdir()?;
    let [data, begins, run] = ["data.recordio", "begins", "run"].map(|name| folder.path().join(name));
    write_records(&data, STEPS)?;
    let device = row.is_trainer_on_device.then_some(arguments.device);
    let training = Training { elements: bytes / 4, device, begins: begins.clone(), moves: false };
    let mut command = programs.job();
    if row.is_pserver_on_device {
        command.args(["--device", &format!("cuda:{}", arguments.device)]);
    }
    command.arg("--data").arg(&data).arg("--folder").arg(&run).arg("--").arg(&programs.train);
    command.args(["--train", &serde_json::to_string(&training)?]);
    command.stderr(File::create(folder.path().join("said"))?);
    let status = command.status().with_context(|| format!("starting {}", programs.shoal.display()))?;
    let said = || std::fs::read_to_string(folder.path().join("said")).unwrap_or_default();
    ensure!(status.success(), "{}: `shoal run` ended with {status}:\n{}", row.name, said());
    let closing: serde_json::Value = serde_json::from_slice(&std::fs::read(run.join("result.json"))?)?;
    ensure!(closing["steps"] == STEPS && closing["rewinds"] == 0, "no undisturbed job: {closing}");
    let found = closing["device_gradient_bytes"].as_u64().unwrap_or_default();
    ensure!(
        (found > 0) == (row.is_pserver_on_device && row.is_trainer_on_device),
        "{}: updates found {found} bytes of gradients on the device",
        row.name
    );
    let begins = std::fs::read_to_string(begins)?;
    let begins: Vec<f64> = begins.lines().skip(BEFORE).map(str::parse).collect::<Result<_, _>>()?;
    let (first, last) = begins.first().zip(begins.last()).context("no step was measured")?;
    Ok(((begins.len() - 1) as f64 / (last - first), found))
}

/// Trains, as `shoal run` starts it.
pub(crate) fn train(training: &str) -> anyhow::Result<std::process::ExitCode> {
    let training: Training = serde_json::from_str(training)?;
    Ok(shoal_trainer_sdk::main(Still { training, step: None }))
}

/// A model that stands still, or moves at random.
struct Still {
    training: Training,
    step: Option<u64>,
}

impl Model for Still {
    fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
        let shape = [self.training.elements];
        let w = Parameter::new("w", &shape, Rule::ADAM, Schedule::constant(0.01), Initial::Zeros);
        Ok(Declaration { parameters: vec![w], block_elements: 0 })
    }

    fn on_device(&mut self) -> Option<OnDevice> {
        self.training.device.map(|ordinal| OnDevice { ordinal, parameters: vec!["w".to_owned()] })
    }

    fn step(&mut self, batch: &Batch<'_>, _: &Parameters, gradient: &mut Gradient) -> anyhow::Result<()> {
        if self.training.moves {
            let draw = |at: usize| (mix(batch.seed ^ at as u64) as i32) as f32 / 1e9;
            gradient.slice_mut("w")?.iter_mut().enumerate().for_each(|(at, sum)| *sum = draw(at));
        }
        if self.step != Some(batch.step) {
            self.step = Some(batch.step);
            let now = UNIX_EPOCH.elapsed().unwrap_or(Duration::ZERO).as_secs_f64();
            let mut begins = OpenOptions::new().create(true).append(true).open(&self.training.begins)?;
            writeln!(begins, "{now}")?;
        }
        Ok(())
    }
}
