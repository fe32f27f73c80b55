//! One job whose pservers are changed, and who is killed meanwhile.

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use shoal_master::document::Document;
use shoal_master::rebalance::{least_bytes, moved_bytes};
use shoal_runtime::cluster::{Declaration, Incarnation, Layout, Routing};
use shoal_runtime::host::rpc::{Masters, TcpDial};
use shoal_runtime::wire::proto::{self, PserverStatus, StatusReply, master_client::MasterClient};
use shoal_tests::ledgers::{Reader, document};
use shoal_tests::phases::{PHASES, Phase, way};
use shoal_tests::processes::closing;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(60);
const MIGRATIONS: u32 = 3;
/// Looks at the document for each question to the master.
const LOOKS_PER_STATUS: u32 = 20;
/// How often a change is made again that was over before its phase was seen.
const AGAIN_MAX: u32 = 10;

/// Who is killed while blocks are on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    Nobody,
    Source,
    Target,
}

/// A change in which the victim was killed.
#[derive(Clone, Debug)]
pub(crate) struct Struck {
    pub(crate) phase: Phase,
    /// How many times the job, or a block of it, has gone back.
    pub(crate) times_back: u64,
    /// Whether there was a copy of everything beside the victim's.
    pub(crate) is_covered: bool,
    /// What the log grew by from the kill on until all was settled again, in bytes.
    pub(crate) logged: Range<u64>,
}

/// A job whose pservers are changed.
pub(crate) struct Changes {
    masters: Masters,
    job: String,
    run: PathBuf,
    pub(crate) reader: Reader,
    victim: Victim,
    turn: usize,
    /// What became of the victim, change by change.
    pub(crate) struck: Vec<Struck>,
    child: Child,
}

impl Changes {
    /// Starts a job whose folder is `run`, with one pserver. The victim is first killed in phase `turn`.
    pub(crate) async fn of(
        mut command: Command,
        run: &Path,
        victim: Victim,
        turn: usize,
    ) -> anyhow::Result<Changes> {
        let log = log_of(run);
        command.env("SHOAL_PUSH_LOG", &log).stdout(File::create(said(run, "out"))?);
        let child = command.stderr(File::create(said(run, "err"))?).spawn()?;
        let until = Instant::now() + PATIENCE;
        let address = loop {
            match std::fs::read_to_string(run.join("master.address")) {
                Ok(address) => break address.trim().to_owned(),
                Err(error) => ensure!(Instant::now() < until, "no master: {error}"),
            }
            sleep(Duration::from_millis(20)).await;
        };
        let masters = Masters::new(&address, &TcpDial::default()).map_err(anyhow::Error::msg)?;
        let job = std::fs::read_to_string(run.join("job.name"))?.trim().to_owned();
        let (reader, run, struck) = (Reader::of(run, &log), run.to_owned(), Vec::new());
        let mut changes = Changes { masters, job, run, reader, victim, turn, struck, child };
        changes.settled(1).await?;
        Ok(changes)
    }

    async fn status(&self) -> Option<StatusReply> {
        let request = proto::StatusRequest { job: self.job.clone(), ..Default::default() };
        let ask = |mut client: MasterClient<_>| async move { client.status(request).await };
        self.masters.call(Duration::from_secs(1), ask).await.ok()
    }

    async fn document(&self) -> anyhow::Result<Document> {
        document(&self.run.join("state")).await?.context("no document")
    }

    /// Waits until so many pservers share the model and every block has its copies.
    async fn settled(&mut self, wanted: usize) -> anyhow::Result<StatusReply> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.reader.look().await?;
            if let Some(status) = self.status().await {
                ensure!(status.phase != "done", "the job ended before all changes were made");
                ensure!(status.phase != "failed", "the job failed: {}", status.failure);
                if is_settled(&status, wanted) {
                    return Ok(status);
                }
            }
            ensure!(Instant::now() < until, "not settled at {wanted} pservers within {PATIENCE:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Changes the number of pservers; what it cost in bytes.
    pub(crate) async fn scale(&mut self, to: u32) -> anyhow::Result<String> {
        for _ in 0..AGAIN_MAX {
            let before = self.status().await.context("no status")?;
            let from = live(&before).len();
            let document = self.document().await?;
            self.ask_for(to).await?;
            let is_struck = self.strike(&document, to as usize).await?;
            let after = self.settled(to as usize).await?;
            if is_struck {
                self.note_times_back(&document, from.min(to as usize) > 1).await?;
                let (moved, least) = bytes(&before, &after)?;
                return Ok(format!("{from} -> {to}: {moved} / {least}"));
            }
            self.ask_for(from as u32).await?;
            self.settled(from).await?;
        }
        bail!("{:?} was not seen in {AGAIN_MAX} changes", self.phase())
    }

    async fn ask_for(&self, pservers: u32) -> anyhow::Result<()> {
        let request =
            proto::ScaleRequest { job: self.job.clone(), pservers: Some(pservers), ..Default::default() };
        let ask = |mut client: MasterClient<_>| async move { client.scale(request).await };
        self.masters.call(Duration::from_secs(2), ask).await?;
        Ok(())
    }

    /// Migrates each of three pservers, or whoever stands in for one that was killed.
    pub(crate) async fn migrate_each(&mut self) -> anyhow::Result<()> {
        let mut moved: BTreeSet<u64> = BTreeSet::new();
        let (mut done, mut again) = (0, 0);
        while done < MIGRATIONS {
            let (now, before) = (self.settled(3).await?, self.document().await?);
            // Those that have been here from the beginning come first.
            let there = live(&now).into_iter().filter(|one| !moved.contains(&one.incarnation));
            let oldest = there.min_by_key(|one| one.incarnation).context("no pserver")?;
            let (name, incarnation) = (oldest.name.clone(), oldest.incarnation);
            let request = proto::DrainRequest { job: self.job.clone(), pserver: name.clone(), replace: true };
            let ask = |mut client: MasterClient<_>| async move { client.drain(request).await };
            self.masters
                .call(Duration::from_secs(2), ask)
                .await
                .with_context(|| format!("migrate {name}"))?;
            let is_struck = self.strike(&before, 3).await?;
            let until = Instant::now() + PATIENCE;
            while live(&self.settled(3).await?).iter().any(|one| one.incarnation == incarnation) {
                ensure!(Instant::now() < until, "{name} is not gone");
                sleep(Duration::from_millis(20)).await;
            }
            if is_struck {
                self.note_times_back(&before, true).await?;
            }
            moved.insert(incarnation);
            (done, again) = (done + u32::from(is_struck), again + u32::from(!is_struck));
            ensure!(again < AGAIN_MAX, "{:?} was not seen in {AGAIN_MAX} migrations", self.phase());
        }
        Ok(())
    }

    /// The phase in which the victim is killed next.
    fn phase(&self) -> Phase {
        // A target is not known when a change is asked for.
        let phases = if self.victim == Victim::Target { &PHASES[1..] } else { &PHASES };
        phases[(self.struck.len() + self.turn) % phases.len()]
    }

    /// Kills the victim as soon as a block is in the phase that is next. False if the change was over before.
    async fn strike(&mut self, before: &Document, wanted: usize) -> anyhow::Result<bool> {
        if self.victim == Victim::Nobody {
            return Ok(true);
        }
        let until = Instant::now() + PATIENCE;
        let mut processes = BTreeMap::new();
        for look in 0.. {
            ensure!(Instant::now() < until, "a change takes longer than {PATIENCE:?}");
            let way = way(self.phase(), before, &self.document().await?);
            let victim =
                way.and_then(|way| if self.victim == Victim::Source { Some(way.source) } else { way.target });
            if let Some(process) = victim.and_then(|victim| processes.get(&victim.0)) {
                let is_struck = is_running(*process)
                    && rustix::process::kill_process(*process, rustix::process::Signal::KILL).is_ok();
                if is_struck {
                    let (phase, logged) = (self.phase(), self.logged()..u64::MAX);
                    self.struck.push(Struck { phase, times_back: 0, is_covered: true, logged });
                    self.noticed(victim).await?;
                }
                return Ok(is_struck);
            }
            // Who runs where is asked for less often than how far blocks are.
            if victim.is_some() || look % LOOKS_PER_STATUS == 0 {
                let Some(status) = self.status().await else { continue };
                for one in live(&status) {
                    let process = rustix::process::Pid::from_raw(one.process as i32);
                    processes.insert(one.incarnation, process.context("no process")?);
                }
                let are_same = live(&status).len() == before.pservers.len()
                    && live(&status)
                        .iter()
                        .all(|one| before.pservers.contains_key(&Incarnation(one.incarnation)));
                if victim.is_none() && !are_same && is_settled(&status, wanted) {
                    return Ok(false);
                }
            }
            sleep(Duration::from_millis(1)).await;
        }
        Ok(false)
    }

    /// Waits until the master knows that a pserver is gone: until then all would look settled.
    async fn noticed(&mut self, gone: Option<Incarnation>) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        let is_there = |status: &StatusReply| {
            live(status).iter().any(|one| Some(one.incarnation) == gone.map(|gone| gone.0))
        };
        while self.status().await.is_none_or(|status| is_there(&status)) {
            ensure!(Instant::now() < until, "nobody notices that {gone:?} was killed");
            self.reader.look().await?;
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Adds to the last kill what it has cost since the document was `before`.
    async fn note_times_back(&mut self, before: &Document, is_covered: bool) -> anyhow::Result<()> {
        let (now, logged) = (self.document().await?.rewinds, self.logged());
        if let Some(struck) = self.struck.last_mut() {
            (struck.times_back, struck.is_covered) = (now - before.rewinds, is_covered);
            struck.logged.end = logged;
        }
        Ok(())
    }

    /// How long the log is, in bytes.
    fn logged(&self) -> u64 {
        std::fs::metadata(log_of(&self.run)).map_or(0, |log| log.len())
    }

    /// Waits for the end of the job.
    pub(crate) async fn ended(&mut self) -> anyhow::Result<Value> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            self.reader.look().await?;
            sleep(Duration::from_millis(20)).await;
        };
        let [stdout, stderr] = ["out", "err"].map(|which| std::fs::read(said(&self.run, which)));
        closing(&Output { status, stdout: stdout?, stderr: stderr? })
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // The supervisor takes its processes with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the job's trainers write what they are told.
pub(crate) fn log_of(run: &Path) -> PathBuf {
    run.with_extension("log")
}

fn said(run: &Path, which: &str) -> PathBuf {
    run.with_extension(which)
}

/// Whether a process has not ended; one that nobody has waited for yet has.
fn is_running(process: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}

fn is_settled(status: &StatusReply, wanted: usize) -> bool {
    let live = live(status);
    let is_still = live.len() == wanted && !live.iter().any(|one| one.is_leaving);
    let blocks: u64 = live.iter().map(|one| u64::from(one.blocks)).sum();
    let copies = if wanted > 1 { blocks } else { 0 };
    let is_full = blocks > 0 && status.copies_filling == 0 && status.copies_in_sync == copies;
    is_still && is_full && live.iter().all(|one| one.blocks > 0)
}

fn live(status: &StatusReply) -> Vec<&PserverStatus> {
    status.pservers.iter().filter(|pserver| !pserver.lost).collect()
}

/// Bytes of blocks that another pserver leads now than before, and the least that could have moved.
fn bytes(before: &StatusReply, after: &StatusReply) -> anyhow::Result<(u64, u64)> {
    let declaration = Declaration::try_from(after.declaration.clone().context("nothing declared")?)?;
    let sizes: Vec<u64> =
        Layout::new(&declaration).iter().map(|(_, block)| 4 * block.elements as u64).collect();
    let primaries = |status: &StatusReply| -> anyhow::Result<Vec<u64>> {
        let routing = Routing::try_from(status.routing.clone().context("no routing")?)?;
        let at = |block: &shoal_runtime::cluster::routing::BlockRoute| {
            routing.pservers[block.primary as usize].incarnation.0
        };
        Ok(routing.blocks.iter().map(at).collect())
    };
    let hosts: Vec<u64> = live(after).iter().map(|pserver| pserver.incarnation).collect();
    let place = |incarnation: &u64| hosts.iter().position(|host| host == incarnation).map(|at| at as u32);
    let present: Vec<Option<u32>> = primaries(before)?.iter().map(place).collect();
    let now: Option<Vec<u32>> = primaries(after)?.iter().map(place).collect();
    let now = now.context("a block on a pserver that is not there")?;
    Ok((moved_bytes(&sizes, &present, &now), least_bytes(&sizes, &present, hosts.len() as u32)))
}
