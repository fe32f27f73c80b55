//! Evaluating and predicting end to end with real processes: the same values and the same outputs, whatever happens.

use serde_json::Value;
use shoal_tests::processes::{Job, Programs, pack_digits, programs};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
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

#[test]
fn a_metric_that_is_no_number_once_is_told_as_that_and_ends_stops_and_betters_nothing() {
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let numbers: String = (1..=40).map(|number| format!("{number}\n")).collect();
    std::fs::write(folder.path().join("n"), numbers).unwrap();
    let shoal = |words: &[&str]| {
        let output = Command::new(&programs.shoal).current_dir(folder.path()).args(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    shoal(&["recordio", "pack", "lines", "n", "--output", "n.recordio"]);
    let odd = programs.shoal.with_file_name("odd");
    for (mode, trainers) in [("sync", "1"), ("sync", "3"), ("async", "1")] {
        let run = format!("{mode}-{trainers}");
        let flags = ["--data", "n.recordio", "--eval-data", "n.recordio", "--epochs", "5", "--mode", mode];
        let program =
            ["--", odd.to_str().unwrap(), "parameter=w", "metric=m", "aims", "nan=1", "inf=2", "none=3"];
        let told =
            shoal(&[&["run", "--folder", &run, "--trainers", trainers][..], &flags, &program].concat());
        // The value, and what is said of the evaluation beside it.
        let values = told.lines().filter_map(|line| line.split_once("  m ")?.1.split(',').next());
        assert_eq!(values.collect::<Vec<_>>(), ["20.5000", "NaN", "inf", "-", "4.1000"], "{mode}: {told}");
        assert!(told.contains("4.1000, the best"), "{mode}: {told}");
        let result = std::fs::read(folder.path().join(&run).join("result.json")).unwrap();
        let result: Value = serde_json::from_slice(&result).unwrap();
        let values = [0, 1, 2, 3].map(|at| result["evaluations"][at]["metrics"]["m"].as_f64());
        assert_eq!((values, &result["stopped_early"]), ([Some(20.5), None, None, None], &Value::Bool(false)));
    }
    let sha256 = |run: &str| {
        let result = std::fs::read(folder.path().join(run).join("result.json")).unwrap();
        serde_json::from_slice::<Value>(&result).unwrap()["parameters_sha256"].clone()
    };
    assert_eq!(sha256("sync-1"), sha256("sync-3"), "the bits of what is no number depend on nobody");
}
