//! `runs/latest`: a link to the newest run of this folder, so that `shoal status` and its like find it without being told. It must
//! never take the place of anything that is no link.

use crate::shell;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Where it is.
const LATEST: &str = "runs/latest";

/// Points it at a run. Where that cannot be, it is said.
pub fn remember(run: &Path) {
    if let Err(error) = point(Path::new(LATEST), run) {
        note!("warning: {LATEST} does not lead to this run ({error}): give --run {}", shell::path(run));
    }
}

fn point(link: &Path, run: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(link) {
        Ok(there) if !there.is_symlink() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "what is there is no link, and stays"));
        }
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        // Of a run that was moved or removed nothing can be said: its link is taken to be ours.
        Ok(_) if link.exists() && !link.join("job.name").exists() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "what is there leads to no run, and stays"));
        }
        _ => {}
    }
    let folder = link.parent().unwrap_or(Path::new(""));
    std::fs::create_dir_all(folder)?;
    // Beside it and then in its place: whoever looks meanwhile finds one or the other.
    let beside = folder.join(format!(".latest.{}", std::process::id()));
    std::os::unix::fs::symlink(target(folder, run)?, &beside)?;
    std::fs::rename(&beside, link).inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}

/// A run in the same folder by its name alone: together they may be moved.
fn target(folder: &Path, run: &Path) -> io::Result<PathBuf> {
    match (run.parent(), run.file_name()) {
        (Some(parent), Some(name)) if parent == folder => Ok(name.into()),
        _ => std::path::absolute(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_leads_to_the_newest_run_wherever_that_is() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let link = runs.join("latest");
        for run in [runs.join("a"), folder.path().join("elsewhere"), runs.join("b")] {
            point(&link, &run).unwrap();
            std::fs::create_dir(&run).unwrap();
            std::fs::write(run.join("job.name"), "").unwrap();
            assert_eq!(link.canonicalize().unwrap(), run.canonicalize().unwrap());
        }
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("b"));
        assert_eq!(std::fs::read_dir(&runs).unwrap().count(), 3, "nothing is left beside it");
    }

    #[test]
    fn what_is_no_link_stays() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("latest");
        std::fs::write(&link, "precious").unwrap();
        assert!(point(&link, &folder.path().join("a")).unwrap_err().to_string().contains("stays"));
        assert_eq!(std::fs::read(&link).unwrap(), b"precious");
    }
}
