//! Every fault of a file, not only the first.
//! It must never stop at a damaged payload while the next header can still be found.

use std::borrow::Cow;
use std::path::Path;

use crate::chunk::decode_payload;
use crate::error::{Error, Place};
use crate::index::{hop, layout_of};
use crate::map::Map;
use crate::{ChunkEntry, HEADER_BYTES, Layout, Limits};

/// Reads the whole file and returns its faults in file order, at most one for each chunk; none means that it is whole.
/// A broken header is the last fault, since nothing after it can be found.
pub fn verify(path: impl AsRef<Path>, limits: &Limits) -> Vec<Error> {
    let file = path.as_ref();
    match Map::open(file) {
        Ok(map) => faults(file, &map, limits),
        Err(source) => vec![Error::Io { file: file.to_path_buf(), source }],
    }
}

fn faults(file: &Path, bytes: &[u8], limits: &Limits) -> Vec<Error> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let (chunks, stopped) = match layout_of(file, bytes) {
        Ok(layout) => hop(file, bytes, layout, limits),
        Err(fault) => match hop_by_guess(file, bytes, limits) {
            Some(hopped) => hopped,
            None => return vec![fault],
        },
    };
    let damaged = chunks.iter().enumerate().filter_map(|(chunk, entry)| {
        let place = Place { file, offset: entry.offset, chunk };
        let payload = &bytes[entry.offset as usize + HEADER_BYTES..entry.end() as usize];
        decode_payload(place, entry, Cow::Borrowed(payload), limits).err()
    });
    damaged.chain(stopped).collect()
}

/// With the first payload damaged no checksum tells the layout; then it is the one whose headers lead further.
fn hop_by_guess(file: &Path, bytes: &[u8], limits: &Limits) -> Option<(Vec<ChunkEntry>, Option<Error>)> {
    let go = hop(file, bytes, Layout::Go, limits);
    let fluid = hop(file, bytes, Layout::Fluid, limits);
    match go.0.len().cmp(&fluid.0.len()) {
        std::cmp::Ordering::Less => Some(fluid),
        std::cmp::Ordering::Greater => Some(go),
        std::cmp::Ordering::Equal => None,
    }
}
