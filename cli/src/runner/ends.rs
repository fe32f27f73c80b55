//! What the end of a process means: by exit code or signal, by what it was told, and by how far it had come. Pure: it starts and stops
//! nothing, and knows neither clock nor process.

use super::roles::Role;
use rustix::process::Signal;
use shoal_runtime::cluster::refusal::NOT_OF_THE_JOB_CODE;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

/// How far a process had come in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The master has never heard of it.
    NeverJoined,
    /// It has registered, and computed nothing.
    Joined,
    /// It has computed something.
    Worked,
}

/// What is known of a process that has ended, beside its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) role: Role,
    pub(crate) part: Part,
    /// Whether no process of its role has joined the job so far: others of the same command line have, or have not.
    pub(crate) is_first: bool,
    /// Whether it was told to leave.
    pub(crate) was_told: bool,
    /// Whether the supervisor ended it.
    pub(crate) was_killed: bool,
    /// Whether it has said goodbye, as after SIGTERM; a trainer that calls `exit` does not.
    pub(crate) has_left: bool,
    /// Whether the job has no trainer that takes part.
    pub(crate) is_alone: bool,
}

/// What an end means for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Meaning {
    /// It ended as it should.
    Left,
    /// The supervisor ended it.
    Killed,
    /// Somebody else took it away: a person, a scheduler, the kernel when memory is short. Another one does better.
    Preempted,
    /// It was not let into the job, which has trainers of its own and goes on without it.
    Refused,
    /// It failed by itself. Another one may do better.
    Failed,
    /// It failed by itself, and the next would in the same way: it was called wrongly, or is no program.
    Hopeless,
}

/// Shells and containers say so of a program that a signal ended: this, and the signal's number.
const BY_SIGNAL: i32 = 128;
/// Wrong usage, by the habit of `getopt`, clap and argparse.
const WRONG_USAGE: i32 = 2;
/// A trainer's word for what it declares, or its environment, being another than the job's.
const NOT_OF_THE_JOB: i32 = NOT_OF_THE_JOB_CODE as i32;
/// A shell's words for a file that is no program, and, below, for one that is not there.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;
/// What Rust's allocator says before it ends a process.
const UNALLOCATED: &str = "memory allocation of";

impl End {
    /// The signal that ended the program, also where a shell tells of it.
    fn signal(self) -> Option<i32> {
        match self {
            End::Signalled(signal) => Some(signal),
            End::Exited(code) if (1..=64).contains(&(code - BY_SIGNAL)) => Some(code - BY_SIGNAL),
            End::Exited(_) => None,
        }
    }

    /// A word for the record: `left`, `ended` or `killed`.
    pub(crate) fn word(self, was_told: bool) -> &'static str {
        match (self, self.signal().and_then(Signal::from_named_raw)) {
            (End::Exited(0), _) | (_, Some(Signal::TERM)) if was_told => "left",
            (End::Exited(0), _) => "ended",
            (End::Exited(_) | End::Signalled(_), _) => "killed",
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self, self.signal()) {
            (End::Exited(code), None) => write!(f, "exit code {code}"),
            (End::Exited(code), Some(signal)) => {
                write!(f, "exit code {code}, which is signal {signal} ({})", name(signal))
            }
            (End::Signalled(signal), _) => write!(f, "signal {signal} ({})", name(*signal)),
        }
    }
}

/// Signals that end programs, by the names that `kill -l` has for them.
const NAMES: [(Signal, &str); 18] = [
    (Signal::HUP, "SIGHUP"),
    (Signal::INT, "SIGINT"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::ILL, "SIGILL"),
    (Signal::TRAP, "SIGTRAP"),
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::FPE, "SIGFPE"),
    (Signal::KILL, "SIGKILL"),
    (Signal::USR1, "SIGUSR1"),
    (Signal::SEGV, "SIGSEGV"),
    (Signal::USR2, "SIGUSR2"),
    (Signal::PIPE, "SIGPIPE"),
    (Signal::ALARM, "SIGALRM"),
    (Signal::TERM, "SIGTERM"),
    (Signal::XCPU, "SIGXCPU"),
    (Signal::XFSZ, "SIGXFSZ"),
    (Signal::SYS, "SIGSYS"),
];

fn name(signal: i32) -> &'static str {
    let named = NAMES.iter().find(|(known, _)| known.as_raw() == signal);
    named.map_or("of no common name", |(_, name)| name)
}

impl Life {
    /// Whether a trainer that says so was not let into the job: the master has never heard of one of its name.
    fn is_refused(self) -> bool {
        self.role == Role::Trainer && self.part == Part::NeverJoined
    }
}

/// What an end means in a job that is not done. In one that is, every end is right.
pub(crate) fn meaning(end: End, life: Life) -> Meaning {
    if life.was_killed {
        return Meaning::Killed;
    }
    match (end, end.signal().and_then(Signal::from_named_raw)) {
        // A pserver leaves when nothing is left on it.
        (End::Exited(0), _) if life.was_told || life.role == Role::Pserver => Meaning::Left,
        // A program between us and the trainer that does not wait for it.
        (_, Some(Signal::TERM)) if life.was_told => Meaning::Left,
        (End::Exited(0), _) if life.has_left => Meaning::Preempted,
        (_, Some(Signal::TERM | Signal::KILL | Signal::INT | Signal::HUP)) => Meaning::Preempted,
        (End::Exited(NOT_OF_THE_JOB), _) if life.is_refused() && !life.is_alone => Meaning::Refused,
        (End::Exited(WRONG_USAGE | NOT_EXECUTABLE | NOT_FOUND), _) if life.is_first => Meaning::Hopeless,
        _ => Meaning::Failed,
    }
}

/// What the master is told of a trainer that has ended without telling it: how, or nothing but that, where somebody wanted it to
/// end, so that nothing it computed is to blame. None where there is nothing to tell, or where it is to find out by itself, as of
/// those that chaos kills.
pub(crate) fn word_to_master(name: &str, end: End, life: Life, last_words: &str) -> Option<String> {
    if life.role != Role::Trainer || life.part == Part::NeverJoined || life.has_left {
        return None;
    }
    let is_kill = end.signal().and_then(Signal::from_named_raw) == Some(Signal::KILL);
    match meaning(end, life) {
        Meaning::Killed if !life.was_told => None,
        Meaning::Left | Meaning::Killed => Some(String::new()),
        // The kernel kills so where memory is short.
        Meaning::Preempted if !is_kill => Some(String::new()),
        Meaning::Preempted | Meaning::Refused | Meaning::Failed | Meaning::Hopeless => {
            let said = sentence(name, end, life, last_words);
            Some(said.replacen(&format!("{name} ended with "), "", 1))
        }
    }
}

/// The end in a sentence whose subject is `name`, judged by the last lines of its log as well.
pub(crate) fn sentence(name: &str, end: End, life: Life, last_words: &str) -> String {
    let why = match (end, end.signal().and_then(Signal::from_named_raw), life.part) {
        (End::Exited(0), _, _) if life.has_left => "it was told to end from elsewhere, and has left the job",
        (End::Exited(0), _, Part::NeverJoined) => {
            "the job is not done, and it has never joined it: is it a training program, and called to train?"
        }
        (End::Exited(0), _, Part::Joined) => "the job is not done, and it has done nothing for it",
        (End::Exited(0), _, Part::Worked) => "the job is not done: does the program end by itself?",
        (End::Exited(WRONG_USAGE), _, Part::NeverJoined) => {
            "it was called wrongly, or cannot declare its parameters"
        }
        (End::Exited(NOT_OF_THE_JOB), _, Part::NeverJoined) if life.is_refused() => {
            "the master has not let it into the job"
        }
        (End::Exited(NOT_EXECUTABLE), _, _) => "what it calls cannot be executed",
        (End::Exited(NOT_FOUND), _, _) => "what it calls is not there",
        (_, Some(Signal::KILL), _) => {
            "from elsewhere: perhaps out of memory, which the kernel's log would say"
        }
        (_, Some(Signal::TERM | Signal::INT | Signal::HUP), _) => "from elsewhere",
        (_, Some(Signal::ABORT), _) => match unallocated(last_words) {
            Some(line) => return format!("{name} ended with {end}: out of memory: {line}"),
            None => "it aborted",
        },
        (_, Some(Signal::XFSZ), _) => "a file of its has become larger than its limit",
        (_, Some(Signal::XCPU), _) => "its limit of processor time is used up",
        (_, Some(Signal::PIPE), _) => "it wrote to somebody who had gone",
        (_, Some(_), _) => "it crashed",
        (End::Exited(_), None, _) => return format!("{name} ended with {end}"),
        (End::Signalled(_), None, _) => "by a signal that this system does not know",
    };
    format!("{name} ended with {end}: {why}")
}

fn unallocated(last_words: &str) -> Option<&str> {
    last_words.lines().rev().find(|line| line.contains(UNALLOCATED))
}

#[cfg(test)]
mod tests {
    use super::Meaning::{Failed, Hopeless, Killed, Left, Preempted, Refused};
    use super::*;
    use proptest::prelude::*;

    const LIFE: Life = Life {
        role: Role::Trainer,
        part: Part::Worked,
        is_first: false,
        was_told: false,
        was_killed: false,
        has_left: false,
        is_alone: false,
    };
    const LATER: Life = Life { part: Part::NeverJoined, ..LIFE };
    const NEW: Life = Life { is_first: true, ..LATER };
    const TOLD: Life = Life { was_told: true, ..LIFE };
    const GONE: Life = Life { has_left: true, ..LIFE };
    const PSERVER: Life = Life { role: Role::Pserver, ..LIFE };
    const MASTER: Life = Life { role: Role::Master, has_left: true, ..LIFE };

    #[test]
    fn each_end_has_its_meaning_and_its_sentence() {
        use End::{Exited, Signalled};
        let table = [
            (Exited(0), TOLD, Left, "exit code 0"),
            (Signalled(15), TOLD, Left, "signal 15 (SIGTERM)"),
            (Exited(143), TOLD, Left, "signal 15 (SIGTERM)"),
            (Signalled(9), TOLD, Preempted, "signal 9 (SIGKILL)"),
            (Exited(0), GONE, Preempted, "from elsewhere, and has left"),
            (Exited(0), NEW, Failed, "never joined it: is it a training program"),
            (Exited(0), Life { part: Part::Joined, ..LIFE }, Failed, "has done nothing for it"),
            (Exited(0), LIFE, Failed, "the job is not done: does the program end by itself?"),
            (Exited(0), PSERVER, Left, "exit code 0"),
            (Exited(0), MASTER, Preempted, "from elsewhere"),
            (Exited(1), LIFE, Failed, "ended with exit code 1"),
            (Exited(1), TOLD, Failed, "ended with exit code 1"),
            (Exited(1), NEW, Failed, "ended with exit code 1"),
            (Exited(2), NEW, Hopeless, "called wrongly"),
            (Exited(5), LATER, Refused, "exit code 5: the master has not let it into the job"),
            (Exited(5), NEW, Refused, "has not let it into the job"),
            (Exited(5), Life { is_alone: true, ..NEW }, Failed, "has not let it into the job"),
            (Exited(5), LIFE, Failed, "ended with exit code 5"),
            (Exited(5), Life { role: Role::Pserver, ..LATER }, Failed, "ended with exit code 5"),
            (Exited(2), LATER, Failed, "called wrongly"),
            (Exited(127), LATER, Failed, "is not there"),
            (Exited(2), LIFE, Failed, "exit code 2"),
            (Exited(125), NEW, Failed, "exit code 125"),
            (Exited(126), NEW, Hopeless, "cannot be executed"),
            (Exited(127), NEW, Hopeless, "is not there"),
            (Exited(127), LIFE, Failed, "is not there"),
            (Exited(128), NEW, Failed, "exit code 128"),
            (
                Exited(137),
                LIFE,
                Preempted,
                "exit code 137, which is signal 9 (SIGKILL): from elsewhere: perhaps out of memory",
            ),
            (Exited(139), LIFE, Failed, "exit code 139, which is signal 11 (SIGSEGV): it crashed"),
            (Exited(143), LIFE, Preempted, "signal 15 (SIGTERM): from elsewhere"),
            (Exited(255), NEW, Failed, "exit code 255"),
            (Signalled(9), LIFE, Preempted, "perhaps out of memory"),
            (Signalled(9), NEW, Preempted, "perhaps out of memory"),
            (Signalled(9), PSERVER, Preempted, "perhaps out of memory"),
            (Signalled(15), LIFE, Preempted, "from elsewhere"),
            (Signalled(2), LIFE, Preempted, "from elsewhere"),
            (Signalled(1), LIFE, Preempted, "from elsewhere"),
            (Signalled(11), LIFE, Failed, "it crashed"),
            (Signalled(4), LIFE, Failed, "it crashed"),
            (Signalled(6), LIFE, Failed, "it aborted"),
            (Signalled(13), LIFE, Failed, "somebody who had gone"),
            (Signalled(24), LIFE, Failed, "processor time"),
            (Signalled(25), LIFE, Failed, "larger than its limit"),
            (Signalled(9), Life { was_killed: true, ..LIFE }, Killed, "SIGKILL"),
            (Signalled(15), Life { was_killed: true, ..TOLD }, Killed, "SIGTERM"),
        ];
        for (end, life, means, says) in table {
            assert_eq!(meaning(end, life), means, "{end} of {life:?}");
            let said = sentence("trainer-0", end, life, "");
            assert!(said.starts_with("trainer-0 ended with ") && said.contains(says), "{said}");
        }
    }

    #[test]
    fn the_master_is_told_of_trainers_that_end_without_a_word_and_what_to_make_of_it() {
        use End::{Exited, Signalled};
        let table = [
            (Signalled(6), LIFE, Some("signal 6 (SIGABRT): it aborted")),
            (Exited(139), LIFE, Some("exit code 139, which is signal 11 (SIGSEGV): it crashed")),
            (Exited(1), LIFE, Some("exit code 1")),
            (Signalled(9), LIFE, Some("signal 9 (SIGKILL): from elsewhere: perhaps out of memory")),
            (Signalled(15), LIFE, Some("")),
            (Exited(0), TOLD, Some("")),
            (Signalled(9), Life { was_killed: true, ..TOLD }, Some("")),
            (Signalled(9), Life { was_killed: true, ..LIFE }, None),
            (Exited(1), GONE, None),
            (Exited(1), NEW, None),
            (Signalled(6), PSERVER, None),
        ];
        for (end, life, told) in table {
            let word = word_to_master("trainer-0", end, life, "");
            let is_so = match (&word, told) {
                (Some(word), Some(told)) => word.starts_with(told) && word.is_empty() == told.is_empty(),
                (word, told) => word.is_none() && told.is_none(),
            };
            assert!(is_so, "{end} of {life:?}: {word:?}");
        }
    }

    #[test]
    fn a_process_that_ran_out_of_memory_says_so() {
        let log = "registered\nmemory allocation of 4096 bytes failed\n\n";
        let said = sentence("pserver-1", End::Signalled(6), PSERVER, log);
        assert!(said.ends_with("out of memory: memory allocation of 4096 bytes failed"), "{said}");
        assert!(sentence("x", End::Signalled(6), LIFE, "assertion failed").ends_with("it aborted"));
    }

    #[test]
    fn the_record_has_a_word_for_each_end() {
        assert_eq!((End::Exited(0).word(true), End::Exited(0).word(false)), ("left", "ended"));
        assert_eq!((End::Signalled(15).word(true), End::Signalled(15).word(false)), ("left", "killed"));
        assert_eq!((End::Exited(1).word(true), End::Signalled(9).word(false)), ("killed", "killed"));
    }

    proptest! {
        /// Whoever ends by itself before the job is done is no success, whatever the code.
        #[test]
        fn no_trainer_that_nobody_told_ends_well(code in 0i32..256, signal in 1i32..65, part in 0usize..3) {
            let life = Life { part: [Part::NeverJoined, Part::Joined, Part::Worked][part], ..LIFE };
            for end in [End::Exited(code), End::Signalled(signal)] {
                prop_assert!(meaning(end, life) > Killed, "{end}");
                prop_assert!(meaning(end, life) < Hopeless, "{end}");
                prop_assert!(meaning(end, Life { is_first: true, ..life }) > Killed, "{end}");
            }
        }
    }
}
