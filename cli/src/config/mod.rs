//! Settings in files: `shoal.toml`. What a file says is what could be typed, and nothing else.
//!
//! 1. *A key is a flag.* `trainers = "2:4"` below `[run]` is `shoal run --trainers 2:4`. Paths are relative to the working directory, as
//!    typed ones are. Arguments without a name are in no file.
//! 2. *Of each flag one place counts, whole*: typed > variable > nearest file > the user's file > default. Lists are not added up.
//! 3. *What a stronger place contradicts is not there*: with `plaintext` typed, `tls` of a file does not count. Within one file it is an
//!    error, and so it is between what is typed and a variable, as without files.
//! 4. *A file is right or wrong as a whole*, whichever command is called, and an error names the line.
//! 5. *Clap parses.* Settings that count become words behind the command's name; flags that are required, go together or contradict one
//!    another are clap's matter, as if they were typed.
//! 6. Roles, and what has to work beside a wrong file, take none.
//!
//! `text`, `flags` and `order` are pure; `place` finds and reads files; here they are put together with a command line.

pub(crate) mod flags;
pub(crate) mod order;
mod place;
pub(crate) mod shown;
pub(crate) mod text;

use crate::absent;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use shoal_runner::exit::Exit;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use text::{Setting, Table};

/// A file that has been read and checked.
#[derive(Debug)]
pub(crate) struct Settings {
    /// As messages call it.
    pub(crate) path: PathBuf,
    tables: Vec<Table>,
}

/// A command line with what files say of its command.
#[derive(Debug, Default)]
pub(crate) struct Completed {
    /// What is to be parsed.
    pub(crate) words: Vec<OsString>,
    /// Keys of files that took part, each with its place, such as `trainers (shoal.toml:3)`.
    pub(crate) taken: Vec<String>,
}

/// The files that count, the nearest first. The command line has been built.
///
/// # Errors
/// One cannot be read, or is wrong: with file, line and way out.
pub(crate) fn files(line: &Command, named: Option<&Path>) -> Result<Vec<Settings>, Exit> {
    let read = |found: place::Found| {
        let wrong = |fault: text::Fault| {
            Exit::Usage(format!("{}:{}: {}", found.path.display(), fault.line, fault.what))
        };
        let tables = text::tables(&found.text).map_err(wrong)?;
        flags::check(line, &tables, &absent::is_left_out).map_err(wrong)?;
        Ok(Settings { path: found.path, tables })
    };
    place::files(named)?.into_iter().map(read).collect()
}

impl Settings {
    /// What the file has for a command.
    pub(crate) fn of(&self, command: &[String]) -> &[Setting] {
        let table = self.tables.iter().find(|table| table.command == command);
        table.map_or(&[], |table| &table.settings)
    }
}

/// The command line completed by what files say. `line` has not been built: a flag that is changed afterwards is lost to the parser.
///
/// # Errors
/// As [`files`].
pub(crate) fn complete(mut line: Command, words: Vec<OsString>) -> Result<Completed, Exit> {
    // What was typed, as far as it can be read: whatever is wrong with it is told when all of it is parsed. Help needs no file.
    let lenient = flags::with_values_of_switches(line.clone()).ignore_errors(true);
    let Ok(typed) = lenient.try_get_matches_from(&words) else {
        return Ok(Completed { words, taken: Vec::new() });
    };
    line.build();
    let called = called(&typed);
    let Some(command) = flags::command(&line, &called).filter(|_| flags::is_settable(&called)) else {
        return Ok(Completed { words, taken: Vec::new() });
    };
    let files = files(&line, named(&typed).as_deref())?;
    let innermost = called.iter().fold(&typed, |at, name| at.subcommand_matches(name).unwrap_or(at));
    let is_typed =
        |flag: &&Arg| innermost.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine);
    let is_given = |flag: &&Arg| is_typed(flag) || variable(flag).is_some();
    let given = command.get_arguments().filter(is_given).map(|flag| flag.get_id().to_string()).collect();
    let settings: Vec<&[Setting]> = files.iter().map(|file| file.of(&called)).collect();
    let counted = order::counted(command, &settings, &given);
    let place = |one: &order::Counted<'_>| {
        format!("{} ({}:{})", one.setting.key, files[one.file].path.display(), one.setting.line)
    };
    let taken = counted.iter().map(place).collect();
    let more = counted.into_iter().flat_map(|one| one.words).map(OsString::from);
    Ok(Completed { words: spliced(words, &called, more), taken })
}

/// The command line with help that says what files set, where they are right.
pub(crate) fn explained(line: Command, words: &[OsString]) -> Command {
    let mut built = line.clone();
    built.build();
    let Ok(files) = files(&built, named_before_help(words).as_deref()) else { return line };
    flags::commands(&built).iter().fold(line, |line, command| {
        let Some(at) = flags::command(&built, command) else { return line };
        let settings: Vec<&[Setting]> = files.iter().map(|file| file.of(command)).collect();
        let counted = order::counted(at, &settings, &with_variables(at));
        counted.iter().fold(line, |line, one| {
            let place =
                format!("[{}:{}: {}]", files[one.file].path.display(), one.setting.line, one.words.join(" "));
            noted(line, command, &one.flag, &place)
        })
    })
}

/// The command line with a note at the end of a flag's help.
fn noted(line: Command, command: &[String], flag: &str, note: &str) -> Command {
    match command.split_first() {
        Some((first, rest)) => line.mut_subcommand(first, |inner| noted(inner, rest, flag, note)),
        None => line.mut_arg(flag, |flag| {
            let with = |help: Option<&clap::builder::StyledStr>| help.map(|help| format!("{help} {note}"));
            let (short, long) = (with(flag.get_help()), with(flag.get_long_help()));
            let flag = if let Some(short) = short { flag.help(short) } else { flag };
            if let Some(long) = long { flag.long_help(long) } else { flag }
        }),
    }
}

/// The variable that names the file.
const VARIABLE: &str = "SHOAL_CONFIG";

/// The file that a command line, or the variable, names.
pub(crate) fn named(matches: &ArgMatches) -> Option<PathBuf> {
    matches.try_get_one::<PathBuf>("config").ok().flatten().cloned()
}

/// The same of a command line that clap parses no further than to its wish for help.
fn named_before_help(words: &[OsString]) -> Option<PathBuf> {
    let typed =
        words.iter().enumerate().find_map(|(at, word)| match word.to_str()?.strip_prefix("--config")? {
            "" => words.get(at + 1).map(PathBuf::from),
            rest => rest.strip_prefix('=').map(PathBuf::from),
        });
    typed.or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from))
}

/// The flags of a command that have a variable in the environment.
pub(crate) fn with_variables(command: &Command) -> BTreeSet<String> {
    let flags = command.get_arguments().filter(|flag| variable(flag).is_some());
    flags.map(|flag| flag.get_id().to_string()).collect()
}

/// The variable of a flag and what it is set to, if it is.
pub(crate) fn variable(flag: &Arg) -> Option<(String, OsString)> {
    let name = flag.get_env()?;
    std::env::var_os(name).map(|value| (name.to_string_lossy().into_owned(), value))
}

/// The words that call the innermost command.
fn called(matches: &ArgMatches) -> Vec<String> {
    let mut names = Vec::new();
    let mut at = matches;
    while let Some((name, inner)) = at.subcommand() {
        names.push(name.to_owned());
        at = inner;
    }
    names
}

/// The words with more of them behind the command's name. The commands before it have one flag, which takes a value.
fn spliced(
    mut words: Vec<OsString>,
    called: &[String],
    more: impl Iterator<Item = OsString>,
) -> Vec<OsString> {
    let mut at = 1;
    for name in called {
        while words.get(at).is_some_and(|word| word != name.as_str()) {
            at += if words[at] == "--config" { 2 } else { 1 };
        }
        at += 1;
    }
    let at = at.min(words.len());
    words.splice(at..at, more);
    words
}

#[cfg(test)]
mod tests;
