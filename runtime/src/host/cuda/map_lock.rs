//! A lock that a process holds for as long as it maps memory of another. The owner frees that memory once the lock is free, and never
//! before: the kernel lets go of the lock when its process is gone, however that ended, and no clock has a part in it.
//!
//! It is a lock on a file of `/dev/shm`, which processes of one IPC namespace share. Its name is gone as soon as both have it open.

use crate::host::random::Random;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FOLDER: &str = "/dev/shm";
const PREFIX: &str = "shoal-map-";

/// The lock, held by the process that maps the memory.
#[derive(Debug)]
pub struct MapLock {
    name: String,
    _file: File,
}

/// The same lock, as the memory's owner sees it.
#[derive(Debug)]
pub struct MapWatch(File);

impl MapLock {
    /// A lock of its own, held until it is dropped.
    ///
    /// # Errors
    /// There is no `/dev/shm`, or it is full.
    pub fn hold() -> io::Result<MapLock> {
        let name = format!("{PREFIX}{:016x}", Random::from_os().bits());
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(Path::new(FOLDER).join(&name))?;
        let lock = MapLock { name, _file: file };
        flock(&lock._file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(lock)
    }

    /// Returns the name by which the owner watches the lock.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes the name: the owner has it open, or never will.
    pub fn hide(&self) {
        let _ = std::fs::remove_file(Path::new(FOLDER).join(&self.name));
    }
}

impl Drop for MapLock {
    fn drop(&mut self) {
        self.hide();
    }
}

impl MapWatch {
    /// Opens the lock that another process holds under this name.
    ///
    /// # Errors
    /// The lock is free, or its holder is in another IPC namespace or another user's.
    pub fn open(name: &str) -> io::Result<MapWatch> {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NOFOLLOW).open(path(name)?)?;
        let watch = MapWatch(file);
        if watch.is_held() { Ok(watch) } else { Err(io::Error::other("nobody holds the lock")) }
    }

    /// Returns false once the process cannot have the memory mapped any more, and from then on always.
    pub fn is_held(&self) -> bool {
        // An unknown state counts as held: memory that is never freed harms less than a write into another's memory.
        loop {
            match flock(&self.0, FlockOperation::NonBlockingLockShared) {
                Ok(()) => return false,
                Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }
}

/// Returns the path of a lock whose name came from another process.
fn path(name: &str) -> io::Result<PathBuf> {
    let is_hex = |bits: &str| !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if name.strip_prefix(PREFIX).is_some_and(is_hex) {
        return Ok(Path::new(FOLDER).join(name));
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no name of a lock")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_lock_is_held_until_it_is_dropped_though_its_name_is_gone() {
        let lock = MapLock::hold().unwrap();
        let watch = MapWatch::open(lock.name()).unwrap();
        lock.hide();
        assert!(MapWatch::open(lock.name()).is_err(), "no late question finds it");
        assert!(watch.is_held() && watch.is_held());
        drop(lock);
        assert!(!watch.is_held() && !watch.is_held());
    }

    #[test]
    fn a_lock_that_nobody_holds_and_a_name_of_something_else_are_not_watched() {
        let name = format!("{PREFIX}{:016x}", Random::from_os().bits());
        let path = Path::new(FOLDER).join(&name);
        std::fs::write(&path, "").unwrap();
        assert!(MapWatch::open(&name).is_err());
        std::fs::remove_file(path).unwrap();
        for name in ["", PREFIX, "shoal-map-../../etc/passwd", "shoal-map-0/1", "/etc/passwd"] {
            assert!(MapWatch::open(name).is_err(), "{name:?}");
        }
    }

    /// A killed trainer releases nothing by itself.
    #[test]
    fn a_process_that_is_killed_holds_its_lock_no_more_and_one_that_is_stopped_does() {
        let lock = MapLock::hold().unwrap();
        // The child has the same lock open, and is the last.
        let mut child = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::from(lock._file.try_clone().unwrap()))
            .spawn()
            .unwrap();
        let watch = MapWatch::open(lock.name()).unwrap();
        drop(lock);
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-STOP", &id]).status().unwrap().success());
        assert!(watch.is_held());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!watch.is_held());
    }
}
