//! What SIGTERM, SIGINT and SIGHUP do to this process: they are heard while somebody listens, and do afterwards what they did before.
//!
//! A program that trains may be somebody's who goes on: a Python interpreter, a notebook, a test. Handlers that once set stay, as those
//! of `tokio::signal` and of every crate that replaces a handler safely, would leave it deaf to the signal that is to end it. So the
//! system is asked here: for what a signal does, and to do something else.
//!
//! | the signal comes | what happens |
//! | --- | --- |
//! | while somebody listens | they hear of it, and a handler that was there before is called, too |
//! | while somebody listens for [the last one](Taken::end_by_next) | it ends the process, whatever handler was there before |
//! | afterwards | what would have happened had nobody listened |
//! | to a child that was forked off meanwhile and has our handler | the same |
#![allow(unsafe_code, reason = "handlers of signals are set, kept and called")]

use libc::{c_int, c_void, siginfo_t};
use rustix::process::{Signal, getpid, kill_process};
use std::io;
use std::os::unix::net::UnixStream;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use tokio::sync::watch;

/// The signals that are taken, and whether each asks to stop. A terminal that is closed ends nothing that trains.
const TAKEN: [(Signal, bool); 3] = [(Signal::TERM, true), (Signal::INT, true), (Signal::HUP, false)];

/// What each did before; null until it is taken for the first time. Never freed: a handler may be about to read it.
static BEFORE: [AtomicPtr<libc::sigaction>; TAKEN.len()] =
    [const { AtomicPtr::new(null_mut()) }; TAKEN.len()];
/// Whether each is being handled: one that calls whom it has replaced may have replaced us before we took its place.
static HANDLED: [AtomicBool; TAKEN.len()] = [const { AtomicBool::new(false) }; TAKEN.len()];
/// The process that listens; 0 while none does. In a child that was forked off it is the parent.
static LISTENING: AtomicU32 = AtomicU32::new(0);
/// Whether the next signal that asks to stop ends this process: what the first one asked for is done.
static ENDS: AtomicBool = AtomicBool::new(false);
/// How often this process was asked to stop.
static ASKED: AtomicU64 = AtomicU64::new(0);
/// The signal that asked last, as its number; 0 before any has.
static LAST: AtomicI32 = AtomicI32::new(0);
/// What a handler writes to, and what tasks wait for: whoever reads a byte tells all others.
static WAKE: OnceLock<(UnixStream, UnixStream)> = OnceLock::new();
static WOKEN: LazyLock<watch::Sender<()>> = LazyLock::new(|| watch::Sender::new(()));
/// How many listen in the process that does.
static LISTENERS: Mutex<usize> = Mutex::new(0);

/// Hears each signal that asks this process to stop, from its making on.
#[derive(Debug)]
pub(super) struct StopSignals {
    wake: tokio::net::UnixStream,
    woken: watch::Receiver<()>,
    heard: u64,
}

/// A share in the handlers: when the last is dropped, signals do what they did before.
#[derive(Debug)]
pub(super) struct Taken {
    process: u32,
}

impl StopSignals {
    /// Takes the signals. Must be called inside a tokio runtime.
    pub(super) fn listen() -> io::Result<(StopSignals, Taken)> {
        let wake = tokio::net::UnixStream::from_std(wake()?.1.try_clone()?)?;
        let (woken, heard) = (WOKEN.subscribe(), ASKED.load(SeqCst));
        Ok((StopSignals { wake, woken, heard }, Taken::take()?))
    }

    /// Resolves once for each signal.
    pub(super) async fn next(&mut self) {
        while ASKED.load(SeqCst) == self.heard {
            tokio::select! {
                _ = self.woken.changed() => {}
                read = self.wake.readable() => match read.and_then(|()| self.wake.try_read(&mut [0; 64])) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => WOKEN.send_replace(()),
                },
            }
        }
        self.heard += 1;
    }
}

/// The signal that asked this process last to stop; none before one has.
pub(super) fn last() -> Option<Signal> {
    let last = LAST.load(SeqCst);
    TAKEN.into_iter().map(|(signal, _)| signal).find(|signal| signal.as_raw() == last)
}

/// The writing and the reading end.
fn wake() -> io::Result<&'static (UnixStream, UnixStream)> {
    if let Some(ends) = WAKE.get() {
        return Ok(ends);
    }
    let ends = UnixStream::pair()?;
    ends.0.set_nonblocking(true)?;
    ends.1.set_nonblocking(true)?;
    // If another thread was faster, its pair is the one.
    Ok(WAKE.get_or_init(|| ends))
}

impl Taken {
    fn take() -> io::Result<Taken> {
        let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if LISTENING.swap(process, SeqCst) != process {
            // Nobody has listened, or the parent, before this process was forked off: they are not here.
            *listeners = 0;
        }
        let taken = Taken { process };
        *listeners += 1;
        if *listeners == 1 {
            ENDS.store(false, SeqCst);
            (0..TAKEN.len()).try_for_each(take)?;
        }
        Ok(taken)
    }

    /// From now on a signal that asks to stop ends this process, until nobody listens any more: a handler that was there before may
    /// do no more than take note of it, as Python's does while a function in C runs. One that was ignored before ends nothing.
    pub(super) fn end_by_next(&self) {
        ENDS.store(true, SeqCst);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        if LISTENING.load(SeqCst) != self.process || self.process != std::process::id() {
            return;
        }
        *listeners -= 1;
        if *listeners == 0 {
            (0..TAKEN.len()).for_each(give_back);
            LISTENING.store(0, SeqCst);
        }
    }
}

/// Sets our handler for a signal, and keeps what was there.
fn take(at: usize) -> io::Result<()> {
    let signal = TAKEN[at].0;
    let before = disposition(signal)?;
    if is_ours(&before) {
        // A child that was forked off has it from its parent, and what was before as well.
        return Ok(());
    }
    let mut ours = before;
    ours.sa_sigaction = hear as *const () as usize;
    // A system call that a handler is to interrupt is interrupted by it still.
    let restarts = if is_handler(&before) { before.sa_flags & libc::SA_RESTART } else { libc::SA_RESTART };
    ours.sa_flags = libc::SA_SIGINFO | restarts | before.sa_flags & libc::SA_ONSTACK;
    BEFORE[at].store(Box::into_raw(Box::new(before)), SeqCst);
    dispose(signal, &ours)
}

/// Sets what was before we took a signal, unless somebody else has set a handler over ours.
fn give_back(at: usize) {
    let signal = TAKEN[at].0;
    if let Some(before) = before(at)
        && disposition(signal).is_ok_and(|present| is_ours(&present))
    {
        // It was accepted before.
        let _ = dispose(signal, before);
    }
}

fn before(at: usize) -> Option<&'static libc::sigaction> {
    // SAFETY: null, or from a box that is never freed, and never written to once it is there.
    unsafe { BEFORE[at].load(SeqCst).as_ref() }
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == hear as *const () as usize
}

fn is_handler(action: &libc::sigaction) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
}

/// The handler. It does only what may be done at any moment, by any thread: atomic loads and stores, and system calls that take no
/// lock and no memory.
extern "C" fn hear(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(at) = TAKEN.iter().position(|(signal, _)| signal.as_raw() == number) else { return };
    if !HANDLED[at].swap(true, SeqCst) {
        handle(at, number, info, context);
        HANDLED[at].store(false, SeqCst);
    }
}

fn handle(at: usize, number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let (signal, asks_to_stop) = TAKEN[at];
    let listening = LISTENING.load(SeqCst);
    let is_heard = listening == getpid().as_raw_nonzero().get() as u32;
    let was_ignored = before(at).is_some_and(|before| before.sa_sigaction == libc::SIG_IGN);
    if is_heard && asks_to_stop && ENDS.load(SeqCst) && !was_ignored {
        return end(signal);
    }
    if is_heard && asks_to_stop {
        LAST.store(number, SeqCst);
        ASKED.fetch_add(1, SeqCst);
        if let Some((wake, _)) = WAKE.get() {
            // A stream that is full has woken everybody already.
            let _ = rustix::io::write(wake, &[0]);
        }
    }
    let Some(before) = before(at) else { return };
    if is_handler(before) {
        call(before, number, info, context);
    } else if before.sa_sigaction == libc::SIG_DFL && !is_heard && listening != 0 {
        // A child of who listens: it ends as it would have.
        end(signal);
    }
}

/// Ends this process by a signal, which comes again once its handler has returned.
fn end(signal: Signal) {
    if let Ok(mut present) = disposition(signal) {
        present.sa_sigaction = libc::SIG_DFL;
        let _ = dispose(signal, &present);
        let _ = kill_process(getpid(), signal);
    }
}

/// Calls a handler as the system would have.
fn call(handler: &libc::sigaction, number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if handler.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the system would have called this address with these arguments, as the flag says; it is neither of the two words
        // that are no addresses.
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
            unsafe { std::mem::transmute(handler.sa_sigaction) };
        handler(number, info, context);
    } else {
        // SAFETY: the same without the flag.
        let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler.sa_sigaction) };
        handler(number);
    }
}

/// What a signal does at present.
fn disposition(signal: Signal) -> io::Result<libc::sigaction> {
    // SAFETY: the structure has integers, a set of bits and a function that may be absent: all may be zero.
    let mut present: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set, and what is written to is ours.
    match unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), &raw mut present) } {
        0 => Ok(present),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a signal do this.
fn dispose(signal: Signal, action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: the action is our handler, which may be called at any moment, or one that the system has had before.
    match unsafe { libc::sigaction(signal.as_raw(), action, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[path = "dispositions_tests.rs"]
mod tests;
