//! What some kinds of fault need of the machine: whether it is there, and namespaces of this command's own, in which it
//! begins once more. Outside of them nothing is changed.

use super::kind::{Kind, Kinds};
use command_fds::{CommandFdExt, FdMapping};
use shoal_runner::exit::Exit;
use shoal_runner::hosts::tools::call;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Names the mount namespace that this command has left for one of its own.
const LEFT: &str = "SHOAL_CHAOS_LEFT";
/// The number of the first file that is handed on, by convention.
const FIRST_HANDED: i32 = 3;

/// What is done to find out whether a kind can be done, in namespaces that are gone afterwards.
fn trial(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Partition => Some(
            "ip link add shoal0 type bridge && ip link add shoal1 type veth peer name shoal2 && ip link set shoal1 up && \
             ip neigh replace 10.77.0.9 lladdr 02:00:00:00:00:99 dev shoal1 nud permanent && nsenter --version",
        ),
        Kind::Slow => Some(
            "ip link add shoal1 type veth peer name shoal2 && { tc qdisc add dev shoal1 root netem delay 1ms || \
             tc qdisc add dev shoal1 root tbf rate 1mbit burst 2kb latency 50ms; } && nsenter --version",
        ),
        Kind::Disk => Some("mount -t tmpfs shoal-state /tmp && mount -o remount,size=1m /tmp && umount /tmp"),
        _ => None,
    }
}

/// Why a kind cannot be done here, if so.
pub fn missing(kind: Kind) -> Option<String> {
    if !cfg!(target_os = "linux") && (kind.is_privileged() || kind == Kind::Memory) {
        return Some("it needs Linux".to_owned());
    }
    let tried = call("unshare", &["--net", "--mount", "sh", "-c", trial(kind)?]);
    tried.err().map(|error| format!("it needs root on Linux, with util-linux and iproute2 ({error:#})"))
}

/// Begins this command once more in namespaces of its own, if one of these kinds needs that and it has not yet. What listens outside of
/// them is handed on, as services are given their sockets ([sd_listen_fds]).
///
/// [sd_listen_fds]: https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html
///
/// # Errors
/// A kind that cannot be done here.
pub fn enter(kinds: Kinds, listens: Option<&TcpListener>) -> anyhow::Result<()> {
    let needs_network = kinds.iter().any(Kind::needs_network);
    if is_inside() {
        // A new network namespace has nothing but a loopback device, and that is down.
        return if needs_network { call("ip", &["link", "set", "lo", "up"]) } else { Ok(()) };
    }
    for kind in kinds.iter() {
        if let Some(why) = missing(kind) {
            return Err(Exit::Usage(format!("--chaos-kinds {}: {why}", kind.word())).into());
        }
    }
    if !kinds.iter().any(Kind::is_privileged) {
        return Ok(());
    }
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if needs_network {
        command.arg("--net");
    }
    command.arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    if let Some(listener) = listens {
        let parent_fd = listener.try_clone()?.into();
        command.fd_mappings(vec![FdMapping { parent_fd, child_fd: FIRST_HANDED }])?;
        command.env("LISTEN_FDS", "1").env("LISTEN_PID", std::process::id().to_string());
    }
    let failed = command.env(LEFT, mounts()?).exec();
    Err(Exit::Usage(format!("unshare cannot be run: {failed}")).into())
}

/// Whether this command has begun in namespaces of its own. A variable that somebody else has set is not believed.
pub fn is_inside() -> bool {
    let left = std::env::var_os(LEFT);
    left.is_some_and(|left| {
        left.to_string_lossy().starts_with("mnt:") && mounts().is_ok_and(|now| now != left)
    })
}

fn mounts() -> std::io::Result<PathBuf> {
    std::fs::read_link("/proc/self/ns/mnt")
}
