//! Which package may name which: read from every `Cargo.toml`. It must never guess: a package without a row is a finding.

use super::tree::{Finding, TextFile, Tree};

/// Holds every package's dependencies, of all kinds and targets, against `arrows`.
pub(crate) fn check(tree: &Tree, arrows: &[(&str, &[&str])]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in tree.files.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        let folder = manifest.path.trim_end_matches("Cargo.toml").trim_end_matches('/');
        if !manifest.text.lines().any(|line| line.trim() == "[package]") {
            continue;
        }
        let Some((_, allowed)) = arrows.iter().find(|(known, _)| *known == folder) else {
            let what =
                "a package without a row in ARROWS (tests/tests/tidy/main.rs): say what it may depend on";
            findings.push(manifest.finding(1, what));
            continue;
        };
        let named = ours(manifest);
        for unused in allowed.iter().filter(|known| named.iter().all(|(_, package)| package != *known)) {
            let what = format!(
                "{folder} does not depend on {unused}: take it out of ARROWS (tests/tests/tidy/main.rs)"
            );
            findings.push(manifest.finding(1, what));
        }
        for (line, package) in named {
            if !allowed.contains(&package.as_str()) {
                let what = format!(
                    "{folder} must not depend on {package} (ARROWS in tests/tests/tidy/main.rs): {}",
                    way_out()
                );
                findings.push(manifest.finding(line, what));
            }
        }
    }
    findings
}

fn way_out() -> &'static str {
    "move what both need into runtime/, or the code that needs both into cli/ or tests/"
}

/// The packages of this workspace that a manifest depends on, with their lines.
fn ours(manifest: &TextFile) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_dependencies = false;
    for (index, line) in manifest.text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.starts_with('[') {
            is_dependencies = line.contains("dependencies");
        }
        if is_dependencies && let Some(package) = package_of_ours(line) {
            found.push((index + 1, package));
        }
    }
    found
}

/// `shoal-…` as a key, in a section's name, or behind `package =`; or a path that leads elsewhere under any name.
fn package_of_ours(line: &str) -> Option<String> {
    if let Some(at) = line.find("shoal-") {
        let is_name = |c: &char| c.is_alphanumeric() || *c == '-';
        return Some(line[at..].chars().take_while(is_name).collect());
    }
    line.contains("path =").then(|| format!("the path in `{line}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARROWS: &[(&str, &[&str])] = &[("master", &["shoal-runtime"])];

    fn found(text: &str) -> Vec<Finding> {
        check(&Tree::of(&[("master/Cargo.toml", text)]), ARROWS)
    }

    #[test]
    fn an_allowed_arrow_passes() {
        assert_eq!(
            found("[package]\n[dependencies]\nshoal-runtime = { workspace = true }\ntokio = \"1\"\n"),
            []
        );
    }

    #[test]
    fn an_arrow_between_roles_is_found_in_every_kind_of_section() {
        let found = |text: &str| found(&format!("[package]\n[dependencies]\nshoal-runtime = {{}}\n{text}"));
        for section in
            ["dependencies", "dev-dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"]
        {
            let findings = found(&format!("[{section}]\nshoal-pserver = {{ workspace = true }}\n"));
            assert_eq!(findings.len(), 1, "{section}");
            assert_eq!(findings[0].line, 5);
        }
        assert_eq!(found("[dependencies.shoal-pserver]\nworkspace = true\n").len(), 1);
        assert_eq!(found("[dependencies]\nps = { package = \"shoal-pserver\" }\n").len(), 1);
        assert_eq!(found("[dependencies]\nps = { path = \"../pserver\" }\n").len(), 1);
    }

    #[test]
    fn an_arrow_that_nobody_takes_is_found() {
        let findings = found("[package]\n[dependencies]\ntokio = \"1\"\n");
        assert!(findings.len() == 1 && findings[0].what.contains("take it out of ARROWS"), "{findings:?}");
    }

    #[test]
    fn a_package_without_a_row_is_found() {
        assert_eq!(check(&Tree::of(&[("extra/Cargo.toml", "[package]\n")]), ARROWS).len(), 1);
        assert_eq!(check(&Tree::of(&[("Cargo.toml", "[workspace]\n")]), ARROWS), []);
    }
}
