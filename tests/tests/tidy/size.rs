//! How long files and functions are. Long ones are not forbidden because of their length, but for the noun they hide.

use super::code::Code;
use super::tree::{Finding, TextFile, Tree};

const FILE_LINES_MAX: usize = 400;
/// A state machine is one story: cut by length, nobody finds the transition that is missing.
const STATE_MACHINE_LINES_MAX: usize = 700;
const FUNCTION_LINES_MAX: usize = 70;

/// Every source and every function in it. The paths of state machines begin with one of `machines`.
pub(crate) fn check(tree: &Tree, machines: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let code = Code::of(&file.text);
        let lines = code.lines_before_tests();
        let is_machine = machines.iter().any(|prefix| file.path.starts_with(prefix));
        let most = if is_machine { STATE_MACHINE_LINES_MAX } else { FILE_LINES_MAX };
        if lines > most {
            let what = format!("{lines} lines before the tests, at most {most}: look for the missing noun");
            findings.push(file.finding(most + 1, what));
        }
        check_functions(file, code.text(), &mut findings);
    }
    findings
}

fn check_functions(file: &TextFile, code: &str, findings: &mut Vec<Finding>) {
    for (at, _) in code.match_indices("fn ").filter(|(at, _)| begins_function(code, *at)) {
        let lines = body_end(&code[at..]).map_or(1, |end| code[at..at + end].lines().count());
        if lines > FUNCTION_LINES_MAX {
            let what =
                format!("a function of {lines} lines, at most {FUNCTION_LINES_MAX}: give its parts names");
            findings.push(file.finding(code[..at].matches('\n').count() + 1, what));
        }
    }
}

/// Whether `fn ` at `at` is the keyword before a name.
fn begins_function(code: &str, at: usize) -> bool {
    let is_ident = |c: char| c.is_alphanumeric() || c == '_';
    !code[..at].chars().next_back().is_some_and(is_ident)
        && code[at + 3..].chars().next().is_some_and(is_ident)
}

/// One past the brace that closes the first body in `code`; none for a function without a body.
fn body_end(code: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0, 0);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!("//! A.\nfn f(a: [u8; 2]) {{\n{}}}\n", "    a(\"}\", '}');\n".repeat(lines - 2))
    }

    fn found(text: &str) -> Vec<usize> {
        check(&Tree::of(&[("a.rs", text)]), &["machine/"]).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_function_one_line_too_long_is_found_at_its_beginning() {
        assert_eq!(found(&function(FUNCTION_LINES_MAX)), []);
        assert_eq!(found(&function(FUNCTION_LINES_MAX + 1)), [2]);
    }

    #[test]
    fn a_function_without_a_body_does_not_take_the_next_one_for_its_own() {
        let text = format!("//! A.\ntrait T {{ fn g(&self) -> [u8; 2]; }}\n{}", function(60));
        assert_eq!(found(&text), []);
    }

    #[test]
    fn a_file_one_line_too_long_is_found_unless_the_rest_is_tests() {
        let text = |lines: usize| "//! A.\n".repeat(lines);
        assert_eq!(found(&text(FILE_LINES_MAX)), []);
        assert_eq!(found(&text(FILE_LINES_MAX + 1)), [FILE_LINES_MAX + 1]);
        let tests = format!("{}#[cfg(test)]\nmod tests {{\n}}\n", text(FILE_LINES_MAX));
        assert_eq!(found(&tests), []);
        let of_machine = |lines| check(&Tree::of(&[("machine/a.rs", &text(lines))]), &["machine/"]).len();
        assert_eq!([STATE_MACHINE_LINES_MAX, STATE_MACHINE_LINES_MAX + 1].map(of_machine), [0, 1]);
    }
}
