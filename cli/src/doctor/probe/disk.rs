//! A folder, and how long its disk takes: files that nobody can name, and two that are there for a moment.

use crate::doctor::judge::disk::{Place, Times};
use rustix::fs::StatVfsMountFlags;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How often 4 KiB are written, at most: a disk that takes 10 ms is measured in half a second.
const SMALL_WRITES: usize = 40;
/// No further writes are begun after that.
const ENOUGH: Duration = Duration::from_secs(2);

/// What the folder lies on; of one that is not there yet, the nearest above it.
///
/// # Errors
/// It cannot be looked at.
pub(crate) fn place(folder: &Path) -> Result<Place, String> {
    let seen = existing(folder);
    let unseen = |error| format!("{}: cannot be looked at: {error}", seen.display());
    let disk = rustix::fs::statvfs(&seen).map_err(unseen)?;
    let kind = rustix::fs::statfs(&seen).map_err(unseen)?;
    Ok(Place {
        folder: folder.to_owned(),
        instead: (seen != folder).then_some(seen),
        free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
        magic: kind.f_type as u64 & 0xffff_ffff,
        is_read_only: disk.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

/// The folder, or the nearest above it that is there.
fn existing(folder: &Path) -> PathBuf {
    let above =
        folder.ancestors().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
    above.into_iter().find(|above| above.is_dir()).unwrap_or(Path::new(".")).to_owned()
}

/// Writes, settles, renames.
///
/// # Errors
/// What cannot be done, and why.
pub(crate) fn times(folder: &Path) -> Result<Times, String> {
    let folder = &existing(folder);
    let what = |what: &'static str| move |error| format!("{}: cannot {what}: {error}", folder.display());
    let mut file = tempfile::tempfile_in(folder).map_err(what("make a file"))?;
    let began = Instant::now();
    let mut small_seconds = Vec::with_capacity(SMALL_WRITES);
    while small_seconds.len() < SMALL_WRITES && (began.elapsed() < ENOUGH || small_seconds.is_empty()) {
        small_seconds.push(settled(&mut file, 4096).map_err(what("write 4 KiB"))?);
    }
    file.rewind().map_err(what("rewind a file"))?;
    let mebibyte_seconds = settled(&mut file, 1 << 20).map_err(what("write 1 MiB"))?;
    renamed(folder).map_err(what("rename a file and settle its folder"))?;
    Ok(Times { small_seconds, mebibyte_seconds })
}

/// The seconds in which so many bytes were written and are there for good.
fn settled(file: &mut File, bytes: usize) -> std::io::Result<f64> {
    let bytes = vec![0x5a; bytes];
    let began = Instant::now();
    file.write_all(&bytes)?;
    file.sync_all()?;
    Ok(began.elapsed().as_secs_f64())
}

/// A file gets another name, and its folder is settled. Both names are in a folder of their own, which is gone afterwards.
fn renamed(folder: &Path) -> std::io::Result<()> {
    let own = tempfile::Builder::new().prefix(".shoal-doctor-").tempdir_in(folder)?;
    let (old, new) = (own.path().join("old"), own.path().join("new"));
    File::create(&old)?.sync_all()?;
    std::fs::rename(&old, &new)?;
    File::open(own.path())?.sync_all()?;
    own.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_measured_and_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let times = times(folder.path()).unwrap();
        assert!((1..=SMALL_WRITES).contains(&times.small_seconds.len()) && times.mebibyte_seconds > 0.0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let missing = folder.path().join("a/b");
        let place = place(&missing).unwrap();
        assert_eq!((place.folder, place.instead.as_deref()), (missing, Some(folder.path())));
        assert!(place.free_bytes > 0);
    }
}
