//! The examples learn: each is packed, trained by two trainers, evaluated and asked, on small data made up here. It must
//! never fetch anything: the real data are a matter of docs/examples.md and the command `convergence`.

use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::Value;
use shoal_recordio::{Chunk, Reader};
use shoal_tests::processes::{Job, programs};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

fn packed<Word: AsRef<OsStr>>(program: &Path, words: impl IntoIterator<Item = Word>) {
    let done = Command::new(program).args(words).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A program with its data.
struct Example<'a> {
    program: &'a Path,
    folder: &'a Path,
    train: &'a Path,
    test: &'a Path,
    hyper: &'a [&'a str],
}

impl Example<'_> {
    fn run(&self, data: &Path, more: &[&str]) -> Value {
        let (programs, data) = (programs().unwrap(), data.to_string_lossy());
        let more = more.iter().chain(&["--seed", "3"]).map(|word| (*word).to_owned()).collect();
        let (program, folder) = (self.program, self.folder);
        let hyper = self.hyper.iter().map(|word| (*word).to_owned()).collect();
        Job { programs: &programs, folder, program, data: &data, trainers: "2", pservers: 2, more, hyper }
            .run()
            .unwrap()
    }

    /// Trains on one file, and returns what the last evaluation, of the other, found.
    fn train(&self, more: &[&str]) -> Value {
        self.evaluated(&[more, &["--folder", "runs/here"]].concat())
    }

    /// A metric of the model as it begins.
    fn untrained(&self, metric: &str) -> f64 {
        self.evaluated(&["--epochs", "0", "--untrained"])[metric].as_f64().unwrap()
    }

    fn evaluated(&self, more: &[&str]) -> Value {
        let test = self.test.to_string_lossy();
        let closing = self.run(self.train, &[more, &["--eval-data", &test]].concat());
        closing["evaluations"].as_array().unwrap().last().unwrap()["metrics"].clone()
    }

    /// What the trained model says of each record of the other file.
    fn predict(&self) -> Vec<String> {
        let outputs = self.folder.join("outputs");
        let model = ["--warm-start", "runs/here/model.safetensors", "--predict"];
        self.run(self.test, &[&model[..], &[&outputs.to_string_lossy()]].concat());
        let files = outputs.read_dir().unwrap().map(|entry| entry.unwrap().path());
        let mut parts: Vec<PathBuf> =
            files.filter(|file| file.extension() == Some("recordio".as_ref())).collect();
        parts.sort();
        parts.iter().flat_map(|part| texts(part)).collect()
    }
}

fn texts(file: &Path) -> Vec<String> {
    let reader = Reader::open(file).unwrap();
    let chunks = (0..reader.index().chunks.len()).map(|index| reader.chunk(index).unwrap());
    let of_chunk = |chunk: Chunk| -> Vec<String> {
        (0..chunk.len()).map(|record| String::from_utf8(chunk.record(record).to_vec()).unwrap()).collect()
    };
    chunks.flat_map(of_chunk).collect()
}

/// Packs so many images of a bar of two rows whose place is the label, over a pattern that says nothing.
fn packed_bars(folder: &Path, images: u32) -> PathBuf {
    let here = |name: &str| folder.join(name);
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
    let words =
        ["recordio", "pack", "idx", "--images", "images", "--labels", "labels", "--output", "train.recordio"];
    let words =
        words.map(|word| if here(word).exists() || word.contains('.') { here(word) } else { word.into() });
    packed(&programs().unwrap().shoal, words);
    here("train.recordio")
}

/// What is told of such images when every bar is told by its place.
fn places(images: u32) -> Vec<String> {
    (0..images).map(|image| (image % 10).to_string()).collect()
}

#[test]
fn mnist_tells_bars_apart() {
    let (programs, folder) = (programs().unwrap(), tempfile::tempdir().unwrap());
    let (images, folder) = (400, folder.path());
    let train = packed_bars(folder, images);
    let more = ["--epochs", "4", "--microbatch-records", "4", "--microbatches-per-step", "4"];
    let example = Example { program: &programs.mnist, folder, train: &train, test: &train, hyper: &[] };
    let means = example.train(&more);
    assert_eq!(means["accuracy"], 1.0, "{means}");
    assert!(means["log_loss"].as_f64() < Some(0.2), "{means}");
    // Ten classes that are about equally likely have ln 10 = 2.3.
    let untrained = example.untrained("log_loss");
    assert!((1.5..5.0).contains(&untrained), "{untrained}");
    assert_eq!(example.predict(), places(images));
}

#[test]
fn resnet_tells_bars_apart_by_its_running_statistics() {
    let (programs, folder) = (programs().unwrap(), tempfile::tempdir().unwrap());
    let (images, folder) = (200, folder.path());
    let train = packed_bars(folder, images);
    let more = ["--epochs", "12", "--microbatch-records", "10", "--microbatches-per-step", "2"];
    let hyper = ["--rate", "0.02"];
    let example = Example { program: &programs.resnet, folder, train: &train, test: &train, hyper: &hyper };
    let means = example.train(&more);
    assert_eq!(means["accuracy"], 1.0, "{means}");
    assert!(means["log_loss"].as_f64() < Some(0.5), "{means}");
    assert_eq!(example.predict(), places(images));
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
    std::fs::write(&csv, &table).unwrap();
    packed(&programs.housing, [Path::new("--csv"), &csv, Path::new("--pack"), &packs]);
    let (train, test) = (packs.join("train.recordio"), packs.join("test.recordio"));
    let example =
        Example { program: &programs.housing, folder: folder.path(), train: &train, test: &test, hyper: &[] };
    let means = example.train(&["--epochs", "60", "--eval-epochs", "60"]);
    assert!(means["squared_error"].as_f64() < Some(0.01), "{means}");
    // Each price as the table has it, but for what the model is wrong by.
    let prices: Vec<f64> =
        table.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect();
    // What begins at 0 is wrong by the price.
    let squares = prices.iter().map(|price| price * price).sum::<f64>() / prices.len() as f64;
    let untrained = example.untrained("squared_error");
    assert!((0.7..1.4).contains(&(untrained / squares)), "{untrained} and {squares}");
    let told = example.predict();
    assert!((50..110).contains(&told.len()), "{} rows held out", told.len());
    for told in told {
        let told: f64 = told.parse().unwrap();
        assert!(prices.iter().any(|price| (price - told).abs() < 0.3), "{told}");
    }
}

#[test]
fn text_learns_what_follows_what() {
    let (programs, folder) = (programs().unwrap(), tempfile::tempdir().unwrap());
    let sentence = "A shoal keeps its shape while fish come and go.\n";
    let (texts, packs) = (folder.path().join("texts"), folder.path().join("packed"));
    std::fs::create_dir(&texts).unwrap();
    for number in 0..10 {
        let text = sentence.repeat(20 + number);
        std::fs::write(texts.join(format!("{number}.txt")), text).unwrap();
    }
    packed(&programs.text, [Path::new("--files"), &texts, Path::new("--pack"), &packs]);
    let (train, test) = (packs.join("train.recordio"), packs.join("test.recordio"));
    let more = ["--epochs", "3", "--microbatch-records", "2", "--microbatches-per-step", "4"];
    let example =
        Example { program: &programs.text, folder: folder.path(), train: &train, test: &test, hyper: &[] };
    let means = example.train(&more);
    assert!(means["log_loss"].as_f64() < Some(0.1) && means["accuracy"].as_f64() > Some(0.95), "{means}");
    // 97 classes that are about equally likely have ln 97 = 4.6.
    let untrained = example.untrained("log_loss");
    assert!((3.0..8.0).contains(&untrained), "{untrained}");
    // Windows of the held-out text, one after another: after each comes what is 64 characters further, or the end.
    let text: Vec<char> = sentence.repeat(29).chars().collect();
    let follows = (0..text.len() - 32).step_by(32).map(|begin| (begin + 64).min(text.len()) % sentence.len());
    let follows: Vec<String> = follows.map(|at| sentence[at..at + 1].to_owned()).collect();
    assert_eq!(example.predict(), follows);
}

#[test]
fn clicks_learns_what_two_values_mean_together() {
    let (programs, folder) = (programs().unwrap(), tempfile::tempdir().unwrap());
    let packs = folder.path().join("packed");
    // 30 users rate 40 films: those that are of their kind 4 or 5, others 1 to 3. No value by itself says anything.
    let is_liked = |row: i64| (row % 30 + row / 30) % 2 == 0;
    let rows = 0..1200;
    let stars = rows.clone().map(|row| if is_liked(row) { 4 + row % 2 } else { 1 + row % 3 }).collect();
    let (rater, film) = (rows.clone().map(|row| row % 30).collect(), rows.map(|row| row / 30).collect());
    let ratings = [("user_id", rater), ("movie_id", film), ("rating", stars)];
    parquet_file(&folder.path().join("MovieLens100k_data.parquet.brotli"), &ratings, &[]);
    let users = [("user_id", (0..30).collect()), ("age", (20..50).collect::<Vec<i64>>())];
    let texts = [("gender", "F"), ("occupation", "none")];
    parquet_file(&folder.path().join("MovieLens100k_users.parquet.brotli"), &users, &texts);
    let words = ["--set", "movielens", "--from"].map(Path::new);
    packed(&programs.clicks, words.into_iter().chain([folder.path(), Path::new("--pack"), &packs]));
    let (train, test) = (packs.join("train.recordio"), packs.join("test.recordio"));
    let hyper = &["--set", "movielens", "--rate", "0.1"];
    let example =
        Example { program: &programs.clicks, folder: folder.path(), train: &train, test: &test, hyper };
    let means =
        example.train(&["--epochs", "12", "--microbatch-records", "8", "--microbatches-per-step", "4"]);
    assert!(means["auc"].as_f64() > Some(0.99) && means["log_loss"].as_f64() < Some(0.15), "{means}");
    // Two classes that are about equally likely have ln 2 = 0.69.
    let untrained = example.untrained("log_loss");
    assert!((0.6..0.8).contains(&untrained), "{untrained}");
    // Tables begin empty in a job that predicts (docs/tables.md): a probability for each record is all there is to see.
    let (told, tsv) = (example.predict(), std::fs::read_to_string(packs.join("test.tsv")).unwrap());
    assert_eq!((told.len(), told.len() > 180), (tsv.lines().count() - 1, true));
    assert!(told.iter().all(|told| (0.0..=1.0).contains(&told.parse::<f64>().unwrap())), "{told:?}");
}

/// Columns of numbers, and of texts that are the same in every row.
pub(super) fn parquet_file(path: &Path, numbers: &[(&str, Vec<i64>)], texts: &[(&str, &str)]) {
    let numbers_said = numbers.iter().map(|(name, _)| format!("required int64 {name};"));
    let texts_said = texts.iter().map(|(name, _)| format!("required binary {name} (STRING);"));
    let fields: String = numbers_said.chain(texts_said).collect();
    let schema = Arc::new(parse_message_type(&format!("message made {{ {fields} }}")).unwrap());
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (_, values) in numbers {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(values, None, None).unwrap();
        column.close().unwrap();
    }
    for (_, text) in texts {
        let mut column = group.next_column().unwrap().unwrap();
        let values = vec![ByteArray::from(*text); numbers[0].1.len()];
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}
