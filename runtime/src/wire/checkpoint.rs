//! Checkpoints' manifests: their protobuf messages, and the file that one is.
//!
//! `magic (8) | format (u32) | payload length (u64) | CRC-32 of the payload (u32) | payload`, little-endian, and not a
//! byte more. It must never hand out a manifest that is not whole and checked.

use super::pieces::Damage;
use super::{malformed, proto, required};
use crate::cluster::block_copy::WHOLE;
use crate::cluster::checkpoint::{CheckpointId, CheckpointManifest, Cut, FileRecord, PieceRef};
use crate::cluster::{BlockId, Refusal, Rewind, StateName, Term, Version};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

/// The largest manifest file, about 1.5 million blocks.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 20;
const MAGIC: &[u8; 8] = b"SHOALMAN";
/// The format that is written. Formats from 1 on are read: what came with 2, tables, is not in those before.
const FORMAT: u32 = 2;
const PREFIX_BYTES: usize = 24;

/// The bytes of a manifest file.
pub fn encode_manifest(manifest: &CheckpointManifest) -> Result<Bytes, Refusal> {
    let payload = proto::CheckpointManifest::from(manifest).encode_to_vec();
    if (PREFIX_BYTES + payload.len()) as u64 > MANIFEST_BYTES_MAX {
        let detail = format!("{} bytes, at most {MANIFEST_BYTES_MAX}: declare larger blocks", payload.len());
        return Err(malformed("manifest", detail));
    }
    let mut file = BytesMut::with_capacity(PREFIX_BYTES + payload.len());
    file.put_slice(MAGIC);
    file.put_u32_le(FORMAT);
    file.put_u64_le(payload.len() as u64);
    file.put_u32_le(crc32fast::hash(&payload));
    file.put_slice(&payload);
    Ok(file.freeze())
}

/// The manifest in the bytes of a manifest file.
pub fn decode_manifest(file: &[u8]) -> Result<CheckpointManifest, Damage> {
    let Some((mut prefix, payload)) = file.split_at_checked(PREFIX_BYTES) else {
        return Err(Damage::new(file.len(), "the file ends inside its header"));
    };
    if !prefix.starts_with(MAGIC) {
        return Err(Damage::new(0, "not a checkpoint's manifest"));
    }
    prefix.advance(MAGIC.len());
    let (format, bytes, crc32) = (prefix.get_u32_le(), prefix.get_u64_le(), prefix.get_u32_le());
    if !(1..=FORMAT).contains(&format) {
        return Err(Damage::format("a checkpoint's manifest", format, FORMAT));
    }
    if bytes != payload.len() as u64 {
        let what = format!("{bytes} bytes of payload were written, {} are there", payload.len());
        return Err(Damage::new(12, what));
    }
    if crc32 != crc32fast::hash(payload) {
        return Err(Damage::new(PREFIX_BYTES, "the payload's checksum does not match"));
    }
    let wire = proto::CheckpointManifest::decode(payload)
        .map_err(|error| Damage::new(PREFIX_BYTES, error.to_string()))?;
    wire.try_into().map_err(|refusal: Refusal| Damage::new(PREFIX_BYTES, refusal.to_string()))
}

impl From<&CheckpointManifest> for proto::CheckpointManifest {
    fn from(manifest: &CheckpointManifest) -> Self {
        proto::CheckpointManifest {
            settings: Some((&manifest.settings).into()),
            declaration: Some((&manifest.declaration).into()),
            checkpoint: manifest.checkpoint.0,
            cut: manifest.cut.map(|cut| proto::Cut { rewind: cut.rewind.0, version: cut.version.0 }),
            files: manifest.files.iter().map(Into::into).collect(),
            pieces: manifest.pieces.iter().map(Into::into).collect(),
            identity: manifest.identity.clone().unwrap_or_default(),
        }
    }
}

impl TryFrom<proto::CheckpointManifest> for CheckpointManifest {
    type Error = Refusal;

    /// The manifest, checked ([`CheckpointManifest::check`]).
    fn try_from(wire: proto::CheckpointManifest) -> Result<Self, Refusal> {
        let manifest = CheckpointManifest {
            settings: required(wire.settings, "settings")?.try_into()?,
            declaration: required(wire.declaration, "declaration")?.try_into()?,
            checkpoint: CheckpointId(wire.checkpoint),
            cut: wire.cut.map(|cut| Cut { rewind: Rewind(cut.rewind), version: Version(cut.version) }),
            files: wire.files.into_iter().map(|file| file_of(file, wire.checkpoint)).collect(),
            pieces: wire.pieces.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            identity: Some(wire.identity).filter(|identity| !identity.is_empty()),
        };
        manifest.check().map_err(|fault| malformed(&fault.subject, fault.what))?;
        Ok(manifest)
    }
}

impl From<&FileRecord> for proto::FileRecord {
    fn from(file: &FileRecord) -> Self {
        let FileRecord { checkpoint, name, bytes, crc32 } = file.clone();
        proto::FileRecord { checkpoint: checkpoint.0, name, bytes, crc32 }
    }
}

impl From<proto::FileRecord> for FileRecord {
    fn from(wire: proto::FileRecord) -> Self {
        let proto::FileRecord { checkpoint, name, bytes, crc32 } = wire;
        FileRecord { checkpoint: CheckpointId(checkpoint), name, bytes, crc32 }
    }
}

/// A file in the manifest of checkpoint `own`; in format 1 all files were its own, and none said so.
fn file_of(wire: proto::FileRecord, own: u64) -> FileRecord {
    let checkpoint = if wire.checkpoint == 0 { own } else { wire.checkpoint };
    proto::FileRecord { checkpoint, ..wire }.into()
}

impl From<&PieceRef> for proto::PieceRef {
    fn from(piece: &PieceRef) -> Self {
        proto::PieceRef {
            block: piece.block.0,
            rewind: piece.rewind.0,
            name: Some(proto::StateName { term: piece.name.term.0, version: piece.name.version.0 }),
            file: piece.file,
            offset: piece.offset,
            bytes: piece.bytes,
            crc32: piece.crc32,
            first: piece.slots.start,
            end: if piece.slots == WHOLE { 0 } else { piece.slots.end },
            is_delta: piece.is_delta,
        }
    }
}

impl TryFrom<proto::PieceRef> for PieceRef {
    type Error = Refusal;

    fn try_from(wire: proto::PieceRef) -> Result<Self, Refusal> {
        let name = required(wire.name, "piece.name")?;
        Ok(PieceRef {
            block: BlockId(wire.block),
            rewind: Rewind(wire.rewind),
            name: StateName { term: Term(name.term), version: Version(name.version) },
            slots: if wire.end == 0 { WHOLE } else { wire.first..wire.end },
            is_delta: wire.is_delta,
            file: wire.file,
            offset: wire.offset,
            bytes: wire.bytes,
            crc32: wire.crc32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::sample;
    use proptest::prelude::*;

    #[test]
    fn a_manifest_survives_its_file_with_and_without_a_cut() {
        let mut manifest = sample::manifest(4, &sample::written(4, 2));
        let file = encode_manifest(&manifest).unwrap();
        assert_eq!(decode_manifest(&file).unwrap(), manifest);
        manifest.cut = None;
        assert_eq!(decode_manifest(&encode_manifest(&manifest).unwrap()).unwrap(), manifest);
    }

    #[test]
    fn a_manifest_that_breaks_its_own_rules_is_refused_whatever_its_checksum() {
        let mut manifest = sample::manifest(4, &sample::written(4, 2));
        manifest.pieces[1].name.version = Version(99);
        let damage = decode_manifest(&encode_manifest(&manifest).unwrap()).unwrap_err();
        assert!(damage.what.contains("version 99"), "{damage}");
    }

    #[test]
    fn a_flipped_bit_a_missing_and_an_added_byte_are_found() {
        let file = encode_manifest(&sample::manifest(4, &sample::written(4, 2))).unwrap();
        for bit in 0..file.len() * 8 {
            let mut flipped = file.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_manifest(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..file.len() {
            assert!(decode_manifest(&file[..length]).is_err(), "cut to {length}");
        }
        assert!(decode_manifest(&[&file[..], &[0]].concat()).is_err());
    }

    #[test]
    fn a_payload_of_absurd_length_costs_no_memory() {
        let mut file = encode_manifest(&sample::manifest(4, &sample::written(4, 2))).unwrap().to_vec();
        file[12..20].copy_from_slice(&(1u64 << 60).to_le_bytes());
        assert_eq!(decode_manifest(&file).unwrap_err().offset, 12);
    }

    proptest! {
        #[test]
        fn a_strangers_payload_is_an_error_and_never_a_panic(payload in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut file = MAGIC.to_vec();
            file.put_u32_le(FORMAT);
            file.put_u64_le(payload.len() as u64);
            file.put_u32_le(crc32fast::hash(&payload));
            file.put_slice(&payload);
            prop_assert!(decode_manifest(&file).is_err());
        }
    }
}
