//! What processes have in memory and take of processors, as the system counts it.

use anyhow::Context;

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
    let mut nanos = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let told = std::fs::read_to_string(task?.path().join("schedstat"))?;
        let ran = told.split_whitespace().next().context("a schedstat without figures")?;
        nanos += ran.parse::<u64>()?;
    }
    Ok(nanos as f64 / 1e9)
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
}
