//! How far the reading of a data set is, for whoever waits for it: counted by those who read, read by pages and logs.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Counters of one scan. Numbers may be some files behind one another: nothing is decided by them.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    found: AtomicU64,
    read: AtomicU64,
    are_names_found: AtomicBool,
}

impl Progress {
    /// Names are looked for, of which nobody knows yet how many there are.
    pub(super) fn finding(&self) {
        self.are_names_found.store(false, Relaxed);
    }

    /// So many more names were found.
    pub(super) fn found(&self, names: usize) {
        self.found.fetch_add(names as u64, Relaxed);
    }

    /// All names are known, and as many as were found.
    pub(super) fn names_found(&self, names: usize) {
        self.found.store(self.read.load(Relaxed) + names as u64, Relaxed);
        self.are_names_found.store(true, Relaxed);
    }

    /// One more file was read, or refused.
    pub(super) fn read_one(&self) {
        self.read.fetch_add(1, Relaxed);
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (found, read) = (self.found.load(Relaxed), self.read.load(Relaxed));
        if self.are_names_found.load(Relaxed) {
            return write!(f, "reading the headers of the data set: {read} of {found} files");
        }
        write!(f, "finding the files of the data set: {} so far", found.saturating_sub(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_while_they_are_found_and_files_as_they_are_read() {
        let progress = Progress::default();
        progress.found(3);
        assert_eq!(progress.to_string(), "finding the files of the data set: 3 so far");
        progress.names_found(2);
        progress.read_one();
        assert_eq!(progress.to_string(), "reading the headers of the data set: 1 of 2 files");
        progress.read_one();
        progress.finding();
        progress.found(4);
        assert_eq!(progress.to_string(), "finding the files of the data set: 4 so far");
        progress.names_found(4);
        assert_eq!(progress.to_string(), "reading the headers of the data set: 2 of 6 files");
    }
}
