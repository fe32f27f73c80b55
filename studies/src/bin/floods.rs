//! What a caller notices of others who flood the same process, and what the process keeps for them:
//!
//! `cargo run --release -p shoal-studies --bin floods [-- --seconds 10]`
//!
//! A real master process on loopback, a well-behaved caller with four hundred calls a second, and whoever floods: a process
//! of its own, at the lowest priority, for on one machine it takes its processor time from the same cores. It is stopped
//! every other second, so that calm and flood are measured beside one another. Prints a row for each: of the seconds'
//! 99th percentiles of what the caller's calls took the median, in calm and under the flood, and of the master the processor
//! time, as parts of one core, and the memory.
//! Exits 0 only if memory stays below a bound; the ratio is to be read, machines being noisy.
#![allow(clippy::print_stdout)] // Its table is what it is for.

use anyhow::{Context, ensure};
use bytes::Bytes;
use clap::{Parser, ValueEnum};
use h2::client::SendRequest;
use rustix::process::{Pid, Signal, kill_process};
use shoal_runtime::host::rpc::{Channel, TcpDial, master_client};
use shoal_runtime::wire::WireVersion;
use shoal_runtime::wire::proto::{self, master_client::MasterClient};
use shoal_tests::costs::{cpu_micros, memory_kib, percentile};
use shoal_tests::processes::{Running, start_master};
use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};

/// Well-behaved callers, and how often each calls.
const CALLERS: u32 = 4;
const CALL_EVERY: Duration = Duration::from_millis(10);
/// After a flood has begun, or stopped.
const SETTLING: Duration = Duration::from_millis(200);
/// Connections of floods that need few.
const FEW: usize = 4;
/// How much memory a flood may cost the master, in KiB: less than a hundredth of what its limits allow.
const MEMORY_GROWTH_KIB: u64 = 64 << 10;

/// What a caller notices of others who flood the same process.
#[derive(Parser)]
struct Arguments {
    /// Of each flood, and as many of calm.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Flood, until killed: the other half of this program.
    #[arg(long, hide = true, requires = "at")]
    flood: Option<Flood>,
    /// Where.
    #[arg(long, hide = true)]
    at: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Flood {
    /// 200 connections a second over which nobody calls.
    Silent,
    /// 200 connections a second that speak no HTTP.
    Garbage,
    /// 4,000 pings a second.
    Pings,
    /// The same at another master: what it costs to share a machine with them.
    Elsewhere,
    /// 4,000 calls a second that are taken back at once.
    Resets,
    /// 800 calls whose answers are not read.
    Unread,
    /// 200 messages a second that say to be 4 GiB long.
    Oversized,
    /// 400 messages a second that mean nothing.
    Malformed,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Entered for what is left when it ends early.
    let _entered = runtime.enter();
    let tasks = LocalSet::new();
    match (arguments.flood, arguments.at) {
        (Some(flood), Some(address)) => runtime.block_on(tasks.run_until(flood_for_ever(flood, &address))),
        _ => runtime.block_on(tasks.run_until(measure(arguments.seconds))),
    }
}

async fn measure(seconds: u64) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let [flooded, other] = ["flooded", "other"].map(|name| folder.path().join(name));
    std::fs::create_dir(&flooded)?;
    std::fs::create_dir(&other)?;
    let (master, address) = start_master(&flooded, &[])?;
    let (_other, elsewhere) = start_master(&other, &[])?;
    let client = master_client(&TcpDial::default(), &address).map_err(anyhow::Error::msg)?;
    while client.clone().describe(proto::DescribeRequest::default()).await.is_err() {
        sleep(CALL_EVERY).await;
    }
    let took: Rc<RefCell<Vec<u32>>> = Rc::default();
    for _ in 0..CALLERS {
        spawn_local(call_well(client.clone(), Rc::clone(&took)));
    }
    println!(
        "{:>10} {:>12} {:>12} {:>7} {:>9} {:>9} {:>12} {:>12}",
        "flood", "calm p99 µs", "p99 µs", "ratio", "calm CPU", "CPU", "memory KiB", "under it"
    );
    let mut is_bounded = true;
    for flood in Flood::value_variants() {
        let before = memory_kib(master.pid())?;
        let at = if matches!(flood, Flood::Elsewhere) { &elsewhere } else { &address };
        let flooder = start_flooder(*flood, at, &folder.path().join("flooder.log"))?;
        let (mut calm, mut under) = (Seconds::default(), Seconds::default());
        for _ in 0..seconds {
            under.pass(&master, &took).await?;
            signal(&flooder, Signal::STOP)?;
            calm.pass(&master, &took).await?;
            signal(&flooder, Signal::CONT)?;
        }
        let after = memory_kib(master.pid())?;
        let ((calm, calm_cpu), (under, cpu)) = (calm.typical(), under.typical());
        println!(
            "{:>10} {calm:>12} {under:>12} {:>7.2} {calm_cpu:>9.3} {cpu:>9.3} {before:>12} {after:>12}",
            format!("{flood:?}"),
            f64::from(under) / f64::from(calm.max(1))
        );
        is_bounded &= after <= before + MEMORY_GROWTH_KIB;
    }
    ensure!(is_bounded, "a flood took more than {MEMORY_GROWTH_KIB} KiB");
    Ok(())
}

fn start_flooder(flood: Flood, address: &str, log: &Path) -> anyhow::Result<Running> {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(std::env::current_exe()?);
    let name = flood.to_possible_value().context("no name")?;
    command.args(["--flood", name.get_name(), "--at", address]);
    Running::start(command, log)
}

fn signal(flooder: &Running, signal: Signal) -> anyhow::Result<()> {
    let pid = Pid::from_raw(flooder.pid() as i32).context("no process")?;
    kill_process(pid, signal).context("whoever floods is gone")
}

/// Seconds of one kind.
#[derive(Default)]
struct Seconds {
    /// Of each the 99th percentile of what calls took, in microseconds.
    p99: Vec<u32>,
    /// What the master used in all of them, in microseconds.
    cpu: u64,
}

impl Seconds {
    /// One passes, after a moment for what was under way.
    async fn pass(&mut self, master: &Running, took: &RefCell<Vec<u32>>) -> anyhow::Result<()> {
        sleep(SETTLING).await;
        let cpu = cpu_micros(master.pid())?;
        took.borrow_mut().clear();
        sleep(Duration::from_secs(1)).await;
        self.p99.push(percentile(&mut took.borrow_mut(), 99));
        self.cpu += cpu_micros(master.pid())? - cpu;
        Ok(())
    }

    /// The median of them, and what part of a core the master used.
    fn typical(mut self) -> (u32, f64) {
        let cpu = self.cpu as f64 / 1e6 / self.p99.len().max(1) as f64;
        (percentile(&mut self.p99, 50), cpu)
    }
}

async fn call_well(mut client: MasterClient<Channel>, took: Rc<RefCell<Vec<u32>>>) {
    let mut due = interval(CALL_EVERY);
    loop {
        due.tick().await;
        let began = Instant::now();
        if client.describe(proto::DescribeRequest::default()).await.is_ok() {
            took.borrow_mut().push(began.elapsed().as_micros() as u32);
        }
    }
}

/// A few flood together; who is refused comes again.
async fn flood_for_ever(flood: Flood, address: &str) -> anyhow::Result<()> {
    let together = (0..FEW).map(|_| async {
        loop {
            let _refused = flood_once(flood, address).await;
            sleep(CALL_EVERY).await;
        }
    });
    futures_util::future::join_all(together).await;
    Ok(())
}

/// Floods until it is refused.
async fn flood_once(flood: Flood, address: &str) -> anyhow::Result<()> {
    let every = match flood {
        Flood::Silent | Flood::Garbage | Flood::Oversized => Duration::from_millis(20),
        Flood::Malformed => Duration::from_millis(10),
        Flood::Pings | Flood::Elsewhere | Flood::Resets | Flood::Unread => Duration::from_millis(1),
    };
    let mut due = interval(every);
    // What is missed while this process is stopped is not made up for.
    due.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut open = Vec::new();
    match flood {
        Flood::Silent | Flood::Garbage => {}
        Flood::Pings | Flood::Elsewhere => return ping(address, due).await,
        _ => return flood_calls(flood, address, due).await,
    }
    loop {
        due.tick().await;
        let mut stream = TcpStream::connect(address).await?;
        match flood {
            Flood::Garbage => stream.write_all(&[0x5a; 64]).await?,
            _ => open.push(stream),
        }
    }
}

/// Pings on and on, whatever comes back.
async fn ping(address: &str, mut due: Interval) -> anyhow::Result<()> {
    let (mut reading, mut writing) = TcpStream::connect(address).await?.into_split();
    // Settings: none.
    writing.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await?;
    spawn_local(async move { tokio::io::copy(&mut reading, &mut tokio::io::sink()).await });
    loop {
        due.tick().await;
        writing.write_all(b"\0\0\x08\x06\0\0\0\0\0pingping").await?;
    }
}

/// The floods that speak HTTP/2.
async fn flood_calls(flood: Flood, address: &str, mut due: Interval) -> anyhow::Result<()> {
    let window = if matches!(flood, Flood::Unread) { 0 } else { 65_535 };
    let mut builder = h2::client::Builder::new();
    let stream = TcpStream::connect(address).await?;
    let (caller, connection) = builder.initial_window_size(window).handshake(stream).await?;
    spawn_local(connection);
    let mut unread = Vec::new();
    loop {
        due.tick().await;
        match flood {
            // An answer that nobody waits for is taken back.
            Flood::Resets => drop(call(&caller, "Status", Bytes::new()).await?),
            Flood::Unread if unread.len() < 200 => {
                unread.push(call(&caller, "Status", Bytes::new()).await?);
            }
            Flood::Oversized => {
                let mut message = vec![0; 64 << 10];
                message[1..5].fill(0xff);
                call(&caller, "Join", message.into()).await?.await?;
            }
            Flood::Malformed => {
                let mut message = vec![0xff; 261];
                message[..5].copy_from_slice(&[0, 0, 0, 1, 0]);
                call(&caller, "Join", message.into()).await?.await?;
            }
            Flood::Unread | Flood::Silent | Flood::Garbage | Flood::Pings | Flood::Elsewhere => {}
        }
    }
}

/// Sends a call of these bytes.
async fn call(
    caller: &SendRequest<Bytes>,
    method: &str,
    body: Bytes,
) -> anyhow::Result<h2::client::ResponseFuture> {
    let request = http::Request::post(format!("http://here/shoal.v1.Master/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header(WireVersion::ENTRY, WireVersion::PRESENT.0)
        .body(())?;
    let (answer, mut sending) = caller.clone().ready().await?.send_request(request, body.is_empty())?;
    if !body.is_empty() {
        sending.send_data(body, true)?;
    }
    Ok(answer)
}
