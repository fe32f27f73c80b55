//! What processes have in memory and take of processors, as the system counts it.

use anyhow::Context;
use std::collections::BTreeMap;

/// Bytes that are resident.
///
/// # Errors
/// There is no /proc.
pub fn resident_bytes() -> anyhow::Result<u64> {
    bytes_of("/proc/self/status", "VmRSS:")
}

/// The most bytes that a process has had resident at a time.
///
/// # Errors
/// There is no such process, or no /proc.
pub fn peak_resident_bytes(process: u32) -> anyhow::Result<u64> {
    bytes_of(&format!("/proc/{process}/status"), "VmHWM:")
}

/// Bytes that the machine can still give without swapping.
///
/// # Errors
/// There is no /proc.
pub fn available_bytes() -> anyhow::Result<u64> {
    bytes_of("/proc/meminfo", "MemAvailable:")
}

/// What a file of the system says of `name`, in kB.
fn bytes_of(file: &str, name: &str) -> anyhow::Result<u64> {
    let told =
        std::fs::read_to_string(file).with_context(|| format!("{file}: this bench needs Linux's /proc"))?;
    let line = told.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kibibytes.with_context(|| format!("no {name} in {file}"))?.parse::<u64>()? << 10)
}

/// Seconds that the threads of a process have run on processors; of those that are there now.
///
/// # Errors
/// There is no such process, or no /proc.
pub fn processor_seconds(process: u32) -> anyhow::Result<f64> {
    Ok(thread_seconds(process)?.values().sum())
}

/// The same of each thread, by its number.
///
/// # Errors
/// There is no such process, or no /proc.
pub fn thread_seconds(process: u32) -> anyhow::Result<BTreeMap<u32, f64>> {
    let mut threads = BTreeMap::new();
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?;
        let number = task.file_name().to_string_lossy().parse::<u32>()?;
        let told = std::fs::read_to_string(task.path().join("schedstat"))?;
        let nanos = told.split_whitespace().next().context("a schedstat without figures")?.parse::<u64>()?;
        threads.insert(number, nanos as f64 / 1e9);
    }
    Ok(threads)
}

/// Seconds of processors that a process has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Processors {
    /// In its own code.
    pub user: f64,
    /// In the system's, on its behalf.
    pub system: f64,
}

/// Ticks of a second in what the system says of processes: the same on every machine that Linux runs on.
const TICKS: f64 = 100.0;

/// What all threads of a process have taken, those that have ended included. `None`: the process has ended.
pub fn processors(process: u32) -> Option<Processors> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    processors_in(&stat)
}

fn processors_in(stat: &str) -> Option<Processors> {
    // The name of the program, in brackets, may have blanks and brackets in it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let seconds = |at: usize| Some(fields.get(at)?.parse::<f64>().ok()? / TICKS);
    // Fields 3, 14 and 15 of proc(5).
    let is_there = !matches!(*fields.first()?, "Z" | "X");
    is_there.then_some(Processors { user: seconds(11)?, system: seconds(12)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_resident_and_what_is_freed_is_not() {
        let before = resident_bytes().unwrap();
        let bytes = std::hint::black_box(vec![1u8; 64 << 20]);
        let with = resident_bytes().unwrap();
        drop(bytes);
        let after = resident_bytes().unwrap();
        // Tests beside this one take and free memory of the same process meanwhile.
        assert!(with > before + (40 << 20) && after + (40 << 20) < with, "{before} {with} {after}");
        let peak = peak_resident_bytes(std::process::id()).unwrap();
        // Threads are counted in with a delay.
        assert!(
            peak + (4 << 20) >= with && peak > after && peak < available_bytes().unwrap(),
            "{peak} {with}"
        );
    }

    #[test]
    fn user_and_system_seconds_are_read_whatever_the_program_is_called_and_a_process_that_has_ended_has_none()
    {
        let stat = |state: &str| {
            format!("7 (a) b) {state} 1 7 7 0 -1 4194304 100 0 0 0 250 31 0 0 20 0 1 0 12345 1000 100")
        };
        let read = Processors { user: 2.5, system: 0.31 };
        assert_eq!([processors_in(&stat("S")), processors_in(&stat("Z"))], [Some(read), None]);
        assert!(processors(std::process::id()).is_some() && processors(u32::MAX).is_none());
    }
}
