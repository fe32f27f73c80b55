//! Reads a whole checkpoint and names everything that is wrong with it. It must never stop at the first fault.

use super::{damaged, load};
use crate::cluster::checkpoint::{CheckpointManifest, FileRecord, ManifestRecord, PieceRef};
use crate::host::storage::{Storage, StorageError};
use crate::wire::pieces::{check_header, check_trailer, decode_piece, header_range, trailer_range};
use std::fmt;
use std::ops::Range;

/// How much is read at once of what no piece of the manifest covers.
const STRETCH_BYTES: u64 = 1 << 20;

/// What verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes read, the manifest's included.
    pub bytes: u64,
    /// Pieces found as they were written.
    pub pieces: u64,
    /// Everything that is wrong; empty for a sound checkpoint.
    pub faults: Vec<Fault>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The object, with its place.
    pub file: String,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What was expected and what is there.
    pub what: String,
}

impl Fault {
    /// What is wrong with an object, from the error of who read it. Gives back what is no object's fault.
    pub fn of(error: StorageError) -> Result<Fault, StorageError> {
        let (file, offset, what) = match error {
            StorageError::Damaged { at, offset, what } => (at, offset, what),
            StorageError::Missing { at } => (at, 0, "it is not there".into()),
            StorageError::Refused { at, what, .. }
            | StorageError::Changed { at, what }
            | StorageError::OtherFormat { at, what }
            | StorageError::Invalid { at, what } => (at, 0, what),
            StorageError::Taken { .. } | StorageError::Unreachable { .. } => return Err(error),
        };
        Ok(Fault { file, offset, what })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: at offset {}: {}", self.file, self.offset, self.what)
    }
}

/// Reads every byte of a checkpoint once, a piece at a time. Fails only when storage does not answer.
pub async fn verify(storage: &Storage, record: &ManifestRecord) -> Result<Report, StorageError> {
    let mut report = Report::default();
    let manifest = match load(storage, record).await {
        Ok(manifest) => manifest,
        Err(error) => {
            report.note(error)?;
            return Ok(report);
        }
    };
    report.bytes = record.bytes;
    let mut pieces: Vec<&PieceRef> = manifest.pieces.iter().collect();
    pieces.sort_by_key(|piece| (piece.file, piece.offset));
    let mut rest = pieces.as_slice();
    for (index, file) in manifest.files.iter().enumerate() {
        let of_file;
        (of_file, rest) = rest.split_at(rest.partition_point(|piece| piece.file as usize <= index));
        report.read_file(storage, &manifest, file, of_file).await?;
    }
    Ok(report)
}

/// What a stretch of a file holds.
enum Part<'a> {
    Header,
    Piece(&'a PieceRef),
    /// Pieces that the manifest took from another file.
    Unused,
    Trailer,
}

impl Report {
    async fn read_file(
        &mut self,
        storage: &Storage,
        manifest: &CheckpointManifest,
        file: &FileRecord,
        pieces: &[&PieceRef],
    ) -> Result<(), StorageError> {
        let object = file.object();
        let bytes = match storage.bytes_of(&object).await {
            Ok(bytes) => bytes,
            Err(error) => return self.note(error),
        };
        if bytes != file.bytes {
            let what = format!("it has {bytes} bytes, {} were written", file.bytes);
            let offset = bytes.min(file.bytes);
            self.note(StorageError::Damaged { at: storage.at(&object), offset, what })?;
        }
        let faults_before = self.faults.len();
        let mut crc = crc32fast::Hasher::new();
        // No further than there are bytes, whatever the manifest says.
        for (range, part) in parts(manifest, file, pieces).take_while(|(range, _)| range.start < bytes) {
            let read = storage.read_range(&object, range.clone()).await.and_then(|bytes| {
                crc.update(&bytes);
                self.bytes += bytes.len() as u64;
                let offset = if let Part::Piece(_) = part { range.start } else { 0 };
                let found = match part {
                    Part::Header => check_header(&bytes, manifest, file).map(drop),
                    Part::Piece(piece) => decode_piece(bytes, piece).map(|_| self.pieces += 1),
                    Part::Trailer => check_trailer(&bytes, file),
                    Part::Unused => Ok(()),
                };
                found.map_err(|damage| damaged(storage, &object, offset, damage))
            });
            read.or_else(|error| self.note(error))?;
        }
        let crc32 = crc.finalize();
        if bytes == file.bytes && self.faults.len() == faults_before && crc32 != file.crc32 {
            let what = format!("the file's checksum is {crc32:08x}, the manifest has {:08x}", file.crc32);
            self.note(StorageError::Damaged { at: storage.at(&object), offset: 0, what })?;
        }
        Ok(())
    }

    /// Takes down what is wrong with an object; silence of storage is not the object's fault.
    fn note(&mut self, error: StorageError) -> Result<(), StorageError> {
        self.faults.push(Fault::of(error)?);
        Ok(())
    }
}

/// A file from its first byte to its last.
fn parts<'a>(
    manifest: &CheckpointManifest,
    file: &FileRecord,
    pieces: &'a [&'a PieceRef],
) -> impl Iterator<Item = (Range<u64>, Part<'a>)> {
    let (header, trailer) = (header_range(manifest), trailer_range(file));
    let ends = pieces.iter().map(|piece| piece.offset + piece.bytes);
    let gap_starts = std::iter::once(header.end).chain(ends);
    let gap_ends = pieces.iter().map(|piece| piece.offset).chain(std::iter::once(trailer.start));
    let after = pieces.iter().map(|piece| (piece.offset..piece.offset + piece.bytes, Part::Piece(piece)));
    let after = after.chain(std::iter::once((trailer, Part::Trailer)));
    let body = gap_starts.zip(gap_ends).zip(after).flat_map(|((start, end), next)| {
        stretches(start..end).map(|range| (range, Part::Unused)).chain(std::iter::once(next))
    });
    std::iter::once((header, Part::Header)).chain(body)
}

/// A range in pieces that fit into memory.
fn stretches(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by(STRETCH_BYTES as usize).map(move |start| start..end.min(start + STRETCH_BYTES))
}
