//! Every wait of the product is on one page: `docs/waits.md` lists each file that waits, each kind of wait that members report and each
//! reason that a standing job names. It knows the primitives of waiting as text.

use super::tree::{Finding, TextFile, Tree};
use std::collections::BTreeSet;

const PAGE: &str = "docs/waits.md";

/// Sources whose waits can hold up a job, or a command that looks at one.
const FOLDERS: &[&str] = &[
    "master/src/",
    "pserver/src/",
    "trainer-sdk/src/",
    "runtime/src/host/",
    "operator/src/",
    "runner/src/",
    "ui/src/",
];

/// Primitives that may wait without an end of their own.
const PRIMITIVES: &[&str] = &[
    ".changed().await",
    ".notified()",
    ".recv()",
    "acquire().await",
    "acquire_owned().await",
    "acquire_many(",
    "spawn_blocking(",
    ".wait().await",
    "wait_for(",
    ".lock().await",
    "pending().await",
];

/// Enumerations whose words each have a row, and where they are.
const WORDS: &[(&str, &str)] =
    &[("runtime/src/cluster/waits.rs", "WaitKind::"), ("master/src/standstill/reason.rs", "Reason::")];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else { return Vec::new() };
    let listed: BTreeSet<&str> = page.text.lines().filter_map(row).collect();
    let mut findings = Vec::new();
    let waits: BTreeSet<&str> = tree
        .rust()
        .filter(|file| is_of_product(file) && line_of_wait(file).is_some())
        .map(|file| &*file.path)
        .collect();
    for file in tree.rust().filter(|file| waits.contains(&*file.path) && !listed.contains(&*file.path)) {
        let what =
            format!("it waits, and {PAGE} has no row for it: say there what for, and what ends the wait");
        findings.push(file.finding(line_of_wait(file).unwrap_or(1), what));
    }
    for (at, line) in page.text.lines().enumerate() {
        if let Some(path) = row(line).filter(|path| path.ends_with(".rs") && !waits.contains(path)) {
            findings.push(page.finding(at + 1, format!("{path} does not wait: take its row away")));
        }
    }
    for (path, of) in WORDS {
        let Some(file) = tree.file(path) else { continue };
        for (at, word) in words(file, of) {
            if !listed.contains(word) {
                findings.push(file.finding(at, format!("{PAGE} has no row for {word:?}")));
            }
        }
    }
    findings
}

/// The first cell of a row, if that is code.
fn row(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?.split('`').next()
}

fn is_of_product(file: &TextFile) -> bool {
    let is_test =
        file.path.contains("/tests") || file.path.ends_with("_tests.rs") || file.path.ends_with("/frail.rs");
    FOLDERS.iter().any(|folder| file.path.starts_with(folder)) && !is_test
}

/// The first line, before the tests, in which a file waits.
fn line_of_wait(file: &TextFile) -> Option<usize> {
    let code = file.text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
    let mut code = code.enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.find(|(_, line)| PRIMITIVES.iter().any(|primitive| line.contains(primitive))).map(|(at, _)| at + 1)
}

/// The words of an enumeration, as its arms give them: `Kind::One => "one",`.
fn words<'a>(file: &'a TextFile, of: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    file.text.lines().enumerate().filter_map(move |(at, line)| {
        let (_, word) = line.trim().strip_prefix(of)?.split_once("=> \"")?;
        Some((at + 1, word.strip_suffix("\",")?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_without_a_row_a_row_without_a_wait_and_a_word_without_one_are_found() {
        let page = "| `master/src/a.rs` | x | y |\n| `master/src/b.rs` | x | y |\n| `storage` | x | y |\n";
        let kinds = "impl K {\n    match self {\n        WaitKind::Storage => \"storage\",\n        WaitKind::Data => \"data\",\n";
        let tree = Tree::of(&[
            (PAGE, page),
            ("master/src/a.rs", "fn a() {\n    changes.changed().await;\n}\n"),
            ("master/src/b.rs", "// .recv()\nfn b() {}\n#[cfg(test)]\nmod tests { fn c() { x.recv() } }\n"),
            ("master/src/c.rs", "fn c() {}\nfn d() { x.recv() }\n"),
            ("master/src/c/tests.rs", "fn d() { x.recv() }\n"),
            ("runtime/src/cluster/waits.rs", kinds),
        ]);
        let found: Vec<(String, usize)> =
            check(&tree).into_iter().map(|finding| (finding.path, finding.line)).collect();
        let expected = [("master/src/c.rs", 2), (PAGE, 2), ("runtime/src/cluster/waits.rs", 4)];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
    }
}
