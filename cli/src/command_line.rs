//! The command line: every command, its help, and what runs it. Parses and composes; decides nothing.

use crate::{absent, commands, config};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use shoal_drill::{demo, demo_trainer, trials};
use shoal_runner::exit::Exit;
use shoal_runner::{exit, reaper};
use shoal_runtime::host::output::{self, Results, Stream};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// What help ends with.
const ENDING: &str = "Begin with: shoal demo, then shoal new my-job. Trouble with this machine: shoal doctor\nSettings: flag > SHOAL_* variable > shoal.toml > default: shoal config show --origin\n\
Exit codes: 0 ok, 1 the job failed, 2 usage, 3 unreachable, 4 waited for too long, 5 not permitted;\n\
interrupted, a command ends by the signal: 130 for SIGINT (Ctrl-C), 143 for SIGTERM, as shells show it.";

/// Elastic training that counts every record exactly once.
///
/// Trainers and parameter servers may join, leave, move, crash or freeze during training; the model that comes out is
/// the one an undisturbed run would have given, bit for bit.
#[derive(Parser)]
#[command(
    name = "shoal",
    version,
    after_help = ENDING
)]
pub(crate) struct Arguments {
    /// Take settings from this file alone; by default from shoal.toml of this folder or one above it, and from the user's
    #[arg(long, global = true, env = "SHOAL_CONFIG", value_name = "FILE", display_order = 1000)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Demo(demo::DemoArguments),
    New(commands::new::NewArguments),
    Run(commands::run::RunArguments),
    Chaos(trials::ChaosArguments),
    Status(commands::status::StatusArguments),
    Why(commands::why::WhyArguments),
    Ui(commands::ui::UiArguments),
    Report(commands::report::ReportArguments),
    Replay(commands::replay::ReplayArguments),
    Scale(commands::scale::ScaleArguments),
    Migrate(commands::drain::MigrateArguments),
    Drain(commands::drain::DrainArguments),
    Export(commands::export::ExportArguments),
    Checkpoint(commands::checkpoint::CheckpointArguments),
    Certs(commands::certs::CertsArguments),
    Doctor(commands::doctor::DoctorArguments),
    Config(commands::config::ConfigArguments),
    #[cfg(feature = "cluster")]
    Submit(commands::cluster::SubmitArguments),
    #[cfg(feature = "cluster")]
    Get(commands::cluster::GetArguments),
    #[cfg(feature = "cluster")]
    Logs(commands::cluster::LogsArguments),
    #[cfg(feature = "cluster")]
    Wait(commands::cluster::WaitArguments),
    #[cfg(feature = "cluster")]
    Delete(commands::cluster::DeleteArguments),
    #[cfg(feature = "cluster")]
    Collect(commands::cluster::CollectArguments),
    #[cfg(feature = "cluster")]
    Simulate(commands::simulate::SimulateArguments),
    Recordio(commands::recordio::RecordioArguments),
    Master(commands::roles::MasterArguments),
    Pserver(commands::roles::PserverArguments),
    #[cfg(feature = "cluster")]
    Operator(commands::roles::OperatorArguments),
    #[command(hide = true)]
    DemoTrainer,
    /// End what a supervisor has left, once standard input ends; `shoal run` starts this
    #[command(hide = true)]
    Reaper {
        /// The supervisor, as PID:START
        supervisor: shoal_runtime::host::supervisor::Process,
    },
    /// Print a completion script for a shell
    #[command(after_help = "Example: shoal completions bash > /etc/bash_completion.d/shoal")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

impl Arguments {
    /// Runs the command. How it went is the exit code.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let named = self.config.as_deref();
        match self.command {
            Command::Demo(arguments) => block_on(demo::run(arguments)),
            Command::New(arguments) => commands::new::run(&arguments),
            Command::Run(arguments) => block_on(commands::run::run(arguments)),
            Command::Chaos(arguments) => block_on(trials::run(arguments)),
            Command::Status(arguments) => block_on(commands::status::run(arguments)),
            Command::Why(arguments) => block_on(commands::why::run(arguments)),
            Command::Ui(arguments) => block_on(commands::ui::run(arguments)),
            Command::Report(arguments) => commands::report::run(&arguments),
            Command::Replay(arguments) => block_on(commands::replay::run(arguments)),
            Command::Scale(arguments) => block_on(commands::scale::run(arguments)),
            Command::Migrate(arguments) => block_on(commands::drain::migrate(arguments)),
            Command::Drain(arguments) => block_on(commands::drain::drain(arguments)),
            Command::Export(arguments) => block_on(commands::export::run(arguments)),
            Command::Checkpoint(arguments) => block_on(commands::checkpoint::run(arguments)),
            Command::Certs(arguments) => commands::certs::run(&arguments),
            Command::Doctor(arguments) => commands::doctor::run(arguments, &built(), named),
            Command::Config(arguments) => commands::config::run(&arguments, &built(), named),
            #[cfg(feature = "cluster")]
            Command::Submit(arguments) => block_on(commands::cluster::submit(arguments)),
            #[cfg(feature = "cluster")]
            Command::Get(arguments) => block_on(commands::cluster::get(arguments)),
            #[cfg(feature = "cluster")]
            Command::Logs(arguments) => block_on(commands::cluster::logs(arguments)),
            #[cfg(feature = "cluster")]
            Command::Wait(arguments) => block_on(commands::cluster::wait(arguments)),
            #[cfg(feature = "cluster")]
            Command::Delete(arguments) => block_on(commands::cluster::delete(arguments)),
            #[cfg(feature = "cluster")]
            Command::Collect(arguments) => block_on(commands::cluster::collect(arguments)),
            #[cfg(feature = "cluster")]
            Command::Simulate(arguments) => commands::simulate::run(&arguments),
            Command::Recordio(arguments) => commands::recordio::run(arguments),
            Command::Master(arguments) => role(commands::roles::master(arguments)),
            Command::Pserver(arguments) => role(commands::roles::pserver(arguments)),
            #[cfg(feature = "cluster")]
            Command::Operator(arguments) => block_on(commands::roles::operator(arguments)),
            Command::DemoTrainer => Ok(demo_trainer()),
            Command::Reaper { supervisor } => block_on(reaper::run(supervisor)),
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut command(), "shoal", &mut script);
                Results.print(&script).map(|()| ExitCode::SUCCESS).map_err(Into::into)
            }
        }
    }
}

/// Why a command line asks for nothing that can be done.
pub(crate) enum Refused {
    /// A file of settings cannot be read, or is wrong.
    File(Exit),
    /// The command line is none, or asks for help.
    Line(clap::Error),
}

/// What a command line asks for, with what files of settings say; and which keys of theirs took part.
///
/// # Errors
/// Why it is none, or help.
pub(crate) fn parsed(words: Vec<OsString>) -> Result<(Arguments, Vec<String>), (Refused, Vec<String>)> {
    let asked = words.clone();
    let config::Completed { words, taken } =
        config::complete(command(), words).map_err(|why| (Refused::File(why), Vec::new()))?;
    let parsed = |line: clap::Command, words| Arguments::from_arg_matches(&line.try_get_matches_from(words)?);
    match parsed(config::flags::with_values_of_switches(command()), words) {
        Ok(arguments) => Ok((arguments, taken)),
        Err(error) if is_help(&error) => match parsed(config::explained(command(), &asked), asked) {
            Ok(_) => Err((Refused::Line(error), taken)),
            Err(error) => Err((Refused::Line(error), Vec::new())),
        },
        Err(error) => Err((Refused::Line(error), taken)),
    }
}

fn is_help(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)
}

/// Tells who was called wrongly which settings of files had a part in it.
pub(crate) fn tell(taken: &[String]) {
    if !taken.is_empty() {
        note!("note: settings of files took part: {}; without them: --config /dev/null", taken.join(", "));
    }
}

/// Help that was asked for, or why the command line is none.
pub(crate) fn unparsed(error: &clap::Error) -> ExitCode {
    let (is_help, text) = (!error.use_stderr(), error.render());
    let colours = if is_help { Stream::Results.is_terminal() } else { Stream::Notes.is_terminal() };
    let has_colours = colours && std::env::var_os("NO_COLOR").is_none();
    let text = if has_colours { text.ansi().to_string() } else { text.to_string() };
    if is_help {
        return Results
            .print(text.as_bytes())
            .map_or_else(|error| exit::failed(&error.into()), |()| ExitCode::SUCCESS);
    }
    output::note(text.trim_end());
    ExitCode::from(2)
}

/// The command line, whose help says what this build leaves out.
pub(crate) fn command() -> clap::Command {
    match absent::note() {
        None => Arguments::command(),
        Some(note) => Arguments::command().after_help(format!("{note}\n\n{ENDING}")),
    }
}

/// The command line with all that clap makes of it.
fn built() -> clap::Command {
    let mut line = command();
    line.build();
    line
}

/// A role ends when it is told to, whatever its threads wait for.
fn role(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    shoal_runtime::host::program::run(work)
}

fn block_on(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    shoal_runtime::host::program::runtime()?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    /// The words of a command as a shell makes them, up to what stands for something else: a comment, a pipe, an ellipsis.
    fn words(line: &str) -> Vec<OsString> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for letter in line.chars().chain([' ']) {
            match (quote, letter) {
                (Some(open), _) if open == letter => quote = None,
                (None, '\'' | '"') => {
                    quote = Some(letter);
                    word.get_or_insert_default();
                }
                (None, ' ') => words.extend(word.take()),
                _ => word.get_or_insert_default().push(letter),
            }
        }
        let ends = |word: &String| {
            ["|", "&&", ";", ">", "…", "..."].contains(&word.as_str()) || word.starts_with('#')
        };
        words.into_iter().take_while(|word| !ends(word)).map(OsString::from).collect()
    }

    /// Every `shoal` command of a document, by its line.
    fn shown(text: &str) -> Vec<(usize, Vec<OsString>)> {
        let mut found: Vec<(usize, String)> = Vec::new();
        for (index, line) in text.lines().map(str::trim).enumerate() {
            match found
                .last_mut()
                .and_then(|(_, last)| last.strip_suffix('\\').map(str::to_owned).zip(Some(last)))
            {
                Some((begun, last)) => *last = begun + line,
                None => found.extend(line.strip_prefix("$ ").map(|line| (index + 1, line.to_owned()))),
            }
        }
        let shoal = |(line, command): (usize, String)| {
            let words = words(&command);
            words.first().is_some_and(|first| first == "shoal").then_some((line, words))
        };
        found.into_iter().filter_map(shoal).collect()
    }

    #[test]
    fn words_are_those_of_a_shell() {
        let said = words("shoal run --data 'a b' \"c\"d -- x   # y | z");
        assert_eq!(said, ["shoal", "run", "--data", "a b", "cd", "--", "x"]);
        assert_eq!(words("shoal status | head"), ["shoal", "status"]);
        let text = "$ shoal a \\\n    b\n$ other\nshoal c\n";
        assert_eq!(shown(text), [(1, vec!["shoal".into(), "a".into(), "b".into()])]);
    }

    /// What documents leave out is left out of their commands: `shoal run …` has no program.
    #[test]
    fn documents_show_commands_that_there_are() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
        let pages = docs.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
        let mut count = 0;
        for page in pages.chain([root.join("README.md")]) {
            for (line, words) in shown(&std::fs::read_to_string(&page).unwrap()) {
                if absent::why(&words).is_some() {
                    continue;
                }
                count += 1;
                if let Err(error) = command().try_get_matches_from(&words) {
                    use clap::error::ErrorKind;
                    let kind = error.kind();
                    let is_cut_short = kind == ErrorKind::MissingRequiredArgument;
                    assert!(is_cut_short, "{}:{line}: {words:?}\n{error}", page.display());
                }
            }
        }
        assert!(count > 60, "{count}");
    }
}
