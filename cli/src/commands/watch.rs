//! `shoal status --watch`: how a job is, every second until it ends; its end is the exit code. On a terminal the status
//! is drawn over the one before, elsewhere each is a line.

use super::status::{json_of, text};
use super::{Output, print};
use crate::client::{Client, JobChoice};
use crate::exit::Exit;
use crate::runner::folder::RunFolder;
use crate::runner::journal::{self, Entry};
use crate::runner::progress::Progress;
use shoal_runtime::host::output::{Results, Unprinted};
use shoal_runtime::wire::proto::StatusReply;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a master may be away: it may be on its way, at first and later.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Done,
    Failed(String),
}

/// Where each look goes.
enum Screen {
    /// Drawn over the one before.
    Terminal,
    /// One line after another.
    Lines(Progress),
    Json,
}

/// Watches the job that is meant.
///
/// # Errors
/// No such job, or nobody who leads it answers any more.
pub(crate) async fn watch(choice: &JobChoice, output: Output) -> anyhow::Result<ExitCode> {
    let is_terminal = Results::is_terminal() && std::env::var("TERM").is_ok_and(|term| term != "dumb");
    let mut screen = match output {
        Output::Json => Screen::Json,
        Output::Text if is_terminal => Screen::Terminal,
        Output::Text => Screen::Lines(Progress::new()),
    };
    let (mut client, mut silent_since, mut has_shown) = (None, None, false);
    loop {
        match look(choice, &mut client).await {
            Ok(status) => {
                (silent_since, has_shown) = (None, true);
                screen.show(&status)?;
                if let Some(end) = end_of(&status) {
                    return Ok(exit_code(&end));
                }
            }
            Err(error) => {
                if let Some(end) = ended(choice) {
                    return Ok(exit_code(&end));
                }
                let is_first = silent_since.is_none();
                let since = silent_since.get_or_insert_with(Instant::now);
                if !Exit::is_unreachable(&error) || since.elapsed() >= PATIENCE {
                    return Err(error);
                }
                // A job that begins has a master before that leads.
                if is_first && !has_shown {
                    note!("waiting up to {} s: {error:#}", PATIENCE.as_secs());
                }
                // A new master may listen somewhere else.
                client = None;
            }
        }
        tokio::time::sleep(PAUSE).await;
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
            // From the top: each line to its end, then everything below.
            Screen::Terminal => {
                print(format_args!("\x1b[H{}\x1b[J", text(status).replace('\n', "\x1b[K\n") + "\x1b[K"))
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
fn ended(choice: &JobChoice) -> Option<End> {
    if choice.master.is_some() {
        return None;
    }
    let text = std::fs::read_to_string(RunFolder(choice.run.clone()).journal()).ok()?;
    match journal::read(&text).ok()?.last()? {
        Entry::Closed { how, .. } if how == "done" => Some(End::Done),
        Entry::Closed { how, why, .. } => Some(End::Failed(format!("{how}: {why}"))),
        _ => None,
    }
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (closed("failed"), Some(End::Failed("failed: so".to_owned()))),
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
}
