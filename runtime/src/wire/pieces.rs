//! Files of pieces, as bytes: made one piece at a time, and read so that no stranger's number is believed.
//!
//! `header | piece ... | trailer`, all little-endian:
//! - header: magic (8), format (u32), job (u32 length, bytes), checkpoint, writer, sequence (u64 each), CRC-32 of these.
//!   Length and checksum of the header stay what they are in every format, so that another format is no damage;
//! - piece: length (u32), CRC-32 (u32), one `BlockCopy` message of that length and checksum;
//! - trailer: magic (8), pieces (u64), length of the whole file (u64), CRC-32 of these.
//!
//! A manifest repeats each piece's place and checksum, so that one piece can be read alone and be known to be the one
//! that was meant. It must never touch storage.

use super::{OtherFormat, malformed, proto};
use crate::cluster::block_copy::{ROW_HEAD_BYTES, WHOLE};
use crate::cluster::checkpoint::{
    CheckpointId, CheckpointManifest, FileRecord, Origin, PIECE_BYTES_MAX, PieceRef, WrittenFile,
};
use crate::cluster::layout::Piece;
use crate::cluster::{
    BlockId, Declaration, Incarnation, JobId, Layout, Refusal, Rewind, Rule, StateName, Term, Version,
};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use std::ops::Range;

const MAGIC: &[u8; 8] = b"SHOALBLK";
const TRAILER_MAGIC: &[u8; 8] = b"SHOALEND";
/// The format that is written. Formats from 1 on are read: what came with 2, tables, is not in those before; what came with 3, the
/// remainders of counters, [`complete`] puts into copies of those before.
const FORMAT: u32 = 3;
/// The first format with the remainders of counters.
const WITH_REMAINDERS: u32 = 3;
const JOB_BYTES_MAX: usize = 1024;
const FRAME_BYTES: usize = 8;
const TRAILER_BYTES: u64 = 28;

/// What is wrong with the bytes of a file, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at offset {offset}: {what}")]
pub struct Damage {
    /// From the file's beginning (for a piece: from the piece's).
    pub offset: u64,
    /// What was expected and what is there.
    pub what: String,
    /// Whether it is sound as far as is known, and only another build can read it.
    pub is_other_format: bool,
}

impl Damage {
    pub(super) fn new(offset: usize, what: impl Into<String>) -> Damage {
        Damage { offset: offset as u64, what: what.into(), is_other_format: false }
    }

    /// Every file begins with eight bytes that say what it is, then its format.
    pub(super) fn format(what: &'static str, found: u32, read: u32) -> Damage {
        let other = OtherFormat { what, found, read };
        Damage { offset: 8, what: other.to_string(), is_other_format: true }
    }
}

/// A file of pieces in the making: every call answers the bytes that come next.
#[derive(Debug)]
pub struct PieceWriter {
    checkpoint: CheckpointId,
    name: String,
    bytes: u64,
    crc: crc32fast::Hasher,
    pieces: Vec<PieceRef>,
}

impl PieceWriter {
    /// The beginning of a file.
    pub fn begin(origin: &Origin) -> Result<(PieceWriter, Bytes), Refusal> {
        if origin.job.0.len() > JOB_BYTES_MAX {
            return Err(malformed("job", format!("a name of more than {JOB_BYTES_MAX} bytes")));
        }
        let crc = crc32fast::Hasher::new();
        let (checkpoint, name) = (origin.checkpoint, origin.file_name());
        let mut writer = PieceWriter { checkpoint, name, bytes: 0, crc, pieces: Vec::new() };
        let header = header(origin);
        writer.count(&header);
        Ok((writer, header))
    }

    /// The next piece.
    pub fn add(&mut self, copy: &proto::BlockCopy) -> Result<Bytes, Refusal> {
        let subject = format!("block {}", copy.block);
        let length = FRAME_BYTES + copy.encoded_len();
        if length as u64 > PIECE_BYTES_MAX {
            return Err(malformed(&subject, format!("a piece of {length} bytes, at most {PIECE_BYTES_MAX}")));
        }
        let Some(name) = &copy.name else { return Err(malformed(&subject, "a copy without a name")) };
        let payload = copy.encode_to_vec();
        let crc32 = crc32fast::hash(&payload);
        let mut frame = BytesMut::with_capacity(length);
        frame.put_u32_le(payload.len() as u32);
        frame.put_u32_le(crc32);
        frame.put_slice(&payload);
        self.pieces.push(PieceRef {
            block: BlockId(copy.block),
            rewind: Rewind(copy.rewind),
            name: StateName { term: Term(name.term), version: Version(name.version) },
            slots: slots_of(copy),
            is_delta: is_delta(copy),
            file: 0,
            offset: self.bytes,
            bytes: length as u64,
            crc32,
        });
        self.count(&frame);
        Ok(frame.freeze())
    }

    /// The end of the file, and what a manifest must know of it.
    pub fn finish(mut self) -> (Bytes, WrittenFile) {
        let trailer = trailer(self.pieces.len() as u64, self.bytes + TRAILER_BYTES);
        self.count(&trailer);
        let PieceWriter { checkpoint, name, bytes, crc, .. } = self;
        let file = FileRecord { checkpoint, name, bytes, crc32: crc.finalize() };
        (trailer, WrittenFile { file, pieces: self.pieces })
    }

    fn count(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.crc.update(bytes);
    }
}

fn slots_of(copy: &proto::BlockCopy) -> Range<u32> {
    copy.segment.as_ref().map_or(WHOLE, |segment| segment.first..segment.end)
}

fn is_delta(copy: &proto::BlockCopy) -> bool {
    copy.segment.as_ref().is_some_and(|segment| segment.delta.is_some())
}

fn header(origin: &Origin) -> Bytes {
    let mut header = BytesMut::new();
    header.put_slice(MAGIC);
    header.put_u32_le(FORMAT);
    header.put_u32_le(origin.job.0.len() as u32);
    header.put_slice(origin.job.0.as_bytes());
    header.put_u64_le(origin.checkpoint.0);
    header.put_u64_le(origin.writer.0);
    header.put_u64_le(origin.sequence);
    header.put_u32_le(crc32fast::hash(&header));
    header.freeze()
}

fn trailer(pieces: u64, bytes: u64) -> Bytes {
    let mut trailer = BytesMut::with_capacity(TRAILER_BYTES as usize);
    trailer.put_slice(TRAILER_MAGIC);
    trailer.put_u64_le(pieces);
    trailer.put_u64_le(bytes);
    trailer.put_u32_le(crc32fast::hash(&trailer));
    trailer.freeze()
}

/// Where the header lies in every file of this job.
pub fn header_range(manifest: &CheckpointManifest) -> Range<u64> {
    0..(8 + 4 + 4 + manifest.settings.job.0.len() + 3 * 8 + 4) as u64
}

/// Where the trailer lies in a file.
pub fn trailer_range(file: &FileRecord) -> Range<u64> {
    file.bytes.saturating_sub(TRAILER_BYTES)..file.bytes
}

/// Checks that a file's header is that of the manifest's job and the file's checkpoint, under the name that its writer gave it.
/// Answers the file's format.
pub fn check_header(header: &[u8], manifest: &CheckpointManifest, file: &FileRecord) -> Result<u32, Damage> {
    let (format, found) = decode_header(header)?;
    if found.job != manifest.settings.job {
        return Err(Damage::new(16, format!("of job {:?}, not {:?}", found.job.0, manifest.settings.job.0)));
    }
    let after_job = 16 + found.job.0.len();
    if found.checkpoint != file.checkpoint {
        let what = format!("of checkpoint {}, not {}", found.checkpoint, file.checkpoint);
        return Err(Damage::new(after_job, what));
    }
    if found.file_name() != file.name {
        return Err(Damage::new(after_job + 8, format!("it was written as {}", found.file_name())));
    }
    Ok(format)
}

fn decode_header(header: &[u8]) -> Result<(u32, Origin), Damage> {
    let short = |_| Damage::new(header.len(), "the file ends inside its header");
    if !header.starts_with(MAGIC) {
        return Err(Damage::new(0, "not a file of pieces"));
    }
    let mut rest = &header[MAGIC.len()..];
    let format = rest.try_get_u32_le().map_err(short)?;
    let job_bytes = rest.try_get_u32_le().map_err(short)? as usize;
    // The header was cut for the manifest's job: another length is another job, or damage.
    let expected = rest.len().saturating_sub(3 * 8 + 4);
    if job_bytes != expected {
        return Err(Damage::new(12, format!("a job's name of {job_bytes} bytes, not {expected}")));
    }
    let (body, mut crc32) = header.split_at(header.len() - 4);
    if crc32.try_get_u32_le().map_err(short)? != crc32fast::hash(body) {
        return Err(Damage::new(body.len(), "the header's checksum does not match"));
    }
    if !(1..=FORMAT).contains(&format) {
        return Err(Damage::format("a file of pieces", format, FORMAT));
    }
    let (job, mut rest) = rest.split_at(job_bytes);
    let job = String::from_utf8(job.to_vec()).map_err(|_| Damage::new(16, "the job's name is not UTF-8"))?;
    let origin = Origin {
        job: JobId(job),
        checkpoint: CheckpointId(rest.try_get_u64_le().map_err(short)?),
        writer: Incarnation(rest.try_get_u64_le().map_err(short)?),
        sequence: rest.try_get_u64_le().map_err(short)?,
    };
    Ok((format, origin))
}

/// Checks that the last bytes of a file are the end that its writer put there.
pub fn check_trailer(found: &[u8], file: &FileRecord) -> Result<(), Damage> {
    let at = trailer_range(file).start as usize;
    if found.len() as u64 != TRAILER_BYTES || !found.starts_with(TRAILER_MAGIC) {
        return Err(Damage::new(at, "the file does not end as a file of pieces does: it was cut short"));
    }
    let mut pieces = &found[TRAILER_MAGIC.len()..];
    match found == trailer(pieces.get_u64_le(), file.bytes) {
        true => Ok(()),
        false => Err(Damage::new(at, "the trailer's checksum or length does not match")),
    }
}

/// The copy in the bytes of one piece, if it is the one that the manifest means.
pub fn decode_piece(mut frame: Bytes, piece: &PieceRef) -> Result<proto::BlockCopy, Damage> {
    if frame.len() as u64 != piece.bytes || frame.len() < FRAME_BYTES {
        return Err(Damage::new(0, format!("{} bytes of a piece of {}", frame.len(), piece.bytes)));
    }
    let (length, crc32) = (frame.get_u32_le(), frame.get_u32_le());
    if length as usize != frame.len() {
        let what = format!("a message of {length} bytes in a frame for {}", frame.len());
        return Err(Damage::new(0, what));
    }
    if crc32 != piece.crc32 {
        let what = format!("checksum {crc32:08x}, the manifest has {:08x}", piece.crc32);
        return Err(Damage::new(4, what));
    }
    if crc32 != crc32fast::hash(&frame) {
        return Err(Damage::new(FRAME_BYTES, "the checksum does not match"));
    }
    let copy =
        proto::BlockCopy::decode(frame).map_err(|error| Damage::new(FRAME_BYTES, error.to_string()))?;
    let name = copy.name.unwrap_or_default();
    let name = StateName { term: Term(name.term), version: Version(name.version) };
    if (BlockId(copy.block), Rewind(copy.rewind), name) != (piece.block, piece.rewind, piece.name) {
        let what = format!(
            "block {} under rewind number {} at {name}; the manifest has block {} under {} at {}",
            copy.block, copy.rewind, piece.block, piece.rewind, piece.name
        );
        return Err(Damage::new(FRAME_BYTES, what));
    }
    if slots_of(&copy) != piece.slots {
        let what = format!("slots {:?}; the manifest has {:?}", slots_of(&copy), piece.slots);
        return Err(Damage::new(FRAME_BYTES, what));
    }
    if is_delta(&copy) != piece.is_delta {
        let what = if piece.is_delta { "a whole state, not changes" } else { "changes, not a whole state" };
        return Err(Damage::new(FRAME_BYTES, what));
    }
    Ok(copy)
}

/// Puts into a copy of a file of that format what files of today's have beside it: counters, and counts of decisions, have remainders,
/// which are zero where none were kept. A copy of anything else stays as it is.
pub fn complete(copy: &mut proto::BlockCopy, format: u32, declaration: &Declaration, layout: &Layout) {
    let counter = |parameter: usize| {
        declaration.parameters.get(parameter).filter(|of| matches!(of.rule, Rule::Sum | Rule::Decide(_)))
    };
    let Some(block) = layout.block(BlockId(copy.block)).filter(|_| format < WITH_REMAINDERS) else { return };
    match block.bucket {
        Some(bucket) => {
            if let Some(table) = counter(bucket.parameter) {
                copy.parameters = with_remainders(&copy.parameters, 4 * table.elements() as usize);
            }
        }
        None => {
            let kept =
                |piece: &Piece| counter(piece.parameter).is_some_and(|counter| !counter.slots().is_empty());
            if copy.slots.is_empty() && block.pieces.iter().any(kept) {
                copy.slots.push(vec![0; copy.parameters.len()].into());
            }
        }
    }
}

/// Rows whose embeddings have so many bytes, with as many zeros behind each. What is no whole row stays as it is.
fn with_remainders(rows: &[u8], embedding_bytes: usize) -> Bytes {
    let rows = rows.chunks_exact(ROW_HEAD_BYTES + embedding_bytes);
    let mut wide = BytesMut::with_capacity(rows.len() * (ROW_HEAD_BYTES + 2 * embedding_bytes));
    let rest = rows.remainder();
    for row in rows {
        wide.put_slice(row);
        wide.put_bytes(0, embedding_bytes);
    }
    wide.put_slice(rest);
    wide.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::sample;
    use proptest::prelude::*;

    /// A file of pieces and what was recorded of it.
    fn file_of(copies: &[proto::BlockCopy]) -> (Bytes, WrittenFile) {
        let (mut writer, header) = PieceWriter::begin(&sample::origin(4, 0)).unwrap();
        let mut file = BytesMut::from(&header[..]);
        for copy in copies {
            file.put(writer.add(copy).unwrap());
        }
        let (trailer, written) = writer.finish();
        file.put(trailer);
        (file.freeze(), written)
    }

    fn slice(file: &Bytes, range: Range<u64>) -> Bytes {
        file.slice(range.start as usize..range.end as usize)
    }

    fn frame(file: &Bytes, piece: &PieceRef) -> Bytes {
        slice(file, piece.offset..piece.offset + piece.bytes)
    }

    #[test]
    fn a_piece_is_taken_for_no_other_block_state_or_place() {
        let (file, written) = file_of(&[sample::copy(0, 5), sample::copy(1, 5)]);
        let piece = &written.pieces[0];
        assert_eq!(decode_piece(frame(&file, piece), piece).unwrap(), sample::copy(0, 5));
        for change in [
            (|p: &mut PieceRef| p.block = BlockId(1)) as fn(&mut PieceRef),
            |p| p.rewind = Rewind(9),
            |p| p.name.term = Term(9),
            |p| p.name.version = Version(9),
            |p| p.crc32 ^= 1,
            |p| p.bytes -= 1,
            |p| p.offset += 1,
            |p| p.bytes = 7,
        ] {
            let mut other = piece.clone();
            change(&mut other);
            assert!(decode_piece(frame(&file, &other), &other).is_err(), "{other:?}");
        }
    }

    #[test]
    fn a_header_is_taken_for_no_other_job_checkpoint_or_writer() {
        let (file, written) = file_of(&[sample::copy(0, 5), sample::copy(1, 5)]);
        let manifest = sample::manifest(4, &[written]);
        let check = |manifest: &CheckpointManifest| {
            check_header(&slice(&file, header_range(manifest)), manifest, &manifest.files[0])
        };
        check(&manifest).unwrap();
        for (change, expected) in [
            ((|m: &mut CheckpointManifest| m.settings.job.0 = "digits-2".into()) as fn(&mut _), "of job"),
            (|m: &mut CheckpointManifest| m.settings.job.0 = "digits-12".into(), "name of"),
            (|m: &mut CheckpointManifest| m.settings.job.0 = "d".into(), "name of"),
            (|m: &mut CheckpointManifest| m.files[0].checkpoint = CheckpointId(5), "of checkpoint 4, not 5"),
            (|m: &mut CheckpointManifest| m.files[0].name = "pserver-1.1-0.blocks".into(), "written as"),
        ] {
            let mut other = manifest.clone();
            change(&mut other);
            let damage = check(&other).unwrap_err();
            assert!(damage.what.contains(expected), "{damage}");
        }
    }

    #[test]
    fn a_copy_without_a_name_or_too_large_is_not_written() {
        let (mut writer, _) = PieceWriter::begin(&sample::origin(4, 0)).unwrap();
        assert!(writer.add(&proto::BlockCopy { name: None, ..sample::copy(0, 5) }).is_err());
        let parameters = Bytes::from(vec![0; PIECE_BYTES_MAX as usize]);
        assert!(writer.add(&proto::BlockCopy { parameters, ..sample::copy(0, 5) }).is_err());
        let mut origin = sample::origin(4, 0);
        origin.job.0 = "j".repeat(JOB_BYTES_MAX + 1);
        assert!(PieceWriter::begin(&origin).is_err());
    }

    #[test]
    fn counters_of_files_from_before_format_3_have_remainders_of_zero_and_nothing_else_changes() {
        use crate::cluster::initial::Initial;
        use crate::cluster::{Parameter, Schedule, Table};
        let row = |rule| Parameter::new("rows", &[2], rule, Schedule::constant(0.0), Initial::Zeros);
        let table = |rule| row(rule).as_table(Table { buckets: 1, ..Table::default() });
        let plain = Parameter { rule: Rule::Sgd, ..Parameter::sum("plain", &[1]) };
        let parameters = vec![
            Parameter::sum("loss", &[3]),
            plain,
            table(Rule::Sum),
            Parameter { name: "sgd".into(), ..table(Rule::Sgd) },
        ];
        let declaration = Declaration { parameters, block_elements: 0 };
        let layout = Layout::new(&declaration);
        let completed = |copy: &proto::BlockCopy, format| {
            let mut copy = copy.clone();
            complete(&mut copy, format, &declaration, &layout);
            copy
        };
        let dense = |block| proto::BlockCopy { block, ..sample::copy(0, 5) };
        let rows = Bytes::from((0..56).collect::<Vec<u8>>());
        let bucket = |block| proto::BlockCopy { parameters: rows.clone(), ..dense(block) };
        let zeros = vec![Bytes::from(vec![0; 12])];
        let wide: Vec<u8> = (0..28).chain([0; 8]).chain(28..56).chain([0; 8]).collect();
        for format in [1, 2] {
            assert_eq!(completed(&dense(0), format), proto::BlockCopy { slots: zeros.clone(), ..dense(0) });
            assert_eq!(completed(&dense(1), format), dense(1), "no counter");
            let widened = proto::BlockCopy { parameters: wide.clone().into(), ..bucket(2) };
            assert_eq!(completed(&bucket(2), format), widened);
            assert_eq!(completed(&bucket(3), format), bucket(3), "rows of no counter");
            let torn = proto::BlockCopy { parameters: rows.slice(..30), ..dense(2) };
            assert_eq!(completed(&torn, format).parameters.len(), 38, "a whole row and what is none");
            assert_eq!(completed(&dense(9), format), dense(9), "no block");
        }
        assert_eq!((completed(&dense(0), 3), completed(&bucket(2), 3)), (dense(0), bucket(2)));
    }

    #[test]
    fn an_absurd_length_costs_no_memory() {
        let (file, written) = file_of(&[sample::copy(0, 5)]);
        let piece = &written.pieces[0];
        let mut hostile = frame(&file, piece).to_vec();
        hostile[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode_piece(hostile.into(), piece).unwrap_err().offset, 0);
        let mut header = file[..52].to_vec();
        header[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode_header(&header).unwrap_err().offset, 12);
    }

    proptest! {
        #[test]
        fn any_copies_survive_their_file_and_its_record_is_true(
            sizes in proptest::collection::vec((0usize..200, 0usize..3, any::<u64>()), 0..8)
        ) {
            let copies: Vec<proto::BlockCopy> = sizes.iter().enumerate().map(|(block, (bytes, slots, version))| {
                let parameters = Bytes::from(vec![block as u8; *bytes]);
                let ledger = proto::Ledger { low: *version, ranges: Vec::new() };
                proto::BlockCopy {
                    slots: vec![parameters.clone(); *slots],
                    earlier: vec![parameters.clone()],
                    parameters,
                    ledger: Some(ledger),
                    ..sample::copy(block as u32, *version)
                }
            }).collect();
            let (file, written) = file_of(&copies);
            prop_assert_eq!(written.file.bytes, file.len() as u64);
            prop_assert_eq!(written.file.crc32, crc32fast::hash(&file));
            check_trailer(&slice(&file, trailer_range(&written.file)), &written.file).unwrap();
            let mut at = header_range(&sample::manifest(4, &sample::written(4, 5))).end;
            for (copy, piece) in copies.iter().zip(&written.pieces) {
                prop_assert_eq!(piece.offset, at);
                at += piece.bytes;
                prop_assert_eq!(&decode_piece(frame(&file, piece), piece).unwrap(), copy);
            }
            prop_assert_eq!(at, trailer_range(&written.file).start);
        }

        #[test]
        fn a_strangers_bytes_are_an_error_and_never_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..80), bit in 0usize..416
        ) {
            let file = FileRecord { bytes: bytes.len() as u64, ..sample::written(4, 2)[0].file.clone() };
            let piece = PieceRef { bytes: bytes.len() as u64, crc32: crc32fast::hash(&bytes), ..sample::piece() };
            prop_assert!(decode_header(&bytes).is_err());
            prop_assert!(check_trailer(&bytes, &file).is_err());
            prop_assert!(decode_piece(bytes.clone().into(), &piece).is_err());
            // A frame and a checksum around the same bytes: what is left is the message itself.
            let piece = PieceRef { bytes: bytes.len() as u64 + 8, ..piece };
            let mut frame = BytesMut::new();
            frame.put_u32_le(bytes.len() as u32);
            frame.put_u32_le(piece.crc32);
            frame.put_slice(&bytes);
            prop_assert!(decode_piece(frame.freeze(), &piece).is_err());
            let mut header = header(&sample::origin(4, 0)).to_vec();
            header[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode_header(&header).is_err());
        }
    }
}
