//! Control groups of containers, of version 1 or 2: which there are, and whether the kernel has killed in one for want of memory.
//! The runtime makes and bounds them; what is left of them is removed here.

use super::leftovers::{PREFIX, is_of_a_dead_process};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where systems mount them.
const MOUNTED: &str = "/sys/fs/cgroup";
/// Processes that are being killed hold their group for a moment.
const REMOVALS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Those of one kubelet. Their name carries the process that they belong to.
#[derive(Debug)]
pub(super) struct ControlGroups {
    name: String,
}

impl ControlGroups {
    /// Those of a kubelet of this process, by a number that no other of this machine has. What kubelets of processes that are
    /// gone have left is removed.
    pub(super) fn of_kubelet(number: u8) -> ControlGroups {
        for left in
            roots().iter().flat_map(|root| folders(root)).filter(|folder| is_of_a_dead_process(folder))
        {
            remove(&left);
        }
        ControlGroups { name: format!("{PREFIX}{}-{number}", std::process::id()) }
    }

    /// What a container's group is called, below the mounts.
    pub(super) fn of_container(&self, id: &str) -> String {
        format!("/{}/{id}", self.name)
    }

    /// How often the kernel has killed a process of a container because it had no memory left for it.
    pub(super) fn killed_for_memory(&self, id: &str) -> u64 {
        let path = |root: &str, file: &str| format!("{MOUNTED}/{root}{}/{file}", self.of_container(id));
        let counts = [path("memory", "memory.oom_control"), path(".", "memory.events")];
        let said = counts.iter().find_map(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        count(&said)
    }

    /// Removes all of them; processes in them should be gone, or going.
    pub(super) fn remove(&self) {
        for root in roots() {
            let group = root.join(&self.name);
            for _ in 0..REMOVALS {
                remove(&group);
                if !group.exists() {
                    break;
                }
                #[allow(
                    clippy::disallowed_methods,
                    reason = "whoever drops a kubelet cannot wait otherwise"
                )]
                std::thread::sleep(PAUSE);
            }
        }
    }
}

fn count(said: &str) -> u64 {
    let counts = said.lines().filter_map(|line| line.strip_prefix("oom_kill "));
    counts.filter_map(|count| count.trim().parse::<u64>().ok()).sum()
}

/// One for each controller, or the only one.
fn roots() -> Vec<PathBuf> {
    let mut roots = folders(Path::new(MOUNTED));
    roots.push(PathBuf::from(MOUNTED));
    roots
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !path.is_symlink()).collect()
}

/// A group has files that go with it, and cannot be removed before those within it.
fn remove(group: &Path) {
    folders(group).iter().for_each(|within| remove(within));
    let _ = std::fs::remove_dir(group);
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn kills_for_want_of_memory_are_counted_in_either_version() {
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), 2);
        assert_eq!(count("low 0\nhigh 0\nmax 31\noom 3\noom_kill 1\noom_group_kill 0\n"), 1);
        assert_eq!(count(""), 0);
    }
}
