//! What this build leaves out: help names it, and whoever calls it is told how to get it. It must never speak of a command that
//! is there.

use shoal_runner::exit::Exit;
use std::ffi::{OsStr, OsString};

/// A part of the command that is built where a feature of this package is on.
struct Part {
    feature: &'static str,
    is_here: bool,
    what: &'static str,
    /// The words that call its commands.
    commands: &'static [&'static [&'static str]],
    /// Flags of commands that are in every build.
    flags: &'static [&'static str],
}

/// What is in another part, too, stands before it: whoever packs Parquet files is told of the feature that has both.
const PARTS: [Part; 3] = [
    Part {
        feature: "cluster",
        is_here: cfg!(feature = "cluster"),
        what: "what speaks with Kubernetes or plans for it",
        commands: &[
            &["submit"],
            &["get"],
            &["logs"],
            &["wait"],
            &["delete"],
            &["collect"],
            &["simulate"],
            &["operator"],
        ],
        flags: &["run --file", "ui JOB", "why JOB", "doctor --cluster"],
    },
    Part {
        feature: "parquet",
        is_here: cfg!(feature = "parquet"),
        what: "Parquet files",
        commands: &[&["recordio", "pack", "parquet"]],
        flags: &["export --table", "checkpoint export --table"],
    },
    Part {
        feature: "pack",
        is_here: cfg!(feature = "pack"),
        what: "how records are made of files of other kinds",
        commands: &[&["recordio", "pack"]],
        flags: &[],
    },
];

/// What a build leaves out that is not `full`, for the end of help. None where all is there.
pub(crate) fn note() -> Option<String> {
    note_of(&PARTS)
}

fn note_of(parts: &[Part]) -> Option<String> {
    let absent = parts.iter().filter(|part| !part.is_here);
    let names = absent.flat_map(|part| {
        let commands = part.commands.iter().map(|words| words.join(" "));
        commands.chain(part.flags.iter().map(|flag| (*flag).to_owned()))
    });
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| {
        format!(
            "Not in this build: {}.\nAll of it: cargo install --path cli --features full",
            names.join(", ")
        )
    })
}

/// Why the command that these words call cannot be had. None where it is there, or is no command of ours.
pub(crate) fn why(words: &[OsString]) -> Option<Exit> {
    let (part, command) = absent(&PARTS, words)?;
    Some(lacks(&format!("`shoal {}`", command.join(" ")), part))
}

/// Whether these words call a command, or begin the words of one, that this build leaves out.
pub(crate) fn is_left_out(words: &[String]) -> bool {
    let begins = |command: &&[&str]| {
        command.iter().zip(words).all(|(one, word)| one == word) && words.len() >= command.len()
    };
    PARTS.iter().filter(|part| !part.is_here).any(|part| part.commands.iter().any(&begins))
}

/// The part that has the command, with its words: `shoal help submit` asks for it as well as `shoal submit`.
fn absent<'a>(parts: &'a [Part], words: &[OsString]) -> Option<(&'a Part, &'a [&'static str])> {
    let words = words.get(1..)?;
    let words = words.strip_prefix(&[OsString::from("help")]).unwrap_or(words);
    let calls = |command: &[&str]| {
        command.len() <= words.len() && command.iter().zip(words).all(|(one, word)| OsStr::new(one) == word)
    };
    parts
        .iter()
        .filter(|part| !part.is_here)
        .find_map(|part| part.commands.iter().find(|command| calls(command)).map(|command| (part, *command)))
}

/// Why a flag, or a kind of file, cannot be had without the feature.
#[cfg(not(all(feature = "cluster", feature = "parquet")))]
pub(crate) fn flag(flag: &str, feature: &str) -> Exit {
    let part = PARTS.iter().find(|part| part.feature == feature).unwrap_or(&PARTS[0]);
    lacks(flag, part)
}

fn lacks(what: &str, part: &Part) -> Exit {
    Exit::Usage(format!(
        "{what} is not in this build, which leaves out {}: cargo install --path cli --features {} \
         (or full, for all there is)",
        part.what, part.feature
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(is_here: bool) -> [Part; 3] {
        PARTS.map(|part| Part { is_here, ..part })
    }

    fn called(parts: &[Part], line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        absent(parts, &words).map(|(part, command)| lacks(&command.join(" "), part).to_string())
    }

    #[test]
    fn a_command_that_is_left_out_says_how_to_get_it_however_it_is_called() {
        for line in ["shoal submit -f job.yaml", "shoal submit --help", "shoal help submit"] {
            let why = called(&parts(false), line).unwrap_or_default();
            assert!(
                why.contains("submit is not in this build") && why.contains("--features cluster"),
                "{why}"
            );
        }
        let why = called(&parts(false), "shoal recordio pack parquet a.parquet").unwrap_or_default();
        assert!(why.contains("Parquet files") && why.contains("--features parquet"), "{why}");
        for line in
            ["shoal recordio pack csv a.csv", "shoal recordio pack --help", "shoal help recordio pack"]
        {
            let why = called(&parts(false), line).unwrap_or_default();
            assert!(why.contains("files of other kinds") && why.contains("--features pack"), "{why}");
        }
    }

    #[test]
    fn whatever_is_there_or_unknown_is_left_to_the_parser() {
        for line in ["shoal", "shoal run", "shoal recordio ls a", "shoal recordio", "shoal submitt"] {
            assert_eq!(called(&parts(false), line), None, "{line}");
        }
        assert_eq!(called(&parts(true), "shoal submit"), None);
    }

    #[test]
    fn help_names_what_is_left_out_and_nothing_where_all_is_there() {
        assert_eq!(note_of(&parts(true)), None);
        let note = note_of(&parts(false)).unwrap_or_default();
        for name in ["submit, ", "run --file", "recordio pack parquet", "recordio pack.", "--features full"] {
            assert!(note.contains(name), "{note}");
        }
    }
}
