//! Chunk after chunk from something that can only be read forwards, such as a pipe or a download.
//! It must never hold more than one chunk, nor reserve memory for bytes that have not arrived.

use std::borrow::Cow;
use std::io::Read;
use std::path::PathBuf;

use crate::chunk::decode_payload;
use crate::error::{Error, Place};
use crate::header::{parse, tell_layout};
use crate::{Chunk, ChunkEntry, HEADER_BYTES, Layout, Limits};

/// An iterator over the chunks of a stream. It ends after the last chunk or after the first error.
#[derive(Debug)]
pub struct StreamReader<R: Read> {
    source: R,
    name: PathBuf,
    limits: Limits,
    layout: Option<Layout>,
    offset: u64,
    chunk: usize,
    ended: bool,
}

impl<R: Read> StreamReader<R> {
    /// Reads from `source`, which errors will call `name`. A source without a buffer of its own is best wrapped in one.
    pub fn new(name: impl Into<PathBuf>, source: R, limits: Limits) -> Self {
        Self { source, name: name.into(), limits, layout: None, offset: 0, chunk: 0, ended: false }
    }

    /// The layout, once the first chunk has been read.
    pub fn layout(&self) -> Option<Layout> {
        self.layout
    }

    fn read_chunk(&mut self) -> Result<Option<Chunk<'static>>, Error> {
        let Self { source, name, limits, .. } = self;
        let place = Place { file: name, offset: self.offset, chunk: self.chunk };
        let Some(header) = read_header(source, place)? else { return Ok(None) };
        let mut payload = Vec::new();
        let (layout, entry) = match self.layout {
            Some(layout) => (layout, known_chunk(source, place, layout, &header, &mut payload, limits)?),
            None => tell_layout(place, &header, |stored_bytes| {
                extend_to(source, place, &mut payload, stored_bytes, limits)?;
                Ok(crc32fast::hash(&payload))
            })?,
        };
        let chunk = decode_payload(place, &entry, Cow::Owned(payload), limits)?;
        self.layout = Some(layout);
        self.offset = entry.end();
        self.chunk += 1;
        Ok(Some(chunk))
    }
}

impl<R: Read> Iterator for StreamReader<R> {
    type Item = Result<Chunk<'static>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let chunk = self.read_chunk().transpose();
        self.ended = !matches!(chunk, Some(Ok(_)));
        chunk
    }
}

/// The next header, or nothing where the stream ends.
fn read_header(source: &mut impl Read, place: Place<'_>) -> Result<Option<[u8; HEADER_BYTES]>, Error> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    source.take(HEADER_BYTES as u64).read_to_end(&mut header).map_err(|source| place.io(source))?;
    match header.first_chunk() {
        Some(header) => Ok(Some(*header)),
        None if header.is_empty() => Ok(None),
        None => Err(place.truncated(HEADER_BYTES as u64, header.len() as u64)),
    }
}

fn known_chunk(
    source: &mut impl Read,
    place: Place<'_>,
    layout: Layout,
    header: &[u8; HEADER_BYTES],
    payload: &mut Vec<u8>,
    limits: &Limits,
) -> Result<ChunkEntry, Error> {
    let entry = parse(place, layout, header)?;
    extend_to(source, place, payload, entry.compressed_bytes, limits)?;
    Ok(entry)
}

/// Reads on until `payload` has `stored_bytes`. `read_to_end` grows with what arrives, whatever was claimed.
fn extend_to(
    source: &mut impl Read,
    place: Place<'_>,
    payload: &mut Vec<u8>,
    stored_bytes: u32,
    limits: &Limits,
) -> Result<(), Error> {
    let wanted = u64::from(stored_bytes);
    if wanted > limits.chunk_ceiling() {
        return Err(place.too_large("the stored payload in bytes", limits.chunk_ceiling()));
    }
    let missing = wanted - payload.len() as u64;
    source.take(missing).read_to_end(payload).map_err(|source| place.io(source))?;
    if (payload.len() as u64) < wanted {
        return Err(place.truncated(wanted, payload.len() as u64));
    }
    Ok(())
}
