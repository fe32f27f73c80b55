//! The headers of one object, read by ranges. It must never hold more of an object than one range.
//!
//! A request costs about as much time as some megabytes. So where eight chunks or more fit into [`AHEAD_MAX`], that
//! much is asked for at once; where they are larger, each header is asked for alone. Beyond the first payload that is at
//! most one request for each chunk, and about one for each 512 KiB, whichever is fewer.

use shoal_recordio::{HEADER_BYTES, Index, Limits, Scan};
use shoal_runtime::host::storage::{Bucket, Stamp};
use std::ops::Range;
use std::path::Path;

/// Bytes of one request at most.
const AHEAD_MAX: u64 = 4 << 20;
/// Bytes of a request for one header: as quick as for its 20 bytes, and small chunks may follow a large one.
const AHEAD_MIN: u64 = 16 << 10;
/// Headers that a large request must hold to be worth it.
const HEADERS_MIN: u64 = 8;

/// Where the chunks of an object are. Refused when the object changes meanwhile.
pub(super) async fn read(bucket: &Bucket, name: &str, stamp: &Stamp) -> anyhow::Result<Index> {
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
