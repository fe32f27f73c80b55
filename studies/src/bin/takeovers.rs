//! Fifty times the master that leads is killed, with a standby present, over an etcd of this script's own:
//!
//! `cargo run --release -p shoal-studies --bin takeovers [-- --kills N]`
//!
//! After each kill the standby must lead and training go on; the killed one is started again as the next standby. No
//! trainer and no pserver is ever started again. In the end counts are exact, the hash is that of an undisturbed run,
//! and etcd's history of the document shows one writer for each term. Exits 0 only then.

#![allow(clippy::print_stderr, reason = "a study says what it leaves out")]
#![allow(clippy::print_stdout)] // Its table is what it is for.
#![allow(clippy::unwrap_used, reason = "the etcd that it shares with tests is a test's")]

#[path = "../../../runtime/tests/it/store_etcd/process.rs"]
#[allow(dead_code)] // Tests of the store use more of it.
mod etcd;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use etcd::Etcd;
use serde_json::{Value, json};
use shoal_master::document::Document;
use shoal_runtime::host::rpc::{Masters, TcpDial};
use shoal_runtime::wire::proto::{StatusReply, StatusRequest, master_client::MasterClient};
use shoal_tests::processes::{Job, Programs, Running, closing, pack_digits, programs};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const EPOCHS: &str = "12";
/// Microbatches of all epochs; paced by the kills, so that the job outlasts them.
const MICROBATCHES: u64 = 12 * 188;
/// What one takeover takes: the leader's lease in etcd, an election, a step.
const TAKEOVER: Duration = Duration::from_secs(6);
const TRAINERS: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let kills = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => 50,
        [word, kills] if word == "--kills" => kills.parse()?,
        _ => bail!("takeovers [--kills N]"),
    };
    let programs = programs()?;
    let folder = tempfile::tempdir()?;
    let data = pack_digits(&programs, &folder.path().join("data"))?;
    let expected = undisturbed(&programs, folder.path(), &data)?;
    let etcd = Etcd::start(&[]).await.context("no etcd")?;
    let mut cluster = Cluster::start(&programs, folder.path(), &data, &etcd, kills)?;
    let mut waits = Vec::new();
    for number in 1..=kills {
        let wait = cluster.take_over().await.with_context(|| format!("takeover {number}"))?;
        println!("takeover {number:>2}: a step by the next master after {:.2} s", wait.as_secs_f64());
        waits.push(wait);
    }
    let hash = cluster.end().await?;
    ensure!(hash == expected, "the hash is {hash}, not {expected}");
    let (documents, terms) = one_writer_per_term(&etcd).await?;
    waits.sort();
    println!(
        "{kills} takeovers, median {:.2} s, longest {:.2} s; {documents} documents by {terms} masters, one in each term; \
         hash as undisturbed: {hash}",
        waits[waits.len() / 2].as_secs_f64(),
        waits[waits.len() - 1].as_secs_f64(),
    );
    Ok(())
}

fn undisturbed(programs: &Programs, folder: &Path, data: &str) -> anyhow::Result<String> {
    let more = ["--epochs", EPOCHS, "--seed", "7"].map(str::to_owned).to_vec();
    let job = Job {
        programs,
        folder,
        program: &programs.digits,
        data,
        trainers: "2",
        pservers: 2,
        more,
        hyper: Vec::new(),
    };
    let closing = job.run()?;
    ensure!(closing["records_wrong"] == 0, "counts are wrong: {closing}");
    Ok(closing["parameters_sha256"].as_str().context("no hash")?.to_owned())
}

struct Cluster<'a> {
    programs: &'a Programs,
    folder: &'a Path,
    data: &'a str,
    store: String,
    addresses: [String; 2],
    masters: [Running; 2],
    pservers: Vec<Running>,
    trainers: Vec<Running>,
    clients: Masters,
}

impl<'a> Cluster<'a> {
    fn start(
        programs: &'a Programs,
        folder: &'a Path,
        data: &'a str,
        etcd: &Etcd,
        kills: u32,
    ) -> anyhow::Result<Cluster<'a>> {
        let ports = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
        let addresses = ports.map(|listener| listener.local_addr().unwrap().to_string());
        let store = format!("etcd://{}/takeovers?ttl_seconds=2", etcd.address());
        let list = addresses.join(",");
        let start = |at: usize| master(programs, folder, data, &store, &addresses[at], at);
        let masters = [start(0)?, start(1)?];
        let pservers = (0..2).map(|at| {
            let mut command = Command::new(&programs.shoal);
            command.args(["pserver", "--master", &list, "--name", &format!("pserver-{at}")]);
            Running::start(command, &folder.join(format!("pserver-{at}.log")))
        });
        let pace = TAKEOVER * kills * TRAINERS as u32 / MICROBATCHES as u32;
        let trainers = (0..TRAINERS).map(|at| {
            let mut command = Command::new(&programs.digits);
            command.env("SHOAL_MASTER", &list).env("SHOAL_JOB", "takeovers");
            command.env("SHOAL_TRAINER_NAME", format!("trainer-{at}"));
            command.env("SHOAL_PACE_MILLIS", pace.as_millis().to_string());
            Running::start(command, &folder.join(format!("trainer-{at}.log")))
        });
        let (pservers, trainers) = (pservers.collect::<Result<_, _>>()?, trainers.collect::<Result<_, _>>()?);
        let clients = Masters::new(&list, &TcpDial::default()).map_err(anyhow::Error::msg)?;
        Ok(Cluster { programs, folder, data, store, addresses, masters, pservers, trainers, clients })
    }

    /// What the master that leads says.
    async fn status(&self) -> anyhow::Result<(usize, StatusReply)> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let address = self.clients.address().to_owned();
            let ask = |mut client: MasterClient<_>| async move {
                client.status(StatusRequest { job: String::from("takeovers"), ..Default::default() }).await
            };
            if let Ok(status) = self.clients.call(Duration::from_secs(1), ask).await {
                let at = self.addresses.iter().position(|known| *known == address);
                return Ok((at.context("an address of nobody's")?, status));
            }
            sleep(Duration::from_millis(20)).await;
        }
        bail!("nobody has led for {PATIENCE:?}")
    }

    /// Waits for a step beyond `step` and returns who led then.
    async fn step_beyond(&self, step: u64) -> anyhow::Result<(usize, u64)> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let (at, status) = self.status().await?;
            ensure!(status.phase != "failed", "the job failed: {}", status.failure);
            ensure!(status.phase != "done", "the job ended before all kills were made");
            if status.phase == "training" && status.step > step {
                return Ok((at, status.step));
            }
            sleep(Duration::from_millis(20)).await;
        }
        bail!("no step beyond {step} within {PATIENCE:?}")
    }

    /// Kills the leader; returns how long it took until another master had led a step, and one more to be sure.
    async fn take_over(&mut self) -> anyhow::Result<Duration> {
        let (leader, status) = self.status().await?;
        let (leader, step) = match status.phase.as_str() {
            "training" => (leader, status.step),
            _ => self.step_beyond(0).await?,
        };
        let began = Instant::now();
        self.masters[leader].kill()?;
        let (next, _) = self.step_beyond(step).await?;
        ensure!(next != leader, "the dead one leads");
        let took = began.elapsed();
        let address = &self.addresses[leader];
        self.masters[leader] = master(self.programs, self.folder, self.data, &self.store, address, leader)?;
        for (what, members) in [("trainer", &mut self.trainers), ("pserver", &mut self.pservers)] {
            let ended = members.iter_mut().position(|member| !member.is_running());
            ensure!(ended.is_none(), "{what} {ended:?} has ended");
        }
        Ok(took)
    }

    /// Waits for the job's end and returns its hash.
    async fn end(&mut self) -> anyhow::Result<String> {
        while self.status().await?.1.phase != "done" {
            sleep(Duration::from_millis(100)).await;
        }
        let mut command = Command::new(&self.programs.shoal);
        command.current_dir(self.folder).args(["export", "--file", "model.safetensors", "-o", "json"]);
        let exported = closing(&command.args(["--master", &self.addresses.join(",")]).output()?)?;
        for (at, trainer) in self.trainers.iter_mut().enumerate() {
            ensure!(trainer.end_within(PATIENCE).await? == Some(0), "trainer {at} did not end well");
        }
        Ok(exported["parameters_sha256"].as_str().context("no hash")?.to_owned())
    }
}

fn master(
    programs: &Programs,
    folder: &Path,
    data: &str,
    store: &str,
    address: &str,
    at: usize,
) -> anyhow::Result<Running> {
    let mut command = Command::new(&programs.shoal);
    command.args(["master", "--job", "takeovers", "--data", data, "--epochs", EPOCHS, "--seed", "7"]);
    command.args(["--listen", address, "--store", store, "--pservers", "2", "--replicas", "1"]);
    command.args(["--lease-ttl-millis", "1000", "--checkpoint-steps", "20"]);
    command.arg("--checkpoints").arg(folder.join("checkpoints"));
    Running::start(command, &folder.join(format!("master-{at}.log")))
}

/// Reads every document that etcd has held: no term has two writers, and none follows a later one. Returns how many
/// documents and terms there were.
async fn one_writer_per_term(etcd: &Etcd) -> anyhow::Result<(u64, u64)> {
    let key = BASE64.encode("/takeovers/state");
    let newest = at_revision(etcd, &key, 0).await?.context("no document")?;
    let first = newest["create_revision"].as_str().context("no revision")?.parse::<u64>()?;
    let last = newest["mod_revision"].as_str().context("no revision")?.parse::<u64>()?;
    let (mut documents, mut terms) = (0, 0);
    let mut before: Option<Document> = None;
    let mut seen = 0;
    for revision in first..=last {
        let Some(found) = at_revision(etcd, &key, revision).await? else { continue };
        let modified = found["mod_revision"].as_str().context("no revision")?.parse::<u64>()?;
        if std::mem::replace(&mut seen, modified) == modified {
            continue;
        }
        let bytes = BASE64.decode(found["value"].as_str().context("no value")?)?;
        let document = Document::from_bytes(&bytes)?;
        documents += 1;
        if let Some(before) = &before {
            ensure!(document.routing_version > before.routing_version, "a document was written twice");
            ensure!(
                document.master_term >= before.master_term,
                "a deposed master wrote at revision {revision}"
            );
            let is_same = document.master_term == before.master_term;
            ensure!(
                !is_same || document.master == before.master,
                "two masters in term {}",
                before.master_term
            );
        }
        terms += u64::from(before.is_none_or(|before| before.master_term < document.master_term));
        before = Some(document);
    }
    Ok((documents, terms))
}

async fn at_revision(etcd: &Etcd, key: &str, revision: u64) -> anyhow::Result<Option<Value>> {
    let asked = json!({ "key": key, "revision": revision }).to_string();
    let answer = etcd.gateway("/v3/kv/range", &asked).await?;
    let start = answer.find('{').with_context(|| format!("etcd answers {answer:?}"))?;
    let end = answer.rfind('}').with_context(|| format!("etcd answers {answer:?}"))?;
    let answer: Value = serde_json::from_str(&answer[start..=end])?;
    Ok(answer["kvs"].get(0).cloned())
}
