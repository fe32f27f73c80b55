//! What a checkpoint is: which stretch of which file holds which block's state.
//! Must never know where storage is or how bytes are laid out.

mod check;

pub use check::CheckpointFault;

use super::{BlockId, Declaration, Incarnation, JobId, JobSettings, Rewind, StateName, Version};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// The most bytes of one piece, frame included: a block of 1 MiB with its slots and earlier state, many times over.
pub const PIECE_BYTES_MAX: u64 = 64 << 20;
/// The name of every checkpoint's manifest in its folder.
pub const MANIFEST_NAME: &str = "manifest";
const FOLDER_PREFIX: &str = "checkpoint-";

/// One checkpoint of a job, counted by the master. A number is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CheckpointId(pub u64);

/// What the master remembers of a committed checkpoint: enough to tell its manifest from any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestRecord {
    /// Which checkpoint; its name follows from it.
    pub checkpoint: CheckpointId,
    /// Bytes of the manifest file.
    pub bytes: u64,
    /// CRC-32 of the whole manifest file.
    pub crc32: u32,
}

/// A committed checkpoint that cannot be restored, because it is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedCheckpoint {
    /// Which.
    pub record: ManifestRecord,
    /// The object that is damaged or missing, with its place.
    pub file: String,
    /// What is wrong with it.
    pub what: String,
}

/// Who wrote a file of pieces, and for which checkpoint. It stands at the file's beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The job.
    pub job: JobId,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The pserver.
    pub writer: Incarnation,
    /// Counts the files that this pserver writes for this checkpoint, failed ones included.
    pub sequence: u64,
}

/// One file of pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// In whose folder it lies: the checkpoint that it was written for.
    pub checkpoint: CheckpointId,
    /// Its name in that folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// CRC-32 of the whole file.
    pub crc32: u32,
}

/// One block's state, or of a bucket a segment of it: a stretch of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceRef {
    /// The block.
    pub block: BlockId,
    /// The block's rewind number when the piece was written.
    pub rewind: Rewind,
    /// Which state of the block it is.
    pub name: StateName,
    /// Which slots of a bucket it has; of a dense block [`WHOLE`](super::block_copy::WHOLE).
    pub slots: Range<u32>,
    /// Of a bucket: it has only what changed since the checkpoint before; pieces in older files have the rest.
    pub is_delta: bool,
    /// Index into the manifest's files.
    pub file: u32,
    /// Where the piece begins in the file.
    pub offset: u64,
    /// Its length, frame included.
    pub bytes: u64,
    /// CRC-32 of its message.
    pub crc32: u32,
}

/// What became of writing one file: the file, and the pieces in it (their `file` is 0 until a manifest takes them).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    /// The file.
    pub file: FileRecord,
    /// Its pieces, in the order of writing.
    pub pieces: Vec<PieceRef>,
}

/// The one state of the whole model that a synchronous job's checkpoint holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Every piece's rewind number.
    pub rewind: Rewind,
    /// Every piece's version; with the job's plan it is the data position.
    pub version: Version,
}

/// A whole checkpoint: what training goes on from, and what is exported.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointManifest {
    /// The job's settings.
    pub settings: JobSettings,
    /// The job's parameters.
    pub declaration: Declaration,
    /// Which checkpoint.
    pub checkpoint: CheckpointId,
    /// None in asynchronous jobs, where every block has its own rewind number and version.
    pub cut: Option<Cut>,
    /// The files, by checkpoint and name. Those of earlier checkpoints have what deltas of this one rest on.
    pub files: Vec<FileRecord>,
    /// In block order, every block whole. A bucket's newest state comes first, in slot order; where that is a delta, what it
    /// rests on follows, newest first, down to a state that has everything.
    pub pieces: Vec<PieceRef>,
    /// The job's random identity, as names are not unique; `None` in a job that began under a build without identities.
    pub identity: Option<String>,
}

impl CheckpointManifest {
    /// Puts together what pservers wrote, with [what deltas rest on](Self::beneath). Fails unless the pieces make every
    /// block once ([`check`](Self::check)): who has a block twice chooses before.
    pub fn assemble(
        settings: JobSettings,
        declaration: Declaration,
        checkpoint: CheckpointId,
        cut: Option<Cut>,
        mut written: Vec<WrittenFile>,
    ) -> Result<CheckpointManifest, CheckpointFault> {
        written.retain(|file| !file.pieces.is_empty());
        written.sort_by(|a, b| a.file.place().cmp(&b.file.place()));
        let mut manifest = CheckpointManifest {
            settings,
            declaration,
            checkpoint,
            cut,
            files: Vec::new(),
            pieces: Vec::new(),
            identity: None,
        };
        for WrittenFile { file, pieces } in written {
            let index = manifest.files.len() as u32;
            manifest.files.push(file);
            manifest.pieces.extend(pieces.into_iter().map(|piece| PieceRef { file: index, ..piece }));
        }
        let of_file: Vec<CheckpointId> = manifest.files.iter().map(|file| file.checkpoint).collect();
        let order =
            |piece: &PieceRef| (piece.block, Reverse(of_file[piece.file as usize]), piece.slots.start);
        manifest.pieces.sort_by_key(order);
        manifest.check()?;
        Ok(manifest)
    }

    /// What deltas that were written since this checkpoint rest on: the files that have this checkpoint's pieces of the same
    /// blocks, with these pieces.
    pub fn beneath(&self, written: &[WrittenFile]) -> Vec<WrittenFile> {
        let pieces = written.iter().flat_map(|file| &file.pieces);
        let changed: BTreeSet<BlockId> =
            pieces.filter(|piece| piece.is_delta).map(|piece| piece.block).collect();
        let file = |file: &FileRecord| WrittenFile { file: file.clone(), pieces: Vec::new() };
        let mut files: Vec<WrittenFile> = self.files.iter().map(file).collect();
        for piece in self.pieces.iter().filter(|piece| changed.contains(&piece.block)) {
            files[piece.file as usize].pieces.push(piece.clone());
        }
        files.retain(|file| !file.pieces.is_empty());
        files
    }

    /// Whether a file was written for this checkpoint, and not for one that it rests on.
    pub fn is_own(&self, file: &FileRecord) -> bool {
        file.checkpoint == self.checkpoint
    }

    /// The version of every block; in asynchronous jobs the lowest.
    pub fn version(&self) -> Version {
        let own = self.pieces.iter().filter(|piece| self.is_own(&self.files[piece.file as usize]));
        own.map(|piece| piece.name.version).min().unwrap_or(Version(0))
    }

    /// The oldest checkpoint whose files this one names: itself, where it rests on no other.
    pub fn oldest(&self) -> CheckpointId {
        self.files.iter().map(|file| file.checkpoint).min().unwrap_or(self.checkpoint)
    }

    /// The pieces of a block in a checked manifest, of a bucket newest first and in slot order.
    pub fn pieces_of(&self, block: BlockId) -> &[PieceRef] {
        let rest = &self.pieces[self.pieces.partition_point(|piece| piece.block < block)..];
        &rest[..rest.partition_point(|piece| piece.block == block)]
    }
}

impl CheckpointId {
    /// The folder of this checkpoint's files.
    pub fn folder(self) -> String {
        format!("{FOLDER_PREFIX}{:08}", self.0)
    }
    /// The object that holds this checkpoint's manifest.
    pub fn manifest_object(self) -> String {
        format!("{}/{MANIFEST_NAME}", self.folder())
    }
    /// Which checkpoint a folder belongs to, if any.
    pub fn of_folder(name: &str) -> Option<CheckpointId> {
        let id = CheckpointId(name.strip_prefix(FOLDER_PREFIX)?.parse().ok()?);
        (id.folder() == name).then_some(id)
    }
}

impl Origin {
    /// The file's name in the checkpoint's folder.
    pub fn file_name(&self) -> String {
        format!("pserver-{}-{}.blocks", self.writer, self.sequence)
    }
}

impl FileRecord {
    /// Where it lies among all files of a job.
    fn place(&self) -> (CheckpointId, &str) {
        (self.checkpoint, &self.name)
    }
    /// The object that holds this file.
    pub fn object(&self) -> String {
        format!("{}/{}", self.checkpoint.folder(), self.name)
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_numbers_do_and_only_a_checkpoints_own_folder_is_one() {
        assert_eq!(CheckpointId(12).manifest_object(), "checkpoint-00000012/manifest");
        let origin = Origin {
            job: JobId("j".into()),
            checkpoint: CheckpointId(12),
            writer: Incarnation::new(1, 3),
            sequence: 0,
        };
        assert_eq!(origin.file_name(), "pserver-1.3-0.blocks");
        for id in [0, 12, 99_999_999, 100_000_000, u64::MAX] {
            assert_eq!(CheckpointId::of_folder(&CheckpointId(id).folder()), Some(CheckpointId(id)));
        }
        for name in ["checkpoint-12", "checkpoint-000000012", "checkpoint-+0000012", "checkpoint-", "x", ""] {
            assert_eq!(CheckpointId::of_folder(name), None, "{name}");
        }
    }
}
