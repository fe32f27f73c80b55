//! A role as a program: its future is run to its end, or to the first panic, and then the process waits for nobody.

use super::{panics, telemetry};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Runs a role to its end. Whatever is still read or written on threads for that is left behind: a read that never comes back, from
/// a disk that hangs, must not hold up a process that was told to stop.
///
/// A panic on any thread ends it, too: what it was about to change may be half changed, or its task be missed by others for ever.
/// Whatever the role held is elsewhere, or comes back from a checkpoint.
///
/// # Errors
/// No thread is to be had; how the role has ended.
pub fn run<E: From<std::io::Error>>(role: impl Future<Output = Result<ExitCode, E>>) -> Result<ExitCode, E> {
    let mut panicked = panics::awaited();
    let runtime = runtime()?;
    let role = AssertUnwindSafe(role).catch_unwind();
    let ended = runtime.block_on(async {
        tokio::select! {
            biased;
            _ = panicked.wait_for(|is_so| *is_so) => {
                Ok(half_changed())
            }
            // On the way out of a panic nothing of the role is looked at any more.
            ended = role => ended.unwrap_or_else(|_| Ok(half_changed())),
        }
    });
    runtime.shutdown_background();
    ended
}

/// A thread for the disk stays so long once it is there: when memory has run out no other is to be had.
pub const THREADS_STAY: Duration = Duration::from_secs(24 * 3600);

/// What a role or a command runs on: a thread for each core, since roles serve many callers at once. A panic that cannot be printed
/// ends its process from now on.
///
/// # Errors
/// No thread is to be had.
pub fn runtime() -> std::io::Result<Runtime> {
    panics::bound();
    let mut builder = Builder::new_multi_thread();
    builder.enable_all().thread_keep_alive(THREADS_STAY);
    builder.build()
}

fn half_changed() -> ExitCode {
    telemetry::last_words(
        "a panic has left this process half-changed: it ends, for another to take its place",
    );
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, mpsc};
    use tokio::time::Instant;

    /// A panic is one of the whole process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn a_read_that_never_comes_back_does_not_hold_up_a_role_that_has_ended() {
        let _alone = ONE_AT_A_TIME.lock().unwrap();
        let (release, wait) = mpsc::channel::<()>();
        let (begun, began) = mpsc::channel();
        let since = Instant::now();
        let ended = run(async {
            tokio::task::spawn_blocking(move || {
                begun.send(()).unwrap();
                wait.recv_timeout(Duration::from_secs(20))
            });
            began.recv_timeout(Duration::from_secs(20)).unwrap();
            Ok::<_, std::io::Error>(ExitCode::from(7))
        });
        assert_eq!(ended.unwrap(), ExitCode::from(7));
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
        drop(release);
    }

    /// In a task that nobody waits for, and in the role itself, while a disk hangs.
    #[test]
    fn a_panic_ends_a_role_wherever_it_is() {
        let _alone = ONE_AT_A_TIME.lock().unwrap();
        for in_a_task in [true, false] {
            let (release, wait) = mpsc::channel::<()>();
            let lost = Duration::from_secs(60);
            let since = Instant::now();
            let ended = run(async {
                let (begun, began) = mpsc::channel();
                tokio::task::spawn_blocking(move || {
                    begun.send(()).unwrap();
                    wait.recv_timeout(lost)
                });
                began.recv_timeout(lost).unwrap();
                let panics = async { panic!("a part of the role") };
                if in_a_task {
                    tokio::spawn(panics);
                    tokio::time::sleep(lost).await;
                } else {
                    panics.await;
                }
                Ok::<_, std::io::Error>(ExitCode::SUCCESS)
            });
            assert_eq!(ended.unwrap(), ExitCode::FAILURE);
            assert!(since.elapsed() < lost / 2, "{:?}", since.elapsed());
            drop(release);
        }
    }
}
