//! Parameter servers come, go and change places under a running job, in either mode, undisturbed and with the source
//! or the target of every move killed:
//!
//! `cargo run --release -p shoal-tests --bin moves [-- --seed S]`
//!
//! 1 -> 3 -> 2 -> 4 -> 1 pservers, and each of three migrated once. Each job must end with exact counts and in
//! synchronous mode with the hash of an undisturbed run. Prints how long pushes lasted, and the bytes moved by each
//! change of number against the least possible. Exits 0 only if all jobs kept the promises.
#![allow(clippy::print_stdout)] // Its table is what it is for.

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use shoal_master::rebalance::{least_bytes, moved_bytes};
use shoal_runtime::cluster::{Declaration, Layout, Routing};
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{Masters, TcpDial};
use shoal_runtime::wire::proto::{self, PserverStatus, StatusReply, master_client::MasterClient};
use shoal_tests::applied::Log;
use shoal_tests::processes::{Job, Programs, closing, pack_digits, programs};
use std::path::Path;
use std::process::Child;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const EPOCHS: &str = "6";
const PATIENCE: Duration = Duration::from_secs(60);
/// How long after a change has begun somebody is killed, at most: about as long as a change lasts.
const KILL_WITHIN_MILLIS: u64 = 400;

/// Who is killed while blocks are on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Nobody,
    Source,
    Target,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let seed = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => 1,
        [word, seed] if word == "--seed" => seed.parse()?,
        _ => bail!("moves [--seed S]"),
    };
    let programs = programs()?;
    let folder = tempfile::tempdir()?;
    let data = pack_digits(&programs, &folder.path().join("data"))?;
    let script = Script { programs, data, folder: folder.path() };
    let calm = closing(&script.job("calm", "sync", "0").command().output()?)?;
    let hash = calm["parameters_sha256"].as_str().context("no hash")?.to_owned();
    println!("an undisturbed run: {hash}");
    for (at, mode) in ["sync", "async"].into_iter().enumerate() {
        for victim in [Victim::Nobody, Victim::Source, Victim::Target] {
            let random = Random::seeded(seed * 10 + at as u64);
            let told = script.play(mode, victim, random, &hash).await;
            println!("{}", told.with_context(|| format!("{mode}, victim {victim:?}"))?);
        }
    }
    Ok(())
}

struct Script<'a> {
    programs: Programs,
    data: String,
    folder: &'a Path,
}

impl Script<'_> {
    fn job(&self, run: &str, mode: &str, pace: &str) -> Job<'_> {
        let run = format!("runs/{run}");
        let more =
            ["--epochs", EPOCHS, "--seed", "7", "--mode", mode, "--pace-millis", pace, "--folder", &run];
        let more = more.into_iter().chain([
            "--replicas",
            "1",
            "--lease-ttl-millis",
            "1000",
            "--checkpoint-steps",
            "10",
        ]);
        let more = more.map(str::to_owned).collect();
        let (programs, data, folder) = (&self.programs, self.data.as_str(), self.folder);
        Job { programs, folder, program: &programs.digits, data, trainers: "3", pservers: 1, more }
    }

    /// One job with all changes; returns what there is to tell.
    async fn play(&self, mode: &str, victim: Victim, random: Random, hash: &str) -> anyhow::Result<String> {
        let name = format!("{mode}-{victim:?}");
        let log = self.folder.join(format!("log-{name}"));
        let mut command = self.job(&name, mode, "150").command();
        let child = command.env("SHOAL_PUSH_LOG", &log).spawn()?;
        let mut changes = Changes::of(&self.folder.join("runs").join(&name), victim, random, child).await?;
        let mut told = Vec::new();
        for number in [3, 2, 4, 1] {
            told.push(changes.scale(number).await.with_context(|| format!("to {number} pservers"))?);
            if number == 3 {
                changes.migrate_each().await.context("migrations")?;
            }
        }
        let closing = changes.ended()?;
        let log = Log::read(&std::fs::read_to_string(&log)?)?;
        judge(&closing, &log, mode, hash)?;
        Ok(format!(
            "{mode:<5} killed: {:<6} {:>2} kills, {} times back; pushes {}; bytes moved / least: {}",
            format!("{victim:?}"),
            changes.kills,
            closing["rewinds"],
            lasted(log.push_micros),
            if victim == Victim::Nobody { told.join(", ") } else { String::from("-") },
        ))
    }
}

fn judge(closing: &Value, log: &Log, mode: &str, hash: &str) -> anyhow::Result<()> {
    ensure!(closing["records_wrong"] == 0, "counts are wrong: {closing}");
    ensure!(closing["records_counted"] == closing["records_expected"], "counts are wrong: {closing}");
    ensure!(mode == "async" || closing["parameters_sha256"] == hash, "another hash: {closing}");
    let not_kept = log.not_kept(closing["steps"].as_u64().context("no steps")?);
    ensure!(not_kept.is_empty(), "not kept: {:?}", &not_kept[..not_kept.len().min(10)]);
    Ok(())
}

/// Percentiles of durations in microseconds, in words.
fn lasted(mut micros: Vec<u64>) -> String {
    micros.sort_unstable();
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    if micros.is_empty() {
        return String::from("none");
    }
    format!("{}: p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms", micros.len(), at(0.5), at(0.99), at(1.0))
}

/// A job whose pservers are changed.
struct Changes {
    masters: Masters,
    job: String,
    victim: Victim,
    random: Random,
    kills: u32,
    child: Child,
}

impl Changes {
    async fn of(run: &Path, victim: Victim, random: Random, child: Child) -> anyhow::Result<Changes> {
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
        let changes = Changes { masters, job, victim, random, kills: 0, child };
        changes.settled(1).await?;
        Ok(changes)
    }

    async fn status(&self) -> Option<StatusReply> {
        let request = proto::StatusRequest { job: self.job.clone() };
        let ask = |mut client: MasterClient<_>| async move { client.status(request).await };
        self.masters.call(Duration::from_secs(1), ask).await.ok()
    }

    /// Waits until so many pservers share the model and every block has its copies; then for a step.
    async fn settled(&self, wanted: usize) -> anyhow::Result<StatusReply> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.status().await {
                ensure!(status.phase != "done", "the job ended before all changes were made");
                ensure!(status.phase != "failed", "the job failed: {}", status.failure);
                let live = live(&status);
                let is_still = live.len() == wanted && !live.iter().any(|one| one.is_leaving);
                let blocks: u64 = live.iter().map(|one| u64::from(one.blocks)).sum();
                let copies = if wanted > 1 { blocks } else { 0 };
                let is_full = blocks > 0 && status.copies_filling == 0 && status.copies_in_sync == copies;
                if is_still && is_full && live.iter().all(|one| one.blocks > 0) {
                    return Ok(status);
                }
            }
            ensure!(Instant::now() < until, "not settled at {wanted} pservers within {PATIENCE:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn scale(&mut self, to: u32) -> anyhow::Result<String> {
        let before = self.status().await.context("no status")?;
        let request = proto::ScaleRequest { job: self.job.clone(), pservers: Some(to), trainers: None };
        let ask = |mut client: MasterClient<_>| async move { client.scale(request).await };
        self.masters.call(Duration::from_secs(2), ask).await?;
        self.strike(&before).await?;
        let after = self.settled(to as usize).await?;
        let (moved, least) = bytes(&before, &after)?;
        Ok(format!("{} -> {to}: {moved} / {least}", live(&before).len()))
    }

    async fn migrate_each(&mut self) -> anyhow::Result<()> {
        let names: Vec<String> =
            live(&self.settled(3).await?).iter().map(|pserver| pserver.name.clone()).collect();
        for name in names {
            let before = self.settled(3).await?;
            if !live(&before).iter().any(|pserver| pserver.name == name) {
                // It was killed, and another came.
                continue;
            }
            let request = proto::DrainRequest { job: self.job.clone(), pserver: name.clone(), replace: true };
            let ask = |mut client: MasterClient<_>| async move { client.drain(request).await };
            if let Err(fault) = self.masters.call(Duration::from_secs(2), ask).await {
                let now = self.settled(3).await?;
                ensure!(!live(&now).iter().any(|pserver| pserver.name == name), "migrate {name}: {fault}");
                // The master had yet to notice that it was killed.
                continue;
            }
            self.strike(&before).await?;
            let until = Instant::now() + PATIENCE;
            while live(&self.settled(3).await?).iter().any(|pserver| pserver.name == name) {
                ensure!(Instant::now() < until, "{name} is not gone");
                sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    /// Kills the victim a random while after blocks may have begun to move.
    async fn strike(&mut self, before: &StatusReply) -> anyhow::Result<()> {
        if self.victim == Victim::Nobody {
            return Ok(());
        }
        let old: Vec<u64> = live(before).iter().map(|pserver| pserver.incarnation).collect();
        let until = Instant::now() + Duration::from_secs(5);
        // The target is whoever has come, or in scaling down anybody who stays; the source anybody who was there.
        let victims = loop {
            let status = self.status().await.context("no status")?;
            let mut known: Vec<PserverStatus> = live(&status).into_iter().cloned().collect();
            let is_down = known.iter().any(|pserver| pserver.is_leaving);
            known.retain(|pserver| match (self.victim, is_down) {
                (Victim::Target, false) => !old.contains(&pserver.incarnation),
                (Victim::Target, true) => !pserver.is_leaving,
                (_, false) => old.contains(&pserver.incarnation),
                (_, true) => pserver.is_leaving,
            });
            if !known.is_empty() || Instant::now() > until {
                break known;
            }
            sleep(Duration::from_millis(5)).await;
        };
        sleep(Duration::from_millis(self.random.below(KILL_WITHIN_MILLIS))).await;
        let at = self.random.below(victims.len().max(1) as u64) as usize;
        let Some(process) =
            victims.get(at).and_then(|victim| rustix::process::Pid::from_raw(victim.process as i32))
        else {
            return Ok(());
        };
        // It may have left by itself meanwhile.
        self.kills +=
            u32::from(rustix::process::kill_process(process, rustix::process::Signal::KILL).is_ok());
        Ok(())
    }

    /// Waits for the end of the job.
    fn ended(&mut self) -> anyhow::Result<Value> {
        use std::io::Read;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        if let Some(stdout) = &mut self.child.stdout {
            stdout.read_to_end(&mut out)?;
        }
        if let Some(stderr) = &mut self.child.stderr {
            stderr.read_to_end(&mut err)?;
        }
        let status = self.child.wait()?;
        closing(&std::process::Output { status, stdout: out, stderr: err })
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // The supervisor takes its processes with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
