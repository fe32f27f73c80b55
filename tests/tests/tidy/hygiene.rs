//! What no file says: a path of one machine, a registry's host. Its own words are put together so as not to be found.

use super::tree::{Finding, Tree};

/// Folders of the machines this was written on; each stands between slashes.
const MACHINE_FOLDERS: &[&str] = &["work", "root"];
/// Package registries as (name, domain). Packages are named; where they come from is the client's affair.
const REGISTRIES: &[(&str, &str)] = &[
    ("crates", "io"),
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("npmjs", "org"),
    ("npmjs", "com"),
    ("deb.debian", "org"),
    ("proxy.golang", "org"),
];

/// Every line of every text file. Lock files are written by their clients and left alone.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let folders: Vec<String> = MACHINE_FOLDERS.iter().map(|folder| format!("/{folder}/")).collect();
    let hosts: Vec<String> = REGISTRIES.iter().map(|(name, domain)| format!("{name}.{domain}")).collect();
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !file.path.ends_with(".lock")) {
        for (index, line) in file.text.lines().enumerate() {
            for folder in folders.iter().filter(|folder| names_from_root(line, folder)) {
                let what = format!("{folder} is a folder of one machine: say it relative to the repository");
                findings.push(file.finding(index + 1, what));
            }
            for host in hosts.iter().filter(|host| line.contains(host.as_str())) {
                let what = format!("{host} is a registry's host: name the package, not where it comes from");
                findings.push(file.finding(index + 1, what));
            }
        }
    }
    findings
}

/// Whether `folder` stands in `line` as the beginning of a path, not in the middle of one.
fn names_from_root(line: &str, folder: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || "_-.})/*~".contains(c);
    line.match_indices(folder).any(|(at, _)| !line[..at].chars().next_back().is_some_and(goes_on))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> usize {
        check(&Tree::of(&[("a.md", line)])).len()
    }

    #[test]
    fn a_path_of_one_machine_is_found_and_a_relative_one_is_not() {
        for folder in MACHINE_FOLDERS {
            assert_eq!(found(&format!("see /{folder}/main/a.rs")), 1);
            assert_eq!(found(&format!("see frame{folder}/a.rs, some/{folder}/a.rs and $HOME/{folder}/")), 0);
        }
    }

    #[test]
    fn a_registry_is_found_by_its_host_but_not_in_a_lock_file() {
        for (name, domain) in REGISTRIES {
            assert_eq!(found(&format!("https://files.{name}.{domain}/x")), 1);
        }
        let line = format!("source = \"registry+{}.{}-index\"", REGISTRIES[0].0, REGISTRIES[0].1);
        assert_eq!(check(&Tree::of(&[("Cargo.lock", &line)])), []);
        assert_eq!(found("a crate of ours"), 0);
    }
}
