//! Documents and scripts name what exists: files of ours, programs, test programs and their modules, tests, guards. It must never
//! ask cargo: the tree says what there is.

use super::tree::{Finding, TextFile, Tree};

/// What tells of earlier times keeps their names; this file has made-up ones.
const SKIPPED: &[&str] = &["CHANGELOG.md", "tests/tests/tidy/names.rs"];
/// Where tests are spoken of by name, and guards, which are written down elsewhere.
const PROOFS: &[&str] = &["tests/README.md", "docs/testing.md"];
const GUARDS: &str = "tests/mutants/guards.py";

/// Every document, script and source of the tree.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !SKIPPED.contains(&file.path.as_str())) {
        findings.extend(targets(tree, file));
        if file.path.ends_with(".md") {
            for (index, line) in file.text.lines().enumerate() {
                let wrong = spans(line).filter_map(|span| missing(tree, file, span));
                findings.extend(wrong.map(|what| file.finding(index + 1, what)));
            }
        }
    }
    findings
}

/// Every fuzz target of a package is a program of the workspace that builds them: otherwise nobody runs it.
pub(crate) fn check_fuzz_targets(tree: &Tree) -> Vec<Finding> {
    let manifest = tree.file("fuzz/Cargo.toml").map_or("", |file| file.text.as_str());
    let is_target = |file: &&TextFile| file.path.contains("/fuzz/fuzz_targets/");
    let is_built = |file: &TextFile| manifest.contains(&format!("path = \"../{}\"", file.path));
    let what = "no program of fuzz/Cargo.toml: name it PACKAGE-TARGET there";
    tree.rust().filter(is_target).filter(|file| !is_built(file)).map(|file| file.finding(1, what)).collect()
}

/// Words of a file with their lines, as a list of arguments and as a line for a shell has them. What opens or closes a command in
/// prose is a word as well; what begins a comment is none, as a command may go on in the next.
fn words(text: &str) -> Vec<(usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || "-_:{}$<>/.".contains(c);
    let mut words = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let parts = line.split_inclusive('`').flat_map(|part| {
            let (inside, quote) = part.strip_suffix('`').map_or((part, None), |inside| (inside, Some("`")));
            inside.split(move |c| !is_word(c)).chain(quote)
        });
        let is_comment = |word: &str| word.chars().all(|c| c == '/');
        words.extend(parts.filter(|word| !is_comment(word)).map(|word| (index + 1, word)));
    }
    words
}

/// The programs and test programs that commands name, and are not there, or not in the packages that the command names.
fn targets(tree: &Tree, file: &TextFile) -> Vec<Finding> {
    let words = words(&file.text);
    let mut findings = Vec::new();
    for (at, pair) in words.windows(2).enumerate() {
        let [(line, flag), (_, name)] = [pair[0], pair[1]];
        // What stands for a name is none.
        let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c));
        if !is_name || name.starts_with('-') || !["--bin", "--test"].contains(&flag) {
            continue;
        }
        let folders = folders(tree, &words, at);
        let of = if folders.is_empty() { "" } else { " in the packages that it names" };
        if flag == "--bin" && !has_program(tree, &folders, name) {
            findings.push(file.finding(line, format!("--bin {name}: there is no such program{of}")));
        }
        if flag == "--test" && !has_tests(tree, &folders, name) {
            findings.push(file.finding(line, format!("--test {name}: there is no such test program{of}")));
        } else if flag == "--test" {
            let module = words.get(at + 2).and_then(|(_, filter)| filter.split_once("::"));
            if let Some((module, _)) = module.filter(|(module, _)| !has_module(tree, name, module)) {
                let what = format!("--test {name} {module}::: there is no such module");
                findings.push(file.finding(line, what));
            }
        }
    }
    findings
}

/// Folders of the packages that the command around a word names; none where it names none.
fn folders<'a>(tree: &'a Tree, words: &[(usize, &str)], at: usize) -> Vec<&'a str> {
    let is_begin = |word: &str| word == "`" || word == "cargo";
    let begin = words[..at].iter().rposition(|(_, word)| is_begin(word)).unwrap_or(0);
    let end = words[at..].iter().position(|(_, word)| is_begin(word)).map_or(words.len(), |more| at + more);
    let named = words[begin..end].windows(2).filter(|pair| pair[0].1 == "-p").map(|pair| pair[1].1);
    named.filter_map(|package| folder(tree, package)).collect()
}

fn folder<'a>(tree: &'a Tree, package: &str) -> Option<&'a str> {
    let named = format!("[package]\nname = \"{package}\"\n");
    let manifest =
        tree.files.iter().find(|file| file.path.ends_with("/Cargo.toml") && file.text.contains(&named));
    manifest.and_then(|file| file.path.strip_suffix("Cargo.toml"))
}

/// Whether a file is of one of these folders, or these are none.
fn is_in(file: &TextFile, folders: &[&str]) -> bool {
    folders.is_empty() || folders.iter().any(|folder| file.path.starts_with(folder))
}

fn has_program(tree: &Tree, folders: &[&str], name: &str) -> bool {
    let files = [format!("src/bin/{name}.rs"), format!("src/bin/{name}/main.rs")];
    let named = format!("name = \"{name}\"");
    tree.files.iter().filter(|file| is_in(file, folders)).any(|file| {
        files.iter().any(|known| file.path.ends_with(known))
            || (file.path.ends_with("Cargo.toml") && file.text.contains(&named))
    })
}

fn has_tests(tree: &Tree, folders: &[&str], name: &str) -> bool {
    let files = [format!("/tests/{name}.rs"), format!("/tests/{name}/main.rs")];
    tree.rust()
        .filter(|file| is_in(file, folders))
        .any(|file| files.iter().any(|known| file.path.ends_with(known)))
}

fn has_module(tree: &Tree, program: &str, module: &str) -> bool {
    let (main, declared) = (format!("/tests/{program}/main.rs"), format!("mod {module};"));
    tree.rust().any(|file| file.path.ends_with(&main) && file.text.contains(&declared))
}

/// What stands between backticks in a line.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// What is wrong with a name between backticks: a source, a test or a guard that is not there.
fn missing(tree: &Tree, file: &TextFile, span: &str) -> Option<String> {
    let is_of = |more: &str| span.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
    if span.ends_with(".rs") && is_of("_-/.") {
        let end = format!("/{span}");
        let is_there = tree.rust().any(|known| known.path == span || known.path.ends_with(&end));
        return (!is_there).then(|| format!("`{span}`: no source of ours ends so"));
    }
    if !PROOFS.contains(&file.path.as_str()) {
        return None;
    }
    // Sentences are tests: nothing else has so many words.
    if span.matches('_').count() >= 4 && is_of("_") && span.chars().all(|c| !c.is_ascii_uppercase()) {
        let written = format!("fn {span}(");
        let is_there = tree.rust().any(|known| known.text.contains(&written));
        return (!is_there).then(|| format!("`{span}`: there is no such test"));
    }
    if span.matches('-').count() >= 1 && is_of("-") && !span.starts_with('-') {
        let named = format!("\"{span}\"");
        let is_there = tree.file(GUARDS).is_none_or(|guards| guards.text.contains(&named));
        return (!is_there).then(|| format!("`{span}`: {GUARDS} has no such guard"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &[(&str, &str)] = &[
        ("Cargo.toml", "[workspace]\n"),
        ("tests/Cargo.toml", "[package]\nname = \"shoal-tests\"\n"),
        ("studies/Cargo.toml", "[package]\nname = \"shoal-studies\"\n"),
        ("studies/src/bin/sweep.rs", "//! A.\n"),
        ("tests/src/bin/simulate.rs", "//! A.\n"),
        ("tests/tests/sim/main.rs", "//! A.\nmod directed;\n"),
        ("tests/tests/sim/directed/mod.rs", "//! A.\nfn a_trainer_that_leaves_is_counted_once() {}\n"),
        ("tests/mutants/guards.py", "Guard(\"whole-siblings\")\n"),
    ];

    fn found(path: &str, line: &str) -> Vec<String> {
        let files: Vec<_> = TREE.iter().copied().chain([(path, line)]).collect();
        check(&Tree::of(&files)).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn what_exists_may_be_named() {
        for line in [
            "`cargo run --bin simulate -- --seeds 0..1`",
            "`cargo test --test sim directed::copies`, `--test sim`",
            "command = [\"--test\", \"sim\", \"directed::\"]",
            "`directed/mod.rs` and `a_trainer_that_leaves_is_counted_once`, `whole-siblings`",
            "`--bin NAME`, `--test $program`, `a_name_of_four`",
            "cargo build -p shoal-studies -p shoal-tests --bin sweep --bin simulate",
            "`cargo run -p shoal-studies`, or `cargo run --bin simulate`, and `--bin simulate`",
        ] {
            assert_eq!(found("tests/README.md", line), [] as [String; 0], "{line}");
        }
    }

    #[test]
    fn what_does_not_exist_is_found_wherever_it_is_named() {
        for line in [
            "cargo run --bin grid",
            "cargo test --test directed",
            "cargo test --test sim copies::all",
            "command = [\"--test\", \"sim\", \"copies::\"]",
            "`tests/directed.rs`",
            "`a_trainer_that_leaves_is_counted_twice`",
            "`half-siblings`",
            "cargo run -p shoal-tests --bin sweep",
            "`cargo run --release -p\n//! shoal-tests --bin sweep`",
            "cargo run --bin sweep -p shoal-tests",
            "cargo test -p shoal-studies --test sim",
        ] {
            assert_eq!(found("tests/README.md", line).len(), 1, "{line}");
        }
        assert_eq!(found("tests/mutants/mutants.py", "[\"--test\", \"directed\"]").len(), 1);
    }

    #[test]
    fn a_fuzz_target_that_nobody_builds_is_found() {
        let target = |name: &str| format!("master/fuzz/fuzz_targets/{name}.rs");
        let (built, forgotten) = (target("service"), target("document"));
        let manifest = format!("path = \"../{built}\"\n");
        let tree = Tree::of(&[("fuzz/Cargo.toml", &manifest), (&built, ""), (&forgotten, "")]);
        let found: Vec<String> = check_fuzz_targets(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(found, [forgotten]);
    }

    #[test]
    fn history_keeps_its_names() {
        assert_eq!(found("CHANGELOG.md", "`cargo run --bin grid`"), [] as [String; 0]);
    }
}
