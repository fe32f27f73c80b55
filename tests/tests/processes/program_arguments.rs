//! What follows PROGRAM on the command line of `shoal run` reaches the training program untouched, at every start.

use rustix::process::{Pid, Signal, kill_process};
use shoal_tests::processes::{Job, Running, pack_digits, programs};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Words that a shell, `shoal run` or a careless join would change.
const WORDS: [&str; 12] = [
    "--learning-rate",
    "0.05",
    "--trainers",
    "9",
    "",
    "two words",
    "*.txt",
    "$HOME",
    "a,b",
    "--",
    "-x",
    "--help",
];

/// Writes down its arguments under the trainer's name, each ended by a NUL, and becomes the count example.
const SCRIPT: &str = r#"#!/bin/sh
at="$WITNESS/$SHOAL_TRAINER_NAME"
echo $$ > "$at.pid"
printf '%s\0' "$@" > "$at.part"
mv "$at.part" "$at.words"
exec "$COUNT"
"#;

/// The words that trainer `number` was started with, waited for.
#[allow(clippy::disallowed_methods, reason = "real processes take real time")]
fn words_of(witness: &Path, number: u32) -> Vec<String> {
    let file = witness.join(format!("trainer-{number}.words"));
    for _ in 0..1500 {
        if let Ok(text) = std::fs::read_to_string(&file) {
            let words: Vec<String> = text.split('\0').map(str::to_owned).collect();
            return words[..words.len() - 1].to_vec();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("trainer-{number} was never started")
}

fn kill(witness: &Path, number: u32) {
    let pid = std::fs::read_to_string(witness.join(format!("trainer-{number}.pid"))).unwrap();
    kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn first_scaled_up_replaced_and_resumed_trainers_all_get_the_same_words() {
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = pack_digits(&programs, &folder.path().join("data")).unwrap();
    let (witness, script) = (folder.path().join("witness"), folder.path().join("program.sh"));
    std::fs::create_dir(&witness).unwrap();
    std::fs::write(&script, SCRIPT).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let start = |more: &[&str]| {
        let more = ["--epochs", "100", "--pace-millis", "100", "--folder", "run"].iter().chain(more);
        let more = more.map(|word| (*word).to_owned()).collect();
        let (folder, program) = (folder.path(), script.as_path());
        let mut command = Job {
            programs: &programs,
            folder,
            program,
            data: &data,
            trainers: "1:4",
            pservers: 1,
            more,
            hyper: Vec::new(),
        }
        .command();
        command.args(WORDS).env("WITNESS", &witness).env("COUNT", &programs.count);
        Running::start(command, &folder.join("log")).unwrap()
    };
    let job = start(&[]);
    assert_eq!(words_of(&witness, 0), WORDS, "first");
    let mut scale = Command::new(&programs.shoal);
    scale.current_dir(folder.path()).args(["scale", "--run", "run", "--trainers", "2"]);
    let scaled = scale.output().unwrap();
    assert!(scaled.status.success(), "{}", String::from_utf8_lossy(&scaled.stderr));
    assert_eq!(words_of(&witness, 1), WORDS, "scaled up");
    kill(&witness, 0);
    assert_eq!(words_of(&witness, 2), WORDS, "replaced");
    drop(job);
    let job = start(&["--resume"]);
    assert_eq!(words_of(&witness, 3), WORDS, "resumed");
    drop(job);
}
