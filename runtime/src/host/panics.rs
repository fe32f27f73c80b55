//! Panics of this process: each is printed, and then told to whoever waits for one. A process in which one cannot be printed is ended.
//!
//! Memory runs out while a backtrace is made: the standard library holds a lock as it prints, and takes it once more to say that there
//! is no memory (since [Rust 1.93](https://github.com/rust-lang/rust/pull/148020), with `RUST_BACKTRACE`). That thread stands still for
//! ever, and the rest of the process lives on half-changed. A pipe that nobody reads does the same. So a timer of the system's is started
//! before a panic is printed, and stopped once all is said. It is made beforehand: to start it takes no thread and no memory.
#![allow(unsafe_code, reason = "the system's timers are called through their C interface")]

use std::panic::{set_hook, take_hook};
use std::sync::{LazyLock, Once, OnceLock};
use std::time::Duration;
use tokio::sync::watch;

/// How long a panic may take to be printed: a backtrace of a large program, off a slow disk, takes seconds.
const PRINTED: Duration = Duration::from_secs(30);

/// What ends this process; nothing before [`bound`], nor where the system has no such timers, or gives none.
static TIMER: OnceLock<AbortTimer> = OnceLock::new();
/// Whether there was a panic in this process since one was [`awaited`] last.
static PANICKED: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::channel(false).0);

/// From now on a panic that is not printed within 30 s ends this process by SIGABRT, as running out of memory does elsewhere (Linux).
/// What is done about panics otherwise stays as it is.
pub fn bound() {
    bound_to(PRINTED);
}

fn bound_to(time: Duration) {
    static BOUND: Once = Once::new();
    BOUND.call_once(|| {
        if let Some(timer) = AbortTimer::new(time) {
            TIMER.get_or_init(|| timer);
        }
        let before = take_hook();
        set_hook(Box::new(move |panic| tell(|| before(panic))));
    });
}

/// Prints a panic by `print` and says that there was one. For every hook that takes the place of another.
pub(super) fn tell(print: impl FnOnce()) {
    let timer = TIMER.get();
    timer.iter().for_each(|timer| timer.start());
    print();
    timer.iter().for_each(|timer| timer.stop());
    PANICKED.send_replace(true);
}

/// Hears of panics from now on.
pub(super) fn awaited() -> watch::Receiver<bool> {
    bound();
    PANICKED.send_replace(false);
    PANICKED.subscribe()
}

#[cfg(target_os = "linux")]
use posix::AbortTimer;

#[cfg(target_os = "linux")]
mod posix {
    use std::ptr::{from_mut, from_ref, null_mut};
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    /// A timer that ends this process by SIGABRT while any panic is being printed for too long.
    pub(super) struct AbortTimer {
        timer: libc::timer_t,
        time: libc::timespec,
        /// How many panics are being printed.
        printed: Mutex<u32>,
    }

    const NEVER: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

    // SAFETY: the system's name for a timer of this process; any thread may use it.
    unsafe impl Send for AbortTimer {}
    // SAFETY: as above.
    unsafe impl Sync for AbortTimer {}

    impl AbortTimer {
        pub(super) fn new(time: Duration) -> Option<AbortTimer> {
            let mut timer = null_mut();
            // SAFETY: all zeroes is a value of it.
            let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
            (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_SIGNAL, libc::SIGABRT);
            let (event, made) = (from_mut(&mut event), from_mut(&mut timer));
            // SAFETY: both are of this frame, and are read and written only during the call.
            let is_made = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, event, made) } == 0;
            let time = libc::timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ };
            is_made.then(|| AbortTimer { timer, time, printed: Mutex::new(0) })
        }

        /// The time begins, for all that are being printed.
        pub(super) fn start(&self) {
            let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
            *printed += 1;
            self.set(self.time);
        }

        /// One is printed.
        pub(super) fn stop(&self) {
            let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
            *printed -= 1;
            if *printed == 0 {
                self.set(NEVER);
            }
        }

        /// In a child that was forked off there is no such timer: then nothing is set.
        fn set(&self, at: libc::timespec) {
            let once = libc::itimerspec { it_interval: NEVER, it_value: at };
            // SAFETY: the timer was made by `new`, and is never deleted; what is read is of this frame.
            unsafe { libc::timer_settime(self.timer, 0, from_ref(&once), null_mut()) };
        }
    }
}

/// Nothing, where the system has no such timers.
#[cfg(not(target_os = "linux"))]
enum AbortTimer {}

#[cfg(not(target_os = "linux"))]
impl AbortTimer {
    fn new(_: Duration) -> Option<AbortTimer> {
        None
    }
    fn start(&self) {}
    fn stop(&self) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::error::Error;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{ExitStatus, Stdio};

    /// Says to a process that it is one that a test has started.
    const PART: &str = "SHOAL_TEST_PANICS";

    /// How `part` of a test ends as a process of its own, which runs that test alone. An error where it hangs.
    async fn apart(test: &str, part: impl Future<Output = ()>) -> Result<ExitStatus, Box<dyn Error>> {
        if std::env::var_os(PART).is_some() {
            part.await;
            std::process::exit(0);
        }
        let (_, here) = module_path!().split_once("::").ok_or("a test of a crate's own top")?;
        let mut again = tokio::process::Command::new(std::env::current_exe()?);
        again.args(["--exact", &format!("{here}::{test}"), "--nocapture"]);
        again.env(PART, "1").env("RUST_BACKTRACE", "1").kill_on_drop(true);
        again.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(tokio::time::timeout(Duration::from_secs(60), again.status()).await??)
    }

    fn panic_elsewhere() {
        let _ = std::thread::spawn(|| panic!("on a thread")).join();
    }

    #[tokio::test]
    async fn a_panic_that_nobody_can_print_ends_the_process() {
        let ended = apart("a_panic_that_nobody_can_print_ends_the_process", async {
            set_hook(Box::new(|_| {
                loop {
                    std::thread::park();
                }
            }));
            bound_to(Duration::from_millis(100));
            panic_elsewhere();
        });
        assert_eq!(ended.await.unwrap().signal(), Some(libc::SIGABRT));
    }

    #[tokio::test]
    async fn a_process_without_memory_for_a_backtrace_ends() {
        let ended = apart("a_process_without_memory_for_a_backtrace_ends", async {
            bound_to(Duration::from_secs(3));
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let has = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
            let has: u64 = has.trim().trim_end_matches(" kB").parse().unwrap();
            let limit = Rlimit { current: Some(has << 10), ..getrlimit(Resource::Data) };
            setrlimit(Resource::Core, Rlimit { current: Some(0), ..getrlimit(Resource::Core) }).unwrap();
            let panics = std::thread::spawn(move || {
                setrlimit(Resource::Data, limit).unwrap();
                panic!("without memory");
            });
            let _ = panics.join();
        });
        assert_eq!(ended.await.unwrap().signal(), Some(libc::SIGABRT));
    }

    #[tokio::test]
    async fn a_panic_that_is_printed_ends_nothing() {
        let ended = apart("a_panic_that_is_printed_ends_nothing", async {
            bound_to(Duration::from_millis(300));
            panic_elsewhere();
            tokio::time::sleep(Duration::from_secs(1)).await;
        });
        assert_eq!(ended.await.unwrap().code(), Some(0));
    }
}
