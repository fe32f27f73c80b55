//! What kubelets leave behind that are killed: found by its name, which carries the process that it belonged to.

use std::path::Path;

/// What names of folders and control groups begin with, before a process's number and `-`.
pub(super) const PREFIX: &str = "shoal-kubelet-";

/// The folder of a kubelet of this process. Those of processes that are gone are removed.
///
/// # Errors
/// There is no room for temporary files.
pub(super) fn folder() -> std::io::Result<tempfile::TempDir> {
    let place = std::env::temp_dir();
    for entry in std::fs::read_dir(&place)?.flatten().filter(|entry| is_of_a_dead_process(&entry.path())) {
        // Somebody else may be at it, or own it.
        let _ = std::fs::remove_dir_all(entry.path());
    }
    tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", std::process::id())).tempdir_in(place)
}

/// Whether something has the name of a kubelet whose process is not there any more.
pub(super) fn is_of_a_dead_process(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')).map(|(pid, _)| pid);
    pid.and_then(|pid| pid.parse::<u32>().ok())
        .is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_has_left_is_removed_and_nothing_else() {
        let place = std::env::temp_dir();
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let left = place.join(format!("{PREFIX}{}-1", dead.id()));
        let lives = place.join(format!("{PREFIX}{}-1", std::process::id()));
        let others = place.join(format!("{PREFIX}of-somebody-{}", std::process::id()));
        for folder in [&left, &lives, &others] {
            std::fs::create_dir_all(folder.join("within")).unwrap();
        }
        let own = folder().unwrap();
        assert_eq!([&left, &lives, &others].map(|folder| folder.exists()), [false, true, true]);
        assert!(own.path().exists() && !is_of_a_dead_process(own.path()));
        for folder in [&lives, &others] {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}
