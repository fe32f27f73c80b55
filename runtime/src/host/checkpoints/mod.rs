//! Checkpoints in storage: pieces first, the manifest last; removal the other way round.
//!
//! `checkpoint-00000012/pserver-1.3-0.blocks` and such hold pieces, `checkpoint-00000012/manifest` makes them one
//! checkpoint, with files of earlier ones where pieces have only what changed since. Only one whose manifest is there is one; which of those counts, the master's document says. Nothing here
//! may trust what storage returns before its checksum and its name are those that were meant.

mod claim;
mod copy;
mod list;
#[cfg(test)]
mod tests;
mod verify;

pub use claim::{claim, claimant, release};
pub use copy::copy;
pub use list::{Completeness, Entry, list};
pub use verify::{Fault, Report, verify};

use super::storage::{Storage, StorageError};
use crate::cluster::checkpoint::{
    CheckpointId, CheckpointManifest, FileRecord, ManifestRecord, Origin, PieceRef, WrittenFile,
};
use crate::cluster::{Layout, Refusal};
use crate::wire::checkpoint::{MANIFEST_BYTES_MAX, decode_manifest, encode_manifest};
use crate::wire::pieces::{
    Damage, PieceWriter, check_header, check_trailer, complete, decode_piece, header_range, trailer_range,
};
use crate::wire::proto::BlockCopy;

/// Writes one file of pieces; it is durable when this returns. Takes the next copy only when the one before is on its
/// way, so that memory holds a part of the file and one piece. Tried again, it needs another sequence number.
pub async fn write_pieces(
    storage: &Storage,
    origin: &Origin,
    copies: impl IntoIterator<Item = BlockCopy, IntoIter: Send>,
) -> Result<WrittenFile, StorageError> {
    let object = format!("{}/{}", origin.checkpoint.folder(), origin.file_name());
    let invalid = |refusal: Refusal| StorageError::Invalid {
        at: storage.at(&object),
        what: format!("{}: {}", refusal.subject, refusal.detail),
    };
    let (mut writer, header) = PieceWriter::begin(origin).map_err(invalid)?;
    let mut upload = storage.upload(&object).await?;
    upload.write(header).await?;
    for copy in copies {
        upload.write(writer.add(&copy).map_err(invalid)?).await?;
    }
    let (trailer, written) = writer.finish();
    upload.write(trailer).await?;
    upload.finish().await?;
    Ok(written)
}

/// Makes a checkpoint of files that are all there, by writing its manifest. The answer is for the master's document:
/// only once it is in there may an older checkpoint be removed.
pub async fn commit(
    storage: &Storage,
    manifest: &CheckpointManifest,
) -> Result<ManifestRecord, StorageError> {
    let object = manifest.checkpoint.manifest_object();
    let invalid = |what: String| StorageError::Invalid { at: storage.at(&object), what };
    manifest.check().map_err(|fault| invalid(fault.to_string()))?;
    let content = encode_manifest(manifest).map_err(|refusal| invalid(refusal.to_string()))?;
    if let Some((file, bytes)) = first_absent(storage, manifest).await? {
        let at = storage.at(&file.object());
        return Err(match bytes {
            None => StorageError::Missing { at },
            Some(bytes) => {
                let what = format!("it has {bytes} bytes, {} were written", file.bytes);
                StorageError::Damaged { at, offset: bytes.min(file.bytes), what }
            }
        });
    }
    let record = record_of(manifest.checkpoint, &content);
    storage.put(&object, content).await?;
    Ok(record)
}

/// The manifest that the master's document remembers, and no other.
pub async fn load(storage: &Storage, record: &ManifestRecord) -> Result<CheckpointManifest, StorageError> {
    let object = record.checkpoint.manifest_object();
    let content = storage.read(&object, record.bytes.min(MANIFEST_BYTES_MAX)).await?;
    let found = record_of(record.checkpoint, &content);
    if found != *record {
        let what = format!(
            "{} bytes with checksum {:08x}; the one committed has {} with {:08x}",
            found.bytes, found.crc32, record.bytes, record.crc32
        );
        return Err(StorageError::Damaged { at: storage.at(&object), offset: 0, what });
    }
    decode(storage, record.checkpoint, &content)
}

/// A manifest by its number alone, for who has no master's document to ask. An older manifest under a newer name is
/// found, another history's of the same number is not.
pub async fn load_unrecorded(
    storage: &Storage,
    checkpoint: CheckpointId,
) -> Result<(ManifestRecord, CheckpointManifest), StorageError> {
    let content = storage.read(&checkpoint.manifest_object(), MANIFEST_BYTES_MAX).await?;
    Ok((record_of(checkpoint, &content), decode(storage, checkpoint, &content)?))
}

/// One of a manifest's pieces, read alone and known to be the one that is meant. `layout` is the manifest's declaration's.
pub async fn read_piece(
    storage: &Storage,
    manifest: &CheckpointManifest,
    layout: &Layout,
    piece: &PieceRef,
) -> Result<BlockCopy, StorageError> {
    let Some(file) = manifest.files.get(piece.file as usize) else {
        let at = storage.at(&manifest.checkpoint.manifest_object());
        return Err(StorageError::Invalid { at, what: format!("the checkpoint has no file {}", piece.file) });
    };
    let object = file.object();
    let (header, frame, trailer) = tokio::try_join!(
        storage.read_range(&object, header_range(manifest)),
        storage.read_range(&object, piece.offset..piece.offset + piece.bytes),
        storage.read_range(&object, trailer_range(file)),
    )?;
    let damaged = |damage| damaged(storage, &object, 0, damage);
    let format = check_header(&header, manifest, file).map_err(damaged)?;
    check_trailer(&trailer, file).map_err(damaged)?;
    let mut copy =
        decode_piece(frame, piece).map_err(|damage| self::damaged(storage, &object, piece.offset, damage))?;
    complete(&mut copy, format, &manifest.declaration, layout);
    Ok(copy)
}

/// Removes a checkpoint, complete or not, manifest first. To be repeated until it succeeds.
pub async fn remove(storage: &Storage, checkpoint: CheckpointId) -> Result<(), StorageError> {
    storage.delete(&checkpoint.manifest_object()).await?;
    storage.delete_folder(&checkpoint.folder()).await
}

fn record_of(checkpoint: CheckpointId, content: &[u8]) -> ManifestRecord {
    ManifestRecord { checkpoint, bytes: content.len() as u64, crc32: crc32fast::hash(content) }
}

fn decode(
    storage: &Storage,
    checkpoint: CheckpointId,
    content: &[u8],
) -> Result<CheckpointManifest, StorageError> {
    let object = checkpoint.manifest_object();
    let manifest = decode_manifest(content).map_err(|damage| damaged(storage, &object, 0, damage))?;
    if manifest.checkpoint != checkpoint {
        let what = format!("it is the manifest of checkpoint {}", manifest.checkpoint);
        return Err(StorageError::Damaged { at: storage.at(&object), offset: 0, what });
    }
    Ok(manifest)
}

/// The first file of a manifest that is not there, or not with its length (then with which).
async fn first_absent<'a>(
    storage: &Storage,
    manifest: &'a CheckpointManifest,
) -> Result<Option<(&'a FileRecord, Option<u64>)>, StorageError> {
    for files in manifest.files.chunk_by(|a, b| a.checkpoint == b.checkpoint) {
        let Some(folder) = files.first().map(|file| file.checkpoint.folder()) else { continue };
        let objects = storage.list(&folder).await?;
        for file in files {
            let found = objects.binary_search_by(|object| object.name.cmp(&file.name)).ok();
            let bytes = found.map(|index| objects[index].bytes);
            if bytes != Some(file.bytes) {
                return Ok(Some((file, bytes)));
            }
        }
    }
    Ok(None)
}

fn damaged(storage: &Storage, object: &str, offset: u64, damage: Damage) -> StorageError {
    let (at, what) = (storage.at(object), damage.what);
    match damage.is_other_format {
        true => StorageError::OtherFormat { at, what },
        false => StorageError::Damaged { at, offset: offset + damage.offset, what },
    }
}
