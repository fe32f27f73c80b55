//! Embedding tables end to end with real processes: keys by Zipf's law, counted exactly, rows that are admitted and evicted
//! to the same bits, whoever is killed, moved or added meanwhile.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{ListAccessor, RowAccessor};
use safetensors::SafeTensors;
use serde_json::Value;
use shoal_tests::processes::{Job, Programs, closing, pack_digits, programs};
use std::process::Command;
use tempfile::TempDir;

struct World {
    programs: Programs,
    folder: TempDir,
    data: String,
}

/// What the trained table is told, so that rows come late and go early.
const EVICTING: [&str; 6] = ["--admission", "2", "--age-max", "12", "--rows-max", "60"];
const COMMON: [&str; 8] =
    ["--epochs", "3", "--seed", "7", "--microbatch-records", "8", "--microbatches-per-step", "8"];

fn world() -> World {
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = pack_digits(&programs, &folder.path().join("data")).unwrap();
    World { programs, folder, data }
}

impl World {
    fn job<'a>(&'a self, trainers: &'a str, pservers: u32, more: &[&str]) -> Job<'a> {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let (programs, data, folder) = (&self.programs, self.data.as_str(), self.folder.path());
        let (program, hyper) = (self.programs.count_rows.as_path(), owned(&EVICTING));
        let more = owned(&[&COMMON[..], more].concat());
        Job { programs, folder, program, data, trainers, pservers, more, hyper }
    }
    /// Commands are about the job of this folder from now on.
    fn look_at(&self, folder: &str) {
        let (folder, here) = (self.folder.path().join(folder), self.folder.path().join("runs/here"));
        let _ = std::fs::remove_file(&here);
        std::fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(folder, here).unwrap();
    }
    fn shoal(&self, words: &[&str]) -> Value {
        let mut command = Command::new(&self.programs.shoal);
        command.current_dir(self.folder.path()).args(words).args(["--run", "runs/here", "-o", "json"]);
        closing(&command.output().unwrap()).unwrap_or_else(|error| panic!("{words:?}: {error:#}"))
    }
    /// The status once it is so.
    fn wait_for(&self, what: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
        let asked = || {
            let mut command = Command::new(&self.programs.shoal);
            command.current_dir(self.folder.path()).args(["status", "--run", "runs/here", "-o", "json"]);
            closing(&command.output().unwrap()).ok()
        };
        let found = (0..1200).find_map(|_| {
            #[allow(clippy::disallowed_methods, reason = "a test of processes waits for them")]
            std::thread::sleep(std::time::Duration::from_millis(25));
            asked().filter(&mut is_so)
        });
        found.unwrap_or_else(|| panic!("no {what}"))
    }
}

/// Pservers that hold something: name and process.
fn live(status: &Value) -> Vec<(String, u64)> {
    let pservers = status["pservers"].as_array().unwrap().iter();
    let live = pservers.filter(|one| one["lost"] == false && one["blocks"].as_u64() > Some(0));
    live.map(|one| (one["name"].as_str().unwrap().to_owned(), one["pid"].as_u64().unwrap())).collect()
}

/// What two runs must have in common.
fn result(closing: &Value) -> (&str, &Value) {
    assert_eq!(closing["records_wrong"], 0, "{closing}");
    assert_eq!(closing["records_counted"], closing["records_expected"], "{closing}");
    (closing["parameters_sha256"].as_str().unwrap(), &closing["rows"])
}

#[test]
fn tables_have_the_same_rows_and_bits_while_pservers_are_killed_moved_and_added() {
    let world = world();
    for delay in ["0", "1"] {
        let alone = world.job("1", 1, &["--delay", delay]).run().unwrap();
        let (rows, kept) = (&alone["rows"]["count.rows"], &alone["rows"]["learnt"]);
        assert!(rows.as_u64() > Some(7000) && kept.as_u64() < Some(16 * 61), "{alone}");
        let folder = format!("runs/{delay}");
        let more = ["--delay", delay, "--replicas", "1", "--pace-millis", "60", "--folder", &folder];
        world.look_at(&folder);
        let child = world.job("2", 3, &more).command().spawn().unwrap();
        let three = live(&world.wait_for("three pservers", |status| {
            live(status).len() == 3 && status["step"].as_u64() > Some(2)
        }));
        let killed = Command::new("kill").args(["-9", &three[0].1.to_string()]).status().unwrap();
        assert!(killed.success());
        world.wait_for("another in its place", |status| {
            live(status).len() == 3 && live(status).iter().all(|(_, process)| *process != three[0].1)
        });
        assert_eq!(world.shoal(&["migrate", "--pserver", &three[1].0, "--wait"])["gone"], true);
        assert_eq!(world.shoal(&["scale", "--pservers", "4"])["pservers"], 4);
        world.wait_for("four pservers", |status| live(status).len() == 4);
        let ended = closing(&child.wait_with_output().unwrap()).unwrap();
        assert_eq!(result(&ended), result(&alone));
        assert_eq!((&ended["phase"], &ended["rewinds"]), (&Value::from("done"), &Value::from(0)));
    }
}

/// Trainers that compute: they have pulled their rows, and have pushed nothing of them.
fn computing(status: &Value) -> Vec<u64> {
    let trainers = status["trainers"].as_array().map_or(&[][..], Vec::as_slice).iter();
    let computing = trainers.filter(|one| one["state"] == "live" && one["tasks_in_hand"].as_u64() > Some(0));
    computing.filter_map(|one| one["pid"].as_u64()).collect()
}

/// What was evaluated, in order.
fn evaluated(closing: &Value) -> Vec<(&Value, &Value)> {
    let evaluations = closing["evaluations"].as_array().unwrap();
    evaluations.iter().map(|one| (&one["step"], &one["metrics"])).collect()
}

/// A trainer pauses after its pull and before it computes, so almost every kill comes between pull and push.
#[test]
fn tables_have_the_same_rows_and_evaluations_while_trainers_are_killed_between_pull_and_push() {
    const KILLS: usize = 8;
    let world = world();
    for delay in ["0", "1"] {
        let often = ["--delay", delay, "--eval-data", &world.data, "--eval-steps", "12"];
        let alone = world.job("1", 1, &often).run().unwrap();
        assert!(evaluated(&alone).len() > 4, "{alone}");
        let folder = format!("runs/evaluated-{delay}");
        world.look_at(&folder);
        let more = [&often[..], &["--replicas", "1", "--pace-millis", "60", "--folder", &folder]].concat();
        let child = world.job("3", 2, &more).command().spawn().unwrap();
        let (mut killed, mut step): (Vec<u64>, u64) = (Vec::new(), 0);
        while killed.len() < KILLS {
            let is_new = |process: &u64| !killed.contains(process);
            // Never often with one microbatch in hand: it would be thought to be to blame.
            let has_gone_on = |status: &Value| status["step"].as_u64() > Some(step);
            let status = world.wait_for("trainer that computes", |status| {
                has_gone_on(status) && computing(status).iter().any(is_new)
            });
            step = status["step"].as_u64().unwrap();
            let process = computing(&status).into_iter().find(is_new).unwrap();
            assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
            killed.push(process);
        }
        let ended = closing(&child.wait_with_output().unwrap()).unwrap();
        assert_eq!(result(&ended), result(&alone));
        assert_eq!(evaluated(&ended), evaluated(&alone));
        assert_eq!(ended["rewinds"], 0);
    }
}

#[test]
fn tables_come_back_from_a_checkpoint_with_the_same_rows_and_bits() {
    let world = world();
    let alone = world.job("1", 1, &[]).run().unwrap();
    let more = [
        "--chaos",
        "5",
        "--chaos-hard",
        "--chaos-kinds",
        "kill",
        "--checkpoint-steps",
        "5",
        "--pace-millis",
        "60",
    ];
    let struck = world.job("2", 2, &more).run().unwrap();
    assert!(struck["rewinds"].as_u64() > Some(0), "no pserver was struck: {struck}");
    assert_eq!(result(&struck), result(&alone));
}

#[test]
fn tables_of_asynchronous_jobs_count_every_record_once() {
    let world = world();
    let more = ["--mode", "async", "--chaos", "3", "--replicas", "1", "--pace-millis", "20"];
    let struck = world.job("2", 3, &more).run().unwrap();
    assert!(!struck["faults"].as_array().unwrap().is_empty(), "{struck}");
    result(&struck);
}

/// The program evaluates what its table has for the keys of the data, born or not.
#[test]
fn a_table_that_one_job_exported_is_what_the_next_begins_at() {
    let world = world();
    let evaluated_at_the_end = ["--eval-data", &world.data, "--eval-epochs", "3", "--folder", "runs/first"];
    let first = world.job("1", 2, &evaluated_at_the_end).run().unwrap();
    let trained = evaluated(&first);
    let model = "runs/first/model.safetensors";
    for pservers in [1, 3] {
        let more = ["--eval-data", &world.data, "--warm-start", model];
        let mut job = world.job("1", pservers, &more);
        let epochs = job.more.iter().position(|word| word == "--epochs").unwrap();
        job.more[epochs + 1] = "0".to_owned();
        let begun = job.run().unwrap();
        assert_eq!(evaluated(&begun)[0].1, trained.last().unwrap().1, "{begun}");
        assert_eq!(begun["rows"]["learnt"], first["rows"]["learnt"]);
        assert_eq!(begun["rows"]["count.rows"], 0, "counters count their own job");
    }
}

/// Keys, embeddings and sums of squares of the table that is trained, in the file's order.
fn parquet_rows(world: &World, name: &str) -> Vec<(u64, Vec<f32>, Vec<f32>)> {
    let file = std::fs::File::open(world.folder.path().join(name)).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap).map(|row| {
        let floats = |column| {
            let list = row.get_list(column).unwrap();
            (0..list.len()).map(|at| list.get_float(at).unwrap()).collect()
        };
        (row.get_ulong(0).unwrap(), floats(1), floats(2))
    });
    rows.collect()
}

#[test]
fn a_table_exported_as_parquet_has_the_rows_that_the_model_as_safetensors_has() {
    let world = world();
    std::fs::create_dir_all(world.folder.path().join("runs/here")).unwrap();
    let more = ["--folder", "runs/here", "--checkpoint-steps", "5", "--pace-millis", "60"];
    let running = world.job("2", 2, &more).command().spawn().unwrap();
    world.wait_for("some steps", |status| status["step"].as_u64() > Some(2));
    let export = ["export", "--with-state", "--table", "learnt", "--file", "learnt.parquet"];
    let of_job = world.shoal(&export);
    let rows = parquet_rows(&world, "learnt.parquet");
    assert_eq!(
        (of_job["rows"].as_u64(), of_job["table"].as_str()),
        (Some(rows.len() as u64), Some("learnt"))
    );
    assert!(!rows.is_empty() && rows.iter().all(|(_, row, sums)| (row.len(), sums.len()) == (4, 4)));
    closing(&running.wait_with_output().unwrap()).unwrap();

    let exported = world.shoal(&[&["checkpoint"], &export[..]].concat());
    world.shoal(&["checkpoint", "export", "--with-state", "--file", "model.safetensors"]);
    let mut rows = parquet_rows(&world, "learnt.parquet");
    assert_eq!(exported["rows"].as_u64(), Some(rows.len() as u64));
    rows.sort_by_key(|(key, ..)| *key);
    let content = std::fs::read(world.folder.path().join("model.safetensors")).unwrap();
    let model = SafeTensors::deserialize(&content).unwrap();
    let bytes = |name: &str| model.tensor(name).unwrap().data().to_vec();
    let little = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let keys: Vec<u8> = rows.iter().flat_map(|(key, ..)| key.to_le_bytes()).collect();
    let embeddings: Vec<u8> = rows.iter().flat_map(|(_, row, _)| little(row)).collect();
    let sums: Vec<u8> = rows.iter().flat_map(|(.., sums)| little(sums)).collect();
    assert!(keys == bytes("learnt.keys") && embeddings == bytes("learnt"));
    assert_eq!(sums, bytes("learnt.summed_squares"));

    for words in [
        &["checkpoint", "export", "--table", "size", "--file", "none.parquet"][..],
        &["checkpoint", "export", "--file", "none.parquet"],
        &["export", "--table", "learnt", "--file", "none.parquet"],
    ] {
        let mut command = Command::new(&world.programs.shoal);
        let refused =
            command.current_dir(world.folder.path()).args(words).args(["--run", "runs/here"]).output();
        let refused = refused.unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {said}");
        assert!(
            ["count.rows, learnt", "name it by --table", "shoal checkpoint export"]
                .iter()
                .any(|part| said.contains(part))
        );
    }
    assert!(!world.folder.path().join("none.parquet").exists());
}
