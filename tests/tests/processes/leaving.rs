//! What SIGTERM does to the roles of a job that is over, or has not begun: nobody waits for blocks that nobody will take. Roles are
//! started by hand here; `shoal run` ends its own.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shoal_tests::processes::Running;
use shoal_tests::small::SmallJob;
use std::process::Command;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(60);
/// From SIGTERM to the end, where there is nothing to wait for.
const AT_ONCE: Duration = Duration::from_secs(2);

/// A job whose processes are started one by one.
struct ByHand {
    job: SmallJob,
    address: String,
}

impl ByHand {
    fn new() -> ByHand {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        ByHand { job: SmallJob::of(400).unwrap(), address }
    }

    fn start(&self, mut command: Command, name: &str) -> Running {
        command.env("SHOAL_MASTER", &self.address);
        Running::start(command, &self.job.path(&format!("{name}.log"))).unwrap()
    }

    fn master(&self, name: &str, flags: &[&str]) -> Running {
        let words = ["master", "--listen", &self.address, "--data", "part.recordio", "--store", "state"];
        self.start(self.job.shoal(&[&words, flags].concat()), name)
    }

    fn pserver(&self, name: &str, flags: &[&str]) -> Running {
        self.start(self.job.shoal(&[&["pserver", "--name", name], flags].concat()), name)
    }

    fn trainer(&self, program: &mut Command) -> Running {
        program.env("SHOAL_TRAINER_NAME", "trainer");
        let mut command = Command::new(program.get_program());
        command
            .args(program.get_args())
            .envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        self.start(command, "trainer")
    }

    fn count(&self) -> Command {
        Command::new(self.job.count())
    }

    fn status(&self) -> Value {
        let status = self.job.shoal(&["status", "--master", &self.address, "-o", "json"]).output().unwrap();
        serde_json::from_slice(&status.stdout).unwrap_or_default()
    }

    /// Waits until so many pservers take part.
    async fn joined(&self, pservers: usize) {
        until(|| self.status()["pservers"].as_array().is_some_and(|all| all.len() == pservers), "pservers")
            .await;
    }

    async fn phase(&self, phase: &str) {
        until(|| self.status()["phase"] == phase, phase).await;
    }
}

async fn until(mut is_so: impl FnMut() -> bool, what: &str) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "in vain: {what}");
        sleep(Duration::from_millis(50)).await;
    }
}

fn terminate(process: &Running) {
    kill_process(Pid::from_raw(process.pid() as i32).unwrap(), Signal::TERM).unwrap();
}

/// It ends at once upon SIGTERM, as asked.
async fn ends_at_once(process: Running, what: &str) {
    ends_at_once_with(0, process, what).await;
}

async fn ends_at_once_with(code: i32, mut process: Running, what: &str) {
    let begun = Instant::now();
    terminate(&process);
    assert_eq!(process.end_within(PATIENCE).await.unwrap(), Some(code), "{what}");
    let long = begun.elapsed();
    assert!(long < AT_ONCE, "{what}: {long:?}");
}

#[tokio::test]
async fn pservers_and_the_master_of_a_job_that_is_done_end_at_once() {
    let job = ByHand::new();
    let master = job.master("master", &["--replicas", "1"]);
    // The last one is spare: it has no block.
    let pservers = ["p0", "p1", "p2"].map(|name| job.pserver(name, &[]));
    job.joined(3).await;
    let mut trainer = job.trainer(&mut job.count());
    assert_eq!(trainer.end_within(PATIENCE).await.unwrap(), Some(0));
    job.phase("done").await;
    for pserver in pservers {
        ends_at_once(pserver, "a pserver of a job that is done").await;
    }
    ends_at_once(master, "its master").await;
}

#[tokio::test]
async fn a_pserver_of_a_job_that_is_done_ends_at_once_though_the_master_has_gone() {
    let job = ByHand::new();
    let mut master = job.master("master", &[]);
    let pserver = job.pserver("p0", &[]);
    job.joined(1).await;
    let mut trainer = job.trainer(&mut job.count());
    assert_eq!(trainer.end_within(PATIENCE).await.unwrap(), Some(0));
    job.phase("done").await;
    master.kill().unwrap();
    ends_at_once(pserver, "a pserver whose master has gone").await;
}

#[tokio::test]
async fn pservers_and_the_master_of_a_job_that_has_failed_end_at_once() {
    let job = ByHand::new();
    let master = job.master("master", &["--linger-seconds", "600"]);
    let pservers = ["p0", "p1"].map(|name| job.pserver(name, &[]));
    job.joined(2).await;
    let mut picky = Command::new(job.job.programs.shoal.with_file_name("picky"));
    let mut trainer = job.trainer(picky.arg("123"));
    job.phase("failed").await;
    for pserver in pservers {
        ends_at_once(pserver, "a pserver of a job that has failed").await;
    }
    ends_at_once_with(1, master, "its master, for whose end somebody waits").await;
    let said = std::fs::read_to_string(job.job.path("master.log")).unwrap();
    assert!(said.contains("the job failed: "), "{said}");
    assert_ne!(trainer.end_within(PATIENCE).await.unwrap(), Some(0));
}

#[tokio::test]
async fn a_pserver_that_was_never_told_to_hold_anything_ends_at_once() {
    let job = ByHand::new();
    let mut master = job.master("master", &[]);
    let pservers = ["p0", "p1"].map(|name| job.pserver(name, &[]));
    job.joined(2).await;
    let [first, second] = pservers;
    ends_at_once(first, "a pserver of a job that has not begun").await;
    master.kill().unwrap();
    ends_at_once(second, "whose master has gone, too").await;
    let third = job.pserver("p2", &[]);
    let said = || std::fs::read_to_string(job.job.path("p2.log")).unwrap_or_default();
    until(|| said().contains("does not answer"), "a pserver that looks for a master").await;
    ends_at_once(third, "one that has found no master").await;
}

#[tokio::test]
async fn a_standby_and_a_trainer_that_nobody_answers_end_at_once() {
    let job = ByHand::new();
    let mut master = job.master("master", &[]);
    until(|| job.status()["phase"] == "waiting", "a master").await;
    let words = ["master", "--listen", "127.0.0.1:0", "--data", "part.recordio", "--store", "state"];
    let standby = job.start(job.job.shoal(&words), "standby");
    let trainer = job.trainer(&mut job.count());
    until(|| job.status()["trainers"].as_array().is_some_and(|all| all.len() == 1), "a trainer").await;
    ends_at_once(standby, "a standby").await;
    master.kill().unwrap();
    ends_at_once(trainer, "a trainer whose master has gone").await;
}

#[tokio::test]
async fn a_pserver_of_a_job_that_goes_on_stays_for_its_blocks_as_long_as_its_grace() {
    let job = ByHand::new();
    let _master = job.master("master", &[]);
    let mut pserver = job.pserver("p0", &["--grace-seconds", "4"]);
    job.joined(1).await;
    let _trainer = job.trainer(job.count().env("SHOAL_PACE_MILLIS", "200"));
    // From its first step on it is known that it has blocks.
    until(|| job.status()["step"].as_u64() > Some(0), "a step").await;
    let begun = Instant::now();
    terminate(&pserver);
    assert_eq!(pserver.end_within(PATIENCE).await.unwrap(), Some(1), "its blocks are still there");
    let long = begun.elapsed();
    assert!(long > Duration::from_secs(3) && long < Duration::from_secs(8), "{long:?}");
}

/// Whether a process has a handler for SIGTERM.
fn takes_signals(process: &Running) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 << (Signal::TERM.as_raw() - 1) != 0)
}

/// It ends by the signal, and not by a code of its own.
async fn ends_by_the_signal(mut process: Running) {
    terminate(&process);
    assert_eq!(process.end_within(AT_ONCE).await.unwrap(), None);
}

#[tokio::test]
async fn a_program_that_goes_on_after_training_is_ended_by_signals_as_before() {
    let job = ByHand::new();
    let said = || std::fs::read_to_string(job.job.path("trainer.log")).unwrap_or_default();
    let has_said = |words: &'static str| until(move || said().contains(words), words);
    let embedder = || job.trainer(&mut Command::new(job.job.programs.shoal.with_file_name("embedder")));
    // No master is there: each of two trainings is ended by a signal, and then the program.
    let process = embedder();
    for ended in ["training 1 has ended", "training 2 has ended"] {
        until(|| takes_signals(&process), "training begins").await;
        terminate(&process);
        has_said(ended).await;
    }
    assert!(!takes_signals(&process));
    ends_by_the_signal(process).await;
    // And each ends by itself.
    std::fs::remove_file(job.job.path("trainer.log")).unwrap();
    let (_master, _pserver) = (job.master("master", &[]), job.pserver("p0", &[]));
    let process = embedder();
    has_said("training 2 has ended").await;
    assert!(!takes_signals(&process), "{}", said());
    ends_by_the_signal(process).await;
}
