//! One run and others: who may work in its folder, which job its commands reach, what it is called, what may change when it
//! goes on.

use crate::roles::{digits, parsed, shoal};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// `shoal run` of the demo's program on a data set of digits.
fn run(folder: &Path, more: &[&str]) -> Command {
    let data = folder.join("digits.recordio");
    let data = if data.exists() { data } else { digits(folder) };
    let mut command = shoal(folder);
    command.arg("run").args(more).arg("--data").arg(data);
    command.arg("--").arg(env!("CARGO_BIN_EXE_shoal")).arg("demo-trainer");
    command
}

/// A run that would last for minutes, killed when it is dropped; its processes follow it within a second.
struct Living(Child);

impl Living {
    fn start(folder: &Path, more: &[&str]) -> Living {
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let long = [&["--epochs", "30", "--pace-millis", "150"], more].concat();
        let mut command = run(folder, &long);
        Living(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first word that `look` has, waited for.
#[allow(clippy::disallowed_methods, reason = "real processes take real time")]
fn within_a_minute<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{what} never came");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn status(folder: &Path, of: &[&str]) -> Option<Value> {
    let said = shoal(folder).args(["status", "-o", "json"]).args(of).output().unwrap();
    said.status.success().then(|| parsed(std::str::from_utf8(&said.stdout).unwrap()))
}

fn trains(folder: &Path, of: &[&str]) -> Value {
    within_a_minute("a step", || status(folder, of).filter(|status| status["step"].as_u64() > Some(0)))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn refused(command: &mut Command, code: i32, why: &str) {
    let output = command.output().unwrap();
    let said = said(&output);
    assert!(output.status.code() == Some(code) && said.contains(why), "{why:?} is not in: {said}");
}

#[test]
fn a_run_that_lives_is_not_taken_up_and_stays_reachable() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mut living = Living::start(here, &["--folder", "a"]);
    trains(here, &["--run", "a"]);
    let pid = living.0.id();
    for more in [&["--resume", "--folder", "a", "--epochs", "30"][..], &["--resume"], &["--folder", "a"]] {
        refused(&mut run(here, more), 2, &format!("lives, process {pid}"));
    }
    assert_eq!(status(here, &["--run", "a"]).unwrap()["phase"], "training");
    living.kill();
    // Whoever killed it may take it up at once.
    let mut resumed = run(here, &["--resume", "--folder", "a", "--epochs", "30", "-o", "json"]);
    let resumed = resumed.output().unwrap();
    assert!(resumed.status.success(), "{resumed:?}");
}

#[test]
fn of_two_runs_that_begin_in_one_folder_one_trains() {
    let folder = tempfile::tempdir().unwrap();
    digits(folder.path());
    let start = || run(folder.path(), &["--folder", "a"]).stderr(Stdio::piped()).spawn().unwrap();
    let ended = [start(), start()].map(|child| child.wait_with_output().unwrap());
    let mut codes = ended.each_ref().map(|one| one.status.code());
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(2)], "{} {}", said(&ended[0]), said(&ended[1]));
    let begun = std::fs::read_to_string(folder.path().join("a/journal.jsonl")).unwrap();
    assert_eq!(begun.matches("\"begun\"").count(), 1, "{begun}");
}

#[test]
fn a_demo_leaves_a_folder_alone_in_which_another_lives() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let demo = || shoal(here).args(["demo", "--folder", "d"]).stderr(Stdio::null()).spawn().unwrap();
    let mut first = demo();
    within_a_minute("a demo", || here.join("d/undisturbed/job.name").exists().then_some(()));
    refused(shoal(here).args(["demo", "--folder", "d"]), 2, "lives, process");
    first.kill().unwrap();
    first.wait().unwrap();
    // One of its runs goes on alone, and the next demo would remove it.
    let claim = std::fs::File::open(here.join("d/undisturbed/run.lock")).unwrap();
    claim.lock().unwrap();
    refused(shoal(here).args(["demo", "--folder", "d"]), 2, "d/undisturbed lives");
    assert!(here.join("d/undisturbed/job.name").exists());
}

#[test]
fn commands_about_a_run_do_not_reach_another_job_at_its_masters_address() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mut living = Living::start(here, &["--folder", "a"]);
    trains(here, &["--run", "a"]);
    living.kill();
    // As if the stranger had been given the address by chance.
    let mut stranger = shoal(here);
    stranger.args(["master", "--job", "b", "--listen", "127.0.0.1:0", "--store", "b"]);
    stranger.args(["--address-file", "b.address"]);
    stranger.arg("--data").arg(here.join("digits.recordio")).stderr(Stdio::null());
    let _stranger = Living(stranger.spawn().unwrap());
    let address = within_a_minute("its address", || {
        std::fs::read_to_string(here.join("b.address")).ok().filter(|address| !address.is_empty())
    });
    std::fs::write(here.join("a/master.address"), &address).unwrap();
    let master = ["--master", &address];
    within_a_minute("the stranger", || status(here, &master));
    for words in [
        &["status"][..],
        &["scale", "--pservers", "7"],
        &["drain", "--pserver", "pserver-0"],
        &["migrate", "--pserver", "pserver-0"],
        &["export", "--file", "m.safetensors"],
        &["checkpoint", "now"],
    ] {
        refused(shoal(here).args(words).args(["--run", "a"]), 3, "has no master at");
    }
    let other = status(here, &master).unwrap();
    assert_eq!((&other["job"], &other["trainers_wanted"]), (&Value::from("b"), &Value::from(1)));
}

#[test]
fn what_a_run_says_can_be_typed_and_is_about_that_run() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mut living = Living::start(here, &["--folder", "it's mine", "--trainers", "1:4"]);
    let line = within_a_minute("a word", || {
        let log = std::fs::read_to_string(here.join("log")).unwrap();
        log.lines().find(|line| line.contains("look at it: ")).map(str::to_owned)
    });
    let (look, change) = line.split_once("look at it: ").unwrap().1.split_once("   change it: ").unwrap();
    let change = change.split_once("   ").unwrap().0.replace("--trainers N", "--trainers 3");
    let _other = Living::start(here, &["--folder", "b"]);
    trains(here, &["--run", "b"]);
    let typed = |command: &str| {
        let output = Command::new("sh").arg("-c").arg(command).current_dir(here).output().unwrap();
        assert!(output.status.success(), "{command}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(typed(look).contains("phase     training"));
    assert_eq!(typed(&change), "trainers: 1 -> 3\n");
    assert_eq!(status(here, &["--run", "it's mine"]).unwrap()["trainers_wanted"], 3);
    assert_eq!(status(here, &["--run", "b"]).unwrap()["trainers_wanted"], 1);
    living.kill();
}

#[test]
fn what_a_job_keeps_is_named_when_it_goes_on_with_another_and_what_may_change_does() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mut living = Living::start(here, &["--folder", "a"]);
    trains(here, &["--run", "a"]);
    living.kill();
    let on = ["--resume", "--folder", "a"];
    let with = |more: &[&str]| run(here, &[&on[..], more].concat());
    refused(&mut with(&["--epochs", "31"]), 1, "--epochs was 30 and is now 31");
    refused(&mut with(&["--epochs", "30", "--seed", "3"]), 1, "--seed was 0 and is now 3");
    let more = ["--replicas", "1", "--pservers", "2", "--exclude-max", "5"];
    let resumed = [&on[..], &more].concat();
    let _living = Living::start(here, &resumed);
    let copied = within_a_minute("a copy", || {
        status(here, &["--run", "a"]).filter(|status| status["copies_in_sync"].as_u64() > Some(0))
    });
    assert_eq!((&copied["replicas"], &copied["exclude_max"]), (&Value::from(1), &Value::from(5)));
}

#[test]
fn names_and_folders_that_can_be_none_are_refused_and_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    digits(here);
    let files = || std::fs::read_dir(here).unwrap().count();
    let before = files();
    for name in ["../x", "", "a/b", "..", "a b", "a\nb", "é", "-x", &"x".repeat(201), &"x".repeat(300)] {
        refused(&mut run(here, &[&format!("--name={name}")]), 2, "--name");
        assert_eq!(files(), before, "{name:?}");
    }
    let mut foreign = shoal(here);
    foreign.arg("run").arg("--folder").arg(OsStr::from_bytes(b"caf\xe9"));
    refused(foreign.args(["--data", "digits.recordio", "--", "program"]), 2, "not UTF-8");
    refused(&mut run(here, &["--folder", "digits.recordio"]), 2, "cannot be made");
    refused(shoal(here).args(["master", "--job", "../x", "--data", "digits.recordio"]), 1, "--job \"../x\"");
    assert_eq!(files(), before);
    let inside = here.join(OsStr::from_bytes(b"caf\xe9"));
    std::fs::create_dir(&inside).unwrap();
    let program = [env!("CARGO_BIN_EXE_shoal"), "demo-trainer"];
    refused(shoal(&inside).args(["run", "--data", "../digits.recordio", "--"]).args(program), 2, "not UTF-8");
    assert_eq!(std::fs::read_dir(&inside).unwrap().count(), 0);
}

#[test]
fn a_program_may_change_its_folder_before_it_trains() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    digits(here);
    let go = "cd / && exec \"$0\" demo-trainer";
    let program = ["--", "sh", "-c", go, env!("CARGO_BIN_EXE_shoal")];
    for (name, more) in [("a", &[][..]), ("b", &["--tls"])] {
        let mut run = shoal(here);
        run.args(["run", "--folder", name, "--data", "digits.recordio"]).args(more).args(program);
        let ended = run.output().unwrap();
        assert!(ended.status.success(), "{}", said(&ended));
    }
}

/// Sends a signal and waits for the end. It has to be by that signal: a shell shows 128 and its number, and ends a script.
fn ends_by(child: &mut Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
}

#[test]
fn a_command_that_is_interrupted_ends_by_the_signal_and_not_as_if_its_job_had_failed() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (name, signal) in [("a", Signal::INT), ("b", Signal::TERM)] {
        let mut living = Living::start(here, &["--folder", name]);
        trains(here, &["--run", name]);
        let mut watch = shoal(here);
        watch.args(["status", "--watch", "--run", name]).stdout(Stdio::null()).stderr(Stdio::null());
        ends_by(&mut watch.spawn().unwrap(), signal);
        ends_by(&mut living.0, signal);
        let log = std::fs::read_to_string(here.join("log")).unwrap();
        assert!(log.ends_with("error: interrupted: nothing is left running\n"), "{log}");
    }
    let (mut demo, mut chaos) = (shoal(here), shoal(here));
    demo.args(["demo", "--folder", "demo"]);
    chaos.args(["chaos", "--folder", "chaos", "--chaos-kinds", "kill", "--data", "digits.recordio", "--"]);
    chaos.arg(env!("CARGO_BIN_EXE_shoal")).arg("demo-trainer");
    for (name, mut command) in [("demo", demo), ("chaos", chaos)] {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        within_a_minute("a job", || here.join(name).join("undisturbed/job.name").exists().then_some(()));
        ends_by(&mut child, Signal::INT);
    }
}
