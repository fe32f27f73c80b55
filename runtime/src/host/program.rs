//! A role as a program: its future is run to its end, or to the first panic, and then the process waits for nobody.

use super::telemetry;
use std::panic::{set_hook, take_hook};
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::watch;

/// Runs a role to its end. Whatever is still read or written on threads for that is left behind: a read that never comes back, from
/// a disk that hangs, must not hold up a process that was told to stop.
///
/// A panic on any thread ends it, too: what it was about to change may be half changed, or its task be missed by others for ever.
/// Whatever the role held is elsewhere, or comes back from a checkpoint.
///
/// # Errors
/// No thread is to be had; how the role has ended.
pub fn run<E: From<std::io::Error>>(role: impl Future<Output = Result<ExitCode, E>>) -> Result<ExitCode, E> {
    let mut panicked = panics();
    // Roles serve many callers at once: a thread for each core.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // A thread for the disk stays once it is there: when memory has run out no other is to be had.
    builder.enable_all().thread_keep_alive(Duration::from_secs(24 * 3600));
    let runtime = builder.build()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            biased;
            _ = panicked.wait_for(|is_so| *is_so) => {
                telemetry::last_words("a panic has left this process half-changed: it ends, for another to take its place");
                Ok(ExitCode::FAILURE)
            }
            ended = role => ended,
        }
    });
    runtime.shutdown_background();
    ended
}

/// Tells of panics from now on, after whoever is told of them already.
fn panics() -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    let before = take_hook();
    set_hook(Box::new(move |panic| {
        before(panic);
        tell.send_replace(true);
    }));
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tokio::time::Instant;

    #[test]
    fn a_read_that_never_comes_back_does_not_hold_up_a_role_that_has_ended() {
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

    #[test]
    fn a_panic_that_nobody_waits_for_ends_a_role() {
        let lost = Duration::from_secs(60);
        let since = Instant::now();
        let ended = run(async {
            tokio::spawn(async { panic!("a task of the role") });
            tokio::time::sleep(lost).await;
            Ok::<_, std::io::Error>(ExitCode::SUCCESS)
        });
        assert_eq!(ended.unwrap(), ExitCode::FAILURE);
        assert!(since.elapsed() < lost / 2, "{:?}", since.elapsed());
    }
}
