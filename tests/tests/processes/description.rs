//! What a program says of its job before that begins (`SHOAL_DESCRIBE`): initial values and records, and what becomes of programs that
//! fail, know nothing of it, or never end.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shoal_tests::processes::{Running, closing};
use shoal_tests::small::SmallJob;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(60);

struct Given(SmallJob);

impl Given {
    fn new() -> Given {
        Given(SmallJob::of(400).unwrap())
    }

    fn program(&self) -> String {
        self.0.programs.shoal.with_file_name("given").display().to_string()
    }

    /// `shoal run` of the program with arguments, without data.
    fn command(&self, run: &str, flags: &[&str], program: &[&str]) -> Command {
        let job = ["run", "--microbatches-per-step", "4", "--folder", run, "-o", "json"];
        let mut command = self.0.shoal(&job);
        command.env("GIVEN", self.program());
        command.args(flags).arg("--").args(program);
        command
    }

    /// The closing object of a run over the small job's data.
    fn closing(&self, run: &str, flags: &[&str]) -> Value {
        let flags = [&["--data", "part.recordio"], flags].concat();
        closing(&self.command(run, &flags, &[&self.program()]).output().unwrap()).unwrap()
    }

    fn hash(&self, run: &str, flags: &[&str]) -> String {
        self.closing(run, flags)["parameters_sha256"].as_str().unwrap().to_owned()
    }

    /// What the program says, asked by hand.
    fn said(&self, seed: &str) -> PathBuf {
        let folder = self.0.path(&format!("said-{seed}"));
        std::fs::create_dir(&folder).unwrap();
        let mut command = Command::new(self.program());
        assert!(command.env("SHOAL_DESCRIBE", &folder).env("SHOAL_SEED", seed).status().unwrap().success());
        folder
    }
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn parameters_begin_at_the_values_that_a_program_gives_as_at_those_of_a_file() {
    let given = Given::new();
    let hash = given.hash("one", &["--trainers", "1"]);
    assert_eq!(given.hash("three", &["--trainers", "3", "--pservers", "2"]), hash);
    let [first, second] =
        ["0", "1"].map(|seed| given.said(seed).join("initial.safetensors").display().to_string());
    let explicit = ["--describe-seconds", "0", "--warm-start", &first];
    assert_eq!(given.hash("explicit", &explicit), hash, "the same file");
    // What is named is not asked for.
    let other = given.hash("named", &["--warm-start", &second]);
    assert_ne!(given.hash("seed", &["--seed", "1", "--shuffle-run", "1"]), hash);
    assert_ne!(other, hash);
    let zeros = given.hash("zeros", &["--describe-seconds", "0"]);
    assert!(zeros != hash && zeros != other);
    // Trained or not, it is what a model begins as.
    let evaluated = ["--eval-data", "part.recordio", "--epochs", "0", "--untrained"];
    let untrained = given.closing("untrained", &evaluated);
    let from_file =
        ["--eval-data", "part.recordio", "--epochs", "0", "--describe-seconds", "0", "--warm-start", &first];
    assert_eq!(untrained["parameters_sha256"], given.closing("from-file", &from_file)["parameters_sha256"]);
}

#[test]
fn a_program_that_knows_its_records_by_their_numbers_needs_no_data() {
    let given = Given::new();
    let run = |name: &str, flags: &[&str]| {
        closing(&given.command(name, flags, &[&given.program(), "records"]).output().unwrap()).unwrap()
    };
    let said = run("said", &["--trainers", "2"]);
    let named = run("named", &["--data", "records:400", "--eval-data", "records:40"]);
    assert_eq!(said["parameters_sha256"], named["parameters_sha256"]);
    assert_eq!((&said["records_trained"], &said["evaluations"]), (&400.into(), &named["evaluations"]));
    // What is named counts.
    assert_eq!(run("other", &["--data", "records:80"])["records_trained"], 80);
    assert_eq!(run("epochs", &["--eval-epochs", "1", "--epochs", "2"])["records_trained"], 800);
}

#[tokio::test]
async fn a_run_that_goes_on_is_not_asked_again() {
    let given = Given::new();
    let script = "test -z \"$SHOAL_DESCRIBE\" || echo asked >> asked; exec \"$GIVEN\" records";
    let undisturbed = closing(&given.command("calm", &[], &["sh", "-c", script]).output().unwrap()).unwrap();
    let flags = ["--checkpoint-steps", "1", "--pace-millis", "50"];
    let command = given.command("run", &flags, &["sh", "-c", script]);
    let mut supervisor = Running::start(command, &given.0.path("said")).unwrap();
    let until = Instant::now() + PATIENCE;
    loop {
        let status = given.0.shoal(&["status", "--run", "run", "-o", "json"]).output().unwrap();
        let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        if status["step"].as_u64().is_some_and(|step| step > 2) {
            break;
        }
        assert!(Instant::now() < until, "no step is made");
        sleep(Duration::from_millis(50)).await;
    }
    kill_process(Pid::from_raw(supervisor.pid() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(supervisor.end_within(PATIENCE).await.unwrap(), None, "it ends by the signal");
    let resumed = given.command("run", &["--resume", "--checkpoint-steps", "1"], &["sh", "-c", script]);
    let resumed = { resumed }.output().unwrap();
    let said = words(&resumed);
    let goes_on =
        said.lines().find_map(|line| line.split_once("goes on at step ")).expect("where it goes on");
    assert!(!goes_on.1.starts_with("0 "), "{said}");
    assert!(!said.contains("step 0/"), "{said}");
    let ended = closing(&resumed).unwrap();
    assert_eq!(ended["parameters_sha256"], undisturbed["parameters_sha256"]);
    assert_eq!(std::fs::read_to_string(given.0.path("asked")).unwrap(), "asked\n".repeat(2), "once a run");
}

#[test]
fn what_a_program_asks_for_where_it_is_started_alone_counts_where_nobody_says_otherwise() {
    let job = SmallJob::of(400).unwrap();
    let asks = r#"{"version":1,"asks":{"data":["part.recordio"],"epochs":"2","seed":"7","trainers":"5"}}"#;
    let script = format!(
        "test -z \"$SHOAL_DESCRIBE\" && exec \"$COUNT\"; echo '{asks}' > \"$SHOAL_DESCRIBE/program.json\""
    );
    let run = |folder: &str, flags: &[&str]| {
        let mut command = job.shoal(&["run", "--folder", folder, "-o", "json"]);
        closing(&command.args(flags).args(["--", "sh", "-c", &script]).output().unwrap()).unwrap()
    };
    let asked = run("asked", &[]);
    assert_eq!((&asked["epochs"], &asked["records_trained"]), (&2.into(), &800.into()));
    let stated = run("stated", &["--epochs", "3"]);
    assert_eq!((&stated["epochs"], &stated["records_trained"]), (&3.into(), &1200.into()));
}

/// What programs do that is no description: how the run ends, and what it says. They have data, and those that train count.
const PROGRAMS: [(&str, &str, i32, &[&str]); 12] = [
    ("silent", "exec \"$COUNT\"", 0, &[]),
    ("unaware", "unset SHOAL_DESCRIBE; exec \"$COUNT\"", 0, &[]),
    ("unaware-child", "unset SHOAL_DESCRIBE; \"$COUNT\"; true", 0, &[]),
    (
        "asks",
        "test -z \"$SHOAL_DESCRIBE\" && exec \"$COUNT\"; \
         echo '{\"version\":1,\"asks\":{\"shuffle-run\":\"3\",\"trainers\":\"5\"}}' > \"$SHOAL_DESCRIBE/program.json\"",
        0,
        &[],
    ),
    ("left-behind", "test -z \"$SHOAL_DESCRIBE\" || sleep 600 & exec \"$COUNT\"", 0, &[]),
    (
        "fails",
        "echo no GPU is left; exit 3",
        1,
        &["ended with exit code 3", "SHOAL_DESCRIBE", "no GPU is left"],
    ),
    ("crashes", "kill -SEGV $$", 1, &["signal 11 (SIGSEGV)", "SHOAL_DESCRIBE"]),
    ("waits", "sleep 600", 1, &["has not ended 2 s after", "--describe-seconds"]),
    (
        "strict",
        "echo '{\"version\":1,\"layers\":3}' > \"$SHOAL_DESCRIBE/program.json\"",
        1,
        &["strict/described/program.json", "\"layers\" is no field of it"],
    ),
    ("torn", "echo '{' > \"$SHOAL_DESCRIBE/program.json\"", 1, &["torn/described/program.json", "no JSON"]),
    (
        "alone",
        "echo > \"$SHOAL_DESCRIBE/initial.safetensors\"",
        1,
        &["initial.safetensors", "program.json is not"],
    ),
    (
        "damaged",
        "cd \"$SHOAL_DESCRIBE\" && echo '{\"version\":1}' > program.json && echo > initial.safetensors",
        1,
        &["--warm-start", "damaged/described/initial.safetensors"],
    ),
];

#[test]
fn a_program_that_says_nothing_trains_and_what_is_no_description_ends_the_run_by_its_name() {
    let job = SmallJob::of(400).unwrap();
    let undisturbed = job.undisturbed().unwrap();
    for (name, script, code, says) in PROGRAMS {
        let begun = Instant::now();
        let ended = job.run(name, &["--describe-seconds", "2"], &["sh", "-c", script]).output().unwrap();
        let said = words(&ended);
        assert_eq!(ended.status.code(), Some(code), "{name}: {said}");
        assert!(says.iter().all(|words| said.contains(words)), "{name}: {said}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{name}: {:?}", begun.elapsed());
        if code == 0 {
            assert_eq!(job.hash(name).unwrap(), undisturbed, "{name}");
            assert!(!job.logs(name).contains(&"describe.log".to_owned()), "{name}: it has said nothing");
        }
        // The next try is not in the way of this one.
        if code != 0 && name != "damaged" {
            let ended = job.run(name, &[], &[job.count()]).output().unwrap();
            assert!(ended.status.success(), "{name}: {}", words(&ended));
        }
    }
}

#[test]
fn without_data_a_program_is_asked_and_what_could_not_be_a_job_is_refused_before() {
    let given = Given::new();
    let asked = |flags: &[&str], program: &[&str]| {
        let ended = given.command("run", flags, program).output().unwrap();
        (ended.status.code(), words(&ended))
    };
    let (code, said) = asked(&[], &[&given.program()]);
    assert!(code == Some(2) && said.contains("--data: name the RecordIO files to train on"), "{said}");
    let script = ["sh", "-c", "echo asked >> asked"];
    for (flags, says) in [
        (&["--predict", "out", "--data", "records:9"][..], "--untrained"),
        (&["--epochs", "0", "--eval-data", "records:9"], "--untrained"),
        (&["--describe-seconds", "0"], "--data: name the RecordIO files to train on"),
    ] {
        let (code, said) = asked(flags, &script);
        assert!(code == Some(2) && said.contains(says), "{flags:?}: {said}");
    }
    assert!(!given.0.path("asked").exists(), "nobody was asked");
}

/// Each of the jobs is asked for itself, and all begin alike.
#[test]
fn jobs_under_chaos_begin_where_the_program_says() {
    let given = Given::new();
    let words =
        ["chaos", "--seeds", "0..2", "--chaos-kinds", "kill,leave", "--replicas", "1", "--folder", "chaos"];
    let mut command = given.0.shoal(&words);
    let ended = command.args(["--", &given.program(), "records"]).output().unwrap();
    assert!(ended.status.success(), "{}", self::words(&ended));
}
