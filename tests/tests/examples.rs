//! The examples learn: each is packed, trained by two trainers and judged, on small data made up here. The real data
//! are a matter of docs/examples.md and the command `convergence`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use serde_json::Value;
use shoal_tests::processes::{Job, closing, programs};
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Runs a command that must succeed, and returns its last line.
fn told<Word: AsRef<OsStr>>(program: &Path, words: impl IntoIterator<Item = Word>) -> Value {
    closing(&Command::new(program).args(words).output().unwrap()).unwrap()
}

fn packed<Word: AsRef<OsStr>>(program: &Path, words: impl IntoIterator<Item = Word>) {
    let done = Command::new(program).args(words).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Trains on a file and judges on another.
fn trained(program: &Path, folder: &Path, train: &Path, test: &Path, more: &[&str]) -> Value {
    let more = [more, &["--folder", "runs/here", "--seed", "3"]].concat();
    let job = Job {
        programs: &programs().unwrap(),
        folder,
        program,
        data: &train.to_string_lossy(),
        trainers: "2",
        pservers: 2,
        more: more.into_iter().map(str::to_owned).collect(),
        hyper: Vec::new(),
    };
    job.run().unwrap();
    let model = folder.join("runs/here/model.safetensors");
    told(program, [OsStr::new("--judge"), model.as_os_str(), OsStr::new("--data"), test.as_os_str()])
}

#[test]
fn mnist_tells_bars_apart() {
    let (programs, folder) = (programs().unwrap(), tempfile::tempdir().unwrap());
    let here = |name: &str| folder.path().join(name);
    // A bar of two rows whose place is the label, over a pattern that says nothing.
    let images = 400_u32;
    let pixel = |image: u32, at: u32| match at / 28 / 2 == image % 10 + 2 {
        true => 230,
        false => (at * 7 + image * 13) % 60,
    };
    let header = |sizes: &[u32]| {
        let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_be_bytes()).collect();
        [&[0, 0, 8, (sizes.len() / 4) as u8], sizes.as_slice()].concat()
    };
    let mut file = header(&[images, 28, 28]);
    file.extend((0..images).flat_map(|image| (0..784).map(move |at| pixel(image, at) as u8)));
    std::fs::write(here("images"), file).unwrap();
    let labels = (0..images).map(|image| (image % 10) as u8);
    std::fs::write(here("labels"), header(&[images]).into_iter().chain(labels).collect::<Vec<_>>()).unwrap();
    let train = here("train.recordio");
    let words =
        ["recordio", "pack", "idx", "--images", "images", "--labels", "labels", "--output", "train.recordio"];
    let words =
        words.map(|word| if here(word).exists() || word.contains('.') { here(word) } else { word.into() });
    packed(&programs.shoal, words);
    let more = ["--epochs", "4", "--microbatch-records", "4", "--microbatches-per-step", "4"];
    let means = trained(&programs.mnist, folder.path(), &train, &train, &more);
    assert!(means["accuracy"].as_f64() > Some(0.95) && means["loss"].as_f64() < Some(0.5), "{means}");
}

#[test]
fn housing_finds_a_plane() {
    let (programs, folder) = (programs().unwrap(), tempfile::tempdir().unwrap());
    let mut table = String::from("header\n");
    for row in 0..400_i32 {
        // Features of unlike sizes; the price is a function of them.
        let feature = |index: i32| ((row * (2 * index + 3) + index) % 41) * (index + 1);
        let price: i32 = (0..13).map(|index| feature(index) * (6 - index)).sum();
        (0..13).for_each(|index| write!(table, "{},", feature(index)).unwrap());
        writeln!(table, "{}", f64::from(price) / 100.0 + 22.0).unwrap();
    }
    let (csv, packs) = (folder.path().join("table.csv"), folder.path().join("packed"));
    std::fs::write(&csv, table).unwrap();
    packed(&programs.housing, [Path::new("--csv"), &csv, Path::new("--pack"), &packs]);
    let (train, test) = (packs.join("train.recordio"), packs.join("test.recordio"));
    let means = trained(&programs.housing, folder.path(), &train, &test, &["--epochs", "60"]);
    assert!(means["squared_error"].as_f64() < Some(0.01), "{means}");
}

#[test]
fn text_learns_what_follows_what() {
    let (programs, folder) = (programs().unwrap(), tempfile::tempdir().unwrap());
    let (texts, packs) = (folder.path().join("texts"), folder.path().join("packed"));
    std::fs::create_dir(&texts).unwrap();
    for number in 0..10 {
        let text = "A shoal keeps its shape while fish come and go.\n".repeat(20 + number);
        std::fs::write(texts.join(format!("{number}.txt")), text).unwrap();
    }
    packed(&programs.text, [Path::new("--files"), &texts, Path::new("--pack"), &packs]);
    let (train, test) = (packs.join("train.recordio"), packs.join("test.recordio"));
    let more = ["--epochs", "3", "--microbatch-records", "2", "--microbatches-per-step", "4"];
    let means = trained(&programs.text, folder.path(), &train, &test, &more);
    assert!(means["loss"].as_f64() < Some(0.1) && means["accuracy"].as_f64() > Some(0.95), "{means}");
}
