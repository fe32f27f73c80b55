//! What a process costs this machine, as Linux tells it.

use anyhow::Context;

/// Processor time that a process has used, in microseconds.
///
/// # Errors
/// There is no such process.
pub fn cpu_micros(pid: u32) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Behind the name, which may hold spaces: the 14th and the 15th field, in clock ticks of 10 ms.
    let fields: Vec<&str> = stat.rsplit(')').next().context("no stat")?.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).context("no times").and_then(|ticks| Ok(ticks.parse::<u64>()?));
    Ok((ticks(11)? + ticks(12)?) * 10_000)
}

/// Memory of a process that lies in RAM, in KiB.
///
/// # Errors
/// As [`cpu_micros`].
pub fn memory_kib(pid: u32) -> anyhow::Result<u64> {
    status_kib(pid, "VmRSS:")
}

/// The most memory of a process that has lain in RAM at a time, in KiB.
///
/// # Errors
/// As [`cpu_micros`].
pub fn peak_memory_kib(pid: u32) -> anyhow::Result<u64> {
    status_kib(pid, "VmHWM:")
}

fn status_kib(pid: u32, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line =
        status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    Ok(line.split_whitespace().next().context("no number")?.parse()?)
}

/// The value below which so many hundredths of `values` lie. Sorts them.
pub fn percentile(values: &mut [u32], hundredths: usize) -> u32 {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) * hundredths / 100).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_a_percentile_is_one_of_the_values() {
        let pid = std::process::id();
        let now = memory_kib(pid).unwrap();
        assert!(now > 100 && peak_memory_kib(pid).unwrap() >= now);
        cpu_micros(pid).unwrap();
        assert!(cpu_micros(u32::MAX).is_err());
        let mut values = [5, 1, 4, 2, 3];
        assert_eq!([0, 50, 100].map(|hundredths| percentile(&mut values, hundredths)), [1, 3, 5]);
        assert_eq!(percentile(&mut [], 99), 0);
    }
}
