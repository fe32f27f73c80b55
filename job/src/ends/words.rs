//! Ends in words: for people, for logs and statuses, and for the master.

use super::signal::{ABORT, HUP, INT, KILL, PIPE, TERM, XCPU, XFSZ, name};
use super::{
    Displacement, End, Life, Meaning, NOT_EXECUTABLE, NOT_FOUND, NOT_OF_THE_JOB, Part, UNREACHED,
    WRONG_USAGE, meaning,
};
use crate::Role;

/// What Rust's allocator says before it ends a process.
const UNALLOCATED: &str = "memory allocation of";

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |signal| name(signal).unwrap_or("of no common name");
        match (self, self.signal()) {
            (End::Exited(code), Some(signal)) => {
                write!(f, "exit code {code}, which is signal {signal} ({})", name(signal))
            }
            (End::Exited(code), None) => write!(f, "exit code {code}"),
            (End::Signalled(signal), _) => write!(f, "signal {signal} ({})", name(*signal)),
            (End::Displaced(Displacement::Preempted), _) => write!(f, "its preemption"),
            (End::Displaced(Displacement::Evicted), _) => write!(f, "its eviction"),
            (End::Displaced(Displacement::NodeLost), _) => write!(f, "its node"),
            (End::OutOfMemory, _) => write!(f, "its limit of memory"),
            (End::Unstarted, _) => write!(f, "a container that could not be started"),
        }
    }
}

/// What the master is told of a trainer that has ended without telling it: how, or nothing but that, where somebody wanted it to
/// end, so that nothing it computed is to blame. None where there is nothing to tell, or where it is to find out by itself, as of
/// those that chaos kills.
pub fn word_to_master(name: &str, end: End, life: Life, last_words: &str) -> Option<String> {
    if life.role != Role::Trainer || life.part == Part::NeverJoined || life.has_left {
        return None;
    }
    match meaning(end, life) {
        Meaning::Killed if !life.was_told => None,
        Meaning::Left | Meaning::Killed | Meaning::Displaced => Some(String::new()),
        // The kernel kills so where memory is short.
        Meaning::Preempted if end.signal() != Some(KILL) => Some(String::new()),
        Meaning::Preempted
        | Meaning::Unreached
        | Meaning::Refused
        | Meaning::OutOfMemory
        | Meaning::Unstarted
        | Meaning::Failed
        | Meaning::Hopeless => {
            let said = sentence(name, end, life, last_words);
            Some(said.replacen(&format!("{name} ended with "), "", 1))
        }
    }
}

/// The end in a sentence whose subject is `name`, judged by the last lines of its log as well.
pub fn sentence(name: &str, end: End, life: Life, last_words: &str) -> String {
    let why = match (end, end.signal(), life.part) {
        (End::Exited(0), _, _) if life.has_left => "it was told to end from elsewhere, and has left the job",
        (End::Exited(0), _, Part::NeverJoined) => {
            "the job is not done, and it has never joined it: is it a training program, and called to train?"
        }
        (End::Exited(0), _, Part::Joined) => "the job is not done, and it has done nothing for it",
        (End::Exited(0), _, Part::Worked) => "the job is not done: does the program end by itself?",
        (End::Exited(WRONG_USAGE), _, Part::NeverJoined) => {
            "it was called wrongly, or cannot declare its parameters"
        }
        (End::Exited(UNREACHED), _, _) if life.role == Role::Trainer => {
            "its master has not answered for too long: is it there, and does the network let them speak?"
        }
        (End::Exited(NOT_OF_THE_JOB), _, Part::NeverJoined) if life.is_refused() => {
            "the master has not let it into the job"
        }
        (End::Exited(NOT_EXECUTABLE), _, _) => "what it calls cannot be executed",
        (End::Exited(NOT_FOUND), _, _) => "what it calls is not there",
        (_, Some(KILL), _) => "from elsewhere: perhaps out of memory, which the kernel's log would say",
        (_, Some(TERM | INT | HUP), _) => "from elsewhere",
        (_, Some(ABORT), _) => match unallocated(last_words) {
            Some(line) => return format!("{name} ended with {end}: out of memory: {line}"),
            None => "it aborted",
        },
        (_, Some(XFSZ), _) => "a file of its has become larger than its limit",
        (_, Some(XCPU), _) => "its limit of processor time is used up",
        (_, Some(PIPE), _) => "it wrote to somebody who had gone",
        (_, Some(signal), _) if super::signal::name(signal).is_none() => {
            "by a signal that has no common name"
        }
        (_, Some(_), _) => "it crashed",
        (_, None, _) => return format!("{name} ended with {end}"),
    };
    format!("{name} ended with {end}: {why}")
}

fn unallocated(last_words: &str) -> Option<&str> {
    last_words.lines().rev().find(|line| line.contains(UNALLOCATED))
}
