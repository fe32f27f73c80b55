//! `shoal config`: what files of settings say, and what a command would be given. It changes no file.

use crate::config::{self, flags, shown};
use shoal_runner::exit::Exit;
use shoal_runner::output::{Output, print};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show settings, and which files they come from
///
/// A file shoal.toml has a table for each command, with the long names of its flags as keys: docs/configuration.md.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  shoal config show run --origin\n  shoal config path\n\
Order: flag > SHOAL_* variable > shoal.toml of this folder or above > shoal.toml of the user > default")]
pub(crate) struct ConfigArguments {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(clap::Subcommand)]
enum ConfigCommand {
    Show(ShowArguments),
    Path(PathArguments),
}

/// Show every setting of a command, or of all, as it would be if no flag were given
#[derive(clap::Args)]
#[command(after_help = "Example: shoal config show run --origin\n\
What is printed is a file of settings: what nobody has set is a comment in it.")]
struct ShowArguments {
    /// The command, such as run, or recordio pack csv; by default all
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Say where each value comes from: file and line, variable or default
    #[arg(long)]
    origin: bool,
    /// How to print them; JSON always has the origins
    #[arg(short, long, default_value = "text")]
    output: Output,
}

/// Print the paths of the files that are read, the nearest first
#[derive(clap::Args)]
#[command(after_help = "Example: shoal config path")]
struct PathArguments {
    /// How to print them
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) fn run(
    arguments: &ConfigArguments,
    line: &clap::Command,
    named: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let files = config::files(line, named)?;
    let absolute =
        |file: &config::Settings| std::path::absolute(&file.path).unwrap_or_else(|_| file.path.clone());
    let paths: Vec<PathBuf> = files.iter().map(absolute).collect();
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    match &arguments.command {
        ConfigCommand::Path(PathArguments { output: Output::Json }) => {
            print(serde_json::json!({ "files": paths }))?;
        }
        ConfigCommand::Path(_) if paths.is_empty() => {
            note!("no file: a shoal.toml in this folder or above it would be read (docs/configuration.md)");
        }
        ConfigCommand::Path(_) => print(paths.join("\n"))?,
        ConfigCommand::Show(show) => {
            let rows = show.rows(line, &files)?;
            match show.output {
                Output::Json => print(shown::object(&rows, &paths))?,
                Output::Text => print(shown::text(&rows, show.origin).trim_end())?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl ShowArguments {
    fn rows(&self, line: &clap::Command, files: &[config::Settings]) -> Result<Vec<shown::Row>, Exit> {
        let all = flags::commands(line);
        let wanted: Vec<&Vec<String>> = all.iter().filter(|words| words.starts_with(&self.command)).collect();
        if wanted.is_empty() {
            let why = match flags::command(line, &self.command) {
                Some(_) => "takes no settings of a file",
                None => "is no command",
            };
            return Err(Exit::Usage(format!(
                "`shoal {}` {why}: `shoal config show` shows those that do",
                self.command.join(" ")
            )));
        }
        let of_command = |words: &Vec<String>| {
            let Some(command) = flags::command(line, words) else { return Vec::new() };
            let set = command.get_arguments().filter_map(|flag| {
                let (name, value) = config::variable(flag)?;
                Some((flag.get_id().to_string(), (name, value.to_string_lossy().into_owned())))
            });
            let set: BTreeMap<_, _> = set.collect();
            let files: Vec<_> =
                files.iter().map(|file| (file.path.display().to_string(), file.of(words))).collect();
            shown::rows(words, command, &files, &set)
        };
        Ok(wanted.into_iter().flat_map(of_command).collect())
    }
}
