//! One job as a user runs it: `shoal run`, and `shoal scale` while it trains where it is elastic. A job that did not end well, or
//! whose numbers of trainers did not arrive, is no curve.

use super::arguments::Plan;
use super::changes::{Changes, FEW, Following, MANY, Seen};
use super::pack::Packed;
use super::programs::Programs;
use super::results::{Curve, Live, Mode, Trainers};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use shoal_runtime::host::supervisor;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks at a job.
const POLL: Duration = Duration::from_millis(100);
const MICROBATCH_RECORDS: &str = "32";
const MICROBATCHES_PER_STEP: &str = "8";
/// How much of its running statistics a network keeps with each microbatch of an asynchronous job: about as much as with 8 of
/// them at once by default.
const ASYNC_DECAY: [&str; 2] = ["--decay", "0.99"];

/// One job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) packed: &'a Packed,
    pub(crate) mode: Mode,
    pub(crate) trainers: Trainers,
    pub(crate) seed: u64,
}

impl Programs {
    /// Trains to the end.
    pub(crate) fn run(&self, job: &Job<'_>) -> anyhow::Result<Curve> {
        let folder = self.scratch()?;
        let (said, run) = (folder.path().join("said"), folder.path().join("run"));
        let mut command = job.command(self, &run);
        command.current_dir(folder.path()).stderr(File::create(&said)?);
        let mut running = Running(command.spawn().context("cannot start shoal")?);
        let followed = self.follow(job, &mut running, &run);
        let live = followed.with_context(|| format!("`shoal run` said:\n{}", end_of(&said)))?;
        let closing = std::fs::read_to_string(run.join("result.json")).context("it left no result.json")?;
        let closing: Value = serde_json::from_str(&closing)?;
        let (most, worked) = (job.bounds()[1], worked(&closing));
        ensure!(worked >= most as usize, "only {worked} of {most} trainers computed something");
        let told = (job.mode, job.trainers, job.seed);
        Curve::of(told, job.plan.epochs, live, &closing)
    }

    /// Watches a job until it ends, changing its number of trainers when it is due.
    fn follow(&self, job: &Job<'_>, running: &mut Running, run: &Path) -> anyhow::Result<Vec<Live>> {
        let Plan { epochs, seconds_max, changes, .. } = job.plan;
        let deadline = Instant::now() + Duration::from_secs(*seconds_max);
        let changes = if job.trainers == Trainers::Elastic { changes.clone() } else { Changes::default() };
        let mut following = Following::new(job.bounds()[0], changes);
        loop {
            if let Some(status) = running.0.try_wait()? {
                ensure!(status.success(), "it ended with {status}");
                break;
            }
            ensure!(Instant::now() < deadline, "not done within {seconds_max} s; give it more --seconds-max");
            let seen = self.ask(run, &["status"]).ok().and_then(|status| seen(&status));
            if let Some(wanted) = seen.and_then(|seen| following.see(seen)) {
                self.ask(run, &["scale", "--trainers", &wanted.to_string()])?;
            }
            pause(POLL);
        }
        let left = following.to_come();
        ensure!(
            left == 0,
            "it ended with {left} changes of trainers to come: take more --epochs or --records, or fewer --changes"
        );
        Ok(following.live(*epochs))
    }

    /// The answer of `shoal` about a run.
    fn ask(&self, run: &Path, words: &[&str]) -> anyhow::Result<Value> {
        let mut shoal = self.shoal();
        let told = shoal.args(words).arg("--run").arg(run).args(["-o", "json"]).output()?;
        if !told.status.success() {
            bail!("`shoal {}`: {}", words.join(" "), String::from_utf8_lossy(&told.stderr));
        }
        let told = String::from_utf8_lossy(&told.stdout);
        Ok(serde_json::from_str(told.lines().last().unwrap_or_default())?)
    }
}

impl Job<'_> {
    /// The fewest and the most trainers.
    fn bounds(&self) -> [u32; 2] {
        match self.trainers {
            Trainers::Few => [FEW, FEW],
            Trainers::Many => [MANY, MANY],
            Trainers::Elastic => [FEW, MANY],
        }
    }

    fn command(&self, programs: &Programs, run: &Path) -> Command {
        let (plan, [fewest, most]) = (self.plan, self.bounds());
        let mut command = programs.shoal();
        command.args(["run", "--pservers", "1", "-o", "json", "--trainers", &format!("{fewest}:{most}")]);
        command.args(["--microbatch-records", MICROBATCH_RECORDS]);
        command.args(["--microbatches-per-step", MICROBATCHES_PER_STEP]);
        command.args(["--mode", &self.mode.to_string(), "--seed", &self.seed.to_string()]);
        command.args(["--epochs", &plan.epochs.to_string(), "--eval-epochs", "1"]);
        command.arg("--data").arg(&self.packed.train).arg("--eval-data").arg(&self.packed.test);
        command.arg("--folder").arg(run).arg("--").arg(programs.example(plan.set));
        let (program, told) = plan.set.program();
        command.args(told);
        if program == "resnet" && self.mode == Mode::Async {
            command.args(ASYNC_DECAY);
        }
        command.env(supervisor::VARIABLE, supervisor::Process::this().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

/// From `shoal status -o json`; nothing while the job has not begun.
fn seen(status: &Value) -> Option<Seen> {
    let number = |name: &str| status[name].as_f64();
    let all = number("records")? * number("epochs")?;
    let live = status["trainers_live"].as_u64()? as u32;
    (all > 0.0).then_some(Seen { share: number("records_trained")? / all, live })
}

/// How many trainers, those that have left too, computed something.
fn worked(closing: &Value) -> usize {
    let trainers = closing["trainers"].as_array().into_iter().flatten();
    trainers.filter(|trainer| trainer["tasks"].as_u64() > Some(0)).count()
}

impl fmt::Display for Job<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} trainers, seed {}", self.mode, self.trainers, self.seed)
    }
}

/// A `shoal run` that does not outlive this; its processes end with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[allow(clippy::disallowed_methods, reason = "a bench waits for real processes; nothing here is simulated")]
fn pause(pause: Duration) {
    std::thread::sleep(pause);
}

/// The last of what a command said.
fn end_of(said: &Path) -> String {
    let said = std::fs::read(said).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn who_only_came_and_went_did_not_work() {
        let trainers = json!([{"tasks": 3}, {"tasks": 0}, {"state": "left"}, {"tasks": 1, "state": "left"}]);
        assert_eq!((worked(&json!({"trainers": trainers})), worked(&json!({}))), (2, 0));
    }

    #[test]
    fn progress_is_the_share_of_all_records_of_all_epochs() {
        let status = json!({"records": 50, "epochs": 4, "records_trained": 150, "trainers_live": 3});
        assert_eq!(seen(&status), Some(Seen { share: 0.75, live: 3 }));
        assert_eq!(seen(&json!({"records": 0, "epochs": 4, "records_trained": 0, "trainers_live": 0})), None);
        assert_eq!(seen(&json!({})), None);
    }
}
