//! Signals that end programs, by their numbers on Linux.

pub(super) const HUP: i32 = 1;
pub(super) const INT: i32 = 2;
pub(super) const ABORT: i32 = 6;
pub(super) const KILL: i32 = 9;
pub(super) const PIPE: i32 = 13;
pub(super) const TERM: i32 = 15;
pub(super) const XCPU: i32 = 24;
pub(super) const XFSZ: i32 = 25;

/// Their names, as `kill -l` has them.
const NAMES: [(i32, &str); 18] = [
    (HUP, "SIGHUP"),
    (INT, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (ABORT, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (KILL, "SIGKILL"),
    (10, "SIGUSR1"),
    (11, "SIGSEGV"),
    (12, "SIGUSR2"),
    (PIPE, "SIGPIPE"),
    (14, "SIGALRM"),
    (TERM, "SIGTERM"),
    (XCPU, "SIGXCPU"),
    (XFSZ, "SIGXFSZ"),
    (31, "SIGSYS"),
];

/// A signal's name, if it has a common one.
pub(super) fn name(signal: i32) -> Option<&'static str> {
    NAMES.iter().find(|(known, _)| *known == signal).map(|(_, name)| *name)
}
