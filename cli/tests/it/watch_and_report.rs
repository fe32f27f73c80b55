//! A run watched from beside and reported afterwards: done, failed, killed in the middle.

use crate::roles::{digits, parsed, shoal};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A run of the demo's program in `folder`/run.
fn run(folder: &Path, data: &Path, more: &[&str]) -> Child {
    let mut command = shoal(folder);
    command.args(["run", "--folder", "run", "--epochs", "2", "--data"]).arg(data);
    command.args(more).arg("--").arg(env!("CARGO_BIN_EXE_shoal")).arg("demo-trainer");
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Until a file is there.
fn wait_for(path: &Path) {
    wait_for_word(path, "");
}

/// Until a file is there and has this word in it.
#[allow(clippy::disallowed_methods, reason = "real processes take real time")]
fn wait_for_word(path: &Path, word: &str) {
    let began = Instant::now();
    while !std::fs::read_to_string(path).is_ok_and(|text| text.contains(word)) {
        assert!(began.elapsed() < Duration::from_secs(60), "{} {word:?} never came", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn watched(folder: &Path, more: &[&str]) -> Output {
    wait_for(&folder.join("run/master.address"));
    shoal(folder).args(["status", "--watch", "--run", "run"]).args(more).output().unwrap()
}

fn report(folder: &Path, more: &[&str]) -> Output {
    let mut command: Command = shoal(folder);
    command.args(["report", "run"]).args(more).output().unwrap()
}

fn page(folder: &Path) -> String {
    let made = report(folder, &[]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::read_to_string(folder.join("run/report.html")).unwrap()
}

#[test]
fn a_run_that_is_done_ends_its_watch_with_0_and_its_report_shows_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = digits(folder.path());
    let mut run = run(folder.path(), &data, &["--trainers", "2", "-o", "json", "--pace-millis", "600"]);
    let watched = watched(folder.path(), &["-o", "json"]);
    assert!(run.wait().unwrap().success());
    assert_eq!(watched.status.code(), Some(0), "{}", String::from_utf8_lossy(&watched.stderr));
    let looks: Vec<Value> = std::str::from_utf8(&watched.stdout).unwrap().lines().map(parsed).collect();
    assert!(looks.len() >= 2, "{} looks", looks.len());
    let steps: Vec<u64> = looks.iter().map(|look| look["step"].as_u64().unwrap()).collect();
    assert!(steps.is_sorted(), "{steps:?}");
    let page = page(folder.path());
    for shown in ["trainer-0", "trainer-1", "pserver-0", "done: ", "time went", "Mean loss", "sha256"] {
        assert!(page.contains(shown), "{shown} is missing");
    }
    assert!(!page.contains("no loss was measured"));
    let out = report(folder.path(), &["--out", "elsewhere.html"]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("elsewhere.html"));
    assert_eq!(std::fs::read_to_string(folder.path().join("elsewhere.html")).unwrap(), page);
}

#[test]
fn a_run_that_fails_ends_its_watch_with_1_and_its_report_says_why() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lines.txt"), "no digits\n".repeat(64)).unwrap();
    let pack = ["recordio", "pack", "lines", "lines.txt", "--output", "lines.recordio"];
    assert!(shoal(folder.path()).args(pack).status().unwrap().success());
    let mut run = run(folder.path(), &folder.path().join("lines.recordio"), &[]);
    let watched = watched(folder.path(), &[]);
    assert!(!run.wait().unwrap().success());
    assert_eq!(watched.status.code(), Some(1), "{}", String::from_utf8_lossy(&watched.stdout));
    let said = String::from_utf8_lossy(&watched.stderr).into_owned();
    assert!(said.contains("failed"), "{said}");
    assert!(!watched.stdout.contains(&0x1b), "no cursor is moved where there is no terminal");
    let page = page(folder.path());
    assert!(page.contains("failed at step 0") && page.contains("no loss was measured"));
}

#[test]
fn a_run_whose_supervisor_was_killed_has_a_report_of_what_was_seen() {
    let folder = tempfile::tempdir().unwrap();
    let data = digits(folder.path());
    let mut run = run(folder.path(), &data, &["--pace-millis", "200"]);
    // Its log is there a moment before the journal has it.
    wait_for_word(&folder.path().join("run/journal.jsonl"), "trainer-0");
    run.kill().unwrap();
    run.wait().unwrap();
    let page = page(folder.path());
    assert!(page.contains("no end was written") && page.contains("trainer-0"));
}

#[test]
fn what_is_no_run_is_named_with_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let none = report(folder.path(), &[]);
    assert!(none.status.code() == Some(2) && said(&none).contains("run is no folder"), "{}", said(&none));
    std::fs::create_dir(folder.path().join("run")).unwrap();
    let empty = report(folder.path(), &[]);
    let named = said(&empty).contains("run lacks journal.jsonl") && said(&empty).contains("below its own");
    assert!(empty.status.code() == Some(2) && named, "{}", said(&empty));
    std::fs::write(folder.path().join("run/journal.jsonl"), "{}\n{}\n").unwrap();
    let damaged = report(folder.path(), &[]);
    assert!(damaged.status.code() == Some(2) && said(&damaged).contains("line 1"), "{}", said(&damaged));
}
