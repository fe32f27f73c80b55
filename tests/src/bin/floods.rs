//! What a caller notices of others who flood the same process, and what the process keeps for them:
//!
//! `cargo run --release -p shoal-tests --bin floods [-- --seconds 10]`
//!
//! A real master process on loopback and a well-behaved caller, four hundred calls a second. Each flood is measured
//! beside a calm time right before it; floods are bounded in rate, for on one machine they take their processor time
//! from the same cores. Prints a row for each: the 99th percentile of the caller's calls in calm and under the flood,
//! and the master's memory. Exits 0 only if memory stays below a bound; the ratio is to be read, machines being noisy.
#![allow(clippy::print_stdout)] // Its table is what it is for.

use anyhow::{Context, ensure};
use bytes::Bytes;
use clap::Parser;
use h2::client::SendRequest;
use shoal_runtime::host::rpc::{Channel, TcpDial, master_client};
use shoal_runtime::wire::WireVersion;
use shoal_runtime::wire::proto::{self, master_client::MasterClient};
use shoal_tests::costs::{memory_kib, percentile};
use shoal_tests::processes::start_master;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{Instant, Interval, interval, sleep};

/// Well-behaved callers, and how often each calls.
const CALLERS: u32 = 4;
const CALL_EVERY: Duration = Duration::from_millis(10);
/// Connections of floods that need few.
const FEW: usize = 4;
/// How much memory a flood may cost the master, in KiB: less than a hundredth of what its limits allow.
const MEMORY_GROWTH_KIB: u64 = 64 << 10;

/// What a caller notices of others who flood the same process.
#[derive(Parser)]
struct Arguments {
    /// How long each flood lasts, and the calm before it.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

#[derive(Clone, Copy, Debug)]
enum Flood {
    /// 200 connections a second over which nobody calls.
    Silent,
    /// 200 connections a second that speak no HTTP.
    Garbage,
    /// 4,000 pings a second.
    Pings,
    /// 4,000 calls a second that are taken back at once.
    Resets,
    /// 800 calls whose answers are not read.
    Unread,
    /// 200 messages a second that say to be 4 GiB long.
    Oversized,
    /// 400 messages a second that mean nothing.
    Malformed,
}

const FLOODS: [Flood; 7] = [
    Flood::Silent,
    Flood::Garbage,
    Flood::Pings,
    Flood::Resets,
    Flood::Unread,
    Flood::Oversized,
    Flood::Malformed,
];

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Entered for what is left when it ends early.
    let _entered = runtime.enter();
    let tasks = LocalSet::new();
    runtime.block_on(tasks.run_until(measure(Duration::from_secs(arguments.seconds))))
}

async fn measure(length: Duration) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (master, address) = start_master(folder.path(), &[])?;
    let client = master_client(&TcpDial::default(), &address).map_err(anyhow::Error::msg)?;
    while client.clone().describe(proto::DescribeRequest::default()).await.is_err() {
        sleep(CALL_EVERY).await;
    }
    let took: Rc<RefCell<Vec<u32>>> = Rc::default();
    for _ in 0..CALLERS {
        spawn_local(call_well(client.clone(), Rc::clone(&took)));
    }
    println!(
        "{:>10} {:>12} {:>12} {:>7} {:>12} {:>12}",
        "flood", "calm p99 µs", "p99 µs", "ratio", "memory KiB", "under it"
    );
    let mut is_bounded = true;
    for flood in FLOODS {
        let calm = quiet(&took, length).await;
        let before = memory_kib(master.pid())?;
        let (address, started) = (address.clone(), Instant::now());
        let flooding: Vec<JoinHandle<anyhow::Result<()>>> =
            (0..FEW).map(|_| spawn_local(flood_with(flood, address.clone(), started + length))).collect();
        let under = quiet(&took, length).await;
        let after = memory_kib(master.pid())?;
        for flooding in flooding {
            // Whoever is refused ends early: that is the master's good right.
            flooding.abort();
        }
        println!(
            "{:>10} {calm:>12} {under:>12} {:>7.2} {before:>12} {after:>12}",
            format!("{flood:?}"),
            f64::from(under) / f64::from(calm.max(1))
        );
        is_bounded &= after <= before + MEMORY_GROWTH_KIB;
    }
    ensure!(is_bounded, "a flood took more than {MEMORY_GROWTH_KIB} KiB");
    Ok(())
}

/// The 99th percentile of what calls take for so long, in microseconds.
async fn quiet(took: &RefCell<Vec<u32>>, length: Duration) -> u32 {
    took.borrow_mut().clear();
    sleep(length).await;
    percentile(&mut took.borrow_mut(), 99)
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

/// One of a few who flood together.
async fn flood_with(flood: Flood, address: String, until: Instant) -> anyhow::Result<()> {
    let every = match flood {
        Flood::Silent | Flood::Garbage | Flood::Oversized => Duration::from_millis(20),
        Flood::Malformed => Duration::from_millis(10),
        Flood::Pings | Flood::Resets | Flood::Unread => Duration::from_millis(1),
    };
    let mut due = interval(every);
    let mut open = Vec::new();
    match flood {
        Flood::Silent | Flood::Garbage => {
            while Instant::now() < until {
                due.tick().await;
                let mut stream = TcpStream::connect(&address).await?;
                match flood {
                    Flood::Garbage => stream.write_all(&[0x5a; 64]).await?,
                    _ => open.push(stream),
                }
            }
        }
        _ => flood_calls(flood, &address, due, until).await?,
    }
    Ok(())
}

/// The floods that speak HTTP/2.
async fn flood_calls(flood: Flood, address: &str, mut due: Interval, until: Instant) -> anyhow::Result<()> {
    let window = if matches!(flood, Flood::Unread) { 0 } else { 65_535 };
    let mut builder = h2::client::Builder::new();
    let stream = TcpStream::connect(address).await?;
    let (caller, mut connection) = builder.initial_window_size(window).handshake(stream).await?;
    let mut pings = connection.ping_pong().context("no pings")?;
    spawn_local(connection);
    let mut unread = Vec::new();
    while Instant::now() < until {
        due.tick().await;
        match flood {
            Flood::Pings => {
                pings.ping(h2::Ping::opaque()).await?;
            }
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
            Flood::Unread | Flood::Silent | Flood::Garbage => {}
        }
    }
    Ok(())
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
