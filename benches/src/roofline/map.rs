//! A file's bytes by memory map, for the limit of the scan: the only unsafe code of the benches.
//! It must never map a file that another process may write.
#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;

/// Maps a file of this process's own temporary folder.
pub(crate) fn map(path: &Path) -> std::io::Result<memmap2::Mmap> {
    let file = File::open(path)?;
    // SAFETY: the map is read-only; the file was written and closed by this process in a folder that only its user can
    // enter, and nothing writes or shortens it before the folder is removed.
    unsafe { memmap2::Mmap::map(&file) }
}
