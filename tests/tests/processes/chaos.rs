//! `shoal chaos` and the faults that need a network or a disk of their own, with real processes. Without root, `unshare`
//! and `ip` the tests of those say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shoal_tests::processes::{Programs, Running, closing, pack_digits, programs};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    programs: Programs,
    folder: TempDir,
    data: String,
}

fn world() -> World {
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = pack_digits(&programs, &folder.path().join("data")).unwrap();
    World { programs, folder, data }
}

impl World {
    /// A command of a short job that makes checkpoints, and what is particular to it.
    fn shoal(&self, words: &[&str], program: &Path) -> Command {
        let mut command = Command::new(&self.programs.shoal);
        command.current_dir(self.folder.path()).args(words).args(["--data", &self.data, "--epochs", "1"]);
        command.args(["--seed", "7", "--checkpoint-steps", "5", "--trainers", "2:3", "--pservers", "3"]);
        command.args(["-o", "json", "--"]).arg(program).stdin(Stdio::null());
        command
    }
    fn chaos(&self, words: &[&str]) -> Output {
        self.shoal(&[&["chaos"], words].concat(), &self.programs.digits).output().unwrap()
    }
}

/// Whether privileges are missing for these kinds; says so, and fails where nothing may be missing.
fn is_missing(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    let is_missing = output.status.code() == Some(2) && said.contains("needs root on Linux");
    if is_missing {
        eprintln!("NOT TESTED: {said}");
        assert_ne!(std::env::var("SHOAL_REQUIRE_ALL").as_deref(), Ok("1"), "{said}");
    }
    is_missing
}

/// The mounts and links of this process's namespaces.
fn mounts_and_links() -> (String, Vec<String>) {
    let links = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut links: Vec<String> = links.map(|link| link.file_name().to_string_lossy().into_owned()).collect();
    links.sort();
    (std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), links)
}

fn kinds(closing: &Value) -> Vec<&str> {
    closing["by_kind"].as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn jobs_hold_under_what_anybody_can_do_to_them_and_leave_no_folder() {
    let world = world();
    let kinds_of_all = "kill,freeze,leave,scale,migrate,memory";
    let closing =
        closing(&world.chaos(&["--seeds", "1..3", "--replicas", "1", "--chaos-kinds", kinds_of_all]));
    let closing = closing.unwrap();
    assert_eq!((&closing["held"], &closing["jobs"]), (&Value::from(true), &Value::from(2)), "{closing}");
    assert!(closing["faults"].as_u64() >= Some(4), "{closing}");
    let is_named = |kind: &&str| kinds_of_all.split(',').any(|named| named == *kind);
    assert!(kinds(&closing).iter().all(is_named), "{closing}");
    assert_eq!(std::fs::read_dir(world.folder.path().join("runs")).unwrap().count(), 0);
}

#[test]
fn a_job_that_breaks_is_told_with_its_folder_and_the_command_that_plays_it_again() {
    let world = world();
    // Undisturbed jobs have no pace, struck ones have.
    let script = world.folder.path().join("program");
    let digits = world.programs.digits.display();
    std::fs::write(
        &script,
        format!("#!/bin/sh\n[ \"${{SHOAL_PACE_MILLIS:-0}}\" = 0 ] || exit 2\nexec {digits}\n"),
    )
    .unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    let words = ["chaos", "--seeds=4..5", "--chaos-kinds", "leave", "--folder", "here"];
    let output = world.shoal(&words, &script).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let closing: Value = serde_json::from_slice(&output.stdout).unwrap();
    let broken = &closing["broken"][0];
    assert_eq!((&closing["held"], &broken["seed"]), (&Value::from(false), &Value::from(4)), "{closing}");
    let again = broken["again"].as_str().unwrap();
    assert!(again.contains("chaos --seeds 4..5 --chaos-kinds leave --data"), "{again}");
    let kept = world.folder.path().join(broken["folder"].as_str().unwrap());
    assert!(kept.join("journal.jsonl").exists() && kept.join("run.log").exists(), "{closing}");
}

#[test]
fn a_kind_that_cannot_be_done_here_is_refused_at_the_start() {
    let world = world();
    for kind in ["partition", "slow", "disk"] {
        let words = ["run", "--chaos", "1", "--chaos-kinds", kind];
        let output = world.shoal(&words, &world.programs.digits).env("PATH", "/nowhere").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("--chaos-kinds {kind}: it needs root")), "{said}");
        assert!(said.contains("unshare cannot be run"), "{said}");
    }
}

#[test]
fn partitions_slow_links_and_a_full_disk_are_survived_and_nothing_is_left_of_them() {
    let world = world();
    let before = mounts_and_links();
    let words = ["--seeds", "1..2", "--replicas", "1", "--chaos-kinds", "partition,slow,disk"];
    let output = world.chaos(&words);
    if is_missing(&output) {
        return;
    }
    let closing = closing(&output).unwrap();
    assert_eq!(closing["held"], true, "{closing}");
    assert!(kinds(&closing).contains(&"partition") && kinds(&closing).contains(&"disk"), "{closing}");
    assert_eq!(mounts_and_links(), before);
    assert_eq!(std::fs::read_dir(world.folder.path().join("runs")).unwrap().count(), 0);
}

#[tokio::test]
async fn an_interrupted_run_with_a_network_of_its_own_keeps_its_state_and_leaves_no_process() {
    let world = world();
    let before = mounts_and_links();
    let words =
        ["run", "--chaos", "1", "--chaos-kinds", "partition,disk", "--pace-millis", "200", "--folder", "run"];
    let words = [&words[..], &["--replicas", "1"]].concat();
    let probe = ["run", "--chaos", "1", "--chaos-kinds", "partition,disk", "--folder", "probe"];
    if is_missing(&world.shoal(&probe, Path::new("/no/such/program")).output().unwrap()) {
        return;
    }
    let folder = world.folder.path().join("run");
    let log = world.folder.path().join("log");
    let mut run = Running::start(world.shoal(&words, &world.programs.digits), &log).unwrap();
    let until = tokio::time::Instant::now() + PATIENCE;
    let journal = || std::fs::read_to_string(folder.join("journal.jsonl")).unwrap_or_default();
    while !["\"partition\"", "\"disk\""].iter().all(|kind| journal().contains(kind)) {
        let said = std::fs::read_to_string(&log).unwrap();
        assert!(run.is_running() && tokio::time::Instant::now() < until, "{said}\n{}", journal());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let pid = Pid::from_raw(run.pid() as i32).unwrap();
    let own = std::fs::read_link(format!("/proc/{}/ns/mnt", run.pid())).unwrap();
    assert_ne!(own, std::fs::read_link("/proc/self/ns/mnt").unwrap());
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(run.end_within(PATIENCE).await.unwrap(), None, "it ends by the signal");
    assert_eq!(mounts_and_links(), before);
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let still = processes
        .filter(|process| std::fs::read_link(process.path().join("ns/mnt")).is_ok_and(|of| of == own));
    assert_eq!(
        still.map(|process| process.file_name()).collect::<Vec<_>>(),
        Vec::<std::ffi::OsString>::new()
    );
    assert!(
        std::fs::read_dir(folder.join("state")).unwrap().count() > 0,
        "the state is where it would have been"
    );
}
