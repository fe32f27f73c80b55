//! Who ends what is left when a supervisor is gone, however it went: a process of its own that outlives it. It is `shoal reaper`, waits
//! for the end of its standard input, which nobody but the supervisor holds, and then ends all that the supervisor started and all that
//! those have started, in whatever group and session.

use anyhow::Context;
use rustix::process::Signal;
use shoal_runtime::host::supervisor::{self, Process};
use std::ffi::OsStr;
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// How long those who are left may take to end by themselves before they are killed: their master ends with them, so that there is
/// little to say goodbye to.
const GRACE: Duration = Duration::from_millis(1500);
/// How long it may take in all: what cannot be killed is left to the system.
const END: Duration = Duration::from_secs(10);
/// How often the processes of this machine are looked through while some are left.
const LOOK: Duration = Duration::from_millis(50);

/// The reaper of this process, from its supervisor's side.
#[derive(Debug)]
pub struct Reaper(Child);

impl Reaper {
    /// Starts it.
    pub fn start(shoal: &OsStr) -> anyhow::Result<Reaper> {
        let reaper = Command::new(shoal)
            .args(["reaper", &Process::this().to_string()])
            .env_remove(supervisor::VARIABLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        Ok(Reaper(reaper.context("cannot start the reaper")?))
    }

    /// Has it end what is left, and waits until it has.
    pub async fn end(&mut self) {
        drop(self.0.stdin.take());
        if tokio::time::timeout(END, self.0.wait()).await.is_err() {
            // Or it would look for processes of this supervisor's next job, too.
            let _ = self.0.kill().await;
        }
    }
}

/// The reaper itself: waits until `supervisor` is gone, and until nothing is left that it started.
pub async fn run(supervisor: Process) -> anyhow::Result<ExitCode> {
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())?;
    reap(supervisor).await;
    Ok(ExitCode::SUCCESS)
}

async fn reap(supervisor: Process) {
    let asked = Instant::now();
    for process in supervisor.started().unwrap_or_default() {
        process.signal(Signal::TERM);
        // One that is frozen does not hear that before it is thawed.
        process.signal(Signal::CONT);
    }
    loop {
        let left = supervisor.started().unwrap_or_default();
        if left.is_empty() || asked.elapsed() > END {
            return;
        }
        if asked.elapsed() >= GRACE {
            left.into_iter().for_each(|process| process.signal(Signal::KILL));
        }
        tokio::time::sleep(LOOK).await;
    }
}
