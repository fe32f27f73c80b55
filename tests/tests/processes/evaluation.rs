//! Evaluating and predicting end to end with real processes: the same values and the same outputs, whatever happens.

use serde_json::Value;
use shoal_tests::processes::{Job, Programs, pack_digits, programs};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

struct World {
    programs: Programs,
    folder: TempDir,
    data: String,
    held_out: String,
}

fn world() -> World {
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = pack_digits(&programs, &folder.path().join("data")).unwrap();
    let held_out = data.replace("train-", "test-");
    World { programs, folder, data, held_out }
}

impl World {
    fn run(&self, data: &str, trainers: &str, pservers: u32, more: &[&str], hyper: &[&str]) -> Value {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let (programs, folder) = (&self.programs, self.folder.path());
        let program = &programs.digits;
        let job = Job {
            programs,
            folder,
            program,
            data,
            trainers,
            pservers,
            more: words(more),
            hyper: words(hyper),
        };
        job.run().unwrap()
    }

    fn parts(&self, place: &str) -> BTreeMap<String, Vec<u8>> {
        let files = std::fs::read_dir(self.folder.path().join(place)).unwrap();
        let read = |file: std::io::Result<std::fs::DirEntry>| {
            let file = file.unwrap();
            (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())
        };
        // Who is killed while it writes leaves the beginning of a part under a name that no glob for parts fits.
        files.map(read).filter(|(name, _)| name.ends_with(".recordio")).collect()
    }
}

/// The records of a RecordIO file.
fn records(name: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
    let limits = shoal_recordio::Limits::default();
    let index = shoal_recordio::Index::of_bytes(Path::new(name), bytes, &limits).unwrap();
    let mut records = Vec::new();
    for (number, at) in index.chunks.iter().enumerate() {
        let stored = &bytes[at.offset as usize..at.end() as usize];
        let chunk =
            shoal_recordio::decode_chunk(Path::new(name), stored, at.offset, number, &limits).unwrap();
        records.extend((0..chunk.len()).map(|record| chunk.record(record).to_vec()));
    }
    records
}

#[test]
fn a_job_that_stops_early_does_so_at_the_same_step_with_the_same_bits_under_chaos() {
    let world = world();
    let common = ["--eval-data", &world.held_out, "--eval-steps", "4", "--epochs", "5", "--seed", "7"];
    let aims = ["--stop-after", "3", "--lower-after", "1", "--keep-best"];
    let alone = world.run(&world.data, "1", 1, &common, &aims);
    let chaos = [&common[..], &["--chaos", "3"]].concat();
    let struck = world.run(&world.data, "2:4", 3, &chaos, &aims);
    assert!(!struck["faults"].as_array().unwrap().is_empty(), "{struck}");
    assert_eq!(alone["stopped_early"], true, "{alone}");
    assert_eq!(struck["evaluations"].as_array().map(Vec::len), alone["evaluations"].as_array().map(Vec::len));
    for (ours, theirs) in
        alone["evaluations"].as_array().unwrap().iter().zip(struck["evaluations"].as_array().unwrap())
    {
        let told = |of: &Value| [&of["step"], &of["metrics"], &of["is_best"], &of["rate"]].map(Value::clone);
        assert_eq!(told(ours), told(theirs));
    }
    assert_eq!(alone["parameters_sha256"], struck["parameters_sha256"]);
}

#[test]
fn a_program_says_something_of_every_record_once_and_in_order_under_chaos() {
    let world = world();
    let trained = world.run(&world.data, "2", 1, &["--epochs", "4", "--eval-data", &world.held_out], &[]);
    let accuracy =
        |closing: &Value| closing["evaluations"].as_array().unwrap().last().unwrap()["metrics"].clone();
    let model = trained["model"].as_str().unwrap();
    // The same model, evaluated again.
    let again = ["--epochs", "0", "--eval-data", &world.held_out, "--warm-start", model];
    let evaluated = world.run(&world.data, "3", 2, &again, &[]);
    assert_eq!(accuracy(&evaluated), accuracy(&trained));
    let predict = |place: &'static str, trainers: &str, chaos: &[&str]| {
        let more =
            [&["--predict", place, "--warm-start", model, "--microbatch-records", "5"], chaos].concat();
        let closing = world.run(&world.held_out, trainers, 2, &more, &[]);
        (closing, world.parts(place))
    };
    let (_, alone) = predict("alone", "1", &[]);
    let (closing, struck) = predict("struck", "2:4", &["--chaos", "11"]);
    assert!(!closing["faults"].as_array().unwrap().is_empty(), "{closing}");
    assert_eq!(alone, struck);
    let said: Vec<Vec<u8>> = struck.iter().flat_map(|(name, bytes)| records(name, bytes)).collect();
    let packed = std::fs::read(world.held_out.replace('*', "0")).unwrap();
    let held_out = records("test-0", &packed);
    assert_eq!(said.len(), held_out.len());
    let hits =
        said.iter().zip(&held_out).filter(|(said, record)| said[..] == record[0].to_string().as_bytes()[..]);
    let share = hits.count() as f64 / said.len() as f64;
    assert_eq!(Some(share), accuracy(&trained)["accuracy"].as_f64());
}
