//! Files of checkpoints, and what tells their manifests apart, on the wire.

use super::{proto, required};
use crate::cluster::checkpoint::WrittenFile;
use crate::cluster::{CheckpointId, DamagedCheckpoint, ManifestRecord, Refusal};

impl From<&WrittenFile> for proto::WrittenFile {
    fn from(written: &WrittenFile) -> Self {
        proto::WrittenFile {
            file: Some((&written.file).into()),
            pieces: written.pieces.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<proto::WrittenFile> for WrittenFile {
    type Error = Refusal;

    fn try_from(wire: proto::WrittenFile) -> Result<Self, Refusal> {
        let pieces = wire.pieces.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?;
        Ok(WrittenFile { file: required(wire.file, "written.file")?.into(), pieces })
    }
}

impl From<ManifestRecord> for proto::ManifestRecord {
    fn from(record: ManifestRecord) -> Self {
        proto::ManifestRecord { checkpoint: record.checkpoint.0, bytes: record.bytes, crc32: record.crc32 }
    }
}

impl From<proto::ManifestRecord> for ManifestRecord {
    fn from(wire: proto::ManifestRecord) -> Self {
        ManifestRecord { checkpoint: CheckpointId(wire.checkpoint), bytes: wire.bytes, crc32: wire.crc32 }
    }
}

impl From<&DamagedCheckpoint> for proto::DamagedCheckpoint {
    fn from(damaged: &DamagedCheckpoint) -> Self {
        proto::DamagedCheckpoint {
            record: Some(damaged.record.into()),
            file: damaged.file.clone(),
            what: damaged.what.clone(),
        }
    }
}

impl TryFrom<proto::DamagedCheckpoint> for DamagedCheckpoint {
    type Error = Refusal;

    fn try_from(wire: proto::DamagedCheckpoint) -> Result<Self, Refusal> {
        let record = required(wire.record, "damaged.record")?.into();
        Ok(DamagedCheckpoint { record, file: wire.file, what: wire.what })
    }
}
