//! Whole jobs on a device, some of them disturbed: whether their parameters have the bits of a job without one. Processes are
//! killed, frozen and moved, the device's memory runs out, and the device is lost.

use super::Arguments;
use super::equality::value;
use super::jobs::{Programs, Training, write_records};
use super::raw::Raw;
use anyhow::{Context, ensure};
use serde_json::Value;
use shoal_pserver::device::{Device, DeviceChoice, DeviceError, Outcome, PieceUpdate};
use shoal_pserver::kernel::rules::Pass;
use shoal_runtime::cluster::{BlockId, Rule};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// What is left of the device's memory where it runs out: enough for a pserver to begin, too little for all blocks.
const LEFT: u64 = 1 << 30;
/// Elements of a model that does not fit there with Adam's state.
const TOO_MANY: u64 = 96 << 20;
/// Device code that fails: what runs in the same context afterwards fails with it.
const TRAP: &[u8] = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry update() { trap; }\n";

/// Runs all of it.
///
/// # Errors
/// Other bits, or a job that does not end well.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let programs = Programs::build()?;
    println!(
        "\njobs of the digits program: SHA-256 of parameters, bytes of gradients and parameters exchanged there"
    );
    let device = format!("cuda:{}", arguments.device);
    let pserver = ["--device", &device];
    let precisions = [&[][..], &["--gradients", "bf16"]];
    for precision in precisions {
        let mut first = None;
        let two = [&pserver[..], &["--pservers", "2"]].concat();
        let followed = [&two[..], &["--replicas", "1"]].concat();
        let rows = [
            ("no device", &[][..], false),
            ("pserver's updates", &pserver, false),
            ("trainers' gradients", &[], true),
            ("both", &pserver, true),
            ("both, 2 pservers", &two, true),
            ("both, 2 pservers, a follower", &followed, true),
            ("both, 2 pservers, chaos 5", &[&two[..], &["--chaos", "5"]].concat(), true),
            ("both, 2 pservers, a follower, chaos 6", &[&followed[..], &["--chaos", "6"]].concat(), true),
            ("both, 2 pservers, a follower, chaos 7", &[&followed[..], &["--chaos", "7"]].concat(), true),
        ];
        // Disturbed once: what rounds is the kernels' alone.
        let rows = rows.into_iter().filter(|(_, more, _)| precision.is_empty() || !more.contains(&"--chaos"));
        for (name, more, is_program_there) in rows {
            let program = is_program_there.then_some(arguments.device);
            let closing = digits(&programs, &[precision, more].concat(), program)
                .with_context(|| format!("{name}, {precision:?}"))?;
            ensure!(closing["records_wrong"] == 0, "{name}: {closing}");
            let hash = closing["parameters_sha256"].as_str().context("no hash")?.to_owned();
            let expected = first.get_or_insert_with(|| hash.clone());
            ensure!(*expected == hash, "{name}: {hash}, without a device {expected}");
            let faults = closing["faults"].as_array().map_or(0, Vec::len);
            let name = [precision, &[name]].concat().join(" ");
            let [found, given] =
                ["device_gradient_bytes", "device_parameter_bytes"].map(|count| &closing[count]);
            println!("{name:<60} {hash:.16} {found:>10} {given:>10} {faults:>3} faults");
        }
    }
    exhaust(arguments, &programs)?;
    lose()
}

/// The closing object of a job of the digits program.
fn digits(programs: &Programs, more: &[&str], device: Option<u32>) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let packed = Command::new(&programs.digits).arg("--pack").arg(&data).stderr(Stdio::null()).status()?;
    ensure!(packed.success(), "`digits --pack` ended with {packed}");
    let mut command = Command::new(&programs.shoal);
    command.args(["run", "--trainers", "2", "--epochs", "2", "--seed", "7", "-o", "json"]).args(more);
    command.arg("--data").arg(data.join("train-*.recordio")).arg("--folder").arg(folder.path().join("run"));
    command.arg("--").arg(&programs.digits);
    if let Some(ordinal) = device {
        command.args(["--device", &ordinal.to_string()]);
    }
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`shoal run` ended with {}:\n{said}", output.status);
    let closing = output.stdout.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
    Ok(serde_json::from_slice(closing.context("it said nothing")?)?)
}

/// A job whose blocks do not all fit the device.
fn exhaust(arguments: &Arguments, programs: &Programs) -> anyhow::Result<()> {
    let job = |run: &Path, device: &str| {
        let data = run.with_extension("recordio");
        write_records(&data, 3)?;
        let begins = run.with_extension("begins");
        let training = Training { elements: TOO_MANY, device: None, begins, moves: true };
        let mut command = programs.job();
        command.args(["--device", device]).arg("--data").arg(&data).arg("--folder").arg(run);
        command.arg("--").arg(&programs.train).args(["--train", &serde_json::to_string(&training)?]);
        let output = command.stderr(Stdio::piped()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`shoal run` ended with {}:\n{said}", output.status);
        let log = std::fs::read_to_string(run.join("logs/pserver-0.log"))?;
        let closing: Value = serde_json::from_slice(&std::fs::read(run.join("result.json"))?)?;
        let hash = closing["parameters_sha256"].as_str().context("no hash")?.to_owned();
        anyhow::Ok((hash, closing["device_blocks"].as_u64(), log))
    };
    let folder = tempfile::tempdir()?;
    let [without, within] = ["without", "within"].map(|name| folder.path().join(name));
    let (expected, _, _) = job(&without, "cpu")?;
    let taken = Raw::leaving(arguments.device, LEFT)?;
    let (hash, blocks, log) = job(&within, &format!("cuda:{}", arguments.device))?;
    drop(taken);
    ensure!(hash == expected, "parameters {hash} where memory runs out, {expected} on the processor");
    let blocks = blocks.filter(|blocks| *blocks > 0).context("no block was on the device")?;
    ensure!(log.contains("are updated by the processor"), "no block was refused:\n{log}");
    println!("{:<60} {hash:.16} {blocks:>10} blocks there", "memory for some of the blocks");
    Ok(())
}

/// A process whose device is lost, in one that stands in for a pserver: it is this program's own.
fn lose() -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let output = Command::new(program).args(["--only", "loss"]).stdin(Stdio::null()).output()?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "a process that loses its device ended with {}:\n{err}", output.status);
    print!("{out}");
    Ok(())
}

/// Loses the device under updates, and sees that they end with that, and that nothing is published after it.
pub(crate) fn lose_own(arguments: &Arguments) -> anyhow::Result<()> {
    const ELEMENTS: usize = 1 << 18;
    let device = Device::open(DeviceChoice::Cuda(arguments.device))?.context("no device")?;
    let contents: Vec<f32> = (0..ELEMENTS).map(|element| value(1, element)).collect();
    let mut resident = device.place(BlockId(0), &contents, &[])?;
    let pass = Pass { weight: 48.0, rate: 0.01, scale: 1.0, weight_decay: 0.0, update: 1 };
    let mut update = || {
        let pieces = PieceUpdate::new(0..ELEMENTS, Rule::Sgd, pass).into_iter().collect();
        resident.update(pieces, |sum| sum.copy_from_slice(&contents))
    };
    let done = |outcomes: &[Outcome]| outcomes.iter().filter(|outcome| outcome.bytes().is_some()).count();
    let mut outcomes: Vec<Outcome> = (0..50).map(|_| update()).collect();
    let raw = Raw::open(arguments.device, 1 << 20)?;
    raw.start(raw.function(TRAP)?)?;
    let began = Instant::now();
    while device.failure().is_none() {
        ensure!(began.elapsed() < Duration::from_secs(100), "the device is lost and nobody says so");
        outcomes.push(update());
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let failure = device.failure().cloned().context("no failure")?;
    let (before, queued) = (done(&outcomes), outcomes.len());
    std::thread::park_timeout(Duration::from_millis(500));
    ensure!(matches!(failure, DeviceError::Lost { .. }), "the failure is another: {failure}");
    ensure!(done(&outcomes) == before && before < queued, "{before} of {queued} updates were done");
    println!("a device that is lost: {before} of {queued} updates were done; then: {failure}");
    // What is in flight is never had back: the process ends as a pserver does.
    std::process::exit(0)
}
