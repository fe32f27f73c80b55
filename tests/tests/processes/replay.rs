//! With real processes: steps of a past run that are played again. Their hashes are the same on other members, after faults too, or the
//! first step that differs is named; and a spike is traced to its record.

use serde_json::Value;
use shoal_recordio::{Reader, Writer, WriterOptions};
use shoal_tests::processes::{Job, Programs, closing, pack_digits, programs};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Of the digits, 1,498 records: one pass in 100 steps of 15.
const HUNDRED_STEPS: [&str; 8] = [
    "--microbatch-records",
    "5",
    "--microbatches-per-step",
    "3",
    "--epochs",
    "1",
    "--lease-ttl-millis",
    "1500",
];
/// The largest that a pixel may be.
const DARKEST: u8 = 16;

struct World {
    programs: Programs,
    folder: TempDir,
    data: String,
}

impl World {
    fn new() -> World {
        let (programs, folder) = (programs().unwrap(), tempfile::tempdir().unwrap());
        let data = pack_digits(&programs, &folder.path().join("data")).unwrap();
        World { programs, folder, data }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A run of digits in the folder `name`.
    fn run(&self, name: &str, trainers: &str, pservers: u32, more: &[&str]) -> Value {
        self.run_given(name, trainers, pservers, more, &[])
    }

    fn run_given(&self, name: &str, trainers: &str, pservers: u32, more: &[&str], given: &[&str]) -> Value {
        let folder = ["--folder", name];
        let more = HUNDRED_STEPS.iter().chain(more).chain(&folder);
        let job = Job {
            programs: &self.programs,
            folder: self.folder.path(),
            program: &self.programs.digits,
            data: &self.data,
            trainers,
            pservers,
            more: more.map(|word| (*word).to_owned()).collect(),
            hyper: given.iter().map(|word| (*word).to_owned()).collect(),
        };
        job.run().unwrap()
    }

    fn checkpoints(&self, run: &str) -> Value {
        let mut command = Command::new(&self.programs.shoal);
        command.args(["checkpoint", "ls", "-o", "json", "--run"]).arg(self.path(run));
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
    }

    fn replay(&self, run: &str, more: &[&str]) -> Output {
        let mut command = Command::new(&self.programs.shoal);
        // Not from where the run was begun: paths in it are the run's.
        command
            .current_dir(self.folder.path().parent().unwrap())
            .arg("replay")
            .arg(self.path(run))
            .args(more);
        command
            .args(["-o", "json", "--folder"])
            .arg(self.path(&format!("replay-{}", std::fs::read_dir(self.folder.path()).unwrap().count())));
        command.output().unwrap()
    }
}

/// Writes a file of records again, in which one is another: all dark, and said to be another digit.
fn plant(file: &Path, record_in_file: usize) {
    let reader = Reader::open(file).unwrap();
    let chunks: Vec<Vec<Vec<u8>>> = (0..reader.index().chunks.len())
        .map(|chunk| reader.chunk(chunk).unwrap().iter().map(<[u8]>::to_vec).collect())
        .collect();
    let mut writer =
        Writer::new(Vec::new(), WriterOptions { chunk_bytes: 1 << 10, ..WriterOptions::default() });
    for (at, mut record) in chunks.into_iter().flatten().enumerate() {
        if at == record_in_file {
            record[0] = (record[0] + 5) % 10;
            record[1..].fill(DARKEST);
        }
        writer.write(&record).unwrap();
    }
    std::fs::write(file, writer.finish().unwrap()).unwrap();
}

fn numbers(value: &Value) -> (u64, u64) {
    (value["steps_same"].as_u64().unwrap(), value["steps_not_made"].as_u64().unwrap())
}

/// Which records step 57 is made of one replay tells; one of them is spoiled, and the other tells which it was.
#[test]
fn a_spike_is_traced_to_its_record_and_one_trainer_makes_every_hash_of_three() {
    let world = World::new();
    world.run("sound", "1", 1, &["--record-hashes", "50"]);
    let sound = closing(&world.replay("sound", &["--steps", "57..57", "--inspect=all"])).unwrap();
    let step = &sound["inspected"][0];
    let alone: Vec<&Value> = step["microbatches"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|microbatch| microbatch["alone"].as_array().unwrap())
        .collect();
    assert_eq!(
        (step["step"].as_u64(), step["whole"]["records"].as_u64(), alone.len()),
        (Some(57), Some(15), 15)
    );
    let (planted, place) = (&alone[7]["record"], alone[7]["place"].as_str().unwrap().to_owned());

    let (file, rest) = place.split_once(", chunk ").unwrap();
    let (chunk, record) =
        (rest.split_once(' ').unwrap().0.parse().unwrap(), rest.split("record ").nth(1).unwrap());
    let before: usize =
        Reader::open(file).unwrap().index().chunks[..chunk].iter().map(|chunk| chunk.records as usize).sum();
    let in_chunk: usize = record.split_once(' ').unwrap().0.parse().unwrap();
    plant(Path::new(file), before + in_chunk);

    let run = world.run(
        "spoiled",
        "3",
        2,
        &["--record-hashes", "1", "--replicas", "1", "--checkpoint-steps", "30"],
    );
    assert_eq!((&run["steps"], &run["steps_recorded"]), (&100.into(), &101.into()), "{run}");
    let whole = closing(&world.replay("spoiled", &[])).unwrap();
    assert_eq!((numbers(&whole), &whole["difference"]), ((101, 0), &Value::Null), "{whole}");

    let near = closing(
        &world.replay("spoiled", &["--steps", "50..60", "--from", "0", "--inspect", "--pservers", "3"]),
    )
    .unwrap();
    assert_eq!((numbers(&near), near["from_step"].as_u64()), ((61, 0), Some(0)), "{near}");
    let norm = |of: &Value| of["norm"].as_f64().unwrap();
    let steps = near["inspected"].as_array().unwrap();
    assert_eq!(
        steps.iter().map(|step| step["step"].as_u64().unwrap()).collect::<Vec<_>>(),
        (50..=60).collect::<Vec<_>>()
    );
    let records = steps.iter().flat_map(|step| {
        step["microbatches"].as_array().unwrap().iter().map(move |microbatch| (step, microbatch))
    });
    let records = records.flat_map(|(step, microbatch)| {
        microbatch["alone"].as_array().unwrap().iter().map(move |record| (step, record))
    });
    let (step, largest) = records.max_by(|(_, one), (_, other)| norm(one).total_cmp(&norm(other))).unwrap();
    assert_eq!((&step["step"], &largest["record"]), (&57.into(), planted), "{largest}");
    assert_eq!(largest["place"], place.as_str());
    assert!(step["whole"]["norms"]["hidden.weight"].as_f64() > Some(0.0));
}

/// Every seventh step is skipped, the others are clipped; with a delay it is told later, of the same steps.
#[test]
fn what_was_clipped_or_skipped_is_told_of_its_step() {
    let world = World::new();
    let given = ["--clip-norm", "0.01", "--loss-scale", "1024", "--spoil-every", "7"];
    for delay in ["0", "2"] {
        let run = format!("delayed-{delay}");
        world.run_given(&run, "2", 1, &["--record-hashes", "1", "--delay", delay], &given);
        let replayed = closing(&world.replay(&run, &["--steps", "10..20", "--inspect"])).unwrap();
        assert_eq!((numbers(&replayed), &replayed["difference"]), ((21, 0), &Value::Null), "{replayed}");
        let skipped: Vec<bool> = (replayed["inspected"].as_array().unwrap().iter())
            .map(|step| {
                let decided = &step["decided"];
                let is_skipped = decided["skipped"].as_bool().unwrap();
                assert!(is_skipped || decided["factor"].as_f64() < Some(1.0), "{step}");
                assert_eq!(step["whole"]["norm"].is_null(), is_skipped, "{step}");
                is_skipped
            })
            .collect();
        let which: Vec<usize> =
            (10..).zip(skipped).filter(|(_, is_skipped)| *is_skipped).map(|(step, _)| step).collect();
        assert_eq!(which, [14]);
    }
}

/// Killed and stopped members, a job that has gone back: what it recorded is what an undisturbed one makes.
#[test]
fn a_run_that_was_disturbed_is_played_again_without_a_difference() {
    let world = World::new();
    let run = world.run(
        "disturbed",
        "2:4",
        2,
        &["--record-hashes", "5", "--chaos", "7", "--checkpoint-steps", "20"],
    );
    assert_eq!(run["records_wrong"], 0);
    let replayed = closing(&world.replay("disturbed", &["--trainers", "2"])).unwrap();
    let (same, missing) = numbers(&replayed);
    // A master that is killed takes the count of what was lost in its term along, and next to nothing is.
    assert!(missing == 0 && (16..=21).contains(&same), "{replayed}");
}

/// A checkpoint may lie in an evaluation, which makes versions that are no step's; and it may have only what changed since others, of
/// which the files alone are kept.
#[test]
fn steps_are_played_from_checkpoints_of_evaluations_and_of_changes() {
    let world = World::new();
    let evaluated = world.data.replace("train-*", "test-*");
    let more = [
        "--record-hashes",
        "1",
        "--eval-data",
        &evaluated,
        "--eval-steps",
        "20",
        "--checkpoint-steps",
        "7",
        "--keep-last",
        "6",
    ];
    world.run("evaluated", "2", 1, &more);
    let more =
        HUNDRED_STEPS.iter().chain(&["--record-hashes", "1", "--checkpoint-steps", "6", "--folder", "rows"]);
    let job = Job {
        programs: &world.programs,
        folder: world.folder.path(),
        program: &world.programs.count_rows,
        data: &world.data,
        trainers: "2",
        pservers: 2,
        more: more.map(|word| (*word).to_owned()).collect(),
        hyper: Vec::new(),
    };
    job.run().unwrap();
    for run in ["evaluated", "rows"] {
        let listed = world.checkpoints(run);
        let kept = listed["checkpoints"].as_array().unwrap().iter().filter(|one| one["standing"] == "kept");
        let number = kept.map(|one| one["checkpoint"].as_u64().unwrap()).min().unwrap();
        let replayed = closing(&world.replay(run, &["--from", &number.to_string()])).unwrap();
        let (same, missing) = numbers(&replayed);
        assert!(missing == 0 && same > 0 && replayed["difference"].is_null(), "{run}: {replayed}\n{listed}");
        assert!(replayed["from_step"].as_u64() > Some(40), "{run}: {replayed}");
        let rests = listed["checkpoints"].as_array().unwrap().iter().any(|one| !one["rests_on"].is_null());
        assert_eq!(rests, run == "rows", "{listed}");
    }
}

#[test]
fn a_program_that_is_no_function_is_told_by_step_and_parameter() {
    let world = World::new();
    let picky = world.programs.shoal.with_file_name("picky");
    // Of one trainer, so that nothing is computed twice: the run itself would find that the two differ.
    let more = ["--record-hashes", "1", "--checkpoint-steps", "6", "--keep-last", "9", "--folder", "run"];
    let job = Job {
        programs: &world.programs,
        folder: world.folder.path(),
        program: &picky,
        data: "records:600",
        trainers: "1",
        pservers: 2,
        more: HUNDRED_STEPS.iter().chain(&more).map(|word| (*word).to_owned()).collect(),
        hyper: ["calls", "12"].map(str::to_owned).into(),
    };
    job.run().unwrap();
    let listed = world.checkpoints("run");
    let first =
        listed["checkpoints"].as_array().unwrap().iter().find(|one| one["standing"] == "kept").unwrap();
    let (number, step) = (first["checkpoint"].to_string(), first["version"].as_u64().unwrap());
    assert!((1..=12).contains(&step), "{listed}");
    // Whoever begins in the middle has counted fewer calls.
    let output = world.replay("run", &["--from", &number]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    let found: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    // Steps are counted from 1 here, and from 0 by programs.
    assert_eq!((&found["difference"]["step"], &found["from_step"]), (&13.into(), &step.into()), "{found}");
    assert!((12 - step..=13 - step).contains(&found["steps_same"].as_u64().unwrap()), "{found}");
    let parameters = found["difference"]["parameters"].as_array().unwrap();
    assert!(parameters.contains(&"calls".into()), "{found}");
}

#[test]
fn what_cannot_be_played_again_is_said_with_the_way_out() {
    let world = World::new();
    world.run("silent", "1", 1, &[]);
    for (more, words) in [
        (&[][..], "start a run with --record-hashes"),
        (&["--from", "9"], "no such checkpoint: kept are 1 (step 100)"),
        (&["--from", "1"], "nothing is left to play"),
        (&["--steps", "101..102", "--inspect"], "the run has steps 1..100"),
        (&["--inspect", "--trainers", "2"], "--inspect goes with one trainer"),
        (&["--steps", "9..3"], "1 <= A <= B"),
    ] {
        let output = world.replay("silent", more);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{words}: {said}");
    }
    let output = world.replay("nowhere", &[]);
    assert!(output.status.code() == Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
