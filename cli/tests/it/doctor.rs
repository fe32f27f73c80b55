//! `shoal doctor` with the real command: on this machine, and where something is wrong. Without root and `unshare` the test that needs a
//! disk of its own says so and passes, or fails when `SHOAL_REQUIRE_ALL=1`.
#![allow(clippy::print_stderr, reason = "tests say what they leave out")]

use crate::roles::{parsed, shoal};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A script in a folder, in which `$SHOAL` is the command.
fn script(folder: &Path, text: &str) -> Output {
    let mut bash = Command::new("bash");
    bash.args(["-c", text]).current_dir(folder).env("SHOAL", env!("CARGO_BIN_EXE_shoal"));
    bash.env("SHOAL_CONFIG", "/dev/null")
        .env("HOME", folder)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST");
    bash.env_remove("SHOAL_TLS").env_remove("SHOAL_STORE_TLS").env_remove("TERM").output().unwrap()
}

fn object(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    parsed(&text)
}

fn check(object: &Value, name: &str) -> Value {
    let checks = object["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}: {object}")).clone()
}

#[test]
#[allow(clippy::disallowed_methods, reason = "real checks take real time")]
fn this_machine_is_examined_in_time_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let text = script(folder.path(), "\"$SHOAL\" doctor --members 2");
    assert!(began.elapsed() < Duration::from_secs(60));
    let said = String::from_utf8_lossy(&text.stdout).into_owned();
    assert_eq!(text.status.code(), Some(0), "{said}");
    for word in
        ["wire version", "open files", "fsync of 4 KiB: median", "127.0.0.1 listens", "checks: 0 failed"]
    {
        assert!(said.contains(word), "{said}");
    }
    assert!(text.stderr.is_empty(), "{}", String::from_utf8_lossy(&text.stderr));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    let object = object(&script(folder.path(), "\"$SHOAL\" doctor --members 2 -o json"));
    assert_eq!((&object["is_well"], &object["format"]), (&Value::Bool(true), &Value::from(1)));
    let disk = check(&object, "disk");
    assert!(disk["facts"]["fsync_4kib_median_seconds"].as_f64().unwrap() > 0.0, "{disk}");
    assert_eq!(check(&object, "cluster")["result"], "not_applicable");
    assert_eq!(check(&object, "certificates")["result"], "not_applicable");
    for check in object["checks"].as_array().unwrap() {
        let is_bad = check["result"] == "warning" || check["result"] == "failed";
        assert_eq!(check["advice"].is_string(), is_bad, "{check}");
    }
}

#[test]
fn too_few_open_files_fail_with_what_to_do_and_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let output = script(folder.path(), "ulimit -n 64; \"$SHOAL\" doctor -o json");
    assert_eq!(output.status.code(), Some(1));
    let object = object(&output);
    let files = check(&object, "open files");
    assert_eq!(
        (&files["result"], &files["facts"]["hard"]),
        (&Value::from("failed"), &Value::from(64)),
        "{files}"
    );
    assert!(files["advice"].as_str().unwrap().contains("prlimit"), "{files}");
    assert_eq!(object["failed"], 1, "{object}");
}

#[test]
fn a_disk_that_is_full_or_read_only_fails() {
    let folder = tempfile::tempdir().unwrap();
    let full = "mkdir d && mount -t tmpfs -o size=64k tmpfs d && { cat /dev/zero > d/full 2>/dev/null; \"$SHOAL\" doctor --folder d -o json; }";
    let output = script(folder.path(), &format!("unshare --mount bash -c '{full}'"));
    if String::from_utf8_lossy(&output.stderr).contains("unshare") || output.stdout.is_empty() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(std::env::var_os("SHOAL_REQUIRE_ALL").is_none(), "no disk of its own: {why}");
        eprintln!("nothing is tested: no disk of its own: {why}");
        return;
    }
    let object_full = object(&output);
    assert_eq!(output.status.code(), Some(1));
    for name in ["folder", "disk"] {
        assert_eq!(check(&object_full, name)["result"], "failed", "{object_full}");
    }
    assert!(
        check(&object_full, "disk")["found"].as_str().unwrap().contains("No space left"),
        "{object_full}"
    );

    let only = "mkdir r && mount -t tmpfs -o ro tmpfs r && \"$SHOAL\" doctor --folder r/new -o json";
    let object_only = object(&script(folder.path(), &format!("unshare --mount bash -c '{only}'")));
    assert!(check(&object_only, "folder")["found"].as_str().unwrap().contains("read-only"), "{object_only}");
    assert_eq!(check(&object_only, "disk")["result"], "failed", "{object_only}");
}

#[test]
fn certificates_and_files_of_settings_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let made = script(
        folder.path(),
        "\"$SHOAL\" certs init a && \"$SHOAL\" certs init b && \"$SHOAL\" certs issue --authority a --job j --role client c",
    );
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let good = object(&script(folder.path(), "\"$SHOAL\" doctor --tls c -o json"));
    assert_eq!(check(&good, "certificates")["result"], "ok", "{good}");
    std::fs::copy(folder.path().join("b/ca.pem"), folder.path().join("c/ca.pem")).unwrap();
    let output = script(folder.path(), "SHOAL_TLS=c \"$SHOAL\" doctor -o json");
    let bad = object(&output);
    let found = check(&bad, "certificates")["found"].to_string();
    assert!(found.contains("none of the authorities in ca.pem has signed cert.pem"), "{found}");
    assert_eq!(
        (output.status.code(), &check(&bad, "certificates")["result"]),
        (Some(1), &Value::from("failed")),
        "{bad}"
    );

    std::fs::write(folder.path().join("wrong.toml"), "[run]\nx = 1\n").unwrap();
    let mut doctor = shoal(folder.path());
    let output = doctor.args(["doctor", "--config", "wrong.toml", "-o", "json"]).output().unwrap();
    let settings = check(&object(&output), "settings");
    assert!(settings["found"].as_str().unwrap().contains("wrong.toml:2"), "{settings}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_cluster_that_is_insisted_on_and_not_there_fails() {
    let folder = tempfile::tempdir().unwrap();
    let output = script(folder.path(), "\"$SHOAL\" doctor --cluster -o json");
    let cluster = check(&object(&output), "cluster");
    assert_eq!((output.status.code(), &cluster["result"]), (Some(1), &Value::from("failed")), "{cluster}");
}

#[test]
fn a_reader_that_leaves_and_a_folder_that_is_gone_end_nothing_in_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    // What is read ends before anything is written.
    let output = script(folder.path(), "\"$SHOAL\" doctor | true; exit ${PIPESTATUS[0]}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("panicked"), "{said}");
    let gone = script(folder.path(), "mkdir g && cd g && rmdir ../g && \"$SHOAL\" doctor -o json");
    let disk = check(&object(&gone), "disk");
    assert_eq!((gone.status.code(), &disk["result"]), (Some(1), &Value::from("failed")), "{disk}");
}
