//! Ways to write: files of people's are written by `runtime/src/host/files`, what is printed by `runtime/src/host/output`. Whoever
//! writes in another way is in a table, with why that is no file of people's.

use super::code::{Code, is_test_file};
use super::tree::{Finding, TextFile, Tree};

/// What makes, replaces or empties files.
const WAYS: [&str; 12] = [
    "File::create",
    "File::options",
    "OpenOptions::new",
    "OpenOptions::default",
    "fs::write",
    "fs::copy",
    "fs::rename",
    "fs::hard_link",
    "tokio::fs",
    ".persist(",
    ".persist_noclobber(",
    ".set_len(",
];

/// What is linked into what people run. Tests and benches write as they like.
const PRODUCTS: [&str; 10] = [
    "cli/src/",
    "drill/src/",
    "master/src/",
    "operator/src/",
    "planner/src/",
    "pserver/src/",
    "recordio/src/",
    "runner/src/",
    "runtime/src/",
    "trainer-sdk/src/",
];

/// A file that writes in a way of its own.
#[derive(Debug)]
pub(crate) struct Writer {
    /// The path begins with it.
    pub(crate) prefix: &'static str,
    /// What it writes, and why that is no file of people's, or never replaces one.
    pub(crate) reason: &'static str,
}

/// Every way to write that is in no row, and every row without one.
pub(crate) fn check(tree: &Tree, rows: &[Writer]) -> Vec<Finding> {
    let is_product = |file: &&TextFile| PRODUCTS.iter().any(|product| file.path.starts_with(product));
    let files: Vec<&TextFile> =
        tree.rust().filter(is_product).filter(|file| !is_test_file(&file.path)).collect();
    let mut findings = Vec::new();
    let mut is_needed = vec![false; rows.len()];
    for file in files {
        let row = rows.iter().position(|row| file.path.starts_with(row.prefix));
        for (line, way) in ways(file) {
            match row {
                Some(row) => is_needed[row] = true,
                None => findings.push(file.finding(line, format!(
                    "`{way}` writes in a way of its own: take host::files, which writes whole or not at all, or say in WRITERS why not"
                ))),
            }
        }
    }
    let idle = rows.iter().zip(is_needed).filter(|(_, is_needed)| !is_needed);
    findings.extend(idle.map(|(row, _)| Finding {
        path: "tests/tests/tidy/main.rs".into(),
        line: 1,
        what: format!(
            "nothing below {:?} writes in a way of its own ({}): take its row out of WRITERS",
            row.prefix, row.reason
        ),
    }));
    findings
}

/// Lines that write, and how.
fn ways(file: &TextFile) -> Vec<(usize, &'static str)> {
    let code = Code::of(&file.text);
    let lines = code.lines().take(code.lines_before_tests()).enumerate();
    lines
        .flat_map(|(index, line)| {
            WAYS.iter().filter(move |way| line.contains(**way)).map(move |way| (index + 1, *way))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[Writer] = &[Writer { prefix: "runtime/src/log.rs", reason: "appends" }];
    const NEEDED: (&str, &str) = ("runtime/src/log.rs", "fn f() { File::options().append(true); }");

    fn found(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[NEEDED, (path, text)]);
        check(&tree, ROWS).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn another_way_to_write_is_found_in_code_that_is_linked_into_products() {
        let text = "//! Writes.\nfn f() {\n    std::fs::write(a, b);\n    fs::copy(a, b);\n    file.persist(a);\n}\n";
        assert_eq!(found("cli/src/a.rs", text), [3, 4, 5]);
        assert_eq!(found("cli/src/a/tests.rs", text), []);
        assert_eq!(found("benches/src/a.rs", text), []);
        assert_eq!(
            found("cli/src/a.rs", "// fs::write\n#[cfg(test)]\nmod tests {\n    fs::write(a, b);\n}\n"),
            []
        );
    }

    #[test]
    fn a_row_that_nobody_needs_is_found() {
        assert_eq!(check(&Tree::of(&[("cli/src/a.rs", "")]), ROWS).len(), 1);
    }
}
