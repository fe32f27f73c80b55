//! What this process prints: **results** on standard output, **notes** and log lines on standard error. No other place of the workspace
//! prints; `clippy.toml` says so.
//!
//! A result that cannot be printed is an error, and one whose reader has gone ends the command quietly. A line on standard error that
//! cannot be written, because the disk is full or nobody reads, is dropped and counted, and ends nobody; the next line that can be
//! written is preceded by how many were.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a line waits for who does not read. Those after it do not wait.
const PATIENCE: Duration = Duration::from_millis(100);
/// What a pipe takes without waiting once it is ready, in bytes: one page.
const AT_ONCE: usize = 4096;
/// Signals that may interrupt one wait.
const INTERRUPTIONS_MAX: u32 = 16;
/// A line of a terminal begins again, and is empty.
const ANEW: &str = "\r\x1b[K";

/// A result that is not printed.
#[derive(Debug, thiserror::Error)]
pub enum Unprinted {
    /// Nobody reads any more, which is no fault of this command's.
    #[error("nobody reads what this command prints")]
    Closed,
    /// Standard output does not take it.
    #[error("cannot print the result: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for Unprinted {
    fn from(error: io::Error) -> Unprinted {
        match error.kind() {
            ErrorKind::BrokenPipe => Unprinted::Closed,
            _ => Unprinted::Failed(error),
        }
    }
}

/// What things are printed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Results,
    /// Standard error.
    Notes,
}

#[allow(clippy::disallowed_methods, reason = "the one place that prints")]
impl Stream {
    /// Whether a person looks at it.
    pub fn is_terminal(self) -> bool {
        match self {
            Stream::Results => io::stdout().is_terminal(),
            Stream::Notes => io::stderr().is_terminal(),
        }
    }

    /// How many columns and rows its terminal says that it has; none where it is no terminal.
    pub fn window(self) -> Option<(u16, u16)> {
        let told = match self {
            Stream::Results => rustix::termios::tcgetwinsize(io::stdout()),
            Stream::Notes => rustix::termios::tcgetwinsize(io::stderr()),
        };
        told.ok().map(|told| (told.ws_col, told.ws_row))
    }
}

/// Prints a line that was asked for.
///
/// # Errors
/// It is not printed, or not whole.
pub fn result(line: impl Display) -> Result<(), Unprinted> {
    Results.print(format!("{line}\n").as_bytes())
}

/// Where results go that are no lines: standard output, unbuffered.
#[derive(Debug)]
pub struct Results;

impl Results {
    /// Prints bytes as they are.
    ///
    /// # Errors
    /// As [`result`].
    pub fn print(&mut self, bytes: &[u8]) -> Result<(), Unprinted> {
        Ok(self.write_all(bytes)?)
    }
}

impl Write for Results {
    #[allow(clippy::disallowed_methods, reason = "the one place that prints")]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(io::stdout(), bytes) {
                // Whoever gave us the pipe wants no waiting; we do.
                Err(Errno::AGAIN) => drop(is_ready(io::stdout(), None)),
                Err(Errno::INTR) => {}
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints a line for people on standard error.
pub fn note(line: impl Display) {
    lines().write(Stderr, &format!("{line}\n"));
}

/// Prints a line for people on a terminal in place of the last that was [rewritten](rewrite), which is gone.
pub fn note_anew(line: impl Display) {
    lines().write(Stderr, &format!("{ANEW}{line}\n"));
}

/// Prints a line on a terminal that the next one takes the place of.
pub fn rewrite(line: impl Display) {
    lines().write(Stderr, &format!("{ANEW}{line}"));
}

/// So many lines were dropped in the life of this process.
pub fn dropped() -> u64 {
    lines().dropped
}

/// Where log lines go: each is written by one call, whole.
#[derive(Clone, Copy, Debug)]
pub struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        lines().write(Stderr, &String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

static LINES: Mutex<Lines> = Mutex::new(Lines { dropped: 0, untold: 0, why: None, is_torn: false });

fn lines() -> std::sync::MutexGuard<'static, Lines> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What lines go to.
trait Sink {
    /// Whether something can be written within that time.
    fn is_ready(&self, patience: Duration) -> bool;
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
}

struct Stderr;

impl Sink for Stderr {
    #[allow(clippy::disallowed_methods, reason = "the one place that prints")]
    fn is_ready(&self, patience: Duration) -> bool {
        is_ready(io::stderr(), Some(patience))
    }

    #[allow(clippy::disallowed_methods, reason = "the one place that prints")]
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::write(io::stderr(), bytes))?)
    }
}

/// Lines, and what became of those that could not be written.
#[derive(Debug)]
struct Lines {
    dropped: u64,
    /// Dropped, and not told of.
    untold: u64,
    why: Option<ErrorKind>,
    /// Whether the last line was cut short.
    is_torn: bool,
}

impl Lines {
    /// Writes a line, or drops it.
    fn write(&mut self, sink: impl Sink, line: &str) {
        let patience = if self.untold == 0 { PATIENCE } else { Duration::ZERO };
        if !sink.is_ready(patience) {
            return self.drop_one(ErrorKind::WouldBlock);
        }
        if self.untold > 0 {
            let (end, untold) = (if self.is_torn { "\n" } else { "" }, self.untold);
            let why = self.why.unwrap_or(ErrorKind::Other);
            let lines = if untold == 1 { "line is" } else { "lines are" };
            let told = format!("{end}({untold} {lines} missing here: {why})\n");
            match put(&sink, told.as_bytes()) {
                Ok(()) => (self.untold, self.is_torn) = (0, false),
                Err(Torn { is_begun, why }) => {
                    self.is_torn |= is_begun;
                    return self.drop_one(why);
                }
            }
        }
        if let Err(Torn { is_begun, why }) = put(&sink, line.as_bytes()) {
            self.is_torn |= is_begun;
            self.drop_one(why);
        }
    }

    fn drop_one(&mut self, why: ErrorKind) {
        (self.dropped, self.untold, self.why) = (self.dropped + 1, self.untold + 1, Some(why));
    }
}

/// A line that was not written, or not to its end.
struct Torn {
    is_begun: bool,
    why: ErrorKind,
}

fn put(sink: &impl Sink, bytes: &[u8]) -> Result<(), Torn> {
    let mut written = 0;
    while written < bytes.len() {
        if written > 0 && !sink.is_ready(PATIENCE) {
            return Err(Torn { is_begun: true, why: ErrorKind::WouldBlock });
        }
        let end = bytes.len().min(written + AT_ONCE);
        match sink.write(&bytes[written..end]) {
            Ok(0) => return Err(Torn { is_begun: written > 0, why: ErrorKind::WriteZero }),
            Ok(more) => written += more,
            Err(error) => return Err(Torn { is_begun: written > 0, why: error.kind() }),
        }
    }
    Ok(())
}

/// Whether something can be written there now or, given a patience, within it. Says yes of what cannot be asked.
fn is_ready(to: impl AsFd, patience: Option<Duration>) -> bool {
    let mut asked = [PollFd::new(&to, PollFlags::OUT)];
    let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
    // A signal interrupts it, and one that comes again and again is not worth a clock.
    let mut polled = (0..INTERRUPTIONS_MAX).map(|_| poll(&mut asked, patience.as_ref()));
    polled.find(|polled| *polled != Err(Errno::INTR)).is_some_and(|polled| polled != Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// Takes so many bytes more.
    struct Disk {
        room: Cell<usize>,
        held: RefCell<Vec<u8>>,
        waited: Cell<Duration>,
        is_read: Cell<bool>,
        pieces: Cell<u32>,
    }

    impl Disk {
        fn with_room(room: usize) -> Disk {
            Disk {
                room: Cell::new(room),
                held: RefCell::default(),
                waited: Cell::default(),
                is_read: Cell::new(true),
                pieces: Cell::default(),
            }
        }
        fn text(&self) -> String {
            String::from_utf8(self.held.borrow().clone()).unwrap()
        }
    }

    impl Sink for &Disk {
        fn is_ready(&self, patience: Duration) -> bool {
            if !self.is_read.get() {
                self.waited.set(self.waited.get() + patience);
            }
            self.is_read.get()
        }
        fn write(&self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room.get());
            if taken == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room.set(self.room.get() - taken);
            self.pieces.set(self.pieces.get() + 1);
            self.held.borrow_mut().extend(&bytes[..taken]);
            Ok(taken)
        }
    }

    fn fresh() -> Lines {
        Lines { dropped: 0, untold: 0, why: None, is_torn: false }
    }

    #[test]
    fn lines_that_find_no_room_are_told_of_once_there_is_some() {
        let (disk, mut lines) = (Disk::with_room(10), fresh());
        for line in ["first\n", "second\n", "third\n"] {
            lines.write(&disk, line);
        }
        assert_eq!((disk.text().as_str(), lines.dropped), ("first\nseco", 2));
        disk.room.set(1000);
        lines.write(&disk, "fourth\n");
        lines.write(&disk, "fifth\n");
        assert_eq!(disk.text(), "first\nseco\n(2 lines are missing here: no storage space)\nfourth\nfifth\n");
        assert_eq!(lines.dropped, 2);
    }

    #[test]
    fn the_word_of_missing_lines_may_find_no_room_either() {
        let (disk, mut lines) = (Disk::with_room(0), fresh());
        lines.write(&disk, "first\n");
        disk.room.set(5);
        lines.write(&disk, "second\n");
        disk.room.set(1000);
        lines.write(&disk, "third\n");
        assert_eq!(disk.text(), "(1 li\n(2 lines are missing here: no storage space)\nthird\n");
    }

    #[test]
    fn whoever_does_not_read_is_waited_for_once() {
        let (disk, mut lines) = (Disk::with_room(1000), fresh());
        disk.is_read.set(false);
        (0..1000).for_each(|_| lines.write(&disk, "line\n"));
        assert_eq!((disk.waited.get(), lines.dropped), (PATIENCE, 1000));
        disk.is_read.set(true);
        lines.write(&disk, "last\n");
        assert_eq!(disk.text(), "(1000 lines are missing here: operation would block)\nlast\n");
    }

    #[test]
    fn a_long_line_is_written_as_far_as_somebody_reads() {
        let (disk, mut lines) = (Disk::with_room(100_000), fresh());
        lines.write(&disk, &"x".repeat(10_000));
        assert_eq!((disk.text().len(), disk.pieces.get()), (10_000, 3));
    }

    #[test]
    fn a_reader_who_has_gone_is_told_from_a_disk_that_is_full() {
        assert!(matches!(Unprinted::from(io::Error::from(ErrorKind::BrokenPipe)), Unprinted::Closed));
        let full = Unprinted::from(io::Error::from(ErrorKind::StorageFull)).to_string();
        assert_eq!(full, "cannot print the result: no storage space");
    }
}
