//! Documents: every link arrives, every page is reachable, the glossary defines its words.

use super::tree::{Finding, TextFile, Tree};

/// Words that the glossary defines, each in bold at the beginning of its entry.
pub(crate) const TERMS: &[&str] = &[
    "record",
    "chunk",
    "data set",
    "manifest",
    "epoch",
    "microbatch",
    "step",
    "task",
    "lease",
    "parameter",
    "block",
    "routing table",
    "routing version",
    "term",
    "version",
    "incarnation",
    "checkpoint",
    "snapshot",
    "copy",
    "fill",
    "rewind",
    "ledger",
    "lane",
    "slot",
    "node",
    "held node",
    "covered arrival",
    "front step",
    "nonce",
    "slice",
];

const GLOSSARY: &str = "docs/glossary.md";

/// Links of all documents, and pages that none of the two entrances leads to.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut entered = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, link) in links(&file.text) {
            let Some(target) = resolve(&file.path, &link) else { continue };
            if !tree.has(&target) {
                findings.push(
                    file.finding(line, format!("link {link:?}: there is no {target:?}: mend or take out")),
                );
            }
            if file.path == "README.md" || file.path == "docs/README.md" {
                entered.push(target);
            }
        }
    }
    if tree.file("README.md").is_none() {
        findings.push(Finding { path: "README.md".into(), line: 1, what: "there is none: write it".into() });
    }
    let is_page = |file: &&TextFile| file.path.starts_with("docs/") && file.path.ends_with(".md");
    for file in tree.files.iter().filter(is_page) {
        if file.path != "docs/README.md" && !entered.contains(&file.path) {
            findings.push(file.finding(1, "no link leads here: link it from README.md or docs/README.md"));
        }
    }
    findings
}

/// Every term has an entry in the glossary: a line that begins, but for a list's dash, with the term in bold.
pub(crate) fn check_glossary(tree: &Tree, terms: &[&str]) -> Vec<Finding> {
    let Some(glossary) = tree.file(GLOSSARY) else {
        return vec![Finding { path: GLOSSARY.into(), line: 1, what: "there is none: write it".into() }];
    };
    let defines = |term: &str| {
        let entry = format!("**{term}**");
        glossary.text.lines().any(|line| line.trim_start_matches("- ").starts_with(&entry))
    };
    let missing = terms.iter().filter(|term| !defines(term));
    missing
        .map(|term| glossary.finding(1, format!("no entry **{term}**: define it, or drop it from TERMS")))
        .collect()
}

/// The links of a document with their lines: `](target)`, `[name]: target`, `src="target"`, `href="target"`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        }
        if is_fenced {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        let mut add = |target: &str| {
            let target = target.trim_start_matches('<').split([' ', '>']).next().unwrap_or("");
            found.push((index + 1, target.to_owned()));
        };
        for (opening, closing) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
            for (at, _) in prose.match_indices(opening) {
                add(prose[at + opening.len()..].split(closing).next().unwrap_or(""));
            }
        }
        if prose.starts_with('[')
            && !prose.starts_with("[^")
            && let Some((_, target)) = prose.split_once("]: ")
        {
            add(target);
        }
    }
    found
}

/// The path from the root that a link in the document at `from` means; none where it leads out of the repository.
fn resolve(from: &str, link: &str) -> Option<String> {
    let path = link.split('#').next().unwrap_or("");
    if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return Some(format!("{path} (above the repository)")),
            ".." => {}
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        check(&Tree::of(files)).into_iter().map(|finding| (finding.path, finding.line)).collect()
    }

    #[test]
    fn a_link_to_nothing_is_found_in_every_spelling() {
        for link in [
            "[a](gone.md)",
            "[a](gone.md#part \"title\")",
            "<img src=\"gone.png\">",
            "[a]: gone.md",
            "[a](../up.md)",
        ] {
            assert_eq!(
                found(&[("README.md", &format!("# A\n{link}\n"))]),
                [("README.md".into(), 2)],
                "{link}"
            );
        }
    }

    #[test]
    fn links_that_arrive_and_links_that_leave_pass() {
        let readme = "[a](docs/a.md#part) [b](https://example.org) [c](#c) [d](docs)\n```\n[e](gone)\n```\n`[f](gone)`\n";
        assert_eq!(found(&[("README.md", readme), ("docs/a.md", "[up](../README.md)\n")]), []);
    }

    #[test]
    fn a_page_that_nothing_leads_to_is_found() {
        let pages = [("README.md", "# A\n"), ("docs/a.md", "[b](b.md)\n"), ("docs/b.md", "# B\n")];
        assert_eq!(found(&pages), [("docs/a.md".into(), 1), ("docs/b.md".into(), 1)]);
        assert_eq!(found(&[]), [("README.md".into(), 1)]);
    }

    #[test]
    fn a_term_that_is_only_mentioned_is_not_defined() {
        let tree = Tree::of(&[(GLOSSARY, "- **step**: one update.\n- **task**: part of a **lane**.\n")]);
        assert_eq!(check_glossary(&tree, &["step", "task"]), []);
        assert_eq!(check_glossary(&tree, &["lane"]).len(), 1);
        assert_eq!(check_glossary(&Tree::of(&[]), &["step"]).len(), 1);
    }
}
