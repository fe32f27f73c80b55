//! Data without files, end to end: `records:N` is trained on, evaluated and predicted like files of the same records, to the same
//! bits, and what names no such data says what to write.

use serde_json::{Value, json};
use shoal_recordio::{Reader, Writer, WriterOptions, numbered};
use shoal_tests::processes::{Programs, closing, programs};
use std::process::{Command, Output};
use tempfile::TempDir;

struct World {
    programs: Programs,
    folder: TempDir,
}

impl World {
    fn new() -> World {
        World { programs: programs().unwrap(), folder: tempfile::tempdir().unwrap() }
    }

    fn start(&self, words: &[&str]) -> Output {
        let mut command = Command::new(&self.programs.shoal);
        command.current_dir(self.folder.path()).args(["run", "-o", "json", "--microbatch-records", "64"]);
        command.args(words).arg("--").arg(self.programs.shoal.with_file_name("numbers")).output().unwrap()
    }

    fn run(&self, words: &[&str]) -> Value {
        closing(&self.start(words)).unwrap()
    }

    /// A file of the numbers below `records`, cut as numbers without a file are.
    fn write(&self, name: &str, records: u64) {
        let options = WriterOptions { chunk_records: numbered::CHUNK_RECORDS, ..WriterOptions::default() };
        let file = std::fs::File::create(self.folder.path().join(name)).unwrap();
        let mut writer = Writer::new(file, options);
        (0..records).for_each(|number| writer.write(&number.to_le_bytes()).unwrap());
        writer.finish().unwrap();
    }

    /// A file of the same numbers as text.
    fn pack(&self, name: &str, records: u64, more: &[&str]) {
        let lines: String = (0..records).map(|number| format!("{number}\n")).collect();
        std::fs::write(self.folder.path().join("lines"), lines).unwrap();
        let mut command = Command::new(&self.programs.shoal);
        command
            .current_dir(self.folder.path())
            .args(["recordio", "pack", "lines", "lines", "--output", name]);
        assert!(command.args(more).status().unwrap().success());
    }
}

#[test]
fn records_without_files_end_in_the_bits_of_files_of_them_with_any_number_of_trainers() {
    let world = World::new();
    world.write("train.recordio", 40_000);
    world.write("test.recordio", 5000);
    world.pack("text.recordio", 40_000, &["--chunk-records", "16384"]);
    world.pack("uncut.recordio", 40_000, &[]);
    let job = |data: [&str; 2], more: &[&str]| {
        world.run(&[&["--epochs", "2", "--data", data[0], "--eval-data", data[1]], more].concat())
    };
    let (numbers, files) = (["records:40000", "records:5000"], ["train.recordio", "test.recordio"]);
    let first = job(numbers, &["--trainers", "1"]);
    assert_eq!(first["data_set"]["trained"], json!({ "files": 0, "records": 40_000, "bytes": 0 }));
    let others = [
        job(numbers, &["--trainers", "3", "--pservers", "2"]),
        job(files, &["--trainers", "1"]),
        job(["records:40000", "test.recordio"], &["--trainers", "2"]),
        job(["text.recordio", "records:5000"], &["--trainers", "1"]),
        // Kills and replaces the master, too.
        job(numbers, &["--trainers", "2", "--replicas", "1", "--pservers", "2", "--chaos", "7"]),
    ];
    for other in others {
        for what in ["parameters_sha256", "evaluations"] {
            assert_eq!(other[what], first[what], "{other}");
        }
        assert_eq!((&other["records_counted"], &other["records_wrong"]), (&json!(80_000), &json!(0)));
    }
    assert_eq!(first["evaluations"].as_array().unwrap().len(), 2);
    // A file that is cut otherwise is shuffled otherwise.
    assert_ne!(job(["uncut.recordio", numbers[1]], &[])["parameters_sha256"], first["parameters_sha256"]);
}

#[test]
fn records_without_files_are_predicted_in_their_order() {
    let world = World::new();
    world.run(&["--data", "records:20000", "--predict", "told", "--untrained", "--trainers", "2"]);
    let parts = std::fs::read_dir(world.folder.path().join("told")).unwrap();
    let mut parts: Vec<_> = parts.map(|file| file.unwrap().path()).collect();
    parts.retain(|file| file.extension().is_some_and(|extension| extension == "recordio"));
    parts.sort();
    let records = parts.iter().flat_map(|part| {
        let reader = Reader::open(part).unwrap();
        let chunks = (0..reader.index().chunks.len()).map(|chunk| reader.chunk(chunk).unwrap());
        chunks.flat_map(|chunk| chunk.iter().map(<[u8]>::to_vec).collect::<Vec<_>>()).collect::<Vec<_>>()
    });
    let expected = (0..20_000_u64).map(|number| ((number % 97) as f32 / 97.0).to_le_bytes().to_vec());
    assert!(records.eq(expected));
}

#[test]
fn what_names_no_number_of_records_is_refused_with_the_way_out() {
    let world = World::new();
    world.write("f.recordio", 10);
    world.write("records:5", 5);
    for (words, way_out) in [
        (&["--data", "records:0"][..], "give records:1 at least"),
        (&["--data", "records:-1"], "in digits, as in records:60000"),
        (&["--data", "records:1e6"], "in digits, as in records:60000"),
        (&["--data", "records:"], "in digits, as in records:60000"),
        (&["--data", "records: 6"], "in digits, as in records:60000"),
        (&["--data", "records:68719476737"], "records:68719476736 at most"),
        (&["--data", "records:6", "f.recordio"], "records:6: a number of records stands alone"),
        (&["--data", "f.recordio,records:6"], "records:6: a number of records stands alone"),
        (
            &["--data", "records:6", "--eval-data", "records:6,records:7"],
            "records:7: a number of records stands",
        ),
        (&["--data", "records:5"], "name the file ./records:5, or move it away"),
        (&["--data", "records:6", "--eval-data", "records:0"], "give records:1 at least"),
        (&["--data", "records:0", "--predict", "told", "--untrained"], "give records:1 at least"),
        (&["--data", "records:0", "--chaos", "1"], "give records:1 at least"),
    ] {
        let refused = world.start(words);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("error: ") && said.contains(way_out), "{words:?}: {said}");
    }
    let named = world.run(&["--data", "./records:5"]);
    assert_eq!(named["data_set"]["trained"]["files"], json!(1));
}
