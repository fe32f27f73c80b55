//! What the tables and keys of a file mean: commands and flags, by clap's own word of them. It parses no command line, and knows of no
//! flag by name.

use super::text::{Fault, Given, Setting, Table};
use clap::{Arg, ArgAction, Command};

/// Commands that are told all by flags and variables. A role may be started in any folder, by a supervisor or in a pod, and must not be
/// changed by a file that happens to lie there; the others have to work where a file is wrong.
const WITHOUT: [&str; 9] =
    ["master", "pserver", "operator", "completions", "config", "doctor", "demo-trainer", "reaper", "help"];
/// What a flag is called while it is tried by itself.
const ALONE: &str = "flag-of-a-file";
/// How alike two names are for one to be told in place of the other, by Jaro's measure. Clap's 0.7 takes `master` for
/// `microbatches-per-step`.
const ALIKE: f64 = 0.75;

/// Whether the command takes settings of files.
pub(crate) fn is_settable(command: &[String]) -> bool {
    command.first().is_some_and(|first| !WITHOUT.contains(&first.as_str()))
}

/// The command that is called by these words. The command line has been built.
pub(crate) fn command<'a>(line: &'a Command, words: &[String]) -> Option<&'a Command> {
    words.iter().try_fold(line, |command, word| command.find_subcommand(word))
}

/// All commands that take settings, by the words that call them, in the order of help.
pub(crate) fn commands(line: &Command) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![Vec::new()];
    while let Some(words) = open.pop() {
        let Some(at) = command(line, &words) else { continue };
        if flags(at).next().is_some() && is_settable(&words) {
            found.push(words.clone());
        }
        let inner = at.get_subcommands().filter(|inner| inner.get_name() != "help");
        let inner = inner.map(|inner| [words.as_slice(), &[inner.get_name().to_owned()]].concat());
        let inner: Vec<_> = inner.filter(|words| is_settable(words)).collect();
        open.extend(inner.into_iter().rev());
    }
    found
}

/// The flags of a command that a file may set: those with a long name that help shows, but for those that all commands have.
pub(crate) fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|flag| {
        let is_asking = matches!(
            flag.get_action(),
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
        );
        flag.get_long().is_some() && !flag.is_hide_set() && !flag.is_global_set() && !is_asking
    })
}

/// The flag of that long name.
pub(crate) fn flag<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    flags(command).find(|flag| flag.get_long() == Some(key))
}

/// Whether a flag may be given without a value.
fn is_switch(flag: &Arg) -> bool {
    flag.get_num_args().is_some_and(|count| count.min_values() == 0)
}

fn takes_value(flag: &Arg) -> bool {
    flag.get_num_args().is_none_or(|count| count.takes_values())
}

/// The command line in which every switch may be typed with a value, such as `--tls=false`: what a file switches on can be switched off.
/// Help and completions are of the line without that.
pub(crate) fn with_values_of_switches(line: Command) -> Command {
    let line = line.mut_args(|flag| match flag.get_action() {
        ArgAction::SetTrue => flag
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .default_value("false")
            .hide_default_value(true),
        _ => flag,
    });
    line.mut_subcommands(with_values_of_switches)
}

/// Whether a flag takes a list: it is repeated, or has commas.
pub(crate) fn takes_list(flag: &Arg) -> bool {
    matches!(flag.get_action(), ArgAction::Append) || flag.get_value_delimiter().is_some()
}

/// What would be typed for a flag to have that value. Nothing for a switch that is off, and for an empty list.
///
/// # Errors
/// The flag takes no such value.
pub(crate) fn words(flag: &Arg, value: &Given) -> Result<Vec<String>, String> {
    let name = flag.get_long().unwrap_or_default();
    let words = match value {
        Given::Switch(false) if is_switch(flag) => Vec::new(),
        Given::Switch(true) if is_switch(flag) => vec![format!("--{name}")],
        Given::Word(_) | Given::Words(_) if !takes_value(flag) => {
            return Err("takes true or false".to_owned());
        }
        Given::Switch(is_so) => vec![format!("--{name}={is_so}")],
        Given::Word(word) => vec![format!("--{name}={word}")],
        Given::Words(words) if takes_list(flag) => {
            words.iter().map(|word| format!("--{name}={word}")).collect()
        }
        Given::Words(_) => return Err("takes one value, not a list".to_owned()),
    };
    taken(flag, &words).map(|()| words)
}

/// Whether clap takes these words for the flag, by itself: a flag beside no other, with the same values.
fn taken(flag: &Arg, words: &[String]) -> Result<(), String> {
    let name = format!("--{}", flag.get_long().unwrap_or_default());
    let mut alone = Arg::new(ALONE)
        .long(ALONE)
        .action(flag.get_action().clone())
        .value_parser(flag.get_value_parser().clone())
        .require_equals(flag.is_require_equals_set());
    if let Some(count) = flag.get_num_args() {
        alone = alone.num_args(count);
    }
    if let Some(names) = flag.get_value_names() {
        alone = alone.value_names(names.iter().cloned());
    }
    if let Some(delimiter) = flag.get_value_delimiter() {
        alone = alone.value_delimiter(delimiter);
    }
    let line = Command::new("shoal").no_binary_name(true).disable_help_flag(true).arg(alone);
    // Without a value there is nothing to be parsed.
    let values = words.iter().filter_map(|word| word.strip_prefix(&name)?.strip_prefix('='));
    let words = values.map(|value| format!("--{ALONE}={value}"));
    line.try_get_matches_from(words).map(drop).map_err(|error| {
        let text = error.render().to_string().replace(&format!("--{ALONE}"), &name);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines =
            lines.filter(|line| !line.starts_with("For more information") && !line.starts_with("Usage:"));
        lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned()
    })
}

/// Whether clap refuses the two flags beside one another.
pub(crate) fn contradict(command: &Command, one: &Arg, other: &Arg) -> bool {
    let names = |from: &Arg, to: &Arg| {
        command.get_arg_conflicts_with(from).iter().any(|refused| refused.get_id() == to.get_id())
    };
    let is_shared = command.get_groups().any(|group| {
        let holds = |flag: &Arg| group.get_args().any(|id| id == flag.get_id());
        holds(one) && holds(other) && !group.clone().is_multiple()
    });
    let is_alone = one.is_exclusive_set() || other.is_exclusive_set();
    one.get_id() != other.get_id() && (is_alone || is_shared || names(one, other) || names(other, one))
}

/// Refuses what is wrong in a file's tables, whichever command is called. Commands that this build leaves out may have tables: the file
/// may be read by another.
///
/// # Errors
/// The first that is wrong.
pub(crate) fn check(
    line: &Command,
    tables: &[Table],
    is_left_out: &dyn Fn(&[String]) -> bool,
) -> Result<(), Fault> {
    for table in tables {
        let fault = |what| Fault { line: table.line, what };
        if is_left_out(&table.command) {
            continue;
        }
        let found = found(line, &table.command).map_err(fault)?;
        for setting in &table.settings {
            check_setting(found, table, setting).map_err(|what| Fault { line: setting.line, what })?;
        }
        check_pairs(found, table)?;
    }
    Ok(())
}

fn found<'a>(line: &'a Command, words: &[String]) -> Result<&'a Command, String> {
    if words.is_empty() {
        return Ok(line);
    }
    let called = format!("`shoal {}`", words.join(" "));
    let mut at = line;
    for (index, word) in words.iter().enumerate() {
        let inner =
            || at.get_subcommands().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set());
        match inner().find(|inner| inner.get_name() == word) {
            Some(inner) => at = inner,
            None => {
                let before = &words[..index];
                let near = nearest(word, inner().map(Command::get_name));
                let near =
                    near.map(|near| format!(": did you mean [{}]? ", [before, &[near]].concat().join(".")));
                let help = [before, &["--help".to_owned()]].concat().join(" ");
                return Err(format!(
                    "[{}]: there is no command {called}{}`shoal {help}` lists them",
                    words.join("."),
                    near.unwrap_or_else(|| "; ".to_owned())
                ));
            }
        }
    }
    if !is_settable(words) {
        return Err(format!(
            "[{}]: {called} takes no settings of a file: give flags or variables, and take the table out",
            words.join(".")
        ));
    }
    Ok(at)
}

fn check_setting(command: &Command, table: &Table, setting: &Setting) -> Result<(), String> {
    let key = &setting.key;
    if table.command.is_empty() {
        return Err(format!(
            "{key} stands above all tables: put it below the name of a command, such as [run]"
        ));
    }
    let called = format!("shoal {}", table.command.join(" "));
    let Some(flag) = flag(command, key) else {
        let is_argument = |argument: &&Arg| {
            argument.get_id().as_str() == key && (argument.is_positional() || argument.is_global_set())
        };
        if command.get_arguments().any(|argument| is_argument(&argument)) {
            return Err(format!("{key} is given on the command line alone: take it out"));
        }
        let near = nearest(key, flags(command).filter_map(Arg::get_long));
        let near = near.map_or_else(|| "; ".to_owned(), |near| format!(": did you mean {near}? "));
        return Err(format!("{key}: `{called}` has no flag --{key}{near}`{called} --help` lists them"));
    };
    words(flag, &setting.value)
        .map(drop)
        .map_err(|why| format!("{key}: {why}; `{called} --help` says what it takes"))
}

fn check_pairs(command: &Command, table: &Table) -> Result<(), Fault> {
    let on = |setting: &&Setting| setting.value != Given::Switch(false);
    let settings: Vec<(&Setting, &Arg)> = (table.settings.iter().filter(on))
        .filter_map(|setting| Some((setting, flag(command, &setting.key)?)))
        .collect();
    for (index, (later, one)) in settings.iter().enumerate() {
        if let Some((earlier, _)) =
            settings[..index].iter().find(|(_, other)| contradict(command, one, other))
        {
            let what = format!(
                "{} contradicts {} in line {}: take one of them out",
                later.key, earlier.key, earlier.line
            );
            return Err(Fault { line: later.line, what });
        }
    }
    Ok(())
}

/// The name that is most like `word`, if one is.
fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let measured = names.map(|name| (strsim::jaro(word, name), name));
    let best = measured.filter(|(alike, _)| *alike > ALIKE).max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map(|(_, name)| name.to_owned())
}
