//! Leases over gRPC: a master in a process of its own, as `shoal master` is one, trainers that compute nothing, and a pserver
//! that says at once that what they were given is applied. What a master can hand out at all.

use crate::measure::{Took, took};
use crate::report::Row;
use anyhow::{Context, bail, ensure};
use clap::Parser;
use shoal_master::settings::MasterSettings;
use shoal_recordio::{Writer, WriterOptions};
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::{Declaration, Ledger, Parameter, Rule, Schedule};
use shoal_runtime::host::rpc::{Channel, TcpDial, master_client};
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::wire::proto::{self, master_client::MasterClient};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;

const JOB: &str = "dispatch";
const TRAINERS: u64 = 32;
const CONNECTIONS: u64 = 4;
const RECORDS: u32 = 64_000;
const CHUNK_BYTES: u64 = 1 << 10;
/// The length of a round.
const ROUND: Duration = Duration::from_secs(1);
/// Between two reports of the pserver.
const REPORT: Duration = Duration::from_millis(20);
/// Between two looks at what is not there yet.
const PAUSE: Duration = Duration::from_millis(10);

/// A master that ends with its standard input. Prints its address.
#[allow(clippy::print_stdout, reason = "its address is what whoever started it waits for")]
pub(crate) fn serve(folder: &Path) -> anyhow::Result<()> {
    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        settings: MasterSettings,
    }
    let (data, store) = (folder.join("data.recordio"), folder.join("state"));
    let flags = "--listen 127.0.0.1:0 --mode async --epochs 1000000 --staleness-window 1048576 --microbatch-records 1 \
                 --lease-ttl-millis 60000 --checkpoint-seconds 0";
    let flags = ["master", "--job", JOB].into_iter().chain(flags.split_whitespace()).map(PathBuf::from);
    let places = [PathBuf::from("--data"), data, PathBuf::from("--store"), store];
    let settings = Arguments::try_parse_from(flags.chain(places))?.settings;
    let (ended, stop) = Shutdown::pair();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(ended);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(shoal_master::run(settings, |address| println!("{address}"), stop))
}

/// Leases, calls, and the master's processor time for each lease.
pub(crate) fn rows(rounds: u32) -> anyhow::Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let file = BufWriter::new(File::create(folder.path().join("data.recordio"))?);
    let mut writer =
        Writer::new(file, WriterOptions { chunk_bytes: CHUNK_BYTES, ..WriterOptions::default() });
    (0..RECORDS).try_for_each(|record| writer.write(&record.to_le_bytes()))?;
    writer.finish()?.flush()?;
    let master = Master::start(folder.path())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = LocalSet::new();
    let shared = tasks.block_on(&runtime, Shared::join(&master.address))?;
    let mut measured: Vec<(u64, u64, Took)> = Vec::new();
    for _ in 0..=rounds {
        let before = (shared.given.get(), shared.calls.get());
        let took = took(&[master.process.id()], &mut || {
            tasks.block_on(&runtime, async { sleep(ROUND).await });
            Ok(())
        })?;
        if let Some(failed) = shared.failed.borrow_mut().take() {
            return Err(failed);
        }
        measured.push((shared.given.get() - before.0, shared.calls.get() - before.1, took));
    }
    ensure!(shared.again.get() == 0, "{} positions were given twice", shared.again.get());
    ensure!(measured[1..].iter().all(|(given, ..)| *given > 0), "a round without a lease");
    let row = |name: &str, unit, of: &dyn Fn(&(u64, u64, Took)) -> f64| {
        Row::alone(format!("leases over gRPC, {name}"), unit, measured[1..].iter().map(of).collect())
    };
    Ok(vec![
        row("16 microbatches a call", "microbatches/s", &|(given, _, took)| *given as f64 / took.seconds),
        row("calls", "calls/s", &|(_, calls, took)| *calls as f64 / took.seconds),
        row("the master's processors", "µs/microbatch", &|(given, _, took)| {
            took.processor_seconds * 1e6 / *given as f64
        }),
    ])
}

/// The process. It ends when nobody has this any more.
struct Master {
    process: Child,
    address: String,
}

impl Master {
    fn start(folder: &Path) -> anyhow::Result<Master> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("--serve-master")
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the master")?;
        let output = process.stdout.take().context("its address cannot be read")?;
        let mut master = Master { process, address: String::new() };
        BufReader::new(output).read_line(&mut master.address)?;
        master.address.truncate(master.address.trim_end().len());
        ensure!(!master.address.is_empty(), "the master has said no address");
        Ok(master)
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// What the trainers and the pserver share. The first of them that fails says so, and the run ends with the round.
#[derive(Default)]
struct Shared {
    applied: RefCell<Ledger>,
    given: Cell<u64>,
    again: Cell<u64>,
    calls: Cell<u64>,
    failed: RefCell<Option<anyhow::Error>>,
}

impl Shared {
    /// All of them, under way.
    async fn join(address: &str) -> anyhow::Result<Rc<Shared>> {
        let dial = TcpDial::default();
        let clients = (0..CONNECTIONS).map(|_| master_client(&dial, address).map_err(anyhow::Error::msg));
        let clients: Vec<MasterClient<Channel>> = clients.collect::<Result<_, _>>()?;
        let shared = Rc::new(Shared::default());
        while clients[0].clone().describe(proto::DescribeRequest::default()).await.is_err() {
            sleep(PAUSE).await;
        }
        let work = |client: &MasterClient<Channel>| (Rc::clone(&shared), client.clone());
        let (ours, client) = work(&clients[0]);
        spawn_local(async move { ours.ended(ours.lead(client).await.context("the pserver")) });
        for trainer in 0..TRAINERS {
            let (ours, client) = work(&clients[(trainer % CONNECTIONS) as usize]);
            spawn_local(async move { ours.ended(ours.train(client, trainer).await.context("a trainer")) });
        }
        Ok(shared)
    }

    fn ended(&self, ended: anyhow::Result<()>) {
        let why = ended.err().unwrap_or_else(|| anyhow::anyhow!("somebody has ended"));
        self.failed.borrow_mut().get_or_insert(why);
    }

    /// A pserver that has applied whatever was given.
    async fn lead(&self, mut client: MasterClient<Channel>) -> anyhow::Result<()> {
        // Where it is said to be, for the master probes it.
        let there = std::net::TcpListener::bind("127.0.0.1:0")?;
        let (name, address) = ("pserver-0".to_owned(), there.local_addr()?.to_string());
        let register =
            proto::RegisterRequest { job: JOB.into(), name, address, nonce: 1, ..Default::default() };
        let incarnation = loop {
            match client.register(register.clone()).await {
                Ok(registered) => break registered.into_inner().incarnation,
                Err(_) => sleep(PAUSE).await,
            }
        };
        let (told, mut assigned) = watch::channel(proto::Assignment::default());
        let mut watching = client.clone();
        spawn_local(async move {
            loop {
                let (routing_version, master_term) =
                    (told.borrow().routing_version, told.borrow().master_term);
                let request = proto::WatchRequest {
                    job: JOB.into(),
                    incarnation,
                    routing_version,
                    master_term,
                    wait_millis: 5000,
                };
                let Ok(reply) = watching.watch(request).await else { break };
                if let Some(assignment) = reply.into_inner().assignment {
                    let _ = told.send(assignment);
                }
            }
        });
        for call in 1.. {
            sleep(REPORT).await;
            let assignment = assigned.borrow_and_update().clone();
            let applied = self.applied.borrow().clone();
            let version = applied.low() + applied.ranges().map(|range| range.end - range.start).sum::<u64>();
            let progress = assignment.blocks.iter().map(|blocks| proto::BlockProgress {
                blocks: blocks.blocks.clone(),
                version,
                term: blocks.term,
                ledger: Some((&applied).into()),
                ..Default::default()
            });
            let report = proto::ReportRequest {
                job: JOB.into(),
                incarnation,
                routing_version: assignment.routing_version,
                progress: progress.collect(),
                call,
                ..Default::default()
            };
            client.report(report).await?;
        }
        bail!("it has reported for ever")
    }

    /// A trainer that says with each call that what the last one gave is pushed.
    async fn train(&self, mut client: MasterClient<Channel>, number: u64) -> anyhow::Result<()> {
        let weights = Parameter::new("w", &[4], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
        let declaration = Declaration { parameters: vec![weights], ..Declaration::default() };
        let join = proto::JoinRequest {
            job: JOB.into(),
            name: format!("trainer-{number}"),
            nonce: number + 1,
            declaration: Some((&declaration).into()),
            ..Default::default()
        };
        let incarnation = loop {
            let joined = client.join(join.clone()).await?.into_inner();
            if joined.routing.is_some() {
                break joined.incarnation;
            }
            sleep(PAUSE).await;
        };
        let mut progress = Vec::new();
        for call in 1.. {
            let lease = proto::LeaseRequest {
                job: JOB.into(),
                incarnation,
                progress: std::mem::take(&mut progress),
                want: 1,
                wait_millis: 1000,
                call,
                ..Default::default()
            };
            let reply = client.lease(lease).await?.into_inner();
            self.calls.set(self.calls.get() + 1);
            for task in reply.tasks {
                let microbatches = task.microbatches.len() as u64;
                self.given.set(self.given.get() + microbatches);
                let again = (task.position..task.position + microbatches)
                    .filter(|position| !self.applied.borrow_mut().insert(*position));
                self.again.set(self.again.get() + again.count() as u64);
                let (lease, microbatches) = (task.lease, microbatches as u32);
                progress.push(proto::Progress { lease, microbatches, pushed: true, waits: false });
            }
        }
        bail!("it has leased for ever")
    }
}
