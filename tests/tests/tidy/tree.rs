//! The text files of the repository, and findings about them. It must never look into build outputs.

use std::fmt;
use std::path::Path;

/// Folders that hold what builds and runs leave behind, and what was fetched.
const SKIPPED: &[&str] = &[".git", "target", "runs", "data", "__pycache__"];

/// One text file.
#[derive(Debug)]
pub(crate) struct TextFile {
    /// From the repository's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl TextFile {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
    /// A finding at `line`, counted from 1.
    pub(crate) fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, what: what.into() }
    }
}

/// All text files, sorted by path.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) files: Vec<TextFile>,
    /// Paths of files that are not text.
    pub(crate) binaries: Vec<String>,
}

impl Tree {
    /// Reads the repository that this package lies in.
    pub(crate) fn read() -> Tree {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = package.parent().unwrap_or(package);
        let mut tree = Tree { files: Vec::new(), binaries: Vec::new() };
        tree.add_folder(root, "");
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        assert!(tree.file("Cargo.toml").is_some(), "{}: not the repository's root", root.display());
        tree
    }

    /// A made-up tree, for the checkers' own tests.
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let made =
            |(path, text): &(&str, &str)| TextFile { path: (*path).to_owned(), text: (*text).to_owned() };
        Tree { files: files.iter().map(made).collect(), binaries: Vec::new() }
    }

    pub(crate) fn file(&self, path: &str) -> Option<&TextFile> {
        self.files.iter().find(|file| file.path == path)
    }
    pub(crate) fn rust(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| file.is_rust())
    }
    /// Whether `path` is a file or a folder of the tree.
    pub(crate) fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        let mut paths = self.files.iter().map(|file| &file.path).chain(&self.binaries);
        path.is_empty() || paths.any(|known| known == path || known.starts_with(&folder))
    }

    fn add_folder(&mut self, folder: &Path, prefix: &str) {
        let entries =
            std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !SKIPPED.contains(&name.as_str()) => {
                    self.add_folder(&entry.path(), &format!("{path}/"));
                }
                Ok(kind) if kind.is_file() => self.add_file(&entry.path(), path),
                _ => {}
            }
        }
    }

    fn add_file(&mut self, at: &Path, path: String) {
        // A file that vanishes between listing and reading (an editor's) is no file of the tree.
        let Ok(bytes) = std::fs::read(at) else { return };
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => self.files.push(TextFile { path, text }),
            _ => self.binaries.push(path),
        }
    }
}

/// One breach of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Fails with every finding, one a line.
pub(crate) fn assert_none(findings: Vec<Finding>) {
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(lines.is_empty(), "{} finding(s):\n{}", lines.len(), lines.join("\n"));
}

/// Where `pattern` stands in `line` as a word: no identifier goes on before it, nor after it unless it ends in `_`.
pub(crate) fn has_word(line: &str, pattern: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(pattern).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(goes_on);
        let after = line[at + pattern.len()..].chars().next().is_some_and(goes_on);
        !before && (!after || pattern.ends_with('_'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_no_part_of_a_longer_one() {
        assert!(has_word("use rand::Rng;", "rand") && has_word("(rand)", "rand"));
        assert!(!has_word("let operand = random;", "rand"));
        assert!(has_word("use shoal_master::Machine;", "shoal_") && !has_word("is_shoal_", "shoal_"));
    }

    #[test]
    fn the_tree_holds_sources_and_no_build_outputs() {
        let tree = Tree::read();
        assert!(
            tree.has("runtime/src/cluster/tree.rs")
                && tree.has("runtime/src/cluster")
                && !tree.has("runtime/sr")
        );
        assert!(tree.files.iter().all(|file| !file.path.contains("target/")));
    }

    #[test]
    #[should_panic(expected = "a.rs:3: too long")]
    fn a_finding_fails_with_its_place() {
        assert_none(vec![Tree::of(&[("a.rs", "")]).files[0].finding(3, "too long")]);
    }
}
