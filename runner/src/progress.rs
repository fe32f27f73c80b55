//! Progress on standard error: one line that is rewritten on a terminal, a plain line now and then elsewhere.

use crate::evaluations;
use crate::reading::{epoch, live};
use crate::{screen, standstill, terminal};
use anyhow::Context;
use shoal_runtime::host::output::{self, Stream};
use shoal_runtime::wire::proto::StatusReply;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Shows how far a job is.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    /// Where what stays is written instead, and nothing is shown.
    file: Option<File>,
    started: Instant,
    shown: Option<Instant>,
    /// A sliding start of the rate: records trained, when. None before the first look: what was trained until then took longer
    /// than anybody has looked.
    mark: Option<(u64, Instant)>,
}

impl Progress {
    /// On standard error.
    pub fn begin() -> Progress {
        let now = Instant::now();
        let is_terminal = terminal::is_drawn(Stream::Notes);
        Progress { is_terminal, file: None, started: now, shown: None, mark: None }
    }

    /// One that shows nothing, and writes what stays to the end of a file.
    pub fn into_file(path: &Path) -> anyhow::Result<Progress> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Progress { is_terminal: false, file: Some(file), ..Progress::begin() })
    }

    /// Shows the status, not more often than people read.
    pub fn show(&mut self, status: &StatusReply) {
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
            // Not into the last column: from there some terminals go on in the next line.
            let columns = terminal::size(Stream::Notes).columns.saturating_sub(1);
            output::rewrite(screen::cut(&line, columns));
        } else {
            output::note(line);
        }
    }

    /// The status in one line.
    pub fn line(&mut self, status: &StatusReply, now: Instant) -> String {
        let (seconds, phase) = (self.started.elapsed().as_secs_f64(), &status.phase);
        let trainers = match live(status) {
            1 => "1 trainer".to_owned(),
            other => format!("{other} trainers"),
        };
        if !status.is_progress_known {
            // Of a job that goes on, too: it is not at its first step.
            let waits = waits(status);
            return format!("{seconds:>5.1} s  {phase}  {trainers}{waits}");
        }
        let rate = self.rate(status.records_trained, now);
        let left = status.records_planned.saturating_sub(status.records_trained);
        let eta = rate.filter(|rate| *rate > 0.0).map(|rate| left as f64 / rate);
        let word =
            |number: Option<f64>, unit| number.map_or("-".to_owned(), |number| format!("{number:.0}{unit}"));
        let epoch =
            epoch(status).map_or_else(String::new, |(epoch, epochs)| format!("  epoch {epoch}/{epochs}"));
        let newest = status.evaluations.last().map(evaluations::values);
        let evaluated = newest.map_or_else(String::new, |values| format!("  {values}"));
        format!(
            "{seconds:>5.1} s  {phase}{epoch}  step {}/{}  {} records/s  {trainers}  ETA {}{evaluated}{}",
            status.step,
            status.steps,
            word(rate, ""),
            word(eta, " s"),
            waits(status),
        )
    }

    /// Records in a second, over the last few.
    fn rate(&mut self, trained: u64, now: Instant) -> Option<f64> {
        let (before, then) = *self.mark.get_or_insert((trained, now));
        let seconds = (now - then).as_secs_f64();
        if seconds > 5.0 {
            self.mark = Some((trained, now));
        }
        (seconds > 0.0).then(|| trained.saturating_sub(before) as f64 / seconds)
    }

    /// A line that stays.
    pub fn say(&mut self, line: &str) {
        let line = format!("{:>5.1} s  {line}", self.started.elapsed().as_secs_f64());
        if let Some(file) = &mut self.file {
            // A disk that is full takes nothing, and ends no run.
            let _ = writeln!(file, "{line}");
            return;
        }
        if self.is_terminal { output::note_anew(line) } else { output::note(line) }
    }

    /// Ends the line that is rewritten.
    pub fn end(&mut self) {
        if self.is_terminal {
            output::rewrite("");
        }
    }
}

/// The cause of a standstill, for the end of the line.
fn waits(status: &StatusReply) -> String {
    standstill::brief(status).map_or_else(String::new, |brief| format!("  {brief}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::JobSettings;

    #[test]
    fn what_was_trained_before_anybody_looked_says_nothing_of_the_rate() {
        let at = |trained| StatusReply {
            settings: Some(JobSettings { epochs: 1, ..Default::default() }),
            records_trained: trained,
            records_planned: 100_000,
            is_progress_known: true,
            ..Default::default()
        };
        let (mut progress, began) = (Progress::begin(), Instant::now());
        let unknown = StatusReply { is_progress_known: false, phase: "training".to_owned(), ..at(0) };
        assert!(progress.line(&unknown, began).ends_with(" s  training  0 trainers"));
        assert!(progress.line(&at(90_000), began).contains("  - records/s  0 trainers  ETA -"));
        let line = progress.line(&at(90_200), began + Duration::from_secs(2));
        assert!(line.contains("  100 records/s  0 trainers  ETA 98 s"), "{line}");
    }
}
