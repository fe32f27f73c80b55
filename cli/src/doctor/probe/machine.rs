//! This machine: its kernel, limits, clocks and addresses.

use super::group;
use crate::doctor::judge::build::Build;
use crate::doctor::judge::limits::{Files, Memory, Processes, Processors};
use crate::doctor::judge::trust::Clocks;
use rustix::process::{Resource, getrlimit};
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::wire::WireVersion;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;
use tokio::time::Instant;

/// How long a connection of this machine with itself may take.
const CONNECT: Duration = Duration::from_secs(2);
/// How often the monotonic clock is read: some milliseconds.
const READINGS: u64 = 100_000;

fn line(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

pub(crate) fn build() -> Build {
    let all = [
        ("cluster", cfg!(feature = "cluster")),
        ("pack", cfg!(feature = "pack")),
        ("parquet", cfg!(feature = "parquet")),
        ("s3", cfg!(feature = "s3")),
        ("gs", cfg!(feature = "gs")),
    ];
    Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        features: all.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect(),
        is_optimised: !cfg!(debug_assertions),
        target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        wire: WireVersion::PRESENT.0,
        journal: shoal_runner::journal::FORMAT,
        kernel: line("/proc/sys/kernel/osrelease"),
    }
}

pub(crate) fn files(members: u64) -> Files {
    let limit = getrlimit(Resource::Nofile);
    Files { soft: limit.current, hard: limit.maximum, members }
}

pub(crate) fn processes(members: u64) -> Processes {
    let is_root = rustix::process::geteuid().is_root();
    let user = getrlimit(Resource::Nproc).current.filter(|_| !is_root);
    Processes { user, group_left: group::processes_left(), members, processors: count() }
}

pub(crate) fn memory(members: u64) -> Memory {
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    });
    Memory { available: available.map(|kib| kib << 10), group_left: group::memory_left(), members }
}

fn count() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

pub(crate) fn processors() -> Processors {
    Processors { count: count(), quota: group::processors() }
}

/// Bytes of `/dev/shm`.
pub(crate) fn shared_memory() -> Option<u64> {
    let disk = rustix::fs::statvfs("/dev/shm").ok()?;
    Some(disk.f_blocks.saturating_mul(disk.f_frsize))
}

pub(crate) fn clocks() -> Clocks {
    let (mut last, mut steps_back) = (Instant::now(), 0);
    for _ in 0..READINGS {
        let now = Instant::now();
        steps_back += u64::from(now < last);
        last = now;
    }
    let source = line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    Clocks { steps_back, readings: READINGS, wall_seconds: wall_seconds(), source }
}

/// The seconds in which a byte went to this process itself and back, the connection included.
pub(crate) fn loopback() -> Result<f64, String> {
    let told = |what: &'static str| move |error| format!("{what}: {error}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(told("cannot listen"))?;
    let address = listener.local_addr().map_err(told("cannot listen"))?;
    let began = Instant::now();
    let mut near = TcpStream::connect_timeout(&address, CONNECT).map_err(told("cannot connect"))?;
    let (mut far, _) = listener.accept().map_err(told("cannot accept"))?;
    let mut byte = [7];
    for stream in [&near, &far] {
        stream.set_read_timeout(Some(CONNECT)).map_err(told("cannot set a time"))?;
    }
    near.write_all(&byte).and_then(|()| far.read_exact(&mut byte)).map_err(told("nothing arrives"))?;
    far.write_all(&byte).and_then(|()| near.read_exact(&mut byte)).map_err(told("nothing comes back"))?;
    Ok(began.elapsed().as_secs_f64())
}

/// Why nobody else may listen at a port of the loopback address now.
pub(crate) fn taken(port: u16) -> Option<String> {
    TcpListener::bind(("127.0.0.1", port)).err().map(|error| error.to_string())
}

/// The machine's name, and its addresses.
pub(crate) fn name() -> (String, Result<Vec<String>, String>) {
    let name = line("/proc/sys/kernel/hostname").unwrap_or_default();
    let found = (name.as_str(), 0).to_socket_addrs().map_err(|error| error.to_string());
    let addresses = found.map(|found| {
        let mut all: Vec<String> = found.map(|address| address.ip().to_string()).collect();
        all.dedup();
        all
    });
    (name, addresses)
}
