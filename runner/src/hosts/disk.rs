//! A disk of the run's own that can be filled: a tmpfs in place of the folder with the master's state. It must never
//! take the state with it: at the end the files are laid where they would have been.

use super::tools::call;
use anyhow::Context;
use std::path::{Path, PathBuf};

/// Most of a machine's memory is not the disk's.
const ROOMY: &str = "remount,size=50%";
/// Attempts to fill a disk that is written to meanwhile.
const TRIES: u32 = 20;

/// A folder on a disk that can be filled, until it is dropped.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Makes `folder` such a disk. To be called in a mount namespace of the run's own.
    pub fn mount(folder: &Path) -> anyhow::Result<Disk> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let words = ["-t", "tmpfs", "-o", "size=50%,mode=755", "shoal-state"];
        let words: Vec<_> = words.iter().map(AsRef::as_ref).chain([folder.as_os_str()]).collect();
        call("mount", &words)?;
        Ok(Disk { folder: folder.to_owned() })
    }

    /// There is no room for anything more.
    pub fn fill(&self) -> anyhow::Result<()> {
        let mut filled = Ok(());
        for _ in 0..TRIES {
            // Refused if something was written since.
            filled = self.used().and_then(|bytes| self.remount(&format!("remount,size={}", bytes.max(1))));
            if filled.is_ok() {
                break;
            }
        }
        filled
    }

    /// There is room again.
    pub fn free(&self) -> anyhow::Result<()> {
        self.remount(ROOMY)
    }

    fn used(&self) -> anyhow::Result<u64> {
        let said = rustix::fs::statvfs(&self.folder).context("cannot look at the disk")?;
        Ok((said.f_blocks - said.f_bfree) * said.f_frsize)
    }

    fn remount(&self, options: &str) -> anyhow::Result<()> {
        call("mount", &["-o".as_ref(), options.as_ref(), self.folder.as_os_str()])
    }

    fn keep(&self) -> anyhow::Result<()> {
        let kept = self.folder.with_extension("kept");
        copy(&self.folder, &kept)?;
        // A process that was just killed may still be on its way out.
        call("umount", &["--lazy".as_ref(), self.folder.as_os_str()])?;
        std::fs::remove_dir(&self.folder)?;
        Ok(std::fs::rename(&kept, &self.folder)?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = self.keep() {
            note!("warning: the state of this run is lost: {}: {error:#}", self.folder.display());
        }
    }
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
    }
    Ok(())
}
