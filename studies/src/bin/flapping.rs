//! What thousands of trainers that come and go cost a master:
//!
//! `cargo run --release -p shoal-studies --bin flapping [-- --trainers 5000] [--joins-per-second 100] [--seconds 120]`
//!
//! A real master process, over gRPC on loopback. Trainers are tasks of this program: each joins, leases, works for a
//! second, leases again; every other one that goes leaves, the others fall silent. One pserver, also a task, says that
//! what was worked on is applied. Once all that were there at first have gone, prints a row for each tenth of the time:
//! the master's memory, its processor time for each call, how long calls for tasks took, and how many it had at a time,
//! at most. Exits 0 only if memory and processor time for each call are no higher at the end than they were.
#![allow(clippy::print_stdout)] // Its table is what it is for.

use anyhow::{bail, ensure};
use clap::Parser;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::{Declaration, Incarnation, Ledger, Parameter, Rule, Schedule};
use shoal_runtime::host::rpc::{Channel, TcpDial, master_client};
use shoal_runtime::wire::proto::{self, master_client::MasterClient};
use shoal_tests::costs::{cpu_micros, memory_kib, percentile};
use shoal_tests::processes::{Running, start_master};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::TcpListener;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until};

const JOB: &str = "flapping";
/// A job that goes on for as long as this lasts, and always has work for everybody: what all do within the time to live
/// of a lease, for as long as the front may wait for one that has fallen silent, is less than half the window.
const MASTER: [&str; 14] = [
    "--job",
    JOB,
    "--mode",
    "async",
    "--epochs",
    "1000000",
    "--staleness-window",
    "1048576",
    "--microbatch-records",
    "1",
    "--lease-ttl-millis",
    "3000",
    "--checkpoint-seconds",
    "0",
];
/// How long a trainer works on what it was given.
const WORK: Duration = Duration::from_secs(1);
/// How long a call for tasks may be kept open: shorter than a trainer may be silent.
const WAIT: Duration = Duration::from_millis(750);
/// Between two reports of the pserver.
const REPORT: Duration = Duration::from_millis(50);
/// Rows of the table.
const ROWS: u32 = 10;
/// How much higher the last rows may be than those after the start: machines are noisy.
const MEMORY_GROWTH: f64 = 1.1;
const COST_GROWTH: f64 = 1.5;

/// What thousands of trainers that come and go cost a master.
#[derive(Clone, Parser)]
struct Arguments {
    #[arg(long, default_value_t = 5000)]
    trainers: u32,
    #[arg(long, default_value_t = 100)]
    joins_per_second: u32,
    /// That is measured: after all trainers have joined, and others have taken the place of each.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(ROWS as i64..))]
    seconds: u32,
    /// Connections that trainers share.
    #[arg(long, default_value_t = 64)]
    connections: u32,
}

/// What tasks share.
struct Shared {
    clients: Vec<MasterClient<Channel>>,
    applied: RefCell<Ledger>,
    /// Calls made; how long those for tasks took, in microseconds.
    calls: Cell<u64>,
    took: RefCell<Vec<u32>>,
    /// Calls for tasks that the master has now, and the most of them since a row began.
    open: Cell<u32>,
    open_max: Cell<u32>,
    given_again: Cell<u64>,
    failed: RefCell<Option<String>>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Entered for what is left when it ends early.
    let _entered = runtime.enter();
    let tasks = LocalSet::new();
    runtime.block_on(tasks.run_until(measure(arguments)))
}

async fn measure(arguments: Arguments) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (master, address) = start_master(folder.path(), &MASTER)?;
    let dial = TcpDial::default();
    let clients = (0..arguments.connections.max(1)).map(|_| master_client(&dial, &address));
    let shared = Rc::new(Shared {
        clients: clients.collect::<Result<_, _>>().map_err(anyhow::Error::msg)?,
        applied: RefCell::default(),
        calls: Cell::new(0),
        took: RefCell::default(),
        open: Cell::new(0),
        open_max: Cell::new(0),
        given_again: Cell::new(0),
        failed: RefCell::default(),
    });
    while shared.clients[0].clone().describe(proto::DescribeRequest::default()).await.is_err() {
        sleep(REPORT).await;
    }
    // Where the pserver is said to be, for the master probes it.
    let there = TcpListener::bind("127.0.0.1:0")?;
    let place = there.local_addr()?.to_string();
    let pserver = Rc::clone(&shared);
    spawn_local(async move {
        let ended = lead_all(&pserver, place).await;
        pserver.failed.borrow_mut().get_or_insert(format!("the pserver ended: {ended:?}"));
    });
    let mut fleet = Fleet { shared: Rc::clone(&shared), living: VecDeque::new(), born: 0 };
    let began = Instant::now();
    while fleet.born < arguments.trainers {
        fleet.join();
        // A start that is no flood.
        sleep(Duration::from_millis(1)).await;
    }
    println!("{} trainers have joined within {:.1} s", fleet.born, began.elapsed().as_secs_f64());
    // What a master remembers of those who have gone is as much as it will be once everybody has gone once.
    let generation = arguments.trainers.div_ceil(arguments.joins_per_second.max(1));
    fleet.change(Duration::from_secs(u64::from(generation)), arguments.joins_per_second).await?;
    println!("others have taken the place of each within {generation} s");
    println!(
        "{:>8} {:>10} {:>12} {:>10} {:>14} {:>10} {:>10}",
        "seconds", "memory KiB", "calls/s", "µs of CPU", "lease p50 ms", "p99 ms", "queue"
    );
    let mut rows = Vec::new();
    for row in 1..=ROWS {
        let length = Duration::from_secs(u64::from(arguments.seconds)) / ROWS;
        rows.push(fleet.row(&master, row, length, arguments.joins_per_second).await?);
    }
    // Of leases that ran out, where a machine is too busy to answer in time.
    println!("{} microbatches were worked on twice", shared.given_again.get());
    let mean = |rows: &[Row], of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
    let (before, after) = (&rows[1..4], &rows[rows.len() - 3..]);
    let memory = mean(after, |row| row.memory_kib) / mean(before, |row| row.memory_kib);
    let cost = mean(after, |row| row.micros) / mean(before, |row| row.micros);
    println!(
        "the last three rows to the second, third and fourth: memory {memory:.2}, CPU of a call {cost:.2}"
    );
    ensure!(memory <= MEMORY_GROWTH && cost <= COST_GROWTH, "it grows");
    Ok(())
}

/// A pserver that has applied whatever was worked on.
async fn lead_all(shared: &Shared, place: String) -> anyhow::Result<()> {
    let mut client = shared.clients[0].clone();
    let register = proto::RegisterRequest {
        job: JOB.into(),
        name: "pserver-0".into(),
        address: place,
        nonce: 1,
        ..Default::default()
    };
    let registered = loop {
        match client.register(register.clone()).await {
            Ok(registered) => break registered.into_inner(),
            Err(_) => sleep(REPORT).await,
        }
    };
    let incarnation = registered.incarnation;
    let (told, mut assigned) = watch::channel(None::<proto::Assignment>);
    let mut watching = client.clone();
    spawn_local(async move {
        loop {
            let known =
                told.borrow().as_ref().map_or((0, 0), |ours| (ours.routing_version, ours.master_term));
            let request = proto::WatchRequest {
                job: JOB.into(),
                incarnation,
                routing_version: known.0,
                master_term: known.1,
                wait_millis: 5000,
            };
            let Ok(reply) = watching.watch(request).await else { break };
            if let Some(assignment) = reply.into_inner().assignment {
                let _ = told.send(Some(assignment));
            }
        }
    });
    for call in 1.. {
        sleep(REPORT).await;
        let assignment = assigned.borrow_and_update().clone().unwrap_or_default();
        let applied = shared.applied.borrow().clone();
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
        shared.calls.set(shared.calls.get() + 1);
    }
    bail!("it has reported for ever")
}

/// Trainers that are there, the oldest first; each goes when it is told how.
struct Fleet {
    shared: Rc<Shared>,
    living: VecDeque<watch::Sender<Option<Farewell>>>,
    born: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Farewell {
    Leaves,
    FallsSilent,
}

struct Row {
    memory_kib: f64,
    micros: f64,
}

impl Fleet {
    fn join(&mut self) {
        let (farewell, told) = watch::channel(None);
        self.living.push_back(farewell);
        let (shared, number) = (Rc::clone(&self.shared), self.born);
        self.born += 1;
        spawn_local(async move {
            if let Err(error) = train(&shared, number, told).await {
                shared.failed.borrow_mut().get_or_insert(format!("trainer {number}: {error:#}"));
            }
        });
    }

    /// Lets trainers come and go for so long.
    async fn change(&mut self, length: Duration, joins: u32) -> anyhow::Result<()> {
        let began = Instant::now();
        for change in 0..length.as_secs() as u32 * joins {
            sleep_until(began + Duration::from_secs(1) * change / joins.max(1)).await;
            if let Some(oldest) = self.living.pop_front() {
                let how = if change % 2 == 0 { Farewell::Leaves } else { Farewell::FallsSilent };
                let _ = oldest.send(Some(how));
            }
            self.join();
            if let Some(failed) = self.shared.failed.borrow().as_ref() {
                bail!("{failed}");
            }
        }
        sleep_until(began + length).await;
        Ok(())
    }

    /// The same, and tells what it cost.
    async fn row(&mut self, master: &Running, row: u32, length: Duration, joins: u32) -> anyhow::Result<Row> {
        let (began, cpu, calls) = (Instant::now(), cpu_micros(master.pid())?, self.shared.calls.get());
        self.shared.took.borrow_mut().clear();
        self.shared.open_max.set(0);
        self.change(length, joins).await?;
        let calls = (self.shared.calls.get() - calls).max(1) as f64;
        let micros = (cpu_micros(master.pid())? - cpu) as f64 / calls;
        let mut took = std::mem::take(&mut *self.shared.took.borrow_mut());
        let mut at = |hundredths| f64::from(percentile(&mut took, hundredths)) / 1000.0;
        let memory = memory_kib(master.pid())?;
        let in_flight = self.shared.open_max.get();
        println!(
            "{:>8} {memory:>10} {:>12.0} {micros:>10.1} {:>14.2} {:>10.2} {in_flight:>10}",
            row * length.as_secs() as u32,
            calls / began.elapsed().as_secs_f64(),
            at(50),
            at(99),
        );
        Ok(Row { memory_kib: memory as f64, micros })
    }
}

/// Joins as a trainer of this number, once its blocks are somewhere.
async fn join(
    shared: &Shared,
    client: &mut MasterClient<Channel>,
    number: u32,
) -> anyhow::Result<Incarnation> {
    let join = proto::JoinRequest {
        job: JOB.into(),
        name: format!("trainer-{number}"),
        nonce: u64::from(number) + 1,
        declaration: Some(declaration()),
        ..Default::default()
    };
    loop {
        shared.calls.set(shared.calls.get() + 1);
        let joined = client.join(join.clone()).await?.into_inner();
        if joined.routing.is_some() {
            return Ok(Incarnation(joined.incarnation));
        }
        sleep(WORK).await;
    }
}

async fn train(
    shared: &Shared,
    number: u32,
    mut farewell: watch::Receiver<Option<Farewell>>,
) -> anyhow::Result<()> {
    let mut client = shared.clients[number as usize % shared.clients.len()].clone();
    let incarnation = join(shared, &mut client, number).await?;
    let mut progress: Vec<proto::Progress> = Vec::new();
    for call in 1.. {
        let lease = proto::LeaseRequest {
            job: JOB.into(),
            incarnation: incarnation.0,
            progress: std::mem::take(&mut progress),
            want: 1,
            wait_millis: WAIT.as_millis() as u32,
            call,
            ..Default::default()
        };
        shared.calls.set(shared.calls.get() + 1);
        let asked = Instant::now();
        shared.open.set(shared.open.get() + 1);
        shared.open_max.set(shared.open_max.get().max(shared.open.get()));
        let reply = client.lease(lease).await;
        shared.open.set(shared.open.get() - 1);
        let reply = reply?.into_inner();
        shared.took.borrow_mut().push(asked.elapsed().as_micros() as u32);
        tokio::select! {
            () = sleep(WORK) => {}
            _ = farewell.changed() => {}
        }
        match *farewell.borrow() {
            Some(Farewell::FallsSilent) => return Ok(()),
            Some(Farewell::Leaves) => {
                let leave =
                    proto::LeaveRequest { job: JOB.into(), incarnation: incarnation.0, ..Default::default() };
                shared.calls.set(shared.calls.get() + 1);
                client.leave(leave).await?;
                return Ok(());
            }
            None => {}
        }
        for task in reply.tasks {
            let microbatches = task.microbatches.len() as u64;
            for position in task.position..task.position + microbatches {
                if !shared.applied.borrow_mut().insert(position) {
                    shared.given_again.set(shared.given_again.get() + 1);
                }
            }
            progress.push(proto::Progress {
                lease: task.lease,
                microbatches: microbatches as u32,
                pushed: true,
                waits: false,
            });
        }
    }
    Ok(())
}

fn declaration() -> proto::Declaration {
    let weights = Parameter::new("weights", &[4], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
    (&Declaration { parameters: vec![weights], ..Declaration::default() }).into()
}
