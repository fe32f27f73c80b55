//! What README.md and docs/ show is done: a command in a fenced block runs here, as it stands and in the order of its page, or
//! `documents/not_run.txt` says who runs it or why nobody does. There is no third way: a new command is in neither, and fails.

use super::examples::parquet_file;
use shoal_tests::processes::{Programs, Running, closing, pack_digits, programs};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What is not run, a line each: PAGE: HOW THE COMMAND BEGINS: WHY.
const NOT_RUN: &str = include_str!("documents/not_run.txt");

/// Pages whose commands run, each by a test, and what stands before them.
macro_rules! sessions {
    ($($test:ident $page:literal $before:ident,)*) => {
        const SESSIONS: &[(&str, Before)] = &[$(($page, Before::$before)),*];
        $(
            #[test]
            fn $test() {
                session($page, Before::$before);
            }
        )*
    };
}

sessions! {
    what_checkpoints_shows_runs "docs/checkpoints.md" Job,
    what_configuration_shows_runs "docs/configuration.md" Files,
    what_data_shows_runs "docs/data.md" Files,
    what_elasticity_shows_runs "docs/elasticity.md" Job,
    what_evaluation_shows_runs "docs/evaluation.md" Run,
    what_live_page_shows_runs "docs/live-page.md" Files,
    what_operations_shows_runs "docs/operations.md" Job,
    what_replay_shows_runs "docs/replay.md" Files,
    what_security_shows_runs "docs/security.md" Files,
}

/// What the folder has in which a page's commands run.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    /// A program, its data, files to pack.
    Files,
    /// A run that is done, too.
    Run,
    /// A job that trains, too.
    Job,
}

/// A command that a page shows.
#[derive(Debug)]
struct Shown {
    page: String,
    line: usize,
    command: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn pages() -> Vec<String> {
    let folder = fs::read_dir(root().join("docs")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<String> =
        names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")).collect();
    pages.push("README.md".to_owned());
    pages.sort();
    pages
}

/// The commands of a page: lines of a fenced block that begin with `$ `, with the lines that a backslash joins to them.
fn shown(page: &str, text: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let (mut is_fenced, mut goes_on) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.starts_with("```") {
            is_fenced = !is_fenced;
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_fenced) {
            found.push(Shown { page: page.to_owned(), line: index + 1, command: command.to_owned() });
            goes_on = command.ends_with('\\');
        } else if let Some(last) = found.last_mut().filter(|_| goes_on) {
            write!(last.command, "\n{line}").unwrap();
            goes_on = line.ends_with('\\');
        }
    }
    found
}

fn all_shown() -> Vec<Shown> {
    let read = |page: &String| shown(page, &fs::read_to_string(root().join(page)).unwrap());
    pages().iter().flat_map(read).collect()
}

/// The list: of each line the page, how the command begins, and why it is not run.
fn not_run() -> Vec<(&'static str, &'static str, &'static str)> {
    let lines = NOT_RUN.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parts = |line: &'static str| {
        let (page, rest) = line.split_once(": ")?;
        let (begins, why) = rest.split_once(": ")?;
        Some((page, begins, why))
    };
    lines.map(|line| parts(line).unwrap_or_else(|| panic!("PAGE: HOW IT BEGINS: WHY, not {line}"))).collect()
}

fn listed(of: &Shown) -> Option<usize> {
    not_run().iter().position(|(page, begins, _)| *page == of.page && of.command.starts_with(begins))
}

#[test]
fn commands_are_those_of_fenced_blocks_with_the_lines_that_belong_to_them() {
    let page = "$ no\n```console\n$ one \\\n    --two\nsaid\n$ three\n```\n$ no\n";
    let found: Vec<_> = shown("p", page).into_iter().map(|shown| (shown.line, shown.command)).collect();
    assert_eq!(found, [(3, "one \\\n--two".to_owned()), (6, "three".to_owned())]);
}

#[test]
fn every_command_runs_here_or_is_listed_with_the_reason() {
    let mut used = BTreeSet::new();
    for shown in all_shown() {
        let is_run = SESSIONS.iter().any(|(page, _)| *page == shown.page);
        match listed(&shown) {
            Some(at) => drop(used.insert(at)),
            None => assert!(is_run, "{}:{}: run it or list it: {}", shown.page, shown.line, shown.command),
        }
    }
    for (at, (page, begins, why)) in not_run().into_iter().enumerate() {
        assert!(used.contains(&at), "{page} shows no {begins:?} any more: take it out");
        // Who is named as running it is there.
        for word in why.split([' ', ',', ';']).filter(|word| word.contains('/') && word.contains('.')) {
            assert!(root().join(word).exists(), "there is no {word}, which {page}: {begins:?} names");
        }
    }
}

/// What is in the folder: `target/release/my-program` and its data, as a user's project has them, and files to pack.
fn lay_out(programs: &Programs, folder: &Path, page: &str) {
    let data = folder.join("data");
    pack_digits(programs, &data).unwrap();
    symlink(data.join("test-0.recordio"), data.join("new-0.recordio")).unwrap();
    fs::create_dir_all(folder.join("target/release")).unwrap();
    // Data without files are for a program that has its samples.
    let program = match page {
        "docs/data.md" => programs.shoal.with_file_name("numbers"),
        _ => programs.digits.clone(),
    };
    symlink(program, folder.join("target/release/my-program")).unwrap();
    fs::write(folder.join("numbers.txt"), "1\n2\n3\n").unwrap();
    fs::write(folder.join("corpus.txt"), "the\nquick\nbrown\n").unwrap();
    fs::write(folder.join("housing.csv"), "price,rooms\n1.5,3\n2.5,4\n").unwrap();
    let images = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2][..], &[7; 8]].concat();
    fs::write(folder.join("train-images"), images).unwrap();
    fs::write(folder.join("train-labels"), [0, 0, 8, 1, 0, 0, 0, 2, 3, 5]).unwrap();
    let columns = ["price", "rooms", "area"].map(|name| (name, vec![1, 2, 3]));
    parquet_file(&folder.join("houses.parquet"), &columns, &[]);
    bash(programs, folder, LATEST, "gzip -k corpus.txt; gzip train-images train-labels");
}

/// The run of the job that trains meanwhile: the one that commands mean, whichever pages start.
const BEHIND: &str = "runs/demo/elastic";
/// What they mean otherwise.
const LATEST: &str = "runs/latest";

/// Runs a script in which the first command that fails is the last.
fn bash(programs: &Programs, folder: &Path, run: &str, script: &str) {
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", programs.shoal.parent().unwrap().display());
    let done = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(folder)
        .env("PATH", path)
        // Enough steps and checkpoints for what pages name.
        .envs([
            ("SHOAL_CONFIG", "/dev/null"),
            ("SHOAL_EPOCHS", "6"),
            ("SHOAL_CHECKPOINT_STEPS", "20"),
            ("SHOAL_KEEP_LAST", "100"),
            ("SHOAL_RUN", run),
        ])
        .output()
        .unwrap();
    let said = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "{script}\n{}", String::from_utf8_lossy(&said));
}

/// A job that goes on until the test ends, and has made the checkpoint that pages name.
fn behind(programs: &Programs, folder: &Path) -> Running {
    let mut command = Command::new(&programs.shoal);
    command.env("SHOAL_CONFIG", "/dev/null");
    command.current_dir(folder).args(["run", "--trainers", "2:8", "--pservers", "3", "--replicas", "1"]);
    command.args(["--data", "data/train-*.recordio", "--epochs", "100000", "--pace-millis", "20"]);
    command.args([
        "--folder",
        BEHIND,
        "--checkpoint-steps",
        "4",
        "--keep-last",
        "100000",
        "--",
        "target/release/my-program",
    ]);
    let mut running = Running::start(command, &folder.join("behind.log")).unwrap();
    let is_there = || {
        let asked = Command::new(&programs.shoal)
            .args(["checkpoint", "ls", "--run", BEHIND, "-o", "json"])
            .current_dir(folder)
            .output()
            .unwrap();
        closing(&asked).is_ok_and(|listed| listed["newest"].as_u64() >= Some(12))
    };
    let mut looks = (0..2400).take_while(|_| running.is_running());
    let is_ready = looks.any(|_| {
        pause();
        is_there()
    });
    let said = || fs::read_to_string(folder.join("behind.log")).unwrap_or_default();
    assert!(is_ready, "no twelve checkpoints: {}", said());
    running
}

#[allow(clippy::disallowed_methods, reason = "real processes take real time")]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

/// Runs what a page shows, one after another.
fn session(page: &str, before: Before) {
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    lay_out(&programs, folder, page);
    if before == Before::Run {
        bash(
            &programs,
            folder,
            LATEST,
            "shoal run --data 'data/train-*.recordio' -- target/release/my-program",
        );
    }
    let run = if before == Before::Job { BEHIND } else { LATEST };
    let _job = (before == Before::Job).then(|| behind(&programs, folder));
    let text = fs::read_to_string(root().join(page)).unwrap();
    for shown in shown(page, &text).iter().filter(|shown| listed(shown).is_none()) {
        bash(&programs, folder, run, &format!("# {page}:{}\n{}", shown.line, shown.command));
    }
}
