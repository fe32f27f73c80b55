//! What happened in a run, in order: a running hash always, readable lines when asked for.

use shoal_runtime::cluster::permutation::mix;
use std::fmt::Display;
use std::time::Duration;

/// The record of one run.
#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// Nothing has happened yet. `keeps_lines` costs time and memory.
    pub fn new(keeps_lines: bool) -> Trace {
        Trace { hash: 0, events: 0, lines: keeps_lines.then(Vec::new) }
    }

    /// Whether lines are kept, so that it is worth making them.
    pub fn keeps_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// Something happened: `code` says what in numbers, `line` in words.
    pub fn note(&mut self, at: Duration, code: &[u64], line: impl Display) {
        self.events += 1;
        self.hash = mix(self.hash ^ at.as_micros() as u64);
        self.hash = code.iter().fold(self.hash, |hash, word| mix(hash ^ mix(*word)));
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>11.3} ms  {line}", at.as_secs_f64() * 1e3));
        }
    }

    /// Equal for two runs in which the same happened.
    pub fn hash(&self) -> u64 {
        self.hash
    }
    /// How much happened.
    pub fn events(&self) -> u64 {
        self.events
    }
    /// The lines, if they were kept.
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}

/// A number for bytes.
pub fn hash_of(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let mut hash = bytes.len() as u64;
    for word in &mut words {
        let word = word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        hash = mix(hash ^ word);
    }
    words.remainder().iter().fold(hash, |hash, byte| mix(hash ^ u64::from(*byte)))
}
