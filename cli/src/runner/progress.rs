//! Progress on standard error: one line that is rewritten on a terminal, a plain line now and then elsewhere.

use crate::evaluations;
use anyhow::Context;
use shoal_runtime::host::output;
use shoal_runtime::wire::proto::StatusReply;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Shows how far a job is.
#[derive(Debug)]
pub(crate) struct Progress {
    is_terminal: bool,
    /// Where what stays is written instead, and nothing is shown.
    file: Option<File>,
    started: Instant,
    shown: Option<Instant>,
    /// A sliding start of the rate: records trained, when.
    mark: (u64, Instant),
}

impl Progress {
    pub(crate) fn new() -> Progress {
        let now = Instant::now();
        let is_terminal = output::is_terminal();
        Progress { is_terminal, file: None, started: now, shown: None, mark: (0, now) }
    }

    /// One that shows nothing, and writes what stays to the end of a file.
    pub(crate) fn into_file(path: &Path) -> anyhow::Result<Progress> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Progress { is_terminal: false, file: Some(file), ..Progress::new() })
    }

    /// Shows the status, not more often than people read.
    pub(crate) fn show(&mut self, status: &StatusReply) {
        if self.file.is_some() {
            return;
        }
        let every = if self.is_terminal { Duration::from_millis(200) } else { Duration::from_secs(2) };
        let now = Instant::now();
        if self.shown.is_some_and(|shown| now < shown + every) {
            return;
        }
        self.shown = Some(now);
        let line = self.line(status, now);
        if self.is_terminal {
            output::rewrite(line);
        } else {
            output::note(line);
        }
    }

    /// The status in one line.
    pub(crate) fn line(&mut self, status: &StatusReply, now: Instant) -> String {
        let settings = status.settings.clone().unwrap_or_default();
        let rate = status.records_trained.saturating_sub(self.mark.0) as f64
            / (now - self.mark.1).as_secs_f64().max(1e-3);
        if now - self.mark.1 > Duration::from_secs(5) {
            self.mark = (status.records_trained, now);
        }
        let left = status.records_planned.saturating_sub(status.records_trained);
        let eta = if rate > 0.0 { format!("{:.0} s", left as f64 / rate) } else { "-".to_owned() };
        let newest = status.evaluations.last().map(evaluations::values);
        let evaluated = newest.map_or_else(String::new, |values| format!("  {values}"));
        format!(
            "{:>5.1} s  {}  epoch {}/{}  step {}/{}  {:.0} records/s  {} trainers  ETA {eta}{evaluated}",
            self.started.elapsed().as_secs_f64(),
            status.phase,
            (status.epoch + 1).min(settings.epochs),
            settings.epochs,
            status.step,
            status.steps,
            rate,
            crate::commands::status::live(status),
        )
    }

    /// A line that stays.
    pub(crate) fn say(&mut self, line: &str) {
        let line = format!("{:>5.1} s  {line}", self.started.elapsed().as_secs_f64());
        if let Some(file) = &mut self.file {
            // A disk that is full takes nothing, and ends no run.
            let _ = writeln!(file, "{line}");
            return;
        }
        if self.is_terminal { output::note_anew(line) } else { output::note(line) }
    }

    /// Ends the line that is rewritten.
    pub(crate) fn end(&mut self) {
        if self.is_terminal {
            output::rewrite("");
        }
    }
}
