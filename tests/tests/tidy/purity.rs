//! Pure files: what they may not name outside comments, strings and tests.

use super::code::{Code, is_test_file};
use super::tree::{Finding, TextFile, Tree, has_word};

/// Files that are pure, and why.
#[derive(Debug)]
pub(crate) struct Pure {
    /// The paths begin with it.
    pub(crate) prefix: &'static str,
    /// Words that do not occur.
    pub(crate) forbidden: &'static [&'static str],
    pub(crate) reason: &'static str,
}

/// Holds every pure file against its row.
pub(crate) fn check(tree: &Tree, rows: &[Pure]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for row in rows {
        let mut files = tree.rust().filter(|file| file.path.starts_with(row.prefix)).peekable();
        if files.peek().is_none() {
            let what = format!("no file begins with {:?}: take the row out of PURE or mend it", row.prefix);
            findings.push(Finding { path: "tests/tests/tidy/main.rs".into(), line: 1, what });
        }
        for file in files.filter(|file| !is_test_file(&file.path)) {
            check_file(file, row, &mut findings);
        }
    }
    findings
}

fn check_file(file: &TextFile, row: &Pure, findings: &mut Vec<Finding>) {
    let code = Code::of(&file.text);
    for (index, line) in code.lines().take(code.lines_before_tests()).enumerate() {
        for word in row.forbidden.iter().filter(|word| has_word(line, word)) {
            let what = format!("`{word}` in a pure file ({}): pass it in from the shell around", row.reason);
            findings.push(file.finding(index + 1, what));
        }
        // A group would hide `std::{fs, …}` from the words above.
        if row.forbidden.contains(&"std::fs") && line.contains("std::{") {
            findings.push(
                file.finding(index + 1, "import std's modules one a line in a pure file, for tidy to read"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[Pure] =
        &[Pure { prefix: "a/", forbidden: &["tokio", "std::fs", "HashMap"], reason: "a test" }];

    fn lines(text: &str) -> Vec<usize> {
        check(&Tree::of(&[("a/b.rs", text)]), ROWS).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_forbidden_word_is_found_in_code() {
        assert_eq!(lines("//! Pure.\nuse std::fs::File;\nfn f() { tokio::spawn(async {}); }\n"), [2, 3]);
        assert_eq!(lines("//! Pure.\nuse std::{fs, io};\n"), [2]);
    }

    #[test]
    fn comments_strings_and_tests_may_say_it() {
        let text = "//! No tokio.\n/* HashMap /* tokio */ std::fs */\nconst A: &str = \"tokio\"; // tokio\n";
        assert_eq!(lines(text), []);
        assert_eq!(
            lines("//! Pure.\n#[cfg(test)]\nmod tests {\n    use std::collections::HashMap;\n}\n"),
            []
        );
        assert_eq!(check(&Tree::of(&[("a/b.rs", "//!"), ("a/b/tests.rs", "use tokio::test;")]), ROWS), []);
    }

    #[test]
    fn a_row_without_files_is_found() {
        assert_eq!(check(&Tree::of(&[("b/a.rs", "//!")]), ROWS).len(), 1);
    }
}
