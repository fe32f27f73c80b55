//! Taking memory away from a running process, which needs no privilege: a limit at what it has.

use rustix::process::{Resource, getrlimit};
use std::io;

/// From now on the process gets no more memory. Its allocator ends it when it asks for some.
pub(super) fn limit_memory(pid: u32) -> io::Result<()> {
    let has = Some(data_bytes(&std::fs::read_to_string(format!("/proc/{pid}/status"))?)?);
    // It aborts if it must: the picture of its memory is of no use to anybody.
    limit(pid, Resource::Core, Some(0))?;
    limit(pid, Resource::Data, has)
}

/// It may grow again.
pub(super) fn unlimit_memory(pid: u32) -> io::Result<()> {
    [Resource::Data, Resource::Core]
        .into_iter()
        .try_for_each(|what| limit(pid, what, getrlimit(what).current))
}

/// A process of a run was started with this process's own limits.
#[cfg(target_os = "linux")]
fn limit(pid: u32, what: Resource, current: Option<u64>) -> io::Result<()> {
    use rustix::process::{Pid, Rlimit, prlimit};
    let pid = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::NotFound)?;
    prlimit(Some(pid), what, Rlimit { current, maximum: getrlimit(what).maximum })?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn limit(_: u32, _: Resource, _: Option<u64>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What the limit counts, in /proc/PID/status.
fn data_bytes(status: &str) -> io::Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::other("its status does not say how much memory it has"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_has_is_read_off_its_status() {
        assert_eq!(data_bytes("Name:\tshoal\nVmData:\t    4096 kB\nVmStk:\t 132 kB\n").unwrap(), 4 << 20);
        assert!(data_bytes("Name:\tzombie\n").is_err());
    }
}
