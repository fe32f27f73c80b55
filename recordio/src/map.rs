//! A file's bytes by memory map: the crate's only unsafe code.
//! A mapped file must never be written to through the map, nor shortened by others while it is open.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// A read-only map of a regular file. An empty file has no map, since not every system maps zero bytes.
#[derive(Debug)]
pub(crate) struct Map(Option<memmap2::Mmap>);

impl Map {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            let message = "not a regular file, so it cannot be mapped: read it as a stream";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if metadata.len() == 0 {
            return Ok(Self(None));
        }
        // SAFETY: the map is read-only and private to this crate, which reads it as plain bytes. Another process that
        // writes to the file makes those bytes change: no length read from them is believed without a bounds check
        // against the map, and the checksum is computed over what is then decoded, so that changed content is a
        // `Corrupt` error. One that shortens the file makes reads past its end raise SIGBUS, which no
        // reader of a map can turn into an error; `Reader::open` asks its callers for files that are finished.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(Self(Some(map)))
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}
