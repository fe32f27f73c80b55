//! Which code has run on which thread, for tests.

use std::sync::Mutex;
use std::thread::{ThreadId, current};

static RAN: Mutex<Vec<(&str, ThreadId)>> = Mutex::new(Vec::new());

/// Notes that `code` runs on this thread.
pub(crate) fn note(code: &'static str) {
    let here = (code, current().id());
    let mut ran = RAN.lock().unwrap();
    if !ran.contains(&here) {
        ran.push(here);
    }
}

/// The code that has run on this thread, in the order of the alphabet.
pub(crate) fn here() -> Vec<&'static str> {
    let ran = RAN.lock().unwrap();
    let mut here: Vec<&str> =
        ran.iter().filter(|(_, thread)| *thread == current().id()).map(|(code, _)| *code).collect();
    here.sort_unstable();
    here
}
