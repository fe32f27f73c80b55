//! Signals are the whole process's: each test starts this program again as a process of its own, which runs one story.

#![allow(clippy::disallowed_methods, reason = "stories sleep outside of any runtime")]

use super::super::shutdown::Shutdown;
use super::*;
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::signal::unix::SignalKind;

const STORY: &str = "SHOAL_TEST_STORY";
const READY: &str = "ready for signals";
const PATIENCE: Duration = Duration::from_secs(10);

/// What a process does before it says that it is ready, and afterwards.
type Story = fn();

const STORIES: [(&str, Story); 7] = [
    ("listens_no_more", listens_no_more),
    ("never_listened", never_listened),
    ("calls_others", calls_others),
    ("leaves_later_handlers", leaves_later_handlers),
    ("hears_in_turn", hears_in_turn),
    ("hears_together", hears_together),
    ("forks", forks),
];

/// The other end of every test.
#[test]
fn a_story_is_run_where_one_is_named() {
    let Ok(named) = std::env::var(STORY) else { return };
    STORIES.iter().find(|(name, _)| *name == named).unwrap().1();
}

/// A process that runs a story, once it is ready. `shell` is done before it.
fn started(story: &str, shell: &str) -> Child {
    let mut command = Command::new("sh");
    let this = std::env::current_exe().unwrap();
    command.args(["-c", &format!("{shell}\nexec \"$0\" \"$@\"")]).arg(this);
    command.args(["--exact", "host::dispositions::tests::a_story_is_run_where_one_is_named", "--nocapture"]);
    let mut child = command.env(STORY, story).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(READY)), "it ended before");
    std::thread::spawn(move || lines.for_each(drop));
    child
}

/// How a process ends upon a signal; none where it does not.
fn ended(mut child: Child, signal: Signal) -> Option<ExitStatus> {
    kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
    for _ in 0..150 {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

fn succeeds(story: &str) {
    let mut child = started(story, "");
    assert!(child.wait().unwrap().success(), "{story}");
}

fn say_ready() {
    use std::io::Write;
    writeln!(io::stdout(), "{READY}").unwrap();
}

fn run(story: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(story);
}

fn raise(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
}

async fn hears(shutdown: &mut Shutdown) -> bool {
    tokio::time::timeout(PATIENCE, shutdown.wait()).await.is_ok()
}

fn listens_no_more() {
    run(async { drop(Shutdown::on_signal().unwrap()) });
    say_ready();
    std::thread::sleep(Duration::from_secs(600));
}

fn never_listened() {
    run(async { drop(Shutdown::pair()) });
    say_ready();
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_process_that_listens_no_more_ends_by_the_signal_as_one_that_never_did() {
    for story in ["listens_no_more", "never_listened"] {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let status = ended(started(story, ""), signal);
            assert_eq!(status.unwrap().signal(), Some(signal.as_raw()), "{story}");
        }
    }
}

#[test]
fn a_signal_that_was_ignored_before_is_ignored_afterwards() {
    for (name, signal) in [("TERM", Signal::TERM), ("INT", Signal::INT), ("HUP", Signal::HUP)] {
        let child = started("listens_no_more", &format!("trap '' {name}"));
        assert_eq!(ended(child, signal), None, "{name}");
    }
}

/// Another's handler: tokio's own stays for good.
fn calls_others() {
    run(async {
        let mut other = tokio::signal::unix::signal(SignalKind::terminate()).unwrap();
        for _ in 0..2 {
            let mut shutdown = Shutdown::on_signal().unwrap();
            raise(Signal::TERM);
            assert!(hears(&mut shutdown).await);
            assert!(other.recv().await.is_some(), "it hears of it, too");
            drop(shutdown);
            raise(Signal::TERM);
            assert!(tokio::time::timeout(PATIENCE, other.recv()).await.is_ok(), "it alone");
        }
    });
    say_ready();
}

#[test]
fn a_handler_that_was_there_before_is_called_meanwhile_and_afterwards() {
    succeeds("calls_others");
}

fn leaves_later_handlers() {
    run(async {
        let shutdown = Shutdown::on_signal().unwrap();
        let mut other = tokio::signal::unix::signal(SignalKind::terminate()).unwrap();
        drop(shutdown);
        raise(Signal::TERM);
        // It calls ours in turn, which ends nothing.
        assert!(tokio::time::timeout(PATIENCE, other.recv()).await.is_ok());
        let mut shutdown = Shutdown::on_signal().unwrap();
        raise(Signal::TERM);
        assert!(hears(&mut shutdown).await && other.recv().await.is_some());
    });
    say_ready();
}

#[test]
fn a_handler_that_somebody_has_set_meanwhile_stays() {
    succeeds("leaves_later_handlers");
}

fn hears_in_turn() {
    for signal in [Signal::TERM, Signal::INT, Signal::TERM] {
        run(async {
            let mut shutdown = Shutdown::on_signal().unwrap();
            assert!(!shutdown.is_due(), "that was another's");
            raise(Signal::HUP);
            raise(signal);
            assert!(hears(&mut shutdown).await);
        });
    }
    // And of two moments.
    run(async {
        let (mut leave, mut stop) = Shutdown::on_second_signal().unwrap();
        raise(Signal::TERM);
        assert!(hears(&mut leave).await && !stop.is_due());
        drop(leave);
        raise(Signal::INT);
        assert!(hears(&mut stop).await);
    });
    say_ready();
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn one_after_another_in_a_process_hears_of_signals_and_then_one_ends_it() {
    let status = ended(started("hears_in_turn", ""), Signal::TERM);
    assert_eq!(status.unwrap().signal(), Some(libc::SIGTERM));
}

/// Two at once, each in a runtime of its own.
fn hears_together() {
    let (ready, begun) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        run(async {
            let (mut shutdown, mut once_more) =
                (Shutdown::on_signal().unwrap(), Shutdown::on_signal().unwrap());
            ready.send(()).unwrap();
            assert!(hears(&mut shutdown).await && hears(&mut once_more).await);
        });
    });
    begun.recv().unwrap();
    run(async {
        let mut shutdown = Shutdown::on_signal().unwrap();
        raise(Signal::INT);
        assert!(hears(&mut shutdown).await);
        other.join().unwrap();
        let mut next = Shutdown::on_signal().unwrap();
        drop(shutdown);
        raise(Signal::TERM);
        assert!(hears(&mut next).await, "another's end is none of it");
    });
    say_ready();
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn several_at_once_hear_of_the_same_signal_and_the_last_gives_it_back() {
    let status = ended(started("hears_together", ""), Signal::INT);
    assert_eq!(status.unwrap().signal(), Some(libc::SIGINT));
}

/// As Python's workers are.
fn forks() {
    run(async {
        let mut shutdown = Shutdown::on_signal().unwrap();
        // SAFETY: the child does nothing but sleep, and take signals again.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                std::thread::sleep(Duration::from_secs(600));
            }
        }
        let child = rustix::process::Pid::from_raw(child).unwrap();
        kill_process(child, Signal::TERM).unwrap();
        let ended = tokio::task::spawn_blocking(move || {
            rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())
        });
        let ended = tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap().unwrap();
        assert_eq!(ended.unwrap().1.terminating_signal(), Some(libc::SIGTERM));
        assert!(!shutdown.is_due(), "that was the child's");
        raise(Signal::TERM);
        assert!(hears(&mut shutdown).await);
    });
    say_ready();
}

#[test]
fn a_child_that_was_forked_off_ends_by_its_signal_and_its_parent_does_not_hear_of_it() {
    succeeds("forks");
}
