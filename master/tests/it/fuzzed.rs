//! The fuzz targets over their corpus and over changed copies of it, as an ordinary test.
//! `cargo test -p shoal-master --test it fuzzed:: -- --ignored` writes the seeds again.

use crate::bodies::{self, PLACED, declaration};
use crate::mutate;
use prost::Message;
use shoal_runtime::cluster::Incarnation;
use shoal_runtime::wire::proto;
use std::path::PathBuf;

/// Changed copies of each seed.
const CHANGES: u64 = 200;
/// What is sent before the messages: a pserver, then a trainer, each counted from 1.
const PSERVER: Incarnation = Incarnation(1 << 40 | 1);
const TRAINER: Incarnation = Incarnation(1 << 40 | 1);

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

#[test]
fn a_master_survives_every_message_and_goes_on_leading() {
    mutate::are_survived(&folder("service"), CHANGES, bodies::service);
}

#[test]
fn a_document_that_is_read_is_written_as_it_was_read() {
    mutate::are_survived(&folder("document"), CHANGES, bodies::document);
}

/// Otherwise nothing behind the first checks would be met.
#[test]
fn the_seeds_are_sound_messages_of_members() {
    for name in ["sync", "positions", "copies"] {
        let told = bodies::told(&std::fs::read(folder("service").join(name)).unwrap());
        assert!(told.len() > 10 && told.iter().all(Result::is_ok), "{name}: {told:?}");
    }
}

fn message(kind: u8, message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    [&[kind][..], &(bytes.len() as u16).to_le_bytes(), &bytes].concat()
}

#[test]
#[ignore = "writes master/fuzz/corpus"]
fn write_the_seeds() {
    let report = |call, version| {
        let progress = proto::BlockProgress {
            blocks: vec![0, 1, 2],
            version,
            held: vec![proto::HeldStep { step: version, nodes: vec![proto::Node { level: 1, index: 0 }] }],
            term: PLACED,
            ledger: Some(proto::Ledger {
                low: version,
                ranges: vec![proto::LedgerRange { first: 5, end: 6 }],
            }),
        };
        let progress = vec![progress];
        message(4, &proto::ReportRequest { incarnation: PSERVER.0, call, progress, ..Default::default() })
    };
    let progress = vec![proto::Progress { lease: 1, microbatches: 2, pushed: true, waits: false }];
    let complaint = proto::Complaint {
        lease: 1,
        records: vec![proto::RecordRange { first: 3, end: 4 }],
        why: String::from("bad"),
        ..Default::default()
    };
    let lease = |call, complaints: Vec<proto::Complaint>| {
        let (incarnation, progress) = (TRAINER.0, progress.clone());
        message(
            1,
            &proto::LeaseRequest { incarnation, progress, want: 2, call, complaints, ..Default::default() },
        )
    };
    let join = proto::JoinRequest {
        name: String::from("u"),
        nonce: 9,
        declaration: Some((&declaration()).into()),
        previous: 1,
        ..Default::default()
    };
    let watch = proto::WatchRequest { incarnation: PSERVER.0, wait_millis: 10, ..Default::default() };
    let leave =
        proto::LeaveRequest { incarnation: TRAINER.0, progress: progress.clone(), ..Default::default() };
    let register = proto::RegisterRequest {
        name: String::from("q"),
        address: String::from("q:1"),
        nonce: 8,
        ..Default::default()
    };
    let scale = proto::ScaleRequest { pservers: Some(2), trainers: Some(3), ..Default::default() };
    let drain = proto::DrainRequest { pserver: String::from("p"), replace: true, ..Default::default() };
    let messages = [
        message(5, &watch),
        report(1, 0),
        lease(1, vec![]),
        lease(2, vec![complaint]),
        report(2, 1),
        message(0, &join),
        message(3, &register),
        message(7, &scale),
        message(8, &drain),
        message(6, &proto::RouteRequest { routing_version: 1, ..Default::default() }),
        message(9, &proto::CheckpointRequest::default()),
        message(10, &proto::StatusRequest::default()),
        message(2, &leave),
    ]
    .concat();
    write(&messages);
}

fn write(messages: &[u8]) {
    for target in ["service", "document"] {
        std::fs::create_dir_all(folder(target)).unwrap();
    }
    for (name, kind) in [("sync", 0), ("positions", 1), ("copies", 2)] {
        std::fs::write(folder("service").join(name), [&[kind][..], messages].concat()).unwrap();
    }
    let recorded = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/document.json");
    std::fs::copy(recorded, folder("document").join("whole")).unwrap();
}
