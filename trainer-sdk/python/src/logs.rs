//! The trainer's log for Python's `logging`. Whatever thread says something leaves it in a queue, without the GIL; the thread that has it
//! anyway hands the lines over.

use pyo3::prelude::*;
use std::collections::VecDeque;
use std::mem::take;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lines that are kept while nobody takes them, as in a step of an hour: the oldest go first.
const LINES_MAX: usize = 10_000;

static LINES: Mutex<Lines> = Mutex::new(Lines { kept: VecDeque::new(), lost: 0 });

struct Lines {
    kept: VecDeque<String>,
    lost: u64,
}

fn lines() -> MutexGuard<'static, Lines> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep(line: &str) {
    let mut lines = lines();
    if lines.kept.len() == LINES_MAX {
        lines.kept.pop_front();
        lines.lost += 1;
    }
    lines.kept.push_back(line.to_owned());
}

/// Gives the trainer's log to Python's `logging`, as lines of JSON, whenever a function of the program is called.
#[pyfunction]
pub(crate) fn log_to_logging() {
    shoal_trainer_sdk::log_to(keep);
}

/// Hands over what was said since.
pub(crate) fn hand_over(py: Python<'_>) -> PyResult<()> {
    let (kept, lost) = {
        let mut lines = lines();
        if lines.kept.is_empty() {
            return Ok(());
        }
        (take(&mut lines.kept), take(&mut lines.lost))
    };
    py.import("shoal._logs")?.call_method1("log", (Vec::from(kept), lost)).map(drop)
}
