//! The servers of a control plane: child processes on ports of loopback, with a folder for their files and logs. They end with it.

use anyhow::{Context, bail, ensure};
use std::fs::File;
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// How long a server may take to be ready.
const START_MAX: Duration = Duration::from_secs(90);
/// What servers listen on: no system gives these to connections by itself.
const PORTS: Range<u16> = 20_000..32_000;

/// The servers that run, by name.
pub(crate) struct Servers {
    folder: TempDir,
    processes: Vec<(&'static str, Child)>,
}

impl Servers {
    /// None yet.
    pub(crate) fn new() -> anyhow::Result<Servers> {
        Ok(Servers { folder: tempfile::tempdir()?, processes: Vec::new() })
    }

    /// A file of theirs.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Its path, as programs are told.
    pub(crate) fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// Starts the program of that name in `programs`. Its log is the file `NAME.log`.
    pub(crate) fn start(
        &mut self,
        programs: &Path,
        name: &'static str,
        arguments: &[&str],
    ) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(self.file(&format!("{name}.log")))?;
        // Whatever becomes of the test, they do not outlive it.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(programs.join(name))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("setpriv {name}"))?;
        self.processes.push((name, child));
        Ok(())
    }

    /// Starts an etcd of one member, and gives what clients are to call.
    pub(crate) fn start_etcd(&mut self, programs: &Path) -> anyhow::Result<String> {
        let [client, peer] = [free_port()?, free_port()?].map(|port| format!("http://127.0.0.1:{port}"));
        let data = self.path("etcd");
        self.start(
            programs,
            "etcd",
            &[
                "--data-dir",
                &data,
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
                "--initial-cluster",
                &format!("default={peer}"),
                // What is lost with a test's power nobody misses.
                "--unsafe-no-fsync",
            ],
        )?;
        Ok(client)
    }

    /// Ends one, as an upgrade or a fault would.
    pub(crate) fn end(&mut self, name: &str) {
        for (_, child) in self.processes.iter_mut().filter(|(one, _)| *one == name) {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.processes.retain(|(one, _)| *one != name);
    }

    /// Asks until there is no error any more.
    ///
    /// # Errors
    /// A server has ended, with its last words; or the last answer, when the time is up.
    pub(crate) async fn wait_for(
        &mut self,
        what: &str,
        ask: impl AsyncFn() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_MAX;
        loop {
            let Err(why) = ask().await else { return Ok(()) };
            let ended = self
                .processes
                .iter_mut()
                .find_map(|(name, child)| child.try_wait().ok().flatten().map(|status| (*name, status)));
            if let Some((name, status)) = ended {
                bail!("{name} ended with {status}: {}", last_lines(&self.path(&format!("{name}.log"))));
            }
            ensure!(Instant::now() < deadline, "{what} is not there after {START_MAX:?}: {why:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // Whoever was started last calls those before.
        while let Some(name) = self.processes.last().map(|(name, _)| *name) {
            self.end(name);
        }
    }
}

/// A port that nobody listens on now. It is below those that connections are given: one of these would be taken again before
/// the server for which it was looked up listens.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(97);
    let mut ports = std::iter::repeat_with(|| {
        let turn = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        PORTS.start + (turn % u32::from(PORTS.end - PORTS.start)) as u16
    });
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.by_ref().take(PORTS.len()).find(is_free).context("no port is free")
}

fn last_lines(file: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
