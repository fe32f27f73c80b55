//! The headers of one file or object, read by ranges. It must never hold more of it than one range.
//!
//! A request to a bucket costs about as much time as some megabytes. So where eight chunks or more fit into [`AHEAD_MAX`], that
//! much is asked for at once; where they are larger, each header is asked for alone. Beyond the first payload that is at
//! most one request for each chunk, and about one for each 512 KiB, whichever is fewer. Files are read in the same way, and
//! not mapped: one that is cut short meanwhile would end this process.

use anyhow::{Context, bail, ensure};
use shoal_recordio::{HEADER_BYTES, Index, Limits, Scan};
use shoal_runtime::host::storage::{Bucket, Stamp};
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes of one request at most.
const AHEAD_MAX: u64 = 4 << 20;
/// Bytes of a request for one header: as quick as for its 20 bytes, and small chunks may follow a large one.
const AHEAD_MIN: u64 = 16 << 10;
/// Headers that a large request must hold to be worth it.
const HEADERS_MIN: u64 = 8;

/// What tells one content of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) bytes: u64,
    /// Seconds and nanoseconds.
    pub(super) written: (i64, i64),
}

impl Stat {
    pub(super) fn of(seen: &Metadata) -> Stat {
        let (device, inode, bytes) = (seen.dev(), seen.ino(), seen.len());
        Stat { device, inode, bytes, written: (seen.mtime(), seen.mtime_nsec()) }
    }
}

/// Where the chunks of a file are, which messages call `name`. Refused when the file changes meanwhile.
pub(super) fn of_file(path: &Path, name: &str, stat: Stat) -> anyhow::Result<Index> {
    let file = File::open(path).with_context(|| format!("{name}: cannot be read"))?;
    of_opened(&file, path, name, stat)
}

/// The same of a file that is open. It is still at `path`, and as `stat` says, or refused.
pub(super) fn of_opened(file: &File, path: &Path, name: &str, stat: Stat) -> anyhow::Result<Index> {
    let changed = || format!("{name}: it was written to while it was read: rename files into place");
    let cannot = || format!("{name}: cannot be read");
    let mut scan = Scan::new(Path::new(name), stat.bytes, Limits::default());
    let mut buffer = Vec::new();
    while let Some(needed) = scan.needs() {
        let end = stat.bytes.min(needed.start + ask_for(&scan, &needed));
        buffer.resize((end - needed.start) as usize, 0);
        match file.read_exact_at(&mut buffer, needed.start) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => bail!(changed()),
            answer => answer.with_context(cannot)?,
        }
        scan.give(&buffer)?;
    }
    ensure!(Stat::of(&path.metadata().with_context(cannot)?) == stat, changed());
    Ok(scan.finish())
}

/// Where the chunks of an object are. Refused when the object changes meanwhile.
pub(super) async fn of_object(bucket: &Bucket, name: &str, stamp: &Stamp) -> anyhow::Result<Index> {
    let url = bucket.url(name);
    let mut scan = Scan::new(Path::new(&url), stamp.bytes, Limits::default());
    while let Some(needed) = scan.needs() {
        let range = needed.start..stamp.bytes.min(needed.start + ask_for(&scan, &needed));
        scan.give(&bucket.read(name, range, Some(stamp)).await?)?;
    }
    Ok(scan.finish())
}

/// Bytes to ask for where `needed` begins.
fn ask_for(scan: &Scan, needed: &Range<u64>) -> u64 {
    let needed_bytes = needed.end - needed.start;
    let chunks = scan.chunks().len() as u64;
    if needed_bytes > HEADER_BYTES as u64 {
        // The rest of the first payload.
        return needed_bytes.clamp(AHEAD_MIN, AHEAD_MAX);
    }
    // Of an object of which nothing is known yet, what may be all of it.
    if chunks == 0 || needed.start / chunks <= AHEAD_MAX / HEADERS_MIN { AHEAD_MAX } else { AHEAD_MIN }
}
