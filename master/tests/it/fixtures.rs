//! A recorded document of this format says what it said, and today's code writes the same bytes: see `docs/versions.md`.
//! With `SHOAL_RECORD_FIXTURES` set it is recorded where nothing is; what is there is never written over.

use shoal_master::document::{
    Checks, Document, End, Evaluation, KeptCheckpoint, Mark, NamedCheckpoint, PlacedBlock, PlacedCopy,
    PserverAt, Value, Wanted,
};
use shoal_master::trouble::Trouble;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::table::{Ceiling, Full};
use shoal_runtime::cluster::{
    BlockId, CheckpointId, DamagedCheckpoint, Declaration, Environment, EnvironmentRule, Evaluated,
    Exclusion, Exclusions, Fill, Incarnation, JobId, JobSettings, ManifestRecord, Mode, Parameter, Period,
    Precision, Rewind, Rule, Schedule, Step, Table, Term, Version, WarmStart,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Where the document of a format lies.
fn path(format: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/v{format}/document.json"))
}

fn record(number: u64) -> ManifestRecord {
    ManifestRecord { checkpoint: CheckpointId(number), bytes: number + 1, crc32: number as u32 + 2 }
}

fn settings() -> JobSettings {
    JobSettings {
        job: JobId(String::from("digits-1")),
        seed: 1,
        epochs: 2,
        microbatch_records: 3,
        microbatches_per_step: 4,
        shuffle_run: 5,
        records: 6,
        manifest_fingerprint: std::array::from_fn(|at| at as u8 + 7),
        lease_ttl_millis: 800,
        mode: Mode::Async { staleness_window: 9, scale_by_staleness: true },
        gradients: Precision::Bf16,
        warm_start: Some(WarmStart {
            place: String::from("models"),
            file: String::from("m.safetensors"),
            bytes: 10,
            header_sha256: [11; 32],
        }),
        evaluated: Some(Evaluated {
            records: 12,
            every: Period::Steps(13),
            outputs: Some(String::from("out")),
        }),
    }
}

/// No field at its default, no two alike.
fn document() -> Document {
    let [a, b] = [21, 22].map(Incarnation);
    let at = |name: &str| PserverAt { name: name.to_owned(), address: format!("{name}:7") };
    let copies = vec![
        PlacedCopy { pserver: a, fill: Fill(23), mark: Mark::InSync },
        PlacedCopy { pserver: b, fill: Fill(24), mark: Mark::Filling },
    ];
    let placed = PlacedBlock {
        term: Term(25),
        rewind: Rewind(26),
        primary: a,
        copies,
        heir: Some(b),
        origin: Some(record(27)),
    };
    let weight = Parameter::new("w", &[31, 2], Rule::ADAM, Schedule::cosine(0.5, 0.1, 32), Initial::Zeros);
    let ceiling = Some(Ceiling { rows: 71, full: Full::Evict { half_life: 72 } });
    let table = Table { buckets: 73, admission: 74, age_max: Some(75), ceiling };
    let rows = Parameter::new("t", &[76], Rule::LAZY_ADAM, Schedule::constant(0.25), Initial::Zeros);
    let trouble = Trouble {
        records: Some(33..34),
        unit: 35,
        what: String::from("file, chunk"),
        attempts: 36,
        trainers: BTreeSet::from([String::from("t1"), String::from("t2")]),
        why: String::from("damaged"),
    };
    let exclusion = Exclusion { records: 37..39, from: Step(40), why: String::from("poison") };
    let wanted = Wanted { pservers: 41, trainers: 42, replicas: 43, exclude_max: 44 };
    Document {
        master_term: 45,
        master: String::from("m"),
        routing_version: 46,
        declaration: Some(Declaration { parameters: vec![weight, rows.as_table(table)], block_elements: 47 }),
        environment: Some(Environment([(String::from("threads"), String::from("63"))].into())),
        checks: Checks { environment: EnvironmentRule::Warn, verify_millionths: 64, record_hashes: 10 },
        pservers: BTreeMap::from([(a, at("p1")), (b, at("p2"))]),
        blocks: vec![placed.clone(), placed, PlacedBlock::restored(b, 48)],
        leaving: BTreeSet::from([a]),
        replacing: BTreeSet::from([b]),
        moves: BTreeMap::from([(BlockId(1), b)]),
        identity: None,
        checkpoint_place: Some(String::from("s3://bucket")),
        named: Some(NamedCheckpoint {
            checkpoint: CheckpointId(49),
            version: Version(50),
            since: Some(CheckpointId(48)),
            named_at: 46,
        }),
        checkpoints_named: 51,
        checkpoints: vec![KeptCheckpoint {
            record: record(52),
            version: Version(55),
            rewind: Rewind(56),
            oldest: Some(CheckpointId(51)),
        }],
        damaged: vec![DamagedCheckpoint {
            record: record(57),
            file: String::from("manifest"),
            what: String::from("cut short"),
        }],
        exclusions: Exclusions { number: 60, list: vec![exclusion] },
        evaluations: vec![Evaluation { values: vec![Value(Some(0.1 + 0.2)), Value(None)] }],
        troubles: vec![trouble],
        failures: 61,
        rewinds: 62,
        end: Some(End::Failed(String::from("why"))),
        ..Document::new(settings(), wanted)
    }
}

#[test]
fn the_recorded_document_says_what_it_said_and_is_written_with_the_same_bytes() {
    let path = path(4);
    if std::env::var_os("SHOAL_RECORD_FIXTURES").is_some() && !path.exists() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, document().to_bytes()).unwrap();
    }
    let recorded = std::fs::read(path).unwrap();
    assert_eq!(Document::from_bytes(&recorded).unwrap(), document());
    assert!(document().to_bytes() == recorded, "today's code writes other bytes");
}

/// What a document of format 3 can say. When the checkpoint under way was named it does not: nothing rests on its pieces.
fn of_format_3() -> Document {
    let mut expected = document();
    expected.named.iter_mut().for_each(|named| named.named_at = 0);
    // Nor does it say what trainers' bits depend on.
    (expected.environment, expected.checks) = (None, Checks::default());
    expected
}

#[test]
fn a_recorded_document_of_format_3_is_read_as_what_it_said() {
    let read = Document::from_bytes(&std::fs::read(path(3)).unwrap()).unwrap();
    assert_eq!(read, of_format_3());
}

#[test]
fn a_recorded_document_of_format_2_is_read_as_what_it_said() {
    let mut expected = of_format_3();
    // Gradients were as precise as they were computed.
    expected.job.gradients = Precision::F32;
    assert_eq!(Document::from_bytes(&std::fs::read(path(2)).unwrap()).unwrap(), expected);
}

#[test]
fn a_recorded_document_of_format_1_is_read_as_what_it_said() {
    let mut expected = of_format_3();
    // Tables came later, and what is rounded.
    expected.job.gradients = Precision::F32;
    expected.named.iter_mut().for_each(|named| named.since = None);
    expected.checkpoints.iter_mut().for_each(|kept| kept.oldest = None);
    expected.declaration.iter_mut().for_each(|declaration| declaration.parameters.truncate(1));
    assert_eq!(Document::from_bytes(&std::fs::read(path(1)).unwrap()).unwrap(), expected);
}
