//! Reading and replacing the document's file. It must never leave a moment without a whole document on the disk.
//!
//! The previous document is not kept: a rename leaves the old or the new one, and an old one that is found by itself
//! would bring back an old master term, which is worse than an error.

use super::disk::Disk;
use super::frame::{self, Unread};
use crate::host::store::{Revision, StoreError};
use bytes::Bytes;
use std::io;

/// The document's file.
pub(super) const STATE: &str = "master.state";
/// Where the next one is written before it takes the name.
const NEXT: &str = "master.state.next";

/// The document and its revision.
pub(super) fn load<D: Disk>(disk: &D) -> Result<Option<(Revision, Bytes)>, StoreError> {
    let found = read(disk)?;
    // Whoever wrote it may have died before this. It also tells a folder that is gone from one that is empty.
    disk.sync_folder().map_err(broken)?;
    Ok(found)
}

/// Compares and swaps. The caller keeps everybody else away meanwhile.
pub(super) fn swap<D: Disk>(
    disk: &D,
    expected: Option<Revision>,
    document: &[u8],
) -> Result<Revision, StoreError> {
    let found = read(disk)?.map(|(revision, _)| revision);
    if found != expected {
        let name = |revision: Option<Revision>| revision.map_or("none".to_owned(), |r| r.to_string());
        let path = disk.path(STATE);
        return Err(StoreError::Conflict(format!(
            "{}: its revision is {}, {} was expected",
            path.display(),
            name(found),
            name(expected)
        )));
    }
    let revision = Revision(found.map_or(1, |found| found.0 + 1));
    replace(disk, &frame::encode(revision, document)).map_err(broken)?;
    Ok(revision)
}

fn replace<D: Disk>(disk: &D, bytes: &[u8]) -> io::Result<()> {
    let mut file = disk.create(NEXT)?;
    disk.write(&mut file, bytes)?;
    disk.sync(&file)?;
    disk.rename(NEXT, STATE)?;
    disk.sync_folder()
}

fn read<D: Disk>(disk: &D) -> Result<Option<(Revision, Bytes)>, StoreError> {
    let bytes = match disk.read(STATE) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(broken(error)),
    };
    let path = disk.path(STATE);
    let unread = |why| {
        StoreError::Broken(match why {
            Unread::Damaged(what) => format!(
                "{}: {what}; put a whole copy in its place (without one, move it away: the job then begins anew)",
                path.display()
            ),
            Unread::Other(other) => format!("{}: {other}", path.display()),
        })
    };
    frame::decode(bytes.into()).map(Some).map_err(unread)
}

/// The disk's error with a way out.
#[allow(clippy::needless_pass_by_value, reason = "map_err hands it over")]
pub(super) fn broken(error: io::Error) -> StoreError {
    let way_out = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room and start the master again",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "let the master's user write there, or name another folder"
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "is the right folder named, and mounted?"
        }
        _ => "see what ails the disk; the last document that was written whole is still there",
    };
    StoreError::Broken(format!("{error}; {way_out}"))
}
