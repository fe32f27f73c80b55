//! End to end with real processes: the same bits however many trainers and pservers, exact counts under chaos, and a
//! command line that does what it says. The whole grid is a command: `cargo run --release -p shoal-studies --bin grid`.

use serde_json::Value;
use shoal_tests::processes::{Job, Programs, closing, pack_digits, programs};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

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
    fn job<'a>(&'a self, program: &'a Path, trainers: &'a str, pservers: u32, more: &[&str]) -> Job<'a> {
        let more = more.iter().map(|word| (*word).to_owned()).collect();
        let (programs, data, folder) = (&self.programs, self.data.as_str(), self.folder.path());
        Job { programs, folder, program, data, trainers, pservers, more, hyper: Vec::new() }
    }
    fn digits(&self, trainers: &str, pservers: u32, more: &[&str]) -> Value {
        self.job(&self.programs.digits, trainers, pservers, more).run().unwrap()
    }
    fn shoal(&self, words: &[&str]) -> std::process::Output {
        Command::new(&self.programs.shoal).current_dir(self.folder.path()).args(words).output().unwrap()
    }
}

fn hash(closing: &Value) -> &str {
    assert_eq!(closing["records_wrong"], 0, "{closing}");
    closing["parameters_sha256"].as_str().unwrap()
}

#[test]
fn the_model_has_the_same_bits_however_many_trainers_and_pservers_made_it() {
    let world = world();
    let common = ["--epochs", "2", "--seed", "7"];
    let alone = world.digits("1", 1, &common);
    assert!(alone["odd_blocks"].as_u64() >= Some(4) && alone["negative_zeros"].as_u64() > Some(0), "{alone}");
    // Paced, so that all trainers have started before the work is done.
    let paced = [&common[..], &["--pace-millis", "30"]].concat();
    let three = world.digits("3", 2, &paced);
    let eight = world.digits("8", 3, &paced);
    let chaos = world.digits("3", 3, &[&common[..], &["--chaos", "5"]].concat());
    assert_eq!([hash(&three), hash(&eight), hash(&chaos)], [hash(&alone); 3]);
    assert!(!chaos["faults"].as_array().unwrap().is_empty(), "{chaos}");
    for closing in [&three, &eight] {
        assert!(
            closing["trainers"].as_array().unwrap().iter().all(|t| t["tasks"].as_u64() > Some(0)),
            "{closing}"
        );
        assert!(closing["levels"].as_array().unwrap().len() >= 2, "{closing}");
    }
    assert_ne!(hash(&world.digits("2", 1, &["--epochs", "2", "--seed", "8"])), hash(&alone));
    let other_m = [&common[..], &["--microbatches-per-step", "12"]].concat();
    assert_ne!(hash(&world.digits("2", 1, &other_m)), hash(&alone));
}

#[test]
fn rounded_gradients_give_the_same_bits_however_many_made_them_and_others_than_plain_ones() {
    let world = world();
    let common = ["--epochs", "2", "--seed", "7", "--gradients", "bf16"];
    let alone = world.digits("1", 1, &common);
    let three = world.digits("3", 2, &[&common[..], &["--pace-millis", "30", "--replicas", "1"]].concat());
    let chaos = world.digits("2:4", 3, &[&common[..], &["--chaos", "6"]].concat());
    let copied = world.digits("3", 3, &[&common[..], &["--chaos", "7", "--replicas", "1"]].concat());
    assert_eq!([hash(&three), hash(&chaos), hash(&copied)], [hash(&alone); 3]);
    assert!(!chaos["faults"].as_array().unwrap().is_empty(), "{chaos}");
    let plain = world.digits("1", 1, &common[..4]);
    assert_ne!(hash(&plain), hash(&alone));
    assert_eq!([&plain["gradients"], &alone["gradients"]], [&Value::from("f32"), &Value::from("bf16")]);
    for mode in ["sync", "async"] {
        let more = ["--epochs", "3", "--chaos", "8", "--mode", mode, "--gradients", "bf16"];
        let counted = world.job(&world.programs.count, "2:4", 3, &more).run().unwrap();
        assert_eq!((&counted["records_counted"], &counted["records_wrong"]), (&(3 * 1498).into(), &0.into()));
    }
}

#[test]
fn every_record_counts_exactly_once_under_chaos() {
    let world = world();
    for (seed, mode, replicas) in
        [("1", "sync", "0"), ("2", "sync", "1"), ("3", "async", "0"), ("4", "async", "2")]
    {
        let more = ["--epochs", "3", "--chaos", seed, "--mode", mode, "--replicas", replicas];
        let closing = world.job(&world.programs.count, "2:4", 3, &more).run().unwrap();
        assert_eq!(closing["records_counted"], 3 * 1498, "{closing}");
        assert_eq!(closing["records_wrong"], 0, "{closing}");
        assert!(!closing["faults"].as_array().unwrap().is_empty(), "{closing}");
    }
}

#[test]
fn a_data_set_is_read_about_once_however_many_trainers() {
    let world = world();
    for (trainers, pace_millis) in [("1", "25"), ("4", "100"), ("16", "400")] {
        // Paced, so that a step takes much longer than sixteen processes wait for a processor of a busy machine: whoever is
        // late there is helped, and who helps reads what somebody else has read.
        let closing = world.digits(trainers, 1, &["--epochs", "1", "--pace-millis", pace_millis]);
        let ratio = closing["bytes_read"].as_f64().unwrap() / closing["data_bytes"].as_f64().unwrap();
        eprintln!("bytes read / data-set bytes at {trainers} trainers: {ratio:.3}");
        // What was leased to a second trainer, for the first was slow, is read twice, and by whole chunks.
        let speculative =
            closing["speculative"].as_f64().unwrap() / closing["tasks_leased"].as_f64().unwrap();
        assert!(ratio <= 1.3 + 2.0 * speculative, "{ratio} at {trainers} trainers: {closing}");
    }
}

#[test]
fn a_running_job_shows_its_status_scales_and_leaves_nothing_behind_on_ctrl_c() {
    let world = world();
    let more = ["--epochs", "2", "--pace-millis", "100", "--folder", "runs/here"];
    let mut run = world.job(&world.programs.digits, "1:3", 2, &more).command();
    let child = run.stdout(Stdio::null()).spawn().unwrap();
    let status = wait_for(&world, "a trainer", |status| {
        status["trainers_live"] == 1 && status["step"].as_u64() > Some(0)
    });
    assert_eq!((&status["phase"], &status["epochs"]), (&Value::from("training"), &Value::from(2)));
    let beyond = world.shoal(&["scale", "--trainers", "4", "--run", "runs/here"]);
    let said = String::from_utf8_lossy(&beyond.stderr);
    assert!(beyond.status.code() == Some(2) && said.contains("with --trainers 1:3"), "{said}");
    let scaled =
        closing(&world.shoal(&["scale", "--trainers", "3", "--run", "runs/here", "-o", "json"])).unwrap();
    assert_eq!((&scaled["trainers_before"], &scaled["trainers"]), (&Value::from(1), &Value::from(3)));
    let status = wait_for(&world, "three trainers", |status| status["trainers_live"] == 3);
    let text = world.shoal(&["status", "--run", "runs/here"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("3 live, 3 wanted"));
    interrupt(child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(2), "shells show 130: {}", output.status);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("interrupted") && said.contains("run --resume --folder runs/here"), "{said}");
    for member in ["trainers", "pservers"].iter().flat_map(|role| status[*role].as_array().unwrap()) {
        assert!(!is_running(member["pid"].as_u64().unwrap()), "left behind: {member}");
    }
    let status = world.shoal(&["status", "--run", "runs/here"]);
    let said = String::from_utf8_lossy(&status.stdout);
    assert_eq!((status.status.code(), said.trim()), (Some(1), "interrupted: nothing is left running"));
}

#[test]
fn a_killed_supervisor_leaves_nothing_running() {
    let world = world();
    let more = ["--epochs", "2", "--pace-millis", "100", "--folder", "runs/here"];
    let mut run = world.job(&world.programs.digits, "2", 1, &more).command();
    let mut child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let status = wait_for(&world, "two trainers", |status| status["trainers_live"] == 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let members = ["trainers", "pservers"].iter().flat_map(|role| status[*role].as_array().unwrap());
    for process in members.map(|member| member["pid"].as_u64().unwrap()) {
        let is_gone = (0..400).any(|_| {
            !is_running(process) || {
                pause();
                false
            }
        });
        assert!(is_gone, "process {process} is left behind");
    }
}

#[test]
fn pservers_come_move_and_go_while_a_job_trains_and_it_has_the_same_bits() {
    let world = world();
    let common = ["--epochs", "2", "--seed", "7"];
    let alone = world.digits("1", 1, &common);
    let more = [&common[..], &["--pace-millis", "150", "--replicas", "1", "--folder", "runs/here"]].concat();
    let child = world.job(&world.programs.digits, "3", 1, &more).command().spawn().unwrap();
    let live = |status: &Value| -> Vec<String> {
        let pservers = status["pservers"].as_array().unwrap().iter();
        let live = pservers.filter(|one| one["lost"] == false && one["blocks"].as_u64() > Some(0));
        live.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    wait_for(&world, "a step", |status| status["step"].as_u64() > Some(0));
    let shoal = |words: &[&str]| {
        let said = closing(&world.shoal(&[words, &["--run", "runs/here", "-o", "json"]].concat()));
        said.unwrap_or_else(|error| panic!("{words:?}: {error:#}"))
    };
    assert_eq!(shoal(&["scale", "--pservers", "3"])["pservers"], 3);
    let three = live(&wait_for(&world, "three pservers", |status| live(status).len() == 3));
    assert_eq!(shoal(&["migrate", "--pserver", &three[0], "--wait"])["gone"], true);
    assert_eq!(shoal(&["drain", "--pserver", &three[1], "--wait"])["pservers"], 2);
    let two = live(&wait_for(&world, "two pservers", |status| live(status).len() == 2));
    assert!(!two.contains(&three[0]) && !two.contains(&three[1]), "{two:?} after {three:?}");
    let ended = closing(&child.wait_with_output().unwrap()).unwrap();
    assert_eq!((hash(&ended), &ended["rewinds"]), (hash(&alone), &Value::from(0)));
}

#[test]
fn a_job_whose_supervisor_was_killed_goes_on_from_its_checkpoint_with_other_numbers() {
    let world = world();
    for mode in ["sync", "async"] {
        let folder = format!("runs/{mode}");
        let common = ["--epochs", "2", "--seed", "7", "--mode", mode, "--checkpoint-steps", "4"];
        let alone = world.digits("1", 1, &common[..6]);
        let more = [&common[..], &["--pace-millis", "60", "--folder", &folder]].concat();
        let mut child = world.job(&world.programs.digits, "3", 3, &more).command().spawn().unwrap();
        let asked = || world.shoal(&["status", "--run", &folder, "-o", "json"]);
        let status = (0..1000).find_map(|_| {
            pause();
            closing(&asked()).ok().filter(|status| status["checkpoint"].as_u64() > Some(0))
        });
        let status = status.expect("no checkpoint");
        assert_eq!(status["phase"], "training", "{status}");
        child.kill().unwrap();
        child.wait().unwrap();
        let members = ["trainers", "pservers"].iter().flat_map(|role| status[*role].as_array().unwrap());
        for process in members.map(|member| member["pid"].as_u64().unwrap()) {
            let is_gone = (0..400).any(|_| {
                pause();
                !is_running(process)
            });
            assert!(is_gone, "process {process} is left behind");
        }
        let more = [&common[..], &["--resume", "--folder", &folder]].concat();
        let resumed = world.job(&world.programs.digits, "2", 5, &more).run().unwrap();
        assert_eq!(resumed["records_counted"], resumed["records_expected"], "{resumed}");
        assert!(resumed["master_term"].as_u64() >= Some(2), "{resumed}");
        if mode == "sync" {
            assert_eq!(hash(&resumed), hash(&alone));
        }
    }
}

fn wait_for(world: &World, what: &str, is_there: impl Fn(&Value) -> bool) -> Value {
    let mut said = String::new();
    for _ in 0..1000 {
        let output = world.shoal(&["status", "--run", "runs/here", "-o", "json"]);
        said = String::from_utf8_lossy(&output.stderr).into_owned();
        match closing(&output) {
            Ok(status) if is_there(&status) => return status,
            _ => pause(),
        }
    }
    panic!("{what} did not come: {said}");
}

fn pause() {
    let _ = Command::new("sleep").arg("0.05").status();
}

fn interrupt(process: u32) {
    assert!(Command::new("kill").args(["-INT", &process.to_string()]).status().unwrap().success());
}

fn is_running(process: u64) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

#[test]
fn a_failing_program_ends_the_run_with_its_own_words_and_exit_code_1() {
    let world = world();
    let program = world.folder.path().join("broken.sh");
    std::fs::write(&program, "#!/bin/sh\necho the reason why >&2\nexit 2\n").unwrap();
    let chmod = Command::new("chmod").arg("+x").arg(&program).status().unwrap();
    assert!(chmod.success());
    let output = world.job(&program, "1", 1, &[]).command().output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the reason why"));
    let output = world.job(Path::new("/nowhere/program"), "1", 1, &[]).command().output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_damaged_chunk_fails_the_job_and_names_file_and_place() {
    let world = world();
    let file = world.folder.path().join("data/train-1.recordio");
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.len() - 10;
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let output = world.job(&world.programs.digits, "1", 1, &["--epochs", "1"]).command().output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("train-1.recordio") && said.contains("chunk"), "{said}");
    let verified = world.shoal(&["recordio", "verify", file.to_str().unwrap()]);
    assert_eq!(verified.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&verified.stdout).lines().count(), 1);
}

#[test]
fn wrong_usage_exits_with_2_and_an_absent_master_with_3() {
    let world = world();
    let exit = |words: &[&str]| world.shoal(words).status.code();
    assert_eq!(exit(&["run", "--trainers", "4:2", "--data", "x", "--", "p"]), Some(2));
    assert_eq!(exit(&["status", "--run", "nowhere"]), Some(2));
    assert_eq!(exit(&["status", "--master", "127.0.0.1:1"]), Some(3));
    let output = world
        .job(&world.programs.digits, "1", 1, &["--data", "nothing-*.recordio"])
        .command()
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("matches no file"));
}
