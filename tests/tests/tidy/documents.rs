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

/// Where readers begin.
const ENTRANCES: [&str; 2] = ["README.md", "docs/README.md"];

/// Lines of a page: more than that nobody reads.
const PAGE_LINES_MAX: usize = 400;

/// Links of all documents, with the headings that they name; pages that are too long, and those that nobody reaches: from an entrance, or by the index of their own folder, a `README.md` that an
/// entrance leads to.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut indexed = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, link) in links(&file.text) {
            let lacks = heading(tree, file, &link);
            findings.extend(lacks.map(|what| file.finding(line, format!("link {link:?}: {what}"))));
            let Some(target) = resolve(&file.path, &link) else { continue };
            if !tree.has(&target) {
                findings.push(
                    file.finding(line, format!("link {link:?}: there is no {target:?}: mend or take out")),
                );
            }
            if file.path.ends_with("README.md") {
                indexed.push((file.path.as_str(), target));
            }
        }
    }
    if tree.file("README.md").is_none() {
        findings.push(Finding { path: "README.md".into(), line: 1, what: "there is none: write it".into() });
    }
    let leads = |index: &str, page: &str| indexed.iter().any(|(from, to)| *from == index && to == page);
    let is_entered =
        |page: &str| ENTRANCES.contains(&page) || ENTRANCES.iter().any(|entrance| leads(entrance, page));
    let is_page = |file: &&TextFile| file.path.starts_with("docs/") && file.path.ends_with(".md");
    let pages = tree.files.iter().filter(|file| file.path == "README.md" || is_page(file));
    for file in pages.filter(|file| file.text.lines().count() > PAGE_LINES_MAX) {
        let what = format!("{} lines: a page has {PAGE_LINES_MAX} at most", file.text.lines().count());
        findings.push(file.finding(PAGE_LINES_MAX + 1, what));
    }
    for file in tree.files.iter().filter(is_page) {
        let index = index_of(&file.path);
        if !(is_entered(&file.path) || is_entered(&index) && leads(&index, &file.path)) {
            let what = format!("no link leads here: link it from README.md, docs/README.md or {index}");
            findings.push(file.finding(1, what));
        }
    }
    findings
}

/// The path of the index of the folder that a page lies in, whether there is one or not.
fn index_of(page: &str) -> String {
    page.rsplit_once('/').map_or_else(|| "README.md".to_owned(), |(folder, _)| format!("{folder}/README.md"))
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

/// What is wrong with the heading that a link names, if anything is.
fn heading(tree: &Tree, from: &TextFile, link: &str) -> Option<String> {
    let (path, part) = link.split_once('#').filter(|(path, _)| !path.contains("://"))?;
    let target = if path.is_empty() { Some(from) } else { tree.file(&resolve(&from.path, link)?) };
    let target = target.filter(|target| target.path.ends_with(".md"))?;
    let is_there = headings(&target.text).any(|heading| heading == part);
    (!is_there).then(|| format!("{} has no heading {part:?}", target.path))
}

/// The headings of a document, as links name them: in small letters, with a dash for each space, without signs.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut is_fenced = false;
    text.lines().filter_map(move |line| {
        is_fenced ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        let is_heading = !is_fenced && title.len() < line.len() && title.starts_with(' ');
        let shown = without_targets(title);
        let letters = shown.trim().to_lowercase();
        let kept = letters.chars().filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter));
        is_heading.then(|| kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect())
    })
}

/// A heading as it is shown: of a link its text.
fn without_targets(title: &str) -> String {
    let mut parts = title.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once(')').map_or(part, |(_, rest)| rest));
    std::iter::once(first.as_str()).chain(rest).collect()
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
        let readme = "[a](docs/a.md#one-part) [b](https://example.org#x) [c](#c) [d](docs)\n```\n[e](gone)\n```\n`[f](gone)`\n# C\n";
        let page = "[up](../README.md#c)\n## One `part`!\n";
        assert_eq!(found(&[("README.md", readme), ("docs/a.md", page)]), []);
    }

    #[test]
    fn a_heading_that_is_not_there_is_found_and_a_page_that_is_too_long() {
        let readme = "[a](docs/a.md#part)\n[c](#c)\n```\n# C\n```\n";
        let long = "x\n".repeat(PAGE_LINES_MAX);
        let page = ("docs/a.md", &*format!("# Other part\n{long}"));
        let expected =
            [("README.md".into(), 1), ("README.md".into(), 2), ("docs/a.md".into(), PAGE_LINES_MAX + 1)];
        assert_eq!(found(&[("README.md", readme), page]), expected);
        assert_eq!(found(&[("README.md", "[a](docs/a.md)\n"), ("docs/a.md", &*long)]), []);
    }

    #[test]
    fn a_page_that_nothing_leads_to_is_found() {
        let pages = [("README.md", "# A\n"), ("docs/a.md", "[b](b.md)\n"), ("docs/b.md", "# B\n")];
        assert_eq!(found(&pages), [("docs/a.md".into(), 1), ("docs/b.md".into(), 1)]);
        assert_eq!(found(&[]), [("README.md".into(), 1)]);
    }

    #[test]
    fn a_page_is_reached_by_the_index_of_its_own_folder_if_that_is_reached() {
        let page = ("docs/why/001.md", "# One\n");
        let index = ("docs/why/README.md", "[one](001.md)\n");
        assert_eq!(found(&[("README.md", "[why](docs/why/README.md)\n"), index, page]), []);
        let unreached = [("docs/why/README.md".into(), 1), ("docs/why/001.md".into(), 1)];
        assert_eq!(found(&[("README.md", "# A\n"), index, page]), unreached, "nobody reaches the index");
        let elsewhere = ("docs/how/README.md", "[one](../why/001.md)\n");
        let readme = ("README.md", "[how](docs/how/README.md) [why](docs/why/README.md)\n");
        let empty = ("docs/why/README.md", "# Why\n");
        assert_eq!(found(&[readme, elsewhere, empty, page]), [("docs/why/001.md".into(), 1)], "not its own");
    }

    #[test]
    fn a_term_that_is_only_mentioned_is_not_defined() {
        let tree = Tree::of(&[(GLOSSARY, "- **step**: one update.\n- **task**: part of a **lane**.\n")]);
        assert_eq!(check_glossary(&tree, &["step", "task"]), []);
        assert_eq!(check_glossary(&tree, &["lane"]).len(), 1);
        assert_eq!(check_glossary(&Tree::of(&[]), &["step"]).len(), 1);
    }
}
