//! A small job's checkpoint for tests: two blocks, two pservers. It must never be part of a build without tests.

use super::pieces::PieceWriter;
use super::proto;
use crate::cluster::block_copy::WHOLE;
use crate::cluster::checkpoint::{CheckpointId, CheckpointManifest, Cut, Origin, PieceRef, WrittenFile};
use crate::cluster::initial::Initial;
use crate::cluster::schedule::Schedule;
use crate::cluster::{
    BlockId, Declaration, Evaluated, Incarnation, JobId, JobSettings, Mode, Parameter, Period, Precision,
    Rewind, Rule, StateName, Term, Version, WarmStart,
};
use bytes::Bytes;

/// The rewind number of all samples.
const REWIND: u64 = 2;

pub(crate) fn settings() -> JobSettings {
    JobSettings {
        job: JobId("digits-1".into()),
        seed: 1,
        epochs: 2,
        microbatch_records: 4,
        microbatches_per_step: 8,
        shuffle_run: 2,
        records: 100,
        manifest_fingerprint: [7; 32],
        lease_ttl_millis: 1000,
        mode: Mode::SYNC,
        gradients: Precision::Bf16,
        evaluated: Some(Evaluated { records: 30, every: Period::Steps(5), outputs: Some("place".into()) }),
        warm_start: Some(WarmStart {
            place: "place".into(),
            file: "model.safetensors".into(),
            bytes: 77,
            header_sha256: [3; 32],
        }),
    }
}

/// Two blocks: a small weight, and a metric.
pub(crate) fn declaration() -> Declaration {
    let weight = Parameter::new("w", &[3], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
    Declaration { parameters: vec![weight, Parameter::sum("loss", &[1])], block_elements: 0 }
}

pub(crate) fn origin(checkpoint: u64, sequence: u64) -> Origin {
    Origin {
        job: settings().job,
        checkpoint: CheckpointId(checkpoint),
        writer: Incarnation::new(1, 3),
        sequence,
    }
}

/// A block's copy at a version. Its length is the same for all small versions.
pub(crate) fn copy(block: u32, version: u64) -> proto::BlockCopy {
    let values = |shift: u64| Bytes::from([(version + shift) as u8; 12].to_vec());
    proto::BlockCopy {
        block,
        rewind: REWIND,
        name: Some(proto::StateName { term: 3, version }),
        published: version,
        parameters: values(1),
        earlier: vec![values(0)],
        slots: Vec::new(),
        ledger: None,
        segment: None,
    }
}

pub(crate) fn piece() -> PieceRef {
    PieceRef {
        block: BlockId(0),
        rewind: Rewind(REWIND),
        name: StateName { term: Term(3), version: Version(5) },
        slots: WHOLE,
        is_delta: false,
        file: 0,
        offset: 0,
        bytes: 1,
        crc32: 0,
    }
}

/// What two writers would have recorded of one block each.
pub(crate) fn written(checkpoint: u64, version: u64) -> Vec<WrittenFile> {
    let write = |block: u32| {
        let (mut writer, _) = PieceWriter::begin(&origin(checkpoint, block.into())).unwrap();
        writer.add(&copy(block, version)).unwrap();
        writer.finish().1
    };
    vec![write(0), write(1)]
}

/// The manifest of what was written, its cut being the first piece's.
pub(crate) fn manifest(checkpoint: u64, written: &[WrittenFile]) -> CheckpointManifest {
    let version = written[0].pieces[0].name.version;
    let cut = Some(Cut { rewind: Rewind(REWIND), version });
    let id = CheckpointId(checkpoint);
    CheckpointManifest::assemble(settings(), declaration(), id, cut, written.to_vec()).unwrap()
}
