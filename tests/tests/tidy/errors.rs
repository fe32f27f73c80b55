//! What errors say. It knows `thiserror`'s attributes as text.

use super::tree::{Finding, Tree};

const WHAT: &str = "an error whose message has its source must not have it as a source as well: whoever prints the chain prints it twice";

/// No message repeats what the chain of sources says: `#[error("…{0}")]` is of a field without `#[from]` and `#[source]`, and
/// `{source}` is never in one.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let attributes = file.text.match_indices("#[error(").map(|(at, _)| at);
        let begins_a_line = |at: &usize| file.text[..*at].trim_end_matches(' ').ends_with('\n');
        for at in attributes.filter(begins_a_line) {
            let rest = &file.text[at..];
            let (message, fields) = rest.split_once(")]\n").unwrap_or((rest, ""));
            // Up to the next variant, or the end of the type.
            let fields = fields.split("#[error(").next().unwrap_or_default();
            let fields = fields.split("\n}").next().unwrap_or_default();
            let is_source = ["#[from]", "#[source]"].iter().any(|marked| fields.contains(marked));
            let says_it = ["{0", "(.0"].iter().any(|said| message.contains(said));
            if message.contains("{source") || (says_it && is_source) {
                findings.push(file.finding(file.text[..at].matches('\n').count() + 1, WHAT));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_has_what_the_chain_says_is_found() {
        let of = |message: &str, field: &str| format!("enum E {{\n    {message}\n    A({field}),\n}}\n");
        let lines = |message: &str, field: &str| {
            let tree = Tree::of(&[("a.rs", &of(message, field))]);
            check(&tree).iter().map(|finding| finding.line).collect::<Vec<_>>()
        };
        assert_eq!(lines("#[error(\"it fails: {0}\")]", "#[from] io::Error"), [2]);
        assert_eq!(lines("#[error(\"{}\", said(.0))]", "#[source] io::Error"), [2]);
        assert_eq!(lines("#[error(\"it fails: {source}\")]", "{ source: io::Error }"), [2]);
        for sound in ["#[error(transparent)]", "#[error(\"it fails\")]"] {
            assert_eq!(lines(sound, "#[from] io::Error"), Vec::<usize>::new());
        }
        assert_eq!(lines("#[error(\"it fails: {0}\")]", "String"), Vec::<usize>::new());
        // What another variant is made from is none of this one's.
        let other = "String),\n    #[error(transparent)]\n    B(#[from] io::Error";
        assert_eq!(lines("#[error(\"it fails: {0}\")]", other), Vec::<usize>::new());
    }
}
