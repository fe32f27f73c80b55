//! A role as a program: its future is run to its end, and then the process waits for nobody.

use std::time::Duration;

/// Runs a role to its end. Whatever is still read or written on threads for that is left behind: a read that never comes back, from
/// a disk that hangs, must not hold up a process that was told to stop.
///
/// # Errors
/// No thread is to be had.
pub fn run<T>(role: impl Future<Output = T>) -> std::io::Result<T> {
    // Roles serve many callers at once: a thread for each core.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // A thread for the disk stays once it is there: when memory has run out no other is to be had.
    builder.enable_all().thread_keep_alive(Duration::from_secs(24 * 3600));
    let runtime = builder.build()?;
    let ended = runtime.block_on(role);
    runtime.shutdown_background();
    Ok(ended)
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
            7
        });
        assert_eq!(ended.unwrap(), 7);
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
        drop(release);
    }
}
