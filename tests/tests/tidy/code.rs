//! Rust source as text: what is code and what is comment, how files begin, what modules are called.

use super::tree::{Finding, Tree, has_word};

/// Module names that say nothing of what is inside.
const DRAWERS: &[&str] = &["utils", "util", "common", "helpers", "helper", "prelude", "misc"];

/// A source with comments and the insides of strings and characters blanked out, line by line as it was.
#[derive(Debug)]
pub(crate) struct Code(String);

impl Code {
    pub(crate) fn of(source: &str) -> Code {
        Code(blanked(source))
    }
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.lines()
    }
    /// How many lines come before the module of tests; all of them where there is none.
    ///
    /// `#[cfg(test)]` on anything but a module with a body ends nothing: code may follow it.
    pub(crate) fn lines_before_tests(&self) -> usize {
        let lines: Vec<&str> = self.0.lines().map(str::trim).collect();
        let opens = |at: usize| {
            let next = lines[at + 1..].iter().find(|line| !line.is_empty() && !line.starts_with("#["));
            next.is_some_and(|line| has_word(line, "mod") && line.ends_with('{'))
        };
        (0..lines.len()).find(|at| lines[*at] == "#[cfg(test)]" && opens(*at)).unwrap_or(lines.len())
    }
}

/// Whether the whole file is tests: `tests.rs`, `x_tests.rs`, anything in a folder `tests`.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.split('/').any(|part| part == "tests")
}

/// Every source begins with `//!`.
pub(crate) fn check_openings(tree: &Tree) -> Vec<Finding> {
    let is_silent = |text: &str| !text.lines().next().is_some_and(|line| line.starts_with("//! "));
    let what = "the first line must be `//! `: one to three lines on what the file is for and must never do";
    tree.rust().filter(|file| is_silent(&file.text)).map(|file| file.finding(1, what)).collect()
}

/// No module or file is a drawer.
pub(crate) fn check_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let what = |name: &str| {
        format!("a module `{name}` says nothing: name it after the noun inside, or move its parts")
    };
    for file in tree.rust() {
        let parts = file.path.trim_end_matches(".rs").split('/');
        findings.extend(parts.filter(|part| DRAWERS.contains(part)).map(|part| file.finding(1, what(part))));
        for (index, line) in Code::of(&file.text).lines().enumerate() {
            let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            let named = words.windows(2).filter(|pair| pair[0] == "mod" && DRAWERS.contains(&pair[1]));
            findings.extend(named.map(|pair| file.finding(index + 1, what(pair[1]))));
        }
    }
    findings
}

/// Blanks what is not code. Quotes stay, so that a string remains an expression; line ends stay everywhere.
fn blanked(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = at + token(&chars[at..], chars[..at].last().copied());
        let is_code = end == at + 1;
        code.extend(chars[at..end].iter().map(|c| if is_code || *c == '\n' { *c } else { ' ' }));
        at = end;
    }
    code
}

/// The length of the comment, string or character that begins here; 1 for anything else.
fn token(rest: &[char], before: Option<char>) -> usize {
    let is_ident = |c: char| c.is_alphanumeric() || c == '_';
    match rest {
        ['/', '/', ..] => rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment(rest),
        ['"', ..] => string(rest),
        ['r', '#' | '"', ..] if !before.is_some_and(|c| is_ident(c) && c != 'b') => raw_string(rest),
        ['\'', '\\', ..] => {
            3 + rest[3.min(rest.len())..].iter().position(|c| *c == '\'').map_or(0, |at| at + 1)
        }
        ['\'', _, '\'', ..] => 3,
        _ => 1,
    }
    .min(rest.len())
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// `r"…"`, `r#"…"#`; a raw identifier (`r#type`) has length 1 like any code.
fn raw_string(rest: &[char]) -> usize {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return 1;
    }
    let body = 2 + hashes;
    let closes = |at: &usize| {
        rest[*at] == '"' && rest[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
    };
    (body..rest.len()).find(closes).map_or(rest.len(), |at| at + 1 + hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left_and_every_line_stays_where_it_was() {
        let source = "a /* x\n/* y */ z */ b // c\nlet s = \"d\\\"e\"; f(r#\"g\"h\"#, '\"', b'\\'', r\"i\"); k::<'l>(r#m)\n";
        let code = Code::of(source);
        let words: Vec<&str> =
            code.text().split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).collect();
        assert_eq!(words, ["a", "b", "let", "s", "f", "b", "k", "l", "r", "m"]);
        assert_eq!(code.text().lines().count(), source.lines().count());
    }

    #[test]
    fn tests_begin_at_their_module_and_not_at_a_declaration() {
        assert_eq!(Code::of("fn a() {}\n#[cfg(test)]\nmod tests {\n}\n").lines_before_tests(), 1);
        assert_eq!(Code::of("#[cfg(test)]\nmod tests;\nfn a() {}\n").lines_before_tests(), 3);
        assert_eq!(Code::of("#[cfg(test)]\nfn only_in_tests() {\n}\n").lines_before_tests(), 3);
    }

    #[test]
    fn a_file_that_does_not_say_what_it_is_for_is_found() {
        let tree =
            Tree::of(&[("a.rs", "use std::fmt;\n"), ("b.rs", ""), ("c.rs", "//! Tells.\n"), ("d.md", "x")]);
        assert_eq!(
            check_openings(&tree).iter().map(|f| f.path.as_str()).collect::<Vec<_>>(),
            ["a.rs", "b.rs"]
        );
    }

    #[test]
    fn a_drawer_is_found_by_module_and_by_file_name() {
        let tree = Tree::of(&[
            ("a.rs", "//! A.\npub(crate) mod utils;\n// mod common\n"),
            ("b/common/c.rs", "//! C.\n"),
        ]);
        assert_eq!(
            check_names(&tree).iter().map(|f| (f.path.as_str(), f.line)).collect::<Vec<_>>(),
            [("a.rs", 2), ("b/common/c.rs", 1)]
        );
        assert_eq!(check_names(&Tree::of(&[("a.rs", "mod commonplace;")])), []);
    }
}
