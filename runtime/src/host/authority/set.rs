//! Files that change together: the set is a folder, and a symbolic link says which set counts. Turning the link is the
//! one moment of change, as in the volumes of Kubernetes.

use super::write;
use std::path::Path;

/// The link that says which set counts.
const PRESENT: &str = ".present";
/// Sets, by a number.
const SET: &str = ".set-";

/// Makes `files` (name, text, mode) the ones that `folder` shows. The set before is kept for who reads it just now,
/// earlier ones are removed.
pub(super) fn replace(folder: &Path, files: &[(&str, &str, u32)]) -> Result<(), String> {
    let told = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(folder).map_err(|error| told(folder, error))?;
    for (name, _, _) in files {
        let path = folder.join(name);
        if std::fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.is_symlink()) {
            return Err(format!(
                "{}: not issued here, and not overwritten: name another folder",
                path.display()
            ));
        }
    }
    let sets = sets(folder);
    let number = sets.last().map_or(0, |last| last + 1);
    let set = folder.join(format!("{SET}{number}"));
    std::fs::create_dir(&set).map_err(|error| told(&set, error))?;
    for (name, text, mode) in files {
        write(&set.join(name), text, *mode)?;
    }
    let (present, turned) = (folder.join(PRESENT), folder.join(format!("{PRESENT}-{number}")));
    let link = |to: &Path, at: &Path| std::os::unix::fs::symlink(to, at).map_err(|error| told(at, error));
    link(Path::new(&format!("{SET}{number}")), &turned)?;
    std::fs::rename(&turned, &present).map_err(|error| told(&present, error))?;
    for (name, _, _) in files {
        let path = folder.join(name);
        if std::fs::symlink_metadata(&path).is_err() {
            link(&Path::new(PRESENT).join(name), &path)?;
        }
    }
    for old in sets.iter().rev().skip(1) {
        let old = folder.join(format!("{SET}{old}"));
        if let Err(error) = std::fs::remove_dir_all(&old) {
            tracing::warn!(folder = %old.display(), %error, "an old set of credentials cannot be removed");
        }
    }
    Ok(())
}

/// The numbers of the sets that are there, in order.
fn sets(folder: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: String| name.strip_prefix(SET)?.parse().ok();
    let mut sets: Vec<u64> =
        entries.filter_map(|entry| number(entry.file_name().to_string_lossy().into_owned())).collect();
    sets.sort_unstable();
    sets
}
