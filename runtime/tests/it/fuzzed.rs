//! The fuzz targets over their corpus and over changed copies of it, as an ordinary test: nothing panics, and nothing takes
//! more memory than its input pays for.
//! `cargo test -p shoal-runtime --test it fuzzed:: -- --ignored` writes the seeds again, from the recorded bytes.

use crate::bodies::messages::NAMES;
use crate::bodies::{self, Body};
use crate::counting::peak_bytes;
use crate::mutate;
use std::path::PathBuf;

/// Changed copies of each seed.
const CHANGES: u64 = 150;
/// What one input may take: a routing table of the most blocks, and so many times its length.
const TAKES: usize = 64 << 20;
const TAKES_PER_BYTE: usize = 512;

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut entries: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder(target))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    entries.sort();
    entries
}

/// Runs a body; a panic or too much memory names the input, so that it can be kept as a seed.
fn is_survived(body: Body, bytes: &[u8], what: &str) {
    let (survived, took) = peak_bytes(|| std::panic::catch_unwind(|| body(bytes)));
    assert!(survived.is_ok(), "{what} panics: {bytes:02x?}");
    assert!(took <= TAKES + TAKES_PER_BYTE * bytes.len(), "{what} takes {took} bytes: {bytes:02x?}");
}

#[test]
fn every_target_survives_its_corpus_and_changed_copies_of_it() {
    for (target, body) in bodies::ALL {
        let corpus = corpus(target);
        assert!(!corpus.is_empty(), "{target} has no seeds");
        let seeds: Vec<Vec<u8>> = corpus.iter().map(|(_, bytes)| bytes.clone()).collect();
        for (name, bytes) in &corpus {
            is_survived(body, bytes, &format!("{target}/{name}"));
            for number in 0..CHANGES {
                let changed = mutate::mutate(bytes, &seeds, number);
                is_survived(body, &changed, &format!("{target}/{name}, change {number}"));
            }
        }
    }
}

/// The bytes of recorded messages, by name.
fn recorded(file: &str) -> Vec<(String, Vec<u8>)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let entry = |entry: &str| {
        let (name, rest) = entry.split_once('\n').unwrap();
        let hex = rest.lines().next().unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (name.to_owned(), (0..hex.len()).step_by(2).map(byte).collect())
    };
    text.split("== ").skip(1).map(entry).collect()
}

#[test]
#[ignore = "writes runtime/fuzz/corpus"]
fn write_the_seeds() {
    let write = |target: &str, name: &str, bytes: &[u8]| {
        std::fs::create_dir_all(folder(target)).unwrap();
        std::fs::write(folder(target).join(name), bytes).unwrap();
    };
    for (name, bytes) in recorded("messages.txt").into_iter().chain(recorded("values.txt")) {
        let message = name.split(['.', ',']).next().unwrap();
        let kind = NAMES.iter().position(|known| *known == message).expect(&name) as u8;
        write("wire", &name.replace([',', ' ', '.'], "-"), &[&[kind][..], &bytes].concat());
    }
    let stored = |name: &str| {
        std::fs::read(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1").join(name)).unwrap()
    };
    let (pieces, manifest) = (stored("pieces.blocks"), stored("manifest"));
    write("manifest", "whole", &manifest);
    write("manifest", "cut", &manifest[..manifest.len() - 9]);
    let first = 8 + 4 + 4 + "digits-1".len() + 28;
    let length = u32::from_le_bytes(pieces[first..first + 4].try_into().unwrap()) as usize;
    write("pieces", "header", &pieces[..first]);
    write("pieces", "piece", &pieces[first..first + 8 + length]);
    write("pieces", "trailer", &pieces[pieces.len() - 28..]);
    write("store", "whole", &stored("master.state"));
    let header = br#"{"p0":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},"p1":{"dtype":"BF16","shape":[4,2],"data_offsets":[24,40]}}"#;
    write("tensors", "two", &[&(header.len() as u64).to_le_bytes()[..], header, &[1; 40]].concat());
    // A range's answer: its header with revision 7, one key with a value; a transaction's that succeeded.
    let kv = [&[0x0A, 4][..], b"/job", &[0x10, 3, 0x18, 7, 0x20, 1, 0x2A, 3], b"doc"].concat();
    let range = [&[0x0A, 2, 0x18, 7, 0x12, kv.len() as u8][..], &kv].concat();
    write("etcd", "range", &range);
    write("etcd", "transaction", &[0x0A, 2, 0x18, 7, 0x10, 1]);
}
