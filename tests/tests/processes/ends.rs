//! How programs end, and what stands between them and their supervisor. What each end means is a table in the command
//! (`job/src/ends/mod.rs`); here processes, shells and signals are real.

use rustix::process::{Pid, Signal, kill_process};
use shoal_tests::processes::Running;
use shoal_tests::small::SmallJob;
use std::time::Duration;
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(60);

/// What people put between a supervisor and their program: each starts it as a child, or in its own place.
const WRAPPERS: [(&str, &[&str]); 8] = [
    ("script", &["sh", "-c", "\"$COUNT\"; true"]),
    ("background", &["sh", "-c", "\"$COUNT\" & wait $!"]),
    ("pipe", &["sh", "-c", "\"$COUNT\" 2>&1 | cat"]),
    ("nested", &["sh", "-c", "sh -c 'sh -c \"$COUNT; true\"; true'; true"]),
    ("timer", &["sh", "-c", "timeout 60 nice -n 1 \"$COUNT\"; true"]),
    ("session", &["sh", "-c", "setsid --wait \"$COUNT\""]),
    (
        "launcher",
        &["python3", "-c", "import os, subprocess; subprocess.run([os.environ['COUNT']], check=True)"],
    ),
    (
        "sessions",
        &[
            "python3",
            "-c",
            "import os, subprocess; subprocess.run([os.environ['COUNT']], start_new_session=True)",
        ],
    ),
];

#[test]
fn a_program_that_another_one_starts_trains_the_same_model() {
    let job = SmallJob::of(400).unwrap();
    let undisturbed = job.undisturbed().unwrap();
    for (name, wrapper) in WRAPPERS {
        let ended = job.run(name, &["--trainers", "2"], wrapper).output().unwrap();
        assert!(ended.status.success(), "{name}: {}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(job.hash(name).unwrap(), undisturbed, "{name}");
        assert_eq!(
            job.logs(name),
            ["master.log", "pserver-0.log", "trainer-0.log", "trainer-1.log"],
            "{name}"
        );
    }
}

/// Programs that end before the job is done: what is said of each, and how many logs of trainers there are then.
const EARLY: [(&str, &str, &str); 8] = [
    ("success", "exit 0", "exit code 0: the job is not done, and it has never joined it"),
    ("failure", "exit 3", "ended with exit code 3"),
    ("usage", "exit 2", "exit code 2: it was called wrongly"),
    ("directory", "exec /", "exit code 126: what it calls cannot be executed"),
    ("absent", "exec no-such-program", "exit code 127: what it calls is not there"),
    ("crash", "kill -SEGV $$", "signal 11 (SIGSEGV): it crashed"),
    ("inner", "sh -c 'kill -ABRT $$'; exit $?", "exit code 134, which is signal 6 (SIGABRT): it aborted"),
    ("daemon", "sleep 600 & exit 0", "exit code 0: the job is not done, and it has never joined it"),
];

#[test]
fn a_program_that_ends_too_early_is_tried_a_few_times_and_then_the_run_says_why_it_fails() {
    let job = SmallJob::of(40).unwrap();
    for (name, script, says) in EARLY {
        // What it does when it is asked to describe itself is another story.
        let script = format!("test -z \"$SHOAL_DESCRIBE\" || exit 0; echo last words of {name}; {script}");
        let ended = job.run(name, &[], &["sh", "-c", &script]).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        let last = said.split("error: ").last().unwrap_or_default();
        assert_eq!(ended.status.code(), Some(1), "{name}: {said}");
        assert!(last.contains(says) && last.contains(&format!("last words of {name}")), "{name}: {said}");
        assert_eq!(job.logs(name), ["master.log", "pserver-0.log", "trainer-0.log"], "{name}: {said}");
    }
}

#[tokio::test]
async fn what_a_killed_supervisor_leaves_is_ended_whatever_it_is() {
    let job = SmallJob::of(40).unwrap();
    // Without the SDK; in the group, in a group and session of its own, deaf, frozen.
    let script = "trap '' TERM INT HUP; sleep 600 & setsid sleep 600 & setsid sh -c 'kill -STOP $$' & sleep 600; sleep 600";
    let flags = ["--trainers", "2", "--describe-seconds", "0"];
    let mut command = job.run("run", &flags, &["sh", "-c", script]);
    let mark = format!("TEST_MARK={}", job.path("run").display());
    command.env("TEST_MARK", job.path("run"));
    let mut supervisor = Running::start(command, &job.path("said")).unwrap();
    // A supervisor, its reaper, a master, a pserver; of each trainer two shells and three others.
    wait_for(|| marked(&mark).len() >= 4 + 2 * 5, "all have started").await;
    supervisor.kill().unwrap();
    wait_for(|| marked(&mark).is_empty(), "nothing is left").await;
}

/// Wrappers that do not hand on what they are told, or that put the program where the group does not reach.
#[tokio::test]
async fn a_program_behind_another_one_is_told_to_leave_and_hands_back_its_tasks() {
    let job = SmallJob::of(2200).unwrap();
    let undisturbed = job.undisturbed().unwrap();
    let wrappers = WRAPPERS.iter().filter(|(name, _)| ["script", "timer", "sessions"].contains(name));
    futures_util::future::join_all(
        wrappers.map(|(name, wrapper)| scaled_down(&job, name, wrapper, &undisturbed)),
    )
    .await;
}

async fn scaled_down(job: &SmallJob, name: &str, wrapper: &[&str], undisturbed: &str) {
    let command = job.run(name, &["--trainers", "1:2", "--pace-millis", "25"], wrapper);
    let mut supervisor = Running::start(command, &job.path("said")).unwrap();
    let address = job.path(name).join("master.address");
    wait_for(|| address.exists(), "a master").await;
    wait_for(|| is_scaled(job, name, "2"), "a second trainer is wanted").await;
    wait_for(|| live(job, name) == 2, "both take part").await;
    assert!(is_scaled(job, name, "1"), "{name}");
    wait_for(|| live(job, name) == 1, "one has left").await;
    assert_eq!(supervisor.end_within(PATIENCE).await.unwrap(), Some(0), "{name}");
    assert_eq!(job.hash(name).unwrap(), undisturbed, "{name}");
    let journal = std::fs::read_to_string(job.path(name).join("journal.jsonl")).unwrap();
    let left = journal.lines().filter(|line| line.contains("\"left\"")).count();
    assert!(
        left == 1 && !journal.contains("\"killed\"") && !journal.contains("\"lost\""),
        "{name}: {journal}"
    );
}

#[test]
fn a_run_ends_though_something_of_a_program_s_cannot() {
    let job = SmallJob::of(400).unwrap();
    // A process that has ended, whose parent has left the group and never asks after it, stays in the group for as long as that parent.
    let launcher = "import os, subprocess, time\n\
        if os.fork() == 0:\n\
        \x20   os.fork() or os._exit(0)\n\
        \x20   os.setsid(); os.environ.clear(); os.execve('/bin/sleep', ['sleep', '20'], {})\n\
        subprocess.run([os.environ['COUNT']])\n";
    let begun = Duration::from_secs(15);
    let mut command = job.run("run", &[], &["python3", "-c", launcher]);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(command.output().unwrap()));
    let ended = receiver.recv_timeout(begun).unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Whether the job has been told how many trainers it is to have.
fn is_scaled(job: &SmallJob, run: &str, trainers: &str) -> bool {
    job.shoal(&["scale", "--run", run, "--trainers", trainers]).output().unwrap().status.success()
}

/// So many trainers take part.
fn live(job: &SmallJob, run: &str) -> usize {
    let status = job.shoal(&["status", "--run", run, "-o", "json"]).output().unwrap();
    String::from_utf8_lossy(&status.stdout).matches("\"state\":\"live\"").count()
}

#[tokio::test]
async fn a_trainer_that_somebody_ends_is_replaced_and_the_model_is_the_same() {
    let job = SmallJob::of(4000).unwrap();
    let undisturbed = job.undisturbed().unwrap();
    let signals = [
        ("term", Signal::TERM),
        ("kill", Signal::KILL),
        ("interrupt", Signal::INT),
        ("freeze", Signal::STOP),
    ];
    for (name, signal) in signals {
        // One that is silent for twelve times to live is given up.
        let flags = ["--pace-millis", "15", "--lease-ttl-millis", "300"];
        let command = job.run(name, &flags, &[job.count()]);
        let mut supervisor = Running::start(command, &job.path("said")).unwrap();
        let mut struck = None;
        wait_for(
            || {
                struck = struck.or_else(|| trainer(&job, name));
                struck.is_some()
            },
            "a trainer takes part",
        )
        .await;
        kill_process(struck.unwrap(), signal).unwrap();
        assert_eq!(supervisor.end_within(PATIENCE).await.unwrap(), Some(0));
        assert_eq!(job.hash(name).unwrap(), undisturbed, "{name}");
        assert!(job.logs(name).contains(&"trainer-1.log".to_owned()), "{name}: it was not replaced");
        let journal = std::fs::read_to_string(job.path(name).join("journal.jsonl")).unwrap();
        let is_told = journal.contains("\"kind\":\"stopped\"");
        assert_eq!(is_told, signal == Signal::STOP, "{name}: {journal}");
        assert!(
            !journal.contains("\"kind\":\"continues\""),
            "{name}: whoever is killed does not go on: {journal}"
        );
    }
}

/// Whoever runs and takes no part is found out by what the master hears, by whether the master answers, or by nobody: a master that has
/// just taken over has never heard of a trainer that hangs.
#[tokio::test]
async fn whoever_hangs_is_replaced_and_the_model_is_the_same() {
    let job = SmallJob::of(4000).unwrap();
    let undisturbed = job.undisturbed().unwrap();
    let mut runs = Vec::new();
    for (name, strikes) in [
        ("pserver", &[("pserver-0", Signal::STOP)][..]),
        ("forgotten", &[("trainer-0", Signal::STOP), ("master", Signal::KILL)]),
        ("master", &[("master", Signal::STOP)]),
    ] {
        let flags = ["--pace-millis", "15", "--lease-ttl-millis", "300"];
        let command = job.run(name, &flags, &[job.count()]);
        let supervisor = Running::start(command, &job.path(&format!("{name}.said"))).unwrap();
        runs.push((name, strikes, supervisor));
    }
    for (name, strikes, _) in &runs {
        wait_for(|| trainer(&job, name).is_some(), "a trainer takes part").await;
        for (struck, signal) in *strikes {
            kill_process(started(&job, name, struck)[0], *signal).unwrap();
        }
    }
    for (name, strikes, supervisor) in &mut runs {
        assert_eq!(supervisor.end_within(3 * PATIENCE).await.unwrap(), Some(0), "{name}");
        assert_eq!(job.hash(name).unwrap(), undisturbed, "{name}");
        for (struck, _) in *strikes {
            // A master keeps its name.
            let others = started(&job, name, &struck.replace("-0", "-1"));
            assert!(
                others.len() > usize::from(*struck == "master"),
                "{name}: nobody took the place of {struck}"
            );
        }
    }
}

/// The processes that a run has started under a name, the oldest first.
fn started(job: &SmallJob, run: &str, name: &str) -> Vec<Pid> {
    let journal = std::fs::read_to_string(job.path(run).join("journal.jsonl")).unwrap();
    let entries = journal.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let of_name = entries.filter(|entry| entry["entry"] == "joined" && entry["name"] == name);
    of_name.filter_map(|entry| Pid::from_raw(entry["process"].as_i64()? as i32)).collect()
}

/// The process of a trainer that has made steps.
fn trainer(job: &SmallJob, run: &str) -> Option<Pid> {
    let status = job.shoal(&["status", "--run", run, "-o", "json"]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).ok()?;
    let has_begun = status["step"].as_u64().is_some_and(|step| step > 2);
    let process = status["trainers"].as_array()?.iter().find_map(|one| one["pid"].as_i64())?;
    Pid::from_raw(process as i32).filter(|_| has_begun)
}

/// Processes that carry a mark in their environment.
fn marked(mark: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_marked = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    pids.filter(is_marked).collect()
}

async fn wait_for(mut is_so: impl FnMut() -> bool, what: &str) {
    let until = tokio::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(tokio::time::Instant::now() < until, "in vain: {what}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn what_was_typed_wrongly_leaves_nothing_in_the_way_of_the_next_try() {
    let job = SmallJob::of(40).unwrap();
    let ended = job.run("run", &[], &["/nonexistent/program"]).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(2) && said.contains("/nonexistent/program"), "{said}");
    let ended = job.run("run", &[], &[job.count()]).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    // And who fails says so afterwards, too.
    let fails = job.run("failed", &["--describe-seconds", "0"], &["sh", "-c", "exit 3"]).output().unwrap();
    assert_eq!(fails.status.code(), Some(1));
    let status = job.shoal(&["status", "--run", "failed", "-o", "json"]).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((status.status.code(), &told["phase"]), (Some(1), &"failed".into()));
    assert!(told["failure"].as_str().unwrap().contains("exit code 3"), "{told}");
}

#[tokio::test]
async fn a_program_that_does_not_join_is_told_of() {
    let job = SmallJob::of(40).unwrap();
    let said = job.path("said");
    // Its environment does not reach it, nor does it train.
    let command = job.run("run", &["--describe-seconds", "0"], &["env", "-i", "sleep", "600"]);
    let mut supervisor = Running::start(command, &said).unwrap();
    let words = || std::fs::read_to_string(&said).unwrap_or_default();
    wait_for(|| words().contains("trainer-0 runs for 30 s and has not joined the job"), "a warning").await;
    kill_process(Pid::from_raw(supervisor.pid() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(supervisor.end_within(PATIENCE).await.unwrap(), None, "it ends by the signal");
    assert_eq!(words().matches("has not joined").count(), 1, "once");
}
