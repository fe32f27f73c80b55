//! A master and its pservers, started by hand as a cluster starts them: `shoal run` gives no pserver its own processors, and none
//! pages for probes.

use super::Part;
use crate::measure::pause;
use crate::programs::{Programs, Running, write_records};
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// The job that they serve.
pub(super) const JOB: &str = "blocks";
const POLL: Duration = Duration::from_millis(20);
/// How long a process may take to listen.
const STARTING: Duration = Duration::from_secs(30);

pub(super) struct Cluster {
    /// Of the master.
    pub(super) address: String,
    /// Copies of each block beside its primary.
    pub(super) followers: u64,
    /// The first is the one that is measured.
    pservers: Vec<Pserver>,
    // What uses the folder ends before it goes.
    _master: Running,
    _folder: TempDir,
}

/// One pserver.
pub(super) struct Pserver {
    process: Running,
    /// Where trainers reach it.
    pub(super) address: String,
    /// Where its pages for probes are.
    pub(super) pages: String,
}

impl Cluster {
    /// Of a job of so many steps, each of one microbatch; the pserver that is measured has so many processors.
    pub(super) fn start(
        programs: &Programs,
        part: Part,
        cores: u32,
        ttl_millis: u64,
        steps: u64,
    ) -> anyhow::Result<Cluster> {
        let folder = programs.folder()?;
        let followers = u64::from(part == Part::Followed);
        let count = followers + 1;
        let (data, file) = (folder.path().join("data.recordio"), folder.path().join("address"));
        write_records(&data, steps)?;
        let mut master = programs.command("master", None);
        master.args(["--listen", "127.0.0.1:0", "--job", JOB, "--microbatch-records", "1"]);
        master.args(["--microbatches-per-step", "1", "--checkpoint-seconds", "0"]);
        master.arg("--pservers").arg(count.to_string()).arg("--replicas").arg(followers.to_string());
        master.arg("--lease-ttl-millis").arg(ttl_millis.to_string()).arg("--address-file").arg(&file);
        master.arg("--data").arg(&data).arg("--store").arg(folder.path().join("state"));
        let mut master = Running::new(master, folder.path().join("master"))?;
        let address = address(&mut master, &file)?;
        let mut pservers = Vec::new();
        for number in 0..count {
            let command = programs.command("pserver", Some(cores).filter(|_| number == 0));
            pservers.push(Pserver::start(command, &address, folder.path(), number)?);
        }
        Ok(Cluster { address, followers, pservers, _master: master, _folder: folder })
    }

    /// The pserver that has been given its processors.
    pub(super) fn measured(&self) -> &Pserver {
        &self.pservers[0]
    }
}

impl Pserver {
    fn start(mut command: Command, master: &str, folder: &Path, number: u64) -> anyhow::Result<Pserver> {
        let [address, pages] = [free_address()?, free_address()?];
        let name = format!("pserver-{number}");
        command.args(["--master", master, "--listen", &address, "--http", &pages, "--name", &name]);
        let process = Running::new(command, folder.join(name))?;
        Ok(Pserver { process, address, pages })
    }

    /// Its number.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// None of its threads runs until it is told to go on.
    pub(super) fn stand_still(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    pub(super) fn go_on(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_raw(self.process.id() as i32).context("a process without a number")?;
        Ok(kill_process(pid, signal)?)
    }
}

/// What the master has written down of itself.
fn address(master: &mut Running, file: &Path) -> anyhow::Result<String> {
    let deadline = Instant::now() + STARTING;
    loop {
        match std::fs::read_to_string(file) {
            Ok(address) if !address.is_empty() => return Ok(address),
            _ if Instant::now() >= deadline || master.ended()?.is_some() => {
                bail!("the master has not started; it said:\n{}", master.said())
            }
            _ => pause(POLL),
        }
    }
}

/// One that nobody listens on at the moment.
fn free_address() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}
