//! Which features a dependency is built with follows from which packages are built together. Where two selections differ, all that
//! rests on such a dependency is built twice. It must never fetch anything: cargo reads the lock file.

use std::collections::BTreeMap;
use std::process::Command;

/// How much may rest on what differs, in packages: a leaf that few use costs seconds.
const RESTING_MAX: usize = 6;

/// By package, the features that it has in one selection; more than one where it is there for build scripts as well.
type Features = BTreeMap<String, Vec<String>>;

/// Fails with every dependency that two of the selections build otherwise and that many others rest on.
pub(crate) fn assert_alike(selections: &[&str]) {
    let [first, others @ ..] = selections else { panic!("no selection") };
    let known = features(&tree(first));
    for other in others {
        let told = tree(other);
        let differing = differences(&known, &features(&told));
        let heavy: Vec<&String> =
            differing.iter().filter(|package| resting(&told, package) > RESTING_MAX).collect();
        assert!(
            heavy.is_empty(),
            "built once for `cargo tree {first}` and once more for `{other}`: {heavy:?}: give them one set of \
             features, in [workspace.dependencies] where we depend on them ourselves"
        );
    }
}

/// What `cargo tree` says: a line for each occurrence, its depth first.
fn tree(selection: &str) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    command.args(["tree", "--offline", "--locked", "--no-dedupe", "--prefix=depth", "--format=|{p}|{f}"]);
    let output =
        command.args(selection.split(' ')).output().unwrap_or_else(|why| panic!("cargo tree: {why}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Depth, package with its version, and features.
fn occurrences(tree: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    tree.lines().filter_map(|line| {
        let (depth, rest) = line.split_once('|')?;
        let (package, features) = rest.split_once('|')?;
        Some((depth.parse().ok()?, package.split(" (").next()?, features))
    })
}

fn features(tree: &str) -> Features {
    let mut found = Features::new();
    for (_, package, features) in occurrences(tree) {
        let sets = found.entry(package.to_owned()).or_default();
        if !sets.iter().any(|known| known == features) {
            sets.push(features.to_owned());
            sets.sort();
        }
    }
    found
}

/// Packages of both that have other features in one of them. Those of this workspace follow the others.
fn differences(one: &Features, other: &Features) -> Vec<String> {
    let is_ours = |package: &str| package.starts_with("shoal-");
    let differs = |(package, features): &(&String, &Vec<String>)| {
        !is_ours(package) && other.get(*package).is_some_and(|others| others != *features)
    };
    one.iter().filter(differs).map(|(package, _)| package.clone()).collect()
}

/// How many packages rest on one.
fn resting(tree: &str, on: &str) -> usize {
    let (mut above, mut found) = (Vec::new(), std::collections::BTreeSet::new());
    for (depth, package, _) in occurrences(tree) {
        above.truncate(depth);
        if package == on {
            found.extend(above.iter().copied());
        }
        above.push(package);
    }
    found.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAN: &str = "0|ours v1|\n1|tonic v1|\n2|tokio v1|time\n1|leaf v1|\n";
    const RICH: &str = "0|ours v1|\n1|tonic v1|\n2|tokio v1|net,time\n1|leaf v1|std\n1|more v1|\n";

    #[test]
    fn what_has_other_features_is_found_with_what_rests_on_it() {
        assert_eq!(differences(&features(LEAN), &features(RICH)), ["leaf v1", "tokio v1"]);
        assert_eq!((resting(RICH, "tokio v1"), resting(RICH, "leaf v1")), (2, 1));
    }

    #[test]
    fn the_same_features_and_packages_of_one_selection_alone_are_no_difference() {
        assert_eq!(differences(&features(LEAN), &features(LEAN)), [] as [&str; 0]);
        assert_eq!(differences(&features("0|a v1|\n"), &features("0|b v1|x\n")), [] as [&str; 0]);
    }
}
