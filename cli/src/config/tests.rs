//! Tests of settings over the real command line, and of their order over a small one.

use super::flags::{check, command, commands, contradict, flag, flags};
use super::order::counted;
use super::text::{Given, Setting, tables};
use super::*;
use crate::command_line;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn line() -> Command {
    let mut line = command_line::command();
    line.build();
    line
}

fn fault(text: &str) -> (usize, String) {
    let fault = check(&line(), &tables(text).unwrap(), &|words| words == ["absent"]).unwrap_err();
    (fault.line, fault.what)
}

#[test]
fn commands_with_commands_in_them_have_no_flags_of_their_own() {
    let line = line();
    let mut open = vec![&line];
    while let Some(at) = open.pop() {
        let inner: Vec<&Command> = at.get_subcommands().filter(|inner| inner.get_name() != "help").collect();
        assert!(inner.is_empty() || flags(at).next().is_none(), "{}", at.get_name());
        open.extend(inner);
    }
}

#[test]
fn whatever_is_wrong_is_told_with_its_line_the_nearest_name_and_the_way_out() {
    for (text, at, words) in [
        ("trainers = 2\n", 1, &["above all tables", "[run]"][..]),
        ("\n[rum]\n", 2, &["no command `shoal rum`", "did you mean [run]?", "shoal --help"]),
        ("[recordio.pakc]\n", 1, &["did you mean [recordio.pack]?", "shoal recordio --help"]),
        ("[run]\ntrainer = 2\n", 2, &["no flag --trainer", "did you mean trainers?", "shoal run --help"]),
        ("[run]\nmaster = \"x\"\n", 2, &["no flag --master; `shoal run --help` lists them"]),
        ("[run]\nzzz = 2\n", 2, &["no flag --zzz;", "shoal run --help"]),
        ("[run]\nprogram = \"x\"\n", 2, &["command line alone"]),
        ("[run]\nconfig = \"x\"\n", 2, &["command line alone"]),
        ("[run]\ntrainers = [1, 2]\n", 2, &["takes one value, not a list"]),
        ("[run]\ntrainers = true\n", 2, &["invalid value 'true'", "--trainers"]),
        ("[run]\n\ntrainers = \"0:x\"\n", 3, &["invalid value '0:x'"]),
        ("[run]\ntls = \"yes\"\n", 2, &["takes true or false"]),
        ("[run]\ntls = [true]\n", 2, &["takes true or false"]),
        ("[status]\noutput = \"yaml\"\n", 2, &["possible values: text, json"]),
        ("[run]\nenv = [\"A=1\", \"B\"]\n", 2, &["NAME=VALUE"]),
        ("[master]\njob = \"x\"\n", 1, &["`shoal master` takes no settings of a file"]),
        ("[doctor]\n", 1, &["takes no settings of a file"]),
        ("[status]\ntls = \"c\"\nplaintext = true\n", 3, &["plaintext contradicts tls in line 2"]),
    ] {
        let (line, what) = fault(text);
        assert!(line == at && words.iter().all(|word| what.contains(word)), "{text:?}: line {line}: {what}");
    }
}

#[test]
fn what_is_right_is_taken_and_tables_of_commands_that_a_build_leaves_out_are_not_judged() {
    for text in [
        "",
        "[absent]\nwhatever = 1\n",
        "[run]\ntrainers = \"2:4\"\npservers = 2\nenv = [\"A=1\", \"B=2\"]\ndevice = [\"cpu\", \"cuda:0\"]\ntls = false\n",
        "[run]\nui = true\n",
        "[run]\nui = \"127.0.0.1:8080\"\ndata = \"a,b\"\n",
        "[status]\ntls = \"c\"\nplaintext = false\n",
        "[recordio.pack.csv]\nskip-header = true\n",
    ] {
        let found = check(&line(), &tables(text).unwrap(), &|words| words == ["absent"]);
        assert_eq!(found, Ok(()), "{text:?}");
    }
}

/// What clap is given for a command line beside files with these texts, the nearest first.
fn completed(typed: &str, texts: &[&str], variables: &[&str]) -> String {
    let line = line();
    let files: Vec<Vec<Table>> = texts.iter().map(|text| tables(text).unwrap()).collect();
    let words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
    let lenient = flags::with_values_of_switches(command_line::command()).ignore_errors(true);
    let matches = lenient.try_get_matches_from(&words).unwrap();
    let called = called(&matches);
    let command = command(&line, &called).unwrap();
    let inner = called.iter().fold(&matches, |at, name| at.subcommand_matches(name).unwrap());
    let is_given = |flag: &&Arg| {
        let id = flag.get_id().as_str();
        inner.value_source(id) == Some(ValueSource::CommandLine) || variables.contains(&id)
    };
    let given = command.get_arguments().filter(is_given).map(|flag| flag.get_id().to_string()).collect();
    let of = |tables: &'static [Table]| -> &'static [Setting] {
        tables.iter().find(|table| table.command == called).map_or(&[], |table| &table.settings)
    };
    let settings: Vec<&[Setting]> = files.into_iter().map(|tables| of(tables.leak())).collect();
    let more = counted(command, &settings, &given).into_iter().flat_map(|one| one.words).map(OsString::from);
    let words: Vec<String> =
        spliced(words, &called, more).into_iter().map(|word| word.into_string().unwrap()).collect();
    words.join(" ")
}

#[test]
fn what_counts_stands_behind_the_command_as_if_it_were_typed() {
    let near = "[run]\ntrainers = 3\nenv = [\"A=1\", \"B=2\"]\ntls = true\n[status]\nwatch = true\n";
    assert_eq!(
        completed("shoal --config run run --pservers 2 -- p --trainers 9", &[near], &[]),
        "shoal --config run run --trainers=3 --env=A=1 --env=B=2 --tls --pservers 2 -- p --trainers 9"
    );
    assert_eq!(
        completed("shoal run --trainers 4 --env C=3 -- p", &[near], &["tls"]),
        "shoal run --trainers 4 --env C=3 -- p"
    );
    assert_eq!(completed("shoal status", &[near], &[]), "shoal status --watch");
    assert_eq!(completed("shoal get", &[near], &[]), "shoal get");
}

#[test]
fn the_nearest_file_wins_key_by_key_and_a_list_is_taken_whole() {
    let (near, far) =
        ("[run]\nenv = [\"A=1\"]\ntls = false\n", "[run]\nenv = [\"B=2\"]\ntls = true\npservers = 3\n");
    assert_eq!(completed("shoal run -- p", &[near, far], &[]), "shoal run --env=A=1 --pservers=3 -- p");
    assert_eq!(completed("shoal run -- p", &[far, near], &[]), "shoal run --env=B=2 --tls --pservers=3 -- p");
    let empty = "[run]\nenv = []\n";
    assert_eq!(completed("shoal run -- p", &[empty, far], &[]), "shoal run --tls --pservers=3 -- p");
}

#[test]
fn what_a_stronger_place_contradicts_is_not_there() {
    let tls = "[status]\ntls = \"c\"\n";
    let plain = "[status]\nplaintext = true\n";
    assert_eq!(completed("shoal status", &[tls], &[]), "shoal status --tls=c");
    assert_eq!(completed("shoal status --plaintext", &[tls], &[]), "shoal status --plaintext");
    assert_eq!(completed("shoal status", &[tls], &["plaintext"]), "shoal status");
    assert_eq!(completed("shoal status --tls d", &[plain], &[]), "shoal status --tls d");
    assert_eq!(completed("shoal status", &[tls, plain], &[]), "shoal status --tls=c");
    let off = "[status]\nplaintext = false\n";
    assert_eq!(completed("shoal status", &[off, tls], &[]), "shoal status --tls=c");
}

#[test]
fn a_switch_that_a_file_switches_on_is_typed_off() {
    let on = "[status]\nwatch = true\n";
    let words = completed("shoal status --watch=false", &[on], &[]);
    assert_eq!(words, "shoal status --watch=false");
    let line = || flags::with_values_of_switches(command_line::command());
    for (words, is_on) in [
        (words.as_str(), false),
        ("shoal status --watch", true),
        ("shoal status -w", true),
        ("shoal status", false),
    ] {
        let matches = line().try_get_matches_from(words.split(' ')).unwrap();
        assert_eq!(matches.subcommand_matches("status").unwrap().get_one("watch"), Some(&is_on), "{words}");
    }
    assert!(line().try_get_matches_from(["shoal", "status", "--watch", "false"]).is_err());
    line().debug_assert();
}

#[test]
fn a_flag_that_is_required_may_be_in_a_file() {
    let words = completed("shoal drain", &["[drain]\npserver = \"pserver-1\"\n"], &[]);
    let parsed = line().try_get_matches_from(words.split(' '));
    assert!(parsed.is_ok() && line().try_get_matches_from(["shoal", "drain"]).is_err(), "{parsed:?}");
}

#[test]
fn what_is_shown_is_a_file_of_the_same_settings() {
    let line = line();
    let text = "[run]\ntrainers = \"2:4\"\nenv = [\"A=\\\"1\\\\\\n\", \"B=2\"]\ntls = true\npservers = 3\n";
    let written = tables(text).unwrap();
    let words = vec!["run".to_owned()];
    let at = command(&line, &words).unwrap();
    let files = [("shoal.toml".to_owned(), written[0].settings.as_slice())];
    let variable =
        |flag: &str, name: &str, value: &str| (flag.to_owned(), (name.to_owned(), value.to_owned()));
    let set = BTreeMap::from([
        variable("lease_ttl_millis", "SHOAL_LEASE_TTL_MILLIS", "900"),
        variable("untrained", "SHOAL_UNTRAINED", "true"),
    ]);
    let rows = shown::rows(&words, at, &files, &set);
    for has_origins in [false, true] {
        let again = tables(&shown::text(&rows, has_origins)).unwrap();
        let values = |settings: &[Setting]| -> BTreeMap<String, Given> {
            settings.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect()
        };
        let mut expected = values(&written[0].settings);
        expected.insert("lease-ttl-millis".to_owned(), Given::Word("900".to_owned()));
        expected.insert("untrained".to_owned(), Given::Switch(true));
        assert_eq!(values(&again[0].settings), expected);
        assert_eq!(check(&line, &again, &|_| false), Ok(()));
    }
    let shown = shown::text(&rows, true);
    for word in
        ["# shoal.toml:2", "# variable SHOAL_LEASE_TTL_MILLIS", "# describe-seconds = 120", "# default"]
    {
        assert!(shown.contains(word), "{shown}");
    }
    let object = shown::object(&rows, &["shoal.toml".to_owned()]);
    let row = object["settings"].as_array().unwrap().iter().find(|row| row["flag"] == "trainers").unwrap();
    assert_eq!(row["origin"], serde_json::json!({ "kind": "file", "file": "shoal.toml", "line": 2 }));
}

#[test]
fn every_command_that_takes_settings_is_shown_and_roles_are_not() {
    let all: Vec<String> = commands(&line()).iter().map(|words| words.join(" ")).collect();
    for command in ["run", "chaos", "demo", "status", "recordio pack csv", "checkpoint ls", "submit"] {
        assert!(all.iter().any(|one| one == command), "{command}: {all:?}");
    }
    for command in ["master", "pserver", "operator", "doctor", "config show", "reaper", "completions"] {
        assert!(!all.iter().any(|one| one == command), "{command}: {all:?}");
    }
}

#[test]
fn help_says_what_a_file_sets() {
    let told =
        noted(command_line::command(), &["run".to_owned()], "trainers", "[shoal.toml:2: --trainers=4]");
    let help = told.clone().try_get_matches_from(["shoal", "run", "--help"]).unwrap_err().to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("[shoal.toml:2: --trainers=4]") && help.contains("Number of trainers"), "{help}");
}

/// Flags `a` to `f`, of which `a` and `b` refuse one another, and `e` and `f` do.
fn small() -> Command {
    let flag = |name: &'static str| Arg::new(name).long(name);
    let mut small = Command::new("small")
        .args([flag("a").conflicts_with("b"), flag("b"), flag("c"), flag("d"), flag("e"), flag("f")])
        .group(clap::ArgGroup::new("one").args(["e", "f"]));
    small.build();
    small
}

fn some_of(names: Vec<bool>) -> BTreeSet<String> {
    ["a", "b", "c", "d", "e", "f"]
        .into_iter()
        .zip(names)
        .filter(|(_, is_in)| *is_in)
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Two settings of one file that contradict one another are refused before: those that are made here have none.
fn settings(names: &BTreeSet<String>, file: usize) -> Vec<Setting> {
    let refused = |name: &str| match name {
        "b" => names.contains("a"),
        "f" => names.contains("e"),
        _ => false,
    };
    let of = |name: &String| Setting { key: name.clone(), value: Given::Word(file.to_string()), line: 1 };
    names.iter().filter(|name| !refused(name)).map(of).collect()
}

proptest! {
    /// Against the definition, flag by flag: from the strongest place to the weakest, whatever is neither decided nor refused by what is
    /// there already.
    #[test]
    fn of_each_flag_the_strongest_place_counts_that_nothing_stronger_contradicts(
        given in prop::collection::vec(any::<bool>(), 6),
        files in prop::collection::vec(prop::collection::vec(any::<bool>(), 6), 0..4),
    ) {
        // Typed contradictions are clap's to refuse.
        let given = settings(&some_of(given), 9).into_iter().map(|setting| setting.key).collect::<BTreeSet<_>>();
        let files: Vec<Vec<Setting>> = files.into_iter().enumerate().map(|(file, names)| settings(&some_of(names), file)).collect();
        let small = small();
        let slices: Vec<&[Setting]> = files.iter().map(Vec::as_slice).collect();
        let counted = counted(&small, &slices, &given);

        let partner = |name: &str| match name { "a" => "b", "b" => "a", "e" => "f", "f" => "e", _ => "" }.to_owned();
        let mut place: BTreeMap<String, usize> = given.iter().map(|name| (name.clone(), usize::MAX)).collect();
        for (file, settings) in files.iter().enumerate() {
            let before = place.clone();
            for setting in settings {
                if !before.contains_key(&setting.key) && !before.contains_key(&partner(&setting.key)) {
                    place.insert(setting.key.clone(), file);
                }
            }
        }
        place.retain(|_, file| *file != usize::MAX);
        let found: BTreeMap<String, usize> = counted.iter().map(|one| (one.flag.clone(), one.file)).collect();
        prop_assert_eq!(found, place);

        let present = counted.iter().map(|one| one.flag.clone()).chain(given).collect::<Vec<_>>();
        for (index, one) in present.iter().enumerate() {
            for other in &present[..index] {
                prop_assert!(!contradict(&small, flag(&small, one).unwrap(), flag(&small, other).unwrap()));
            }
        }
        let typed = counted.iter().flat_map(|one| &one.words);
        prop_assert!(small.clone().no_binary_name(true).try_get_matches_from(typed).is_ok());
    }
}
