//! Event files for TensorBoard of real runs, read by a reader of their own and held against what the runs say at their ends.

use prost::Message;
use serde_json::Value;
use shoal_tests::processes::{Job, Programs, closing, pack_digits, programs};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Tagged>,
}
#[derive(Clone, PartialEq, Message)]
struct Tagged {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    number: Option<f32>,
}

/// The numbers of files, by tag: step and value in the order of the files.
#[derive(Debug, Default)]
struct Told(BTreeMap<String, Vec<(u64, f32)>>);

impl Told {
    /// Of all files of a folder; each must be whole but for its last record, where its writer was killed.
    fn of(folder: &Path) -> (Told, usize) {
        let mut told = Told::default();
        let files = files(folder);
        for file in &files {
            let bytes = std::fs::read(file).unwrap();
            let mut rest = &bytes[..];
            let mut events = Vec::new();
            while rest.len() >= 12 {
                let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
                let Some(payload) = rest.get(12..12 + length) else { break };
                events.push(Event::decode(payload).unwrap());
                rest = rest.get(12 + length + 4..).unwrap_or_default();
            }
            // One that has just been made has nothing yet.
            let first = events.first().map(|event| event.version.as_deref());
            assert!(matches!(first, None | Some(Some("brain.Event:2"))), "{}", file.display());
            for event in events {
                assert!(event.wall_time > 1.7e9, "{event:?}");
                for Tagged { tag, number } in event.summary.unwrap_or_default().values {
                    let values = told.0.entry(tag).or_default();
                    values.extend(number.map(|number| (event.step as u64, number)));
                }
            }
        }
        (told, files.len())
    }

    fn of_tag(&self, tag: &str) -> &[(u64, f32)] {
        self.0.get(tag).map(Vec::as_slice).unwrap_or_default()
    }

    /// Every evaluation once, with its value in the closing object, and none beside them.
    fn assert_evaluations(&self, closing: &Value) {
        let evaluations = closing["evaluations"].as_array().unwrap();
        assert!(evaluations.len() > 2, "{closing}");
        let names: Vec<&String> = evaluations[0]["metrics"].as_object().unwrap().keys().collect();
        for name in names {
            let mut values = self.of_tag(&format!("metrics/{name}")).to_vec();
            values.sort_by_key(|(step, _)| *step);
            let expected = evaluations.iter().map(|evaluation| {
                (evaluation["step"].as_u64().unwrap(), evaluation["metrics"][name].as_f64().unwrap() as f32)
            });
            assert_eq!(values, expected.collect::<Vec<_>>(), "{name}");
        }
    }

    fn assert_last(&self, tag: &str, expected: &Value) {
        let last = self.of_tag(tag).last().map(|(_, value)| f64::from(*value));
        assert_eq!(last, expected.as_f64().map(|number| f64::from(number as f32)), "{tag}");
    }

    /// The curve of losses has all steps, and what the run says at its end is told.
    fn assert_end(&self, closing: &Value) {
        let steps: Vec<u64> = self.of_tag("loss").iter().map(|(step, _)| *step).collect();
        assert_eq!(steps, (1..=closing["steps"].as_u64().unwrap()).collect::<Vec<_>>());
        self.assert_last("waste/records_computed", &closing["records_computed"]);
        self.assert_last("waste/records_wasted", &closing["records_wasted"]);
        self.assert_last("progress/rewinds", &closing["rewinds"]);
        assert!(self.0.contains_key("_hparams_/session_start_info"));
        assert!(self.0.contains_key("_hparams_/session_end_info"));
    }
}

/// The event files of the only run below a folder, in TensorBoard's order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let below = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let runs = below(folder);
    assert!(runs.len() <= 1, "{runs:?}");
    runs.first().map(|run| below(run)).unwrap_or_default()
}

struct World {
    programs: Programs,
    folder: TempDir,
    data: String,
}

impl World {
    fn new() -> World {
        let programs = programs().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let data = pack_digits(&programs, &folder.path().join("data")).unwrap();
        World { programs, folder, data }
    }

    fn job(&self, trainers: &'static str, more: &[&str]) -> Job<'_> {
        let held_out = self.data.replace("train-", "test-");
        let common = ["--eval-data", &held_out, "--eval-steps", "4", "--epochs", "3", "--seed", "7"];
        Job {
            programs: &self.programs,
            folder: self.folder.path(),
            program: &self.programs.digits,
            data: &self.data,
            trainers,
            pservers: 2,
            more: common.iter().chain(more).map(|word| (*word).to_owned()).collect(),
            hyper: Vec::new(),
        }
    }

    fn run(&self, trainers: &'static str, more: &[&str]) -> Output {
        self.job(trainers, more).command().output().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

#[test]
fn event_files_tell_what_the_run_says_at_its_end_under_chaos() {
    let world = World::new();
    let calm = closing(&world.run("2", &["--folder", "calm"])).unwrap();
    let struck = ["--folder", "struck", "--tensorboard", "events", "--chaos", "3", "--replicas", "1"];
    let struck = closing(&world.run("2:4", &struck)).unwrap();
    assert!(!struck["faults"].as_array().unwrap().is_empty(), "{struck}");
    assert_eq!(struck["parameters_sha256"], calm["parameters_sha256"], "whoever watches changes no bit");
    let (told, files) = Told::of(&world.path("events"));
    assert_eq!(files, 1);
    told.assert_evaluations(&struck);
    told.assert_end(&struck);
    assert!(told.of_tag("rate/records_per_second").iter().any(|(_, rate)| *rate > 0.0), "{told:?}");
    let trainers: Vec<f32> = told.of_tag("members/trainers").iter().map(|(_, number)| *number).collect();
    assert!(trainers.iter().any(|number| *number > 0.0), "{trainers:?}");
    let mut report = Command::new(&world.programs.shoal);
    let report = report.current_dir(world.folder.path()).args(["report", "struck", "--out", "report.html"]);
    assert!(report.status().unwrap().success());
    let page = std::fs::read_to_string(world.path("report.html")).unwrap();
    let accuracy = struck["evaluations"][0]["metrics"]["accuracy"].as_f64().unwrap();
    // People compare six digits.
    let accuracy: f64 = format!("{accuracy:.5e}").parse().unwrap();
    for words in [">accuracy</text>", "<h2>Evaluations</h2>", &format!(">{accuracy}<")] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
fn a_run_that_goes_on_goes_on_in_another_file_of_the_same_folder() {
    let world = World::new();
    let flags = ["--folder", "run", "--tensorboard", "events", "--checkpoint-steps", "2"];
    let slow = [&flags[..], &["--pace-millis", "40"]].concat();
    let mut child = world.job("2", &slow).command().spawn().unwrap();
    let are_told = || {
        let told = Told::of(&world.path("events")).0;
        told.of_tag("metrics/accuracy").len() >= 2 && !told.of_tag("loss").is_empty()
    };
    let is_live = (0..3000).any(|_| {
        pause();
        !files(&world.path("events")).is_empty() && are_told()
    });
    assert!(is_live && child.try_wait().unwrap().is_none(), "values are told while the run goes on");
    child.kill().unwrap();
    child.wait().unwrap();
    let told_before = Told::of(&world.path("events")).0.of_tag("metrics/accuracy").len();
    // Its processes end with it; until they have, nobody else is let in.
    let goes_on = [&flags[..], &["--resume"]].concat();
    let resumed = (0..100).find_map(|_| {
        pause();
        closing(&world.run("3", &goes_on)).ok()
    });
    let resumed = resumed.expect("it does not go on");
    assert!(resumed["evaluations"].as_array().unwrap().len() > told_before, "{resumed}");
    let (told, files) = Told::of(&world.path("events"));
    assert_eq!(files, 2);
    told.assert_evaluations(&resumed);
    told.assert_end(&resumed);
}

#[test]
fn a_place_that_is_a_file_or_a_run_s_own_is_refused_before_the_run_begins() {
    let world = World::new();
    std::fs::write(world.path("file"), "mine").unwrap();
    for (place, why) in
        [("file", "is a file: event files go into a folder"), ("run/state", "what the run in")]
    {
        let output = world.run("1", &["--folder", "run", "--tensorboard", place]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{place}: {said}");
    }
    assert_eq!(std::fs::read_to_string(world.path("file")).unwrap(), "mine");
    assert!(!world.path("run/state").exists(), "no run has begun");
}

fn pause() {
    let _ = Command::new("sleep").arg("0.02").status();
}
