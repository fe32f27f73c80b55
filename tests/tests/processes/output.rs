//! Where what is printed goes: readers that leave, disks that are full, terminals that are closed. None of them ends a job, and the model
//! is that of an undisturbed run. Without root and `unshare` the tests that need a disk say so and pass, or fail when
//! `SHOAL_REQUIRE_ALL=1`.

use shoal_tests::small::SmallJob;
use std::fs::File;
use std::process::{Command, Stdio};

const LOST: &str = "error: cannot print the result: No space left on device (os error 28)\n";

/// A script in the job's folder, in which `$SHOAL` and `$COUNT` are programs.
fn script(job: &SmallJob, text: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", text]).current_dir(job.path("")).stdin(Stdio::null());
    command.env("COUNT", &job.programs.count).env("SHOAL", &job.programs.shoal);
    command
}

const RUN: &str = "\"$SHOAL\" run --data part.recordio --microbatches-per-step 4 --trainers 2";

#[test]
fn a_run_whose_reader_leaves_goes_on_and_succeeds() {
    let job = SmallJob::of(4000).unwrap();
    let undisturbed = job.undisturbed().unwrap();
    for (run, flags, to) in [
        ("head", "", "2>&1 | head -2"),
        ("none", "", "2>&1 | true"),
        ("errors", "", "2> >(true)"),
        ("json", "-o json", "2>/dev/null | true"),
        ("closed", "", ">&- 2>&-"),
    ] {
        let text = format!(
            "{RUN} --pace-millis 1 {flags} --folder {run} -- \"$COUNT\" {to}; exit ${{PIPESTATUS[0]}}"
        );
        let ended = script(&job, &text).output().unwrap();
        assert!(ended.status.success(), "{run}: {}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(job.hash(run).unwrap(), undisturbed, "{run}");
    }
}

#[test]
fn a_run_that_cannot_print_its_result_says_so_and_has_trained() {
    let job = SmallJob::of(4000).unwrap();
    let undisturbed = job.undisturbed().unwrap();
    for (run, to, says) in [("result", ">/dev/full", LOST), ("both", ">/dev/full 2>/dev/full", "")] {
        let ended = script(&job, &format!("{RUN} --pace-millis 1 --folder {run} -- \"$COUNT\" {to}"))
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&ended.stderr).ends_with(says));
        assert_eq!(job.hash(run).unwrap(), undisturbed);
    }
    let text = format!("{RUN} --pace-millis 1 --folder notes -- \"$COUNT\" 2>/dev/full");
    assert!(
        script(&job, &text).output().unwrap().status.success(),
        "progress is nothing that must be printed"
    );
    assert_eq!(job.hash("notes").unwrap(), undisturbed);
}

#[test]
fn a_run_whose_terminal_is_closed_goes_on() {
    let job = SmallJob::of(4000).unwrap();
    let undisturbed = job.undisturbed().unwrap();
    // Python has a pseudoterminal; closing its end is what closing a window does: SIGHUP, and errors for whoever prints.
    let terminal = "import os, pty, sys, time\n\
        pid, terminal = pty.fork()\n\
        if pid == 0: os.execvp(sys.argv[1], sys.argv[1:])\n\
        os.read(terminal, 10)\n\
        os.close(terminal)\n\
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n";
    let shoal = job.programs.shoal.to_str().unwrap();
    let ended = Command::new("python3")
        .args(["-c", terminal, shoal, "run", "--data", "part.recordio", "--microbatches-per-step", "4"])
        .args(["--pace-millis", "1", "--folder", "run", "--", job.count()])
        .current_dir(job.path(""))
        .status()
        .unwrap();
    assert_eq!(ended.code(), Some(1), "the result cannot be printed, and nothing else is wrong");
    assert_eq!(job.hash("run").unwrap(), undisturbed);
}

#[test]
fn commands_that_read_end_quietly_with_their_reader_and_loudly_on_a_full_disk() {
    let job = SmallJob::of(4000).unwrap();
    job.undisturbed().unwrap();
    for words in [
        &["status", "--run", "undisturbed"][..],
        &["status", "--run", "undisturbed", "-o", "json"],
        &["recordio", "ls", "part.recordio"],
        &["recordio", "cat", "part.recordio", "--record", "3"],
        &["completions", "bash"],
        &["help"],
        &["run", "--help"],
        &["--version"],
    ] {
        let (reader, pipe) = std::io::pipe().unwrap();
        drop(reader);
        let ended = job.shoal(words).stdout(pipe).output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]), "{words:?} | true");
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ended = job.shoal(words).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), said.as_ref()), (Some(1), LOST), "{words:?} > /dev/full");
    }
}

/// The disk of the logs is full from the start, or fills up while the job runs and has room again.
#[test]
fn no_role_ends_because_the_disk_of_its_log_is_full() {
    let job = SmallJob::of(4000).unwrap();
    let undisturbed = job.undisturbed().unwrap();
    if !script(&job, "unshare --mount true").status().is_ok_and(|ended| ended.success()) {
        assert_ne!(std::env::var("SHOAL_REQUIRE_ALL").as_deref(), Ok("1"), "root and unshare are missing");
        eprintln!("NOT TESTED: a full disk needs root on Linux, with util-linux");
        return;
    }
    // No more than that, should it come to another disk.
    let fill = "head -c 16M /dev/zero > $RUN/logs/filling 2>/dev/null";
    let meanwhile = format!(
        "(until [ -s $RUN/master.address ]; do sleep 0.05; done; {fill}; sleep 0.6; rm $RUN/logs/filling) & meanwhile=$!;"
    );
    for (run, before, meanwhile) in [
        ("full", format!("{fill};"), ""),
        ("filling", String::new(), meanwhile.as_str()),
        ("inodes", "for i in $(seq 40); do : > $RUN/logs/$i; done 2>/dev/null;".to_owned(), ""),
    ] {
        // Logs of everything, so that each role writes all the time.
        let text = format!(
            "RUN={run}; mkdir -p $RUN/logs; mount -t tmpfs -o size=4m,nr_inodes=30 logs $RUN/logs; {before} {meanwhile}\n\
             SHOAL_LOG=debug {RUN} --pace-millis 5 --pservers 2 --folder $RUN -- \"$COUNT\"; ended=$?; kill $meanwhile 2>/dev/null\n\
             cp $RUN/logs/*.log $RUN/ 2>/dev/null; umount -l $RUN/logs; exit $ended"
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "bash", "-c", &text]).current_dir(job.path("")).stdin(Stdio::null());
        let command = command.env("COUNT", &job.programs.count).env("SHOAL", &job.programs.shoal);
        let ended = command.output().unwrap();
        assert!(ended.status.success(), "{run}: {}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(job.hash(run).unwrap(), undisturbed, "{run}");
        let is_told = |log: &str| {
            let log = std::fs::read(job.path(run).join(log)).unwrap_or_default();
            String::from_utf8_lossy(&log).contains("missing here: no storage space")
        };
        let logs = ["master.log", "pserver-0.log", "pserver-1.log", "trainer-0.log", "trainer-1.log"];
        assert_eq!(logs.map(is_told), [run == "filling"; 5], "{run}");
    }
}
