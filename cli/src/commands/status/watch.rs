//! `shoal status --watch`: how a job is, every second until it ends; its end is the exit code. On a terminal as much of the
//! status as it has room for is drawn over the one before, elsewhere each is a line.

use super::object::json_of;
use super::text::sections;
use crate::silence::Silence;
use shoal_runner::client::{Client, JobChoice};
use shoal_runner::folder::RunFolder;
use shoal_runner::output::{Output, print};
use shoal_runner::progress::Progress;
use shoal_runner::screen::{Size, fitted};
use shoal_runner::terminal;
use shoal_runtime::host::output::{Stream, Unprinted};
use shoal_runtime::wire::proto::StatusReply;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a master may be away: it may be on its way, at first and later.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Failed(String),
    /// A local run that somebody ended: it may go on.
    Interrupted(String),
}

/// Where each look goes.
enum Screen {
    /// Drawn over the one before.
    Terminal(Drawn),
    /// One line after another.
    Lines(Progress),
    Json,
}

/// Watches the job that is meant.
///
/// # Errors
/// No such job, or nobody who leads it answers any more.
pub(super) async fn watch(choice: &JobChoice, output: Output) -> anyhow::Result<ExitCode> {
    let mut screen = match output {
        Output::Json => Screen::Json,
        Output::Text if terminal::is_drawn(Stream::Results) => Screen::Terminal(Drawn::default()),
        Output::Text => Screen::Lines(Progress::begin()),
    };
    let mut resized = signal(SignalKind::window_change())?;
    let (mut client, mut silence, mut has_shown) = (None, Silence::of_at_most(PATIENCE), false);
    loop {
        match look(choice, &mut client).await {
            Ok(status) => {
                silence.end();
                has_shown = true;
                screen.show(&status)?;
                if let Some(end) = end_of(&status) {
                    return Ok(exit_code(&end));
                }
            }
            Err(error) => {
                if let Some(end) = ended(choice) {
                    return Ok(exit_code(&end));
                }
                // A job that begins has a master before that leads.
                silence.bear(error, !has_shown)?;
                // A new master may listen somewhere else.
                client = None;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = resized.recv() => {}
        }
    }
}

/// What is on the terminal: so many lines, when it was of this size. The cursor is below the last, so that whoever writes next,
/// or is given the terminal back, finds it as after any command.
#[derive(Debug, Default)]
struct Drawn {
    lines: usize,
    size: Option<Size>,
}

impl Drawn {
    /// What to print so that these lines take the place of those before; whatever was on the terminal above them stays.
    fn over(&mut self, lines: &[String], size: Size) -> String {
        let up = match (self.lines, self.size) {
            (0, _) => String::new(),
            // The terminal has broken the lines anew: nobody knows how far up they begin.
            (_, Some(before)) if before != size => "\x1b[H\x1b[J".to_owned(),
            (lines, _) => format!("\r\x1b[{lines}A\x1b[J"),
        };
        (self.lines, self.size) = (lines.len(), Some(size));
        up + &lines.join("\n")
    }
}

async fn look(choice: &JobChoice, client: &mut Option<Client>) -> anyhow::Result<StatusReply> {
    let client = match client {
        Some(client) => client,
        None => client.insert(choice.connect().await?),
    };
    client.status().await
}

impl Screen {
    fn show(&mut self, status: &StatusReply) -> Result<(), Unprinted> {
        match self {
            Screen::Json => print(json_of(status)),
            Screen::Terminal(drawn) => {
                let size = terminal::size(Stream::Results);
                // The last line is for whatever comes after.
                let room = Size { rows: size.rows.saturating_sub(1).max(1), columns: size.columns };
                print(drawn.over(&fitted(&sections(status), room), size))
            }
            Screen::Lines(progress) => print(progress.line(status, Instant::now())),
        }
    }
}

fn end_of(status: &StatusReply) -> Option<End> {
    match status.phase.as_str() {
        "done" => Some(End::Done),
        "failed" => Some(End::Failed(status.failure.clone())),
        _ => None,
    }
}

/// How a local run ended, by its journal: its master is gone before anybody can be told.
pub(super) fn ended(choice: &JobChoice) -> Option<End> {
    if choice.master.is_some() {
        return None;
    }
    let (how, why) = RunFolder(choice.run.clone()).end()?;
    Some(match how.as_str() {
        "done" => End::Done,
        "interrupted" => End::Interrupted(why),
        _ => End::Failed(why),
    })
}

fn exit_code(end: &End) -> ExitCode {
    match end {
        End::Done => {
            note!("done");
            ExitCode::SUCCESS
        }
        End::Failed(why) => {
            note!("error: the job has failed: {why}");
            ExitCode::FAILURE
        }
        End::Interrupted(why) => {
            note!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runner::journal::{self, Entry};

    fn choice(run: &std::path::Path, master: Option<&str>) -> JobChoice {
        JobChoice { master: master.map(str::to_owned), run: run.to_owned(), tls: None, plaintext: false }
    }

    #[test]
    fn the_end_of_a_local_run_is_in_its_journal() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder(folder.path().to_owned());
        assert_eq!(ended(&choice(run.path(), None)), None);
        let begun = journal::Begun::of(&[], &StatusReply::default(), 1);
        let closed = |how: &str| Entry::Closed { at: 2.0, how: how.to_owned(), why: "so".to_owned() };
        let mut written = journal::Journal::open(&run.journal());
        for (entry, end) in [
            (Entry::Begun(begun.clone()), None),
            (closed("failed"), Some(End::Failed("so".to_owned()))),
            (closed("interrupted"), Some(End::Interrupted("so".to_owned()))),
            (Entry::Begun(begun), None),
            (closed("done"), Some(End::Done)),
        ] {
            written.write(&entry);
            assert_eq!(ended(&choice(run.path(), None)), end);
        }
        assert_eq!(ended(&choice(run.path(), Some("elsewhere:1"))), None);
    }

    #[test]
    fn a_job_ends_by_its_phase() {
        let of = |phase: &str| {
            end_of(&StatusReply { phase: phase.to_owned(), failure: "why".to_owned(), ..Default::default() })
        };
        assert_eq!((of("training"), of("waiting"), of("done")), (None, None, Some(End::Done)));
        assert_eq!(of("failed"), Some(End::Failed("why".to_owned())));
    }

    #[test]
    fn what_is_drawn_takes_the_place_of_what_was_and_of_nothing_else() {
        let lines = |count: usize| vec!["x".to_owned(); count];
        let (small, large) = (Size { columns: 20, rows: 5 }, Size { columns: 80, rows: 24 });
        let mut drawn = Drawn::default();
        assert_eq!(drawn.over(&lines(2), small), "x\nx", "the user's own lines are above");
        assert_eq!(drawn.over(&lines(3), small), "\r\x1b[2A\x1b[Jx\nx\nx");
        assert_eq!(drawn.over(&lines(1), small), "\r\x1b[3A\x1b[Jx");
        assert_eq!(drawn.over(&lines(1), large), "\x1b[H\x1b[Jx", "its lines are broken elsewhere now");
        assert_eq!(drawn.over(&lines(1), large), "\r\x1b[1A\x1b[Jx");
    }
}
