//! `shoal checkpoint` on a run that goes on and on one that has ended, with real processes.

use shoal_tests::processes::{Job, closing, pack_digits, programs};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const RUN: &str = "runs/here";

fn shoal(programs: &Path, folder: &Path, words: &[&str]) -> Output {
    Command::new(programs)
        .current_dir(folder)
        .args(words)
        .args(["--run", RUN, "-o", "json"])
        .output()
        .unwrap()
}

#[test]
#[allow(clippy::disallowed_methods, reason = "real processes take real time")]
fn a_running_job_makes_one_now_and_what_it_left_is_listed_verified_and_exported() {
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = pack_digits(&programs, &folder.path().join("data")).unwrap();
    let more = ["--folder", RUN, "--pace-millis", "20", "--checkpoint-seconds", "0", "--epochs", "2"];
    let more = more.iter().chain(&["--checkpoints", "saved"]);
    let job = Job {
        programs: &programs,
        folder: folder.path(),
        program: &programs.digits,
        data: &data,
        trainers: "2",
        pservers: 2,
        more: more.map(|word| (*word).to_owned()).collect(),
        hyper: Vec::new(),
    };
    let running = job.command().spawn().unwrap();
    let command = |words: &[&str]| shoal(&programs.shoal, folder.path(), words);
    let deadline = Instant::now() + Duration::from_secs(60);
    let made = loop {
        let asked = command(&["checkpoint", "now"]);
        if asked.status.success() || Instant::now() > deadline {
            break closing(&asked).unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(made["checkpoint"], 1, "{made}");
    let listed = closing(&command(&["checkpoint", "ls"])).unwrap();
    assert!(listed["newest"].as_u64() >= Some(1), "{listed}");
    let ended = closing(&running.wait_with_output().unwrap()).unwrap();
    let listed = closing(&command(&["checkpoint", "ls"])).unwrap();
    let newest = listed["newest"].as_u64().unwrap();
    assert!(newest > 1, "the last one: {listed}");
    assert_eq!(closing(&command(&["checkpoint", "verify"])).unwrap()["sound"], true);
    let exported =
        closing(&command(&["checkpoint", "export", "--file", "from-checkpoint.safetensors"])).unwrap();
    assert_eq!(exported["parameters_sha256"], ended["parameters_sha256"]);
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    // Only the order of the metadata may differ.
    let lengths = ["from-checkpoint.safetensors", "runs/here/model.safetensors"].map(|name| read(name).len());
    assert_eq!(lengths[0], lengths[1]);

    let manifest = format!("saved/checkpoint-{newest:08}/manifest");
    let mut content = read(&manifest);
    content[30] ^= 1;
    std::fs::write(folder.path().join(&manifest), content).unwrap();
    let verified = command(&["checkpoint", "verify"]);
    let said = String::from_utf8_lossy(&verified.stdout);
    assert!(verified.status.code() == Some(1) && said.contains("manifest"), "{said}");
    assert_eq!(command(&["checkpoint", "export", "--file", "none"]).status.code(), Some(1));
}
