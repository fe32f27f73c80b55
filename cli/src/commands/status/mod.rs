//! `shoal status`: how a job is, for people and for scripts.

mod object;
mod text;
mod watch;

use shoal_runner::client::JobChoice;
use shoal_runner::exit::Exit;
use shoal_runner::output::{Output, print};
// What the runner and `shoal run` ask by this path.
use object::json_of;
use serde_json::json;
use std::process::ExitCode;
use text::text;
use watch::End;

/// Show how a job is
#[derive(clap::Args)]
#[command(after_help = "Example: shoal status --watch")]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    job: JobChoice,
    /// Show it every second until the job ends, and exit as the job does: with 0 when it is done, 1 when it failed. Drawn
    /// over the one before on a terminal; elsewhere a line each, with -o json an object each
    #[arg(short, long)]
    watch: bool,
    /// How to print it
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) async fn run(arguments: StatusArguments) -> anyhow::Result<ExitCode> {
    let finished = arguments.job.run.join("result.json");
    if arguments.job.master.is_none()
        && let Ok(result) = std::fs::read_to_string(&finished)
    {
        match arguments.output {
            Output::Text => print(format_args!("done; its closing object is in {}", finished.display()))?,
            Output::Json => print(result.trim_end())?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.watch {
        return watch::watch(&arguments.job, arguments.output).await;
    }
    let asked = async { arguments.job.connect().await?.status().await };
    let status = match asked.await {
        Ok(status) => status,
        Err(error) => return of_the_end(&arguments, error),
    };
    match arguments.output {
        Output::Text => print(text(&status))?,
        Output::Json => print(json_of(&status))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// How a run ended whose master does not answer any more, by its journal.
fn of_the_end(arguments: &StatusArguments, error: anyhow::Error) -> anyhow::Result<ExitCode> {
    let ended = watch::ended(&arguments.job).filter(|_| Exit::is_unreachable(&error));
    let (phase, why) = match ended {
        None => return Err(error),
        Some(End::Done) => ("done", String::new()),
        Some(End::Failed(why)) => ("failed", why),
        Some(End::Interrupted(why)) => ("interrupted", why),
    };
    match arguments.output {
        Output::Json => print(json!({ "phase": phase, "failure": why }))?,
        Output::Text if why.is_empty() => print(phase)?,
        Output::Text if phase == "interrupted" => print(&why)?,
        Output::Text => print(format_args!("{phase}: {why}"))?,
    }
    Ok(if phase == "done" { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::text::sections;
    use super::*;
    use shoal_runner::screen::{Size, fitted};
    use shoal_runtime::wire::proto::{JobSettings, PserverStatus, StatusReply, TrainerStatus};
    use unicode_width::UnicodeWidthStr;

    fn at(epoch: u64, epochs: u64) -> StatusReply {
        let settings = JobSettings { job: "digits-7".to_owned(), epochs, ..Default::default() };
        StatusReply {
            settings: Some(settings),
            phase: "training".to_owned(),
            epoch,
            step: 7,
            steps: 314,
            is_progress_known: true,
            ..Default::default()
        }
    }

    #[test]
    fn an_epoch_is_counted_in_one_way_wherever_people_read_it() {
        for (over, under_way) in [(0, 1), (1, 2), (2, 2)] {
            let status = at(over, 2);
            assert!(text(&status).contains(&format!("progress  step 7 of 314, epoch {under_way} of 2\n")));
            let mut progress = shoal_runner::progress::Progress::begin();
            let line = progress.line(&status, tokio::time::Instant::now());
            assert!(line.contains(&format!("  epoch {under_way}/2  step 7/314  ")), "{line}");
            assert_eq!(json_of(&status)["epoch"], over, "programs are told those that are over");
        }
        let only_evaluates = at(0, 0);
        assert!(text(&only_evaluates).contains("progress  step 7 of 314\n"));
        let new_master = StatusReply { is_progress_known: false, ..at(0, 2) };
        assert!(text(&new_master).contains("progress  not known"));
    }

    #[test]
    fn a_watched_status_is_never_larger_than_the_terminal_and_progress_is_the_last_to_go() {
        let mut status = at(0, 2);
        let member = |at: u32| TrainerStatus {
            name: format!("trainer-{at}"),
            state: "live".to_owned(),
            ..Default::default()
        };
        status.trainers = (0..400).map(member).collect();
        let server = |at: u32| PserverStatus { name: format!("pserver-{at}"), ..Default::default() };
        status.pservers = (0..2).map(server).collect();
        for (columns, rows) in [(80, 24), (80, 23), (20, 5), (200, 100), (40, 1), (1, 1)] {
            let lines = fitted(&sections(&status), Size { columns, rows });
            assert!(lines.len() <= rows && lines.iter().all(|line| line.width() <= columns), "{lines:?}");
            assert!(
                columns < 20 || lines.iter().any(|line| line.starts_with("progress  step 7")),
                "{lines:?}"
            );
        }
        let lines = fitted(&sections(&status), Size { columns: 80, rows: 24 });
        assert!(lines.iter().any(|line| line == "  … 386 more"), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("pserver-1")), "{lines:?}");
    }
}
