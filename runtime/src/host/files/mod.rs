//! **Files** that a person names, and how they are written: beside their place, synced, moved there. So each is whole or, on a full
//! disk or after a kill, what it was before.
//!
//! A file keeps the mode that it had; a new one has what the umask leaves. What a link leads to is written, and the link stays. What
//! is no file but can be written (a pipe, a terminal, `/dev/null`) is written into. This is the only place of the workspace that
//! makes or replaces files of people's; see `clippy.toml`.

use rustix::fs::{Access, access};
use std::ffi::OsString;
use std::fmt;
use std::fs::{File, Metadata, Permissions};
use std::io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Links that lead to one another, at most: as many as Linux follows.
const LINKS_MAX: usize = 40;
/// What a new file would have if the umask took nothing away.
const MODE: u32 = 0o666;

/// A file cannot be written: to ask again where its content comes from does not help.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {why}", path.display())]
pub struct Unwritten {
    path: PathBuf,
    why: Why,
}

/// Why not.
#[derive(Debug, thiserror::Error)]
enum Why {
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("the folder {} cannot be made: {error}", folder.display())]
    Folder { folder: PathBuf, error: io::Error },
    #[error("it is a folder: name a file in it")]
    IsFolder,
    #[error("it is a block device: name a file, or write to standard output and use dd")]
    IsDisk,
    #[error("{0}")]
    Content(String),
    #[error("it is what is read here ({}): name another file", of.display())]
    IsRead { of: PathBuf },
}

impl Unwritten {
    /// Whoever made its content could not write that.
    pub fn of(path: &Path, why: impl fmt::Display) -> Unwritten {
        Unwritten { path: path.to_owned(), why: Why::Content(why.to_string()) }
    }
}

/// A file that is not there yet. Dropped before it is settled, it never will be.
#[derive(Debug)]
pub struct NewFile {
    /// As it was named.
    path: PathBuf,
    to: To,
    bytes: u64,
}

#[derive(Debug)]
enum To {
    /// A file in the same folder, and where it goes.
    Beside(NamedTempFile, PathBuf),
    /// What is no file.
    Into(File),
}

impl NewFile {
    /// Begins one that is to be at `path`, in a folder that is made if need be.
    ///
    /// # Errors
    /// It can be none, or the system says why not.
    pub fn begin(path: &Path) -> Result<NewFile, Unwritten> {
        let to = NewFile::to(path).map_err(|why| Unwritten { path: path.to_owned(), why })?;
        Ok(NewFile { path: path.to_owned(), to, bytes: 0 })
    }

    /// The same of what is made from `read`: none of that may be where it goes.
    ///
    /// # Errors
    /// As [`begin`](Self::begin), or it is one of those.
    pub fn begin_from<'a>(
        path: &Path,
        read: impl IntoIterator<Item = &'a Path>,
    ) -> Result<NewFile, Unwritten> {
        if let Some(of) = read.into_iter().find(|read| are_one(path, read)) {
            return Err(Unwritten { path: path.to_owned(), why: Why::IsRead { of: of.to_owned() } });
        }
        NewFile::begin(path)
    }

    fn to(path: &Path) -> Result<To, Why> {
        let there = match std::fs::metadata(path) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        match there.as_ref().map(Metadata::file_type) {
            Some(kind) if kind.is_dir() => return Err(Why::IsFolder),
            Some(kind) if kind.is_block_device() => return Err(Why::IsDisk),
            // By the name that was given: that of an open pipe, as `/dev/stdout`, leads nowhere else.
            Some(kind) if !kind.is_file() => return Ok(To::Into(File::options().write(true).open(path)?)),
            _ => {}
        }
        let place = followed(path)?;
        let name = place.file_name().ok_or(Why::IsFolder)?;
        let folder = match place.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let made = std::fs::create_dir_all(folder);
        made.map_err(|error| Why::Folder { folder: folder.to_owned(), error })?;
        let mut beside = OsString::from(".");
        beside.push(name);
        beside.push(".");
        let file = tempfile::Builder::new()
            .prefix(&beside)
            .suffix(".part")
            .permissions(Permissions::from_mode(MODE))
            .tempfile_in(folder)?;
        if let Some(there) = there {
            // A folder that may be changed is not enough: the system would let a file in it be replaced that may not be.
            access(&place, Access::WRITE_OK).map_err(io::Error::from)?;
            file.as_file().set_permissions(Permissions::from_mode(there.mode() & 0o777))?;
        }
        Ok(To::Beside(file, place))
    }

    /// Brings it to the disk and into its place, in that of a file that was there. How many bytes were written.
    ///
    /// # Errors
    /// The system says why not. What was there is there, unless it is the folder that could not be synced.
    pub fn settle(self) -> Result<u64, Unwritten> {
        let NewFile { path, to, bytes } = self;
        let settled = match to {
            To::Into(mut file) => file.flush(),
            To::Beside(file, place) => settle(file, &place),
        };
        settled.map_err(|error| Unwritten { path, why: error.into() })?;
        Ok(bytes)
    }
}

fn settle(file: NamedTempFile, place: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(place).map_err(|error| error.error)?;
    // Its name as well: after a power cut it is there.
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some file systems sync no folders, and one may not read every folder that one may change.
        Err(error) if matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported) => Ok(()),
        synced => synced,
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.to {
            To::Beside(file, _) => file.write(bytes),
            To::Into(file) => file.write(bytes),
        }?;
        self.bytes += written as u64;
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::Beside(file, _) => file.flush(),
            To::Into(file) => file.flush(),
        }
    }
}

/// Writes a file of these bytes.
///
/// # Errors
/// As [`NewFile`] has them.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Unwritten> {
    let mut file = NewFile::begin(path)?;
    file.write_all(bytes).map_err(|error| Unwritten { path: path.to_owned(), why: error.into() })?;
    file.settle()?;
    Ok(())
}

/// Where a path leads: itself, unless it is a link.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut place = path.to_owned();
    for _ in 0..LINKS_MAX {
        match std::fs::symlink_metadata(&place) {
            Ok(there) if there.is_symlink() => {
                let target = std::fs::read_link(&place)?;
                // An absolute one takes the place of all of it.
                place = place.parent().unwrap_or(Path::new("")).join(target);
            }
            _ => return Ok(place),
        }
    }
    Err(io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error()))
}

/// Whether two paths lead to one file.
fn are_one(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|there| (there.dev(), there.ino())).ok();
    identity(one).is_some_and(|found| identity(other) == Some(found))
}

#[cfg(test)]
mod tests;
