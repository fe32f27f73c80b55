//! `shoal export`: the model of a job as safetensors, or one of its tables as Parquet.

#[cfg(not(feature = "parquet"))]
use crate::absent;
#[cfg(feature = "parquet")]
use crate::table_file;
use anyhow::Context;
use serde_json::json;
use shoal_runner::at_rest::AtRest;
use shoal_runner::client::{Client, JobChoice};
use shoal_runner::exit::Exit;
use shoal_runner::folder::{RunFolder, refuse_kept};
use shoal_runner::model_state::ModelState;
use shoal_runner::output::{Output, print_outcome};
use shoal_runner::shell;
use shoal_runtime::host::files::{NewFile, Unwritten};
use shoal_runtime::host::output::Unprinted;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

#[cfg_attr(
    feature = "parquet",
    doc = "Write the model of a job as safetensors, or one of its embedding tables as Parquet"
)]
#[cfg_attr(not(feature = "parquet"), doc = "Write the model of a job as safetensors")]
#[derive(clap::Args)]
#[cfg_attr(
    feature = "parquet",
    command(after_help = "Example: shoal export --file model.safetensors\n\
One table: shoal export --table user --file user.parquet\n\
The model of a run that has ended lies in its folder: runs/latest/model.safetensors")
)]
#[cfg_attr(
    not(feature = "parquet"),
    command(after_help = "Example: shoal export --file model.safetensors\n\
The model of a run that has ended lies in its folder: runs/latest/model.safetensors")
)]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    job: JobChoice,
    /// How to print the answer
    #[arg(short, long, default_value = "text")]
    output: Output,
}

/// What to write, and where to.
#[derive(clap::Args)]
pub(crate) struct Wanted {
    #[cfg_attr(feature = "parquet", doc = "File to write: safetensors, with --table Parquet")]
    #[cfg_attr(not(feature = "parquet"), doc = "File to write, as safetensors")]
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Write this embedding table alone, as Parquet with the columns key and embedding, one bucket in memory at a time
    #[arg(long, value_name = "NAME")]
    #[cfg_attr(
        not(feature = "parquet"),
        arg(help = "Not in this build: an embedding table alone, as Parquet")
    )]
    table: Option<String>,
    /// Add the update rules' state as PARAMETER.SLOT; with --table as columns, beside last_update and occurrences
    #[arg(long)]
    with_state: bool,
}

/// The model of a run that has ended lies there whole.
fn copy(finished: &Path, file: &Path) -> anyhow::Result<()> {
    let mut from =
        std::fs::File::open(finished).with_context(|| format!("cannot read {}", finished.display()))?;
    let mut to = NewFile::begin_from(file, [finished])?;
    std::io::copy(&mut from, &mut to).map_err(|error| Unwritten::of(file, error))?;
    to.settle()?;
    Ok(())
}

/// A running job moves on while it is read, and its blocks move: so long it is tried to catch one version.
const TRYING: Duration = Duration::from_secs(30);

pub(crate) async fn run(arguments: ExportArguments) -> anyhow::Result<ExitCode> {
    let ExportArguments { wanted, job, output } = arguments;
    wanted.check()?;
    let finished = job.run.join("model.safetensors");
    if job.master.is_none() && finished.is_file() {
        if let Some(table) = &wanted.table {
            let how = RunFolder(job.run.clone()).command("checkpoint export");
            let (table, file) = (shell::quoted(table.as_ref()), shell::path(&wanted.file));
            return Err(Exit::Usage(format!(
                "the run in {} has ended; its tables are in its newest checkpoint: {how} --table {table} --file {file}",
                job.run.display()
            ))
            .into());
        }
        if !wanted.with_state {
            copy(&finished, &wanted.file)?;
            wanted.say(output, &Written::default())?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let mut client = job.connect().await?;
    let written = caught(&mut client, &wanted).await?;
    wanted.say(output, &written)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes what the job is at one version, tried with the routing of one moment after another.
async fn caught(client: &mut Client, wanted: &Wanted) -> anyhow::Result<Written> {
    let deadline = Instant::now() + TRYING;
    let mut has_answered = false;
    loop {
        let tried = match client.status().await {
            Ok(status) => {
                has_answered = true;
                let written = match AtRest::of_job(&status, client.dial()) {
                    Ok(job) => wanted.write(&job).await,
                    Err(error) => Err(error),
                };
                written.map_err(|error| {
                    let may_pass = is_of_reading(&error) && status.phase == "training";
                    (may_pass || !status.is_progress_known, error)
                })
            }
            // Who never answered will hardly do so now.
            Err(error) => Err((has_answered, error)),
        };
        match tried {
            Ok(written) => return Ok(written),
            Err((true, _)) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err((_, error)) => return Err(error),
        }
    }
}

/// Whether it says what is wrong where the model is read, not that the user or the file's place has to change.
pub(crate) fn is_of_reading(error: &anyhow::Error) -> bool {
    !error.is::<Exit>() && !error.is::<Unwritten>()
}

/// What is in the file.
#[derive(Debug, Default)]
pub(crate) struct Written {
    version: Option<u64>,
    /// Of a model.
    sha256: Option<String>,
    /// Of a table.
    rows: Option<u64>,
}

impl Wanted {
    /// Refuses a file whose name says that it is something else.
    pub(crate) fn check(&self) -> Result<(), Exit> {
        refuse_kept(&self.file)?;
        let is_named = |end: &str| self.file.extension().is_some_and(|found| found.eq_ignore_ascii_case(end));
        #[cfg(not(feature = "parquet"))]
        if self.table.is_some() || is_named("parquet") {
            return Err(absent::flag("an embedding table as Parquet (--table)", "parquet"));
        }
        let file = self.file.display();
        match self.table {
            None if is_named("parquet") => Err(Exit::Usage(format!(
                "--file {file}: a Parquet file has one table: name it by --table; the whole model is written as safetensors"
            ))),
            Some(_) if is_named("safetensors") => Err(Exit::Usage(format!(
                "--file {file}: a table alone is written as Parquet: name the file so, or leave out --table"
            ))),
            _ => Ok(()),
        }
    }

    /// Writes it.
    pub(crate) async fn write(&self, job: &AtRest<'_>) -> anyhow::Result<Written> {
        let version = Some(job.version);
        #[cfg(feature = "parquet")]
        if let Some(table) = &self.table {
            let rows = Some(table_file::export(job, table, self.with_state, &self.file).await?);
            return Ok(Written { version, rows, sha256: None });
        }
        let model = ModelState::read(job).await?;
        let sha256 = Some(model.export(&self.file, self.with_state)?);
        Ok(Written { version, rows: None, sha256 })
    }

    /// Says what was written where.
    pub(crate) fn say(&self, output: Output, written: &Written) -> Result<(), Unprinted> {
        let file = self.file.display().to_string();
        let Written { version, sha256, rows } = written;
        match (output, &self.table, rows) {
            (Output::Text, Some(table), Some(rows)) => {
                print_outcome(format_args!("wrote {file}: {rows} rows of {table}"))
            }
            (Output::Text, ..) => print_outcome(format_args!("wrote {file}")),
            (Output::Json, Some(table), _) => {
                print_outcome(json!({ "file": file, "version": version, "table": table, "rows": rows }))
            }
            (Output::Json, ..) => {
                print_outcome(json!({ "file": file, "version": version, "parameters_sha256": sha256 }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(file: &str, table: Option<&str>) -> Option<String> {
        let wanted = Wanted { file: file.into(), table: table.map(str::to_owned), with_state: false };
        wanted.check().err().map(|error| error.to_string())
    }

    #[test]
    fn a_file_whose_name_says_otherwise_is_refused() {
        assert!(refusal("a/rows.Parquet", None).unwrap().contains("name it by --table"));
        assert!(refusal("a/rows.safetensors", Some("user")).unwrap().contains("leave out --table"));
        for (file, table) in
            [("model.safetensors", None), ("rows.parquet", Some("user")), ("-", Some("user"))]
        {
            assert_eq!(refusal(file, table), None);
        }
    }
}
