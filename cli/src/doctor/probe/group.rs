//! Limits of the control group that this process is in, and of those above it: the least counts. Of version 1 and 2.

use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// Folders of this process's group and of those above it, the nearest first, for a controller of version 1 or for version 2 (`""`).
/// `said` is what `/proc/self/cgroup` has; a container sees its own group as the root.
fn folders(said: &str, controller: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in said.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        if !controllers.split(',').any(|one| one == controller) {
            continue;
        }
        let root =
            if controller.is_empty() { PathBuf::from(MOUNT) } else { Path::new(MOUNT).join(controllers) };
        let own = root.join(path.trim_start_matches('/'));
        found.extend(own.ancestors().take_while(|folder| folder.starts_with(&root)).map(Path::to_owned));
    }
    found
}

/// The values of a file in all groups above this process, the nearest first; version 2 has other names than version 1.
fn values(controller: &str, one: &str, two: &str) -> Vec<(PathBuf, String)> {
    let said = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let read = |folder: PathBuf, name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).ok()?;
        Some((folder, text.trim().to_owned()))
    };
    let newer = folders(&said, "").into_iter().filter_map(|folder| read(folder, two));
    let older = folders(&said, controller).into_iter().filter_map(|folder| read(folder, one));
    newer.chain(older).collect()
}

/// What is left below a limit in the group that has the least left; none where none has a limit. `spare` says how much of what is used
/// is given back when somebody needs it.
fn left(controller: &str, one: (&str, &str), two: (&str, &str), spare: impl Fn(&Path) -> u64) -> Option<u64> {
    let limits = values(controller, one.0, two.0).into_iter();
    let left = limits.filter_map(|(folder, limit)| {
        // Version 1 writes a number near 2^63 for none.
        let limit = limit.parse::<u64>().ok().filter(|limit| *limit < 1 << 60)?;
        let used = [one.1, two.1].iter().find_map(|name| std::fs::read_to_string(folder.join(name)).ok());
        let used: u64 = used.and_then(|used| used.trim().parse().ok()).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(spare(&folder))))
    });
    left.min()
}

/// Bytes that this process's groups may yet take.
pub(crate) fn memory_left() -> Option<u64> {
    let (one, two) = (("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current"));
    left("memory", one, two, |folder| {
        cached(&std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default())
    })
}

/// Bytes of files that nobody has used lately: the kernel counts them as used, and gives them back. `said` is what `memory.stat` has;
/// version 1 tells of the group alone, and with `total_` of those below it, too.
fn cached(said: &str) -> u64 {
    let value = |name: &str| {
        let lines = said.lines().filter_map(|line| line.split_once(' '));
        lines.filter(|(one, _)| *one == name).find_map(|(_, value)| value.trim().parse().ok())
    };
    value("total_inactive_file").or(value("inactive_file")).unwrap_or(0)
}

/// Processes and threads that they may yet have.
pub(crate) fn processes_left() -> Option<u64> {
    left("pids", ("pids.max", "pids.current"), ("pids.max", "pids.current"), |_| 0)
}

/// How many processors they are given time of.
pub(crate) fn processors() -> Option<f64> {
    let of = |quota: &str, period: &str| {
        let (quota, period) = (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
        (quota > 0.0 && period > 0.0).then_some(quota / period)
    };
    let both = values("cpu", "cpu.cfs_quota_us", "cpu.max").into_iter();
    let quotas = both.filter_map(|(folder, text)| match text.split_once(' ') {
        Some((quota, period)) => of(quota, period),
        None => of(&text, std::fs::read_to_string(folder.join("cpu.cfs_period_us")).ok()?.trim()),
    });
    quotas.min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_only_kept_in_memory_are_given_back() {
        assert_eq!(cached("anon 5\ninactive_file 4096\nactive_file 7\n"), 4096);
        assert_eq!(cached("inactive_file 1\ntotal_inactive_file 8192\n"), 8192);
        assert_eq!(cached(""), 0);
    }

    #[test]
    fn groups_are_looked_through_up_to_the_root_of_their_own_controller() {
        let said = "4:memory:/jobs/a\n2:cpu,cpuacct:/\n0::/user.slice/b\n";
        let paths = |controller| -> Vec<String> {
            folders(said, controller).iter().map(|folder| folder.display().to_string()).collect()
        };
        assert_eq!(
            paths("memory"),
            ["/sys/fs/cgroup/memory/jobs/a", "/sys/fs/cgroup/memory/jobs", "/sys/fs/cgroup/memory"]
        );
        assert_eq!(paths("cpu"), ["/sys/fs/cgroup/cpu,cpuacct/"]);
        assert_eq!(paths(""), ["/sys/fs/cgroup/user.slice/b", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"]);
        assert!(paths("pids").is_empty());
    }
}
