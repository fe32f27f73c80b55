//! Files of settings with the real command: what counts, what is refused, and that folders and users are told apart.

use crate::roles::{parsed, shoal};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The command in a folder, which finds files of settings there and above, and the user's in `user`.
fn finding(folder: &Path, user: &Path, words: &[&str]) -> Command {
    let mut command = shoal(folder);
    command.env_remove("SHOAL_CONFIG").env("XDG_CONFIG_HOME", user).env("HOME", user).args(words);
    command
}

fn said(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{:?} {out}{err}", output.status.code())
}

/// Which value a flag of `shoal status` has, and where it comes from.
fn shown(mut command: Command, flag: &str) -> String {
    let output = command.args(["config", "show", "status", "-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let shown = parsed(&String::from_utf8(output.stdout).unwrap());
    let row = shown["settings"].as_array().unwrap().iter().find(|row| row["flag"] == flag).unwrap();
    let origin = &row["origin"];
    format!("{} {} {}", row["value"], origin["kind"], origin["line"])
}

/// The address that `shoal status` asks, by its own word: nobody listens at any of these.
fn asked(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let said = said(&output);
    let at = said.find("127.0.0.1:").unwrap_or_else(|| panic!("{said}"));
    said[at + 10..].chars().take_while(char::is_ascii_digit).collect()
}

#[test]
#[allow(clippy::disallowed_methods, reason = "real processes take real time")]
fn a_flag_counts_before_a_variable_before_the_nearest_file_before_the_user_s_before_the_default() {
    let (folder, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let inner = folder.path().join("a/b");
    std::fs::create_dir_all(&inner).unwrap();
    let status = |words: &[&str]| finding(&inner, user.path(), words);
    assert_eq!(shown(status(&[]), "master"), "null \"none\" null");
    assert_eq!(shown(status(&[]), "run"), "\"runs/latest\" \"default\" null");

    std::fs::create_dir(user.path().join("shoal")).unwrap();
    std::fs::write(user.path().join("shoal/shoal.toml"), "[status]\nmaster = \"127.0.0.1:4\"\nrun = \"r\"\n")
        .unwrap();
    assert_eq!(asked(status(&["status"])), "4");
    std::fs::write(folder.path().join("shoal.toml"), "\n[status]\nmaster = \"127.0.0.1:3\"\n").unwrap();
    assert_eq!(asked(status(&["status"])), "3");
    assert_eq!(shown(status(&[]), "master"), "\"127.0.0.1:3\" \"file\" 3");
    assert_eq!(shown(status(&[]), "run"), "\"r\" \"file\" 3");
    let with_variable = |words: &[&str]| {
        let mut command = status(words);
        command.env("SHOAL_MASTER", "127.0.0.1:2");
        command
    };
    assert_eq!(asked(with_variable(&["status"])), "2");
    assert_eq!(shown(with_variable(&[]), "master"), "\"127.0.0.1:2\" \"variable\" null");
    assert_eq!(asked(with_variable(&["status", "--master", "127.0.0.1:1"])), "1");

    // What a file switches on is typed off: the status is asked for once, and not until somebody answers.
    std::fs::write(inner.join("watch.toml"), "[status]\nmaster = \"127.0.0.1:6\"\nwatch = true\n").unwrap();
    let began = Instant::now();
    assert_eq!(asked(status(&["status", "--config", "watch.toml", "--watch=false"])), "6");
    assert!(began.elapsed() < Duration::from_secs(20), "a watch waits for 30 s");

    // A file that is named is the only one; a repository's root ends the search.
    std::fs::write(inner.join("other.toml"), "[status]\nmaster = \"127.0.0.1:5\"\n").unwrap();
    assert_eq!(asked(status(&["status", "--config", "other.toml"])), "5");
    assert_eq!(shown(status(&["--config", "other.toml"]), "run"), "\"runs/latest\" \"default\" null");
    std::fs::create_dir(folder.path().join("a/.git")).unwrap();
    assert_eq!(asked(status(&["status"])), "4");
}

#[test]
fn a_wrong_file_is_told_with_file_and_line_and_holds_up_neither_help_nor_roles() {
    let (folder, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("shoal.toml"), "# mine\n[run]\ntrainer = 2\n").unwrap();
    let run = |words: &[&str]| finding(folder.path(), user.path(), words).output().unwrap();
    for words in [&["status"][..], &["config", "show"], &["recordio", "ls", "x"]] {
        let output = run(words);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        for word in ["shoal.toml:3: ", "no flag --trainer", "did you mean trainers?", "`shoal run --help`"] {
            assert!(text.contains(word), "{words:?}: {text}");
        }
    }
    for words in [&["run", "--help"][..], &["--version"], &["completions", "bash"]] {
        assert!(run(words).status.success(), "{words:?}");
    }
    let role = run(&["pserver", "--device", "gpu"]);
    assert!(role.status.code() == Some(2) && !said(&role).contains("shoal.toml"), "{}", said(&role));
}

#[test]
fn what_files_had_a_part_in_is_told_where_a_command_was_called_wrongly() {
    let (folder, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("shoal.toml"), "[run]\nchaos-kinds = [\"kill\"]\n").unwrap();
    let output = finding(folder.path(), user.path(), &["run", "--data", "x", "--", "true"]).output().unwrap();
    let text = said(&output);
    assert!(output.status.code() == Some(2) && text.contains("--chaos SEED"), "{text}");
    assert!(text.contains("chaos-kinds (shoal.toml:2)") && text.contains("--config /dev/null"), "{text}");
    let help = finding(folder.path(), user.path(), &["run", "--help"]).output().unwrap();
    let help = said(&help).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("[shoal.toml:2: --chaos-kinds=kill]"), "{help}");
}

#[test]
fn a_folder_that_is_gone_and_a_reader_that_leaves_are_no_trouble() {
    let (folder, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let script = "cd gone && rmdir ../gone && \"$SHOAL\" config show run && { sleep 0.2; \"$SHOAL\" config show run; } | true; exit ${PIPESTATUS[0]}";
    std::fs::create_dir(folder.path().join("gone")).unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).current_dir(folder.path()).env("SHOAL", env!("CARGO_BIN_EXE_shoal"));
    bash.env_remove("SHOAL_CONFIG").env_remove("TERM").env("XDG_CONFIG_HOME", user.path());
    let output = bash.output().unwrap();
    assert!(output.status.success() && said(&output).contains("[run]"), "{}", said(&output));
    assert!(!said(&output).contains("panicked"), "{}", said(&output));
}
