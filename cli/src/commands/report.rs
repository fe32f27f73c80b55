//! `shoal report`: one page about a local run, whether it is done, has failed, was killed, or still runs.

use serde_json::Value;
use shoal_runner::exit::Exit;
use shoal_runner::folder::{RunFolder, refuse_kept};
use shoal_runner::history::History;
use shoal_runner::journal;
use shoal_runner::losses;
use shoal_runner::output::print_outcome;
use shoal_runner::report::{self, Verdict};
use shoal_runtime::host::files;
use std::path::PathBuf;
use std::process::ExitCode;

/// Make a page about a local run: steps, members, faults, losses, where the time went
#[derive(clap::Args)]
#[command(after_help = "Example: shoal report runs/latest --out report.html")]
pub(crate) struct ReportArguments {
    /// The run's folder, as `shoal run` names it
    #[arg(env = "SHOAL_RUN", default_value = "runs/latest", value_name = "RUN")]
    run: PathBuf,
    /// The file to write; by default report.html in the run's folder
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ReportArguments) -> anyhow::Result<ExitCode> {
    let folder = RunFolder(arguments.run.clone());
    let mut history = read(&folder)?;
    if let Some(losses) = losses::in_model(&folder.model(), &history.begun) {
        for sample in &mut history.samples {
            sample.loss = losses.before(sample.step);
        }
    }
    let (verdicts, facts) = proofs(&folder);
    let page = report::html(&history.into_run(verdicts, facts));
    let out = arguments.out.clone().unwrap_or_else(|| folder.path().join("report.html"));
    refuse_kept(&out)?;
    files::write(&out, page.as_bytes())?;
    print_outcome(format_args!("Report: {}", out.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn read(folder: &RunFolder) -> Result<History, Exit> {
    let (shown, journal) = (folder.path().display(), folder.journal());
    if !folder.path().is_dir() {
        return Err(Exit::Usage(format!(
            "{shown} is no folder: name a run's folder, as `shoal run` and `shoal demo` print it"
        )));
    }
    let text = std::fs::read_to_string(&journal).map_err(|error| {
        let hint = "it is no run's folder, or of a version that kept no journal; a demo's runs are in folders below its own";
        Exit::Usage(format!("{shown} lacks journal.jsonl ({error}): {hint}"))
    })?;
    let entries = journal::read(&text).map_err(|why| format!("{}: {why}", journal.display()));
    let history = entries
        .and_then(|entries| History::of(entries).ok_or_else(|| format!("{} is empty", journal.display())));
    history.map_err(Exit::Usage)
}

/// What the closing object of a run that is done proves and says.
fn proofs(folder: &RunFolder) -> (Vec<Verdict>, Vec<(String, String)>) {
    let text = std::fs::read_to_string(folder.result()).unwrap_or_default();
    let closing: Value = serde_json::from_str(&text).unwrap_or_default();
    let number = |name: &str| closing[name].as_u64();
    let tally = || Some((number("records_counted")?, number("records_expected")?, number("records_wrong")?));
    let excluded = number("records_excluded").filter(|excluded| *excluded > 0);
    let excluded = excluded.map_or_else(String::new, |excluded| format!("; {excluded} excluded"));
    let verdicts = tally().map(|(counted, expected, wrong)| Verdict {
        holds: wrong == 0 && counted == expected,
        text: format!(
            "{counted} of {expected} records counted exactly once in each epoch, {wrong} of them wrongly{excluded}"
        ),
    });
    let sha256 = closing["parameters_sha256"].as_str();
    let facts = sha256.map(|sha256| ("Parameters sha256".to_owned(), sha256.to_owned()));
    (verdicts.into_iter().collect(), facts.into_iter().collect())
}
