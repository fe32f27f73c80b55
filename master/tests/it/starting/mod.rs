//! A real master before it can lead, on a disk that answers late: what its pages say, and how it ends when it is told to stop.
#![allow(clippy::disallowed_methods, reason = "no runtime is here: what takes time are other processes")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::Instant;

/// Far more than a master needs for anything here on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// A call that never comes back, as far as tests go.
const FOR_EVER: &str = "600000";

/// A folder with a data set of so many files of one record, and what the job is told beside.
struct Case {
    folder: tempfile::TempDir,
    slow: [(&'static str, &'static str); 3],
    flags: Vec<String>,
}

impl Case {
    fn of(files: usize, calls: &'static str, path: &'static str, millis: &'static str) -> Case {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = shoal_recordio::Writer::new(Vec::new(), shoal_recordio::WriterOptions::default());
        writer.write(b"record").unwrap();
        let content = writer.finish().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        for file in 0..files {
            std::fs::write(folder.path().join(format!("data/part-{file:05}")), &content).unwrap();
        }
        std::fs::write(folder.path().join("model"), b"\x02\0\0\0\0\0\0\0{}").unwrap();
        Case {
            folder,
            slow: [("SLOW_CALLS", calls), ("SLOW_PATH", path), ("SLOW_MILLIS", millis)],
            flags: Vec::new(),
        }
    }

    fn with(mut self, flags: &[&str]) -> Case {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    fn start(&self) -> Master {
        let [listen, pages] = [free(), free()];
        let mut command = Command::new(env!("CARGO_BIN_EXE_shoal-master"));
        command.current_dir(self.folder.path()).env("LD_PRELOAD", shim()).envs(self.slow);
        command.args(["--job", "slow", "--data", "data/part-*", "--store", "state", "--pservers", "1"]);
        command.args(["--listen", &listen.to_string(), "--http", &pages.to_string()]).args(&self.flags);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(self.folder.path().join("log")).unwrap());
        Master { process: command.spawn().unwrap(), pages }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

/// A running master, killed when it is dropped.
struct Master {
    process: Child,
    pages: SocketAddr,
}

impl Master {
    /// What a page says, with its status; none where nobody listens.
    fn page(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.pages).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.get(9..12)?.parse().ok()?, body.trim_end().to_owned()))
    }

    /// Waits until `/readyz` says this. Returns after how long.
    fn wait_until_it_says(&self, words: &str) -> Duration {
        let since = Instant::now();
        loop {
            let page = self.page("/readyz");
            if page.as_ref().is_some_and(|(_, said)| said.contains(words)) {
                return since.elapsed();
            }
            assert!(since.elapsed() < PATIENCE, "{words:?} is not said, but {page:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// SIGTERM. Returns the exit code and after how long it was there.
    fn stop(&mut self) -> (Option<i32>, Duration) {
        let pid = self.process.id().to_string();
        let since = Instant::now();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return (status.code(), since.elapsed());
            }
            assert!(since.elapsed() < PATIENCE, "it does not hear SIGTERM");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The calls that wait, built once.
fn shim() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("slow-{}.so", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/starting/slow.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
        assert!(compiler.status().unwrap().success());
        library
    })
}

/// Where a start can hang: what a master is told, the call that hangs and its path, and what it says then.
const HANGS: [(&[&str], &str, &str, &str); 6] = [
    (&[], "stat", "part-00007", "finding the files of the data set"),
    (&[], "open", "part-00007", "reading the headers of the data set: 19 of 20 files"),
    (&[], "mkdir", "state", "opening the store"),
    (&["--warm-start", "model"], "open", "model", "reading the file that --warm-start names"),
    (&["--checkpoints", "kept"], "mkdir", "kept", "opening the place of checkpoints"),
    (&[], "none", "none", "ready"),
];

#[test]
fn probes_are_answered_wherever_a_start_hangs_and_told_what_it_waits_for() {
    for (flags, call, path, says) in HANGS {
        let case = Case::of(20, call, path, FOR_EVER).with(flags);
        let master = case.start();
        master.wait_until_it_says(says);
        assert_eq!(master.page("/healthz"), Some((200, "alive".to_owned())), "{says}");
        let expected = if says == "ready" { 200 } else { 503 };
        assert_eq!(master.page("/readyz").unwrap().0, expected, "{says}");
        assert!(master.page("/metrics").unwrap().1.contains("shoal_master_leads"), "{says}");
    }
}

#[test]
fn a_master_that_somebody_waits_for_hears_a_signal_wherever_it_is_and_does_not_end_as_a_job_that_is_done() {
    for (flags, call, path, says) in HANGS {
        let case = Case::of(20, call, path, FOR_EVER).with(flags).with(&["--linger-seconds", "30"]);
        let mut master = case.start();
        master.wait_until_it_says(says);
        let (code, after) = master.stop();
        println!("{says}: gone {after:?} after SIGTERM");
        assert_eq!(code, Some(1), "{says}: {}", case.log());
        assert!(case.log().contains("stopped before the job was over"), "{says}: {}", case.log());
        assert!(after < Duration::from_secs(2), "{says}: {after:?}");
    }
}

#[test]
fn a_master_that_nobody_waits_for_ends_as_it_was_told_to() {
    let case = Case::of(20, "open", "part-00007", FOR_EVER);
    let mut master = case.start();
    master.wait_until_it_says("19 of 20 files");
    let (code, after) = master.stop();
    assert_eq!((code, after < Duration::from_secs(2)), (Some(0), true), "{after:?}");
}

#[test]
fn files_are_read_many_at_a_time_and_the_log_says_every_few_seconds_how_far_that_is() {
    // 12.8 s one after the other, and 0.8 s sixteen at a time; the first call waits for the log.
    let case = Case::of(1280, "open", "part-", "10");
    let (master, since) = (case.start(), Instant::now());
    master.wait_until_it_says("ready");
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
    let case = Case::of(2, "open", "part-00001", "5500");
    case.start().wait_until_it_says("ready");
    assert!(
        case.log().contains("not ready yet: reading the headers of the data set: 1 of 2 files"),
        "{}",
        case.log()
    );
}

/// Not a test: `cargo test -p shoal-master --release --test it measured_scan -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement of half a minute"]
fn measured_scan_of_sixty_thousand_files_of_which_each_takes_five_milliseconds_to_open() {
    for calls in ["open", "open stat"] {
        let case = Case::of(60_000, calls, "part-", "5");
        let (mut master, since) = (case.start(), Instant::now());
        std::thread::sleep(Duration::from_secs(3));
        let asked = Instant::now();
        let said = master.page("/healthz").unwrap();
        println!("{calls}: after 3 s /healthz says {said:?} within {:?}", asked.elapsed());
        while master.page("/readyz").is_none_or(|(code, _)| code != 200) {
            std::thread::sleep(Duration::from_millis(100));
        }
        println!("{calls}: ready after {:?}; gone {:?} after SIGTERM", since.elapsed(), master.stop().1);
    }
}
