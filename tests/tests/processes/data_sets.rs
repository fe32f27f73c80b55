//! With real processes: which data a run takes, what it says of them, and what it refuses before anything begins.

use serde_json::{Value, json};
use shoal_tests::processes::{Programs, closing, programs};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
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

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of so many records.
    fn pack(&self, name: &str, records: usize) {
        let lines: String = (0..records).map(|line| format!("{name} {line}\n")).collect();
        std::fs::write(self.path("lines"), lines).unwrap();
        let packed = self.shoal().args(["recordio", "pack", "lines", "lines", "--output", name]).output();
        assert!(packed.unwrap().status.success());
    }

    fn shoal(&self) -> Command {
        let mut command = Command::new(&self.programs.shoal);
        command.current_dir(self.folder.path());
        command
    }

    fn run(&self, words: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = self.shoal();
        command.args(["run", "-o", "json"]).args(words).arg("--").arg(&self.programs.count);
        command.envs(environment.iter().copied()).output().unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_data_set_that_cannot_be_taken_is_refused_whole_and_the_folder_serves_the_next_try() {
    let world = World::new();
    world.pack("a.recordio", 30);
    std::fs::create_dir(world.path("b")).unwrap();
    std::fs::copy(world.path("a.recordio"), world.path("b/good.recordio")).unwrap();
    symlink("/nowhere/b.recordio", world.path("b/dangling.recordio")).unwrap();
    (0..9).for_each(|n| std::fs::write(world.path(&format!("b/empty-{n}.recordio")), "").unwrap());
    for format in ["text", "json"] {
        let words = ["--data", "a.recordio", "./a.recordio", "b/*.recordio", "--folder", "run"];
        let refused = world.run(&words, &[("SHOAL_LOG_FORMAT", format)]);
        let text = said(&refused);
        assert_eq!(refused.status.code(), Some(2), "{text}");
        assert!(text.contains("error: the data set is refused for 11 of its names:\n"), "{text}");
        assert!(
            text.contains("\n  ./a.recordio: the same file as a.recordio: a file counts once\n"),
            "{text}"
        );
        assert!(text.contains("\n  b/dangling.recordio: a link that leads nowhere"), "{text}");
        (0..9).for_each(|n| assert!(text.contains(&format!("\n  b/empty-{n}.recordio: empty")), "{text}"));
        assert!(!text.contains("good"), "{text}");
    }
    assert!(!world.path("runs").exists(), "nothing is remembered as a run");
    let next = world.run(&["--data", "a.recordio", "b/good.recordio", "--folder", "run"], &[]);
    let text = said(&next);
    let size = std::fs::metadata(world.path("a.recordio")).unwrap().len();
    let line = format!("trained: 2 files, 60 records, {} bytes\n", 2 * size);
    assert!(text.contains(&line), "{text}");
    let closing = closing(&next).unwrap();
    let trained = json!({ "files": 2, "records": 60, "bytes": 2 * size });
    assert_eq!(closing["data_set"], json!({ "trained": trained, "evaluated": null, "predicted": null }));
}

#[test]
fn a_pipe_in_the_place_of_a_file_holds_nobody_up() {
    let world = World::new();
    assert!(Command::new("mkfifo").arg(world.path("pipe")).status().unwrap().success());
    for data in ["pipe", "p*"] {
        let refused = world.run(&["--data", data], &[]);
        let text = said(&refused);
        assert!(
            refused.status.code() == Some(2) && text.contains("pipe: a named pipe, and no file"),
            "{text}"
        );
    }
}

#[test]
fn any_file_can_be_named_by_flag_variable_and_url() {
    let world = World::new();
    let names = ["a[1].recordio", "a1.recordio", "c,d.recordio", "-e.recordio", "*.recordio"];
    std::fs::create_dir(world.path("in")).unwrap();
    for (at, name) in names.iter().enumerate() {
        world.pack("packed", 10 + at);
        std::fs::rename(world.path("packed"), world.path(&format!("in/{name}"))).unwrap();
    }
    let here = |name: &str| Path::new("in").join(name).display().to_string();
    let records = |output: &Output| closing(output).unwrap()["data_set"]["trained"]["records"].clone();
    for (at, name) in names.iter().enumerate() {
        let expected = Value::from(10 + at);
        assert_eq!(records(&world.run(&["--data", &here(name)], &[])), expected, "{name}");
    }
    let comma = here("c,d.recordio");
    assert_eq!(records(&world.run(&[], &[("SHOAL_DATA", &comma)])), 12);
    let list = format!("{},{}", here("c[,]d.recordio"), here("a1.recordio"));
    assert_eq!(records(&world.run(&[], &[("SHOAL_DATA", &list)])), 12 + 11);
    let url = format!("file://{}", world.path("in/a[1].recordio").display());
    assert_eq!(records(&world.run(&["--data", &url], &[])), 10);
    // As a shell hands over all that is there.
    let all: Vec<String> = names.iter().map(|name| here(name)).collect();
    let words: Vec<&str> = std::iter::once("--data").chain(all.iter().map(String::as_str)).collect();
    assert_eq!(records(&world.run(&words, &[])), 10 + 11 + 12 + 13 + 14);
    std::fs::copy(world.path("in/-e.recordio"), world.path("-e.recordio")).unwrap();
    assert_eq!(records(&world.run(&["--data=-e.recordio"], &[])), 13);
}
