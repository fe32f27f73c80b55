//! A prediction's outputs: they are written in a place that is none of the data's own.

use super::rooted;
use crate::data_set::{means, pieces};
use anyhow::ensure;
use shoal_job::spec::Spec;
use std::path::{Component, Path, PathBuf};

/// The name of a prediction's first part. All are alike in what patterns may ask of them.
const PART: &str = "part-0000000000.recordio";

/// Refuses outputs that the data's own names would find.
///
/// # Errors
/// They would; a place that cannot be named.
pub fn check_outputs(spec: &Spec) -> anyhow::Result<()> {
    let Some(place) = &spec.predict else { return Ok(()) };
    for pattern in spec.data.iter().chain(&spec.eval_data).flat_map(|given| pieces(given)) {
        ensure!(
            !names_part(pattern, place)?,
            "--predict {place}: --data {pattern} would name what is written there as well: give a place beside the data"
        );
    }
    Ok(())
}

/// Whether a pattern of data names the parts of a prediction in `place`.
fn names_part(pattern: &str, place: &str) -> anyhow::Result<bool> {
    let (pattern, place) = (plain("--data", pattern)?, plain("--predict", place)?);
    Ok(means(&pattern, &format!("{}/{PART}", place.trim_end_matches('/'))))
}

/// A place in one way: a folder from the root, links in what there is of it followed; the URL of a bucket as it is.
fn plain(flag: &str, place: &str) -> anyhow::Result<String> {
    let rooted = rooted(flag, place.strip_prefix("file://").unwrap_or(place))?;
    if rooted.contains("://") {
        return Ok(rooted);
    }
    let mut plain = PathBuf::new();
    for part in Path::new(&rooted).components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
        plain = std::fs::canonicalize(&plain).unwrap_or(plain);
    }
    Ok(plain.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_not_written_where_a_pattern_of_the_data_would_find_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().display().to_string();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("d"), folder.path().join("l")).unwrap();
        let meets = |data: &str, place: &str| {
            let of = |text: &str| text.replace("ROOT", &root);
            let spec = Spec { data: vec![of(data)], predict: Some(of(place)), ..Spec::default() };
            check_outputs(&spec).is_err()
        };
        for (data, place) in [
            ("ROOT/d/*.recordio", "ROOT/d"),
            ("ROOT/d/*.recordio", "ROOT/d/"),
            ("ROOT/a/*.recordio,ROOT/d/*.recordio", "ROOT/d"),
            ("ROOT/**", "ROOT/d"),
            ("ROOT/d/*", "ROOT/x/../d"),
            ("ROOT/d/*", "ROOT/l"),
            ("ROOT/l/p*", "file://ROOT/d"),
            ("file://ROOT/d/*.recordio", "ROOT/d"),
            ("ROOT/**/*.recordio", "ROOT/d/told/far"),
            ("d/*", "d"),
            ("*", "."),
            ("s3://b/d/*", "s3://b/d"),
        ] {
            assert!(meets(data, place), "{data} {place}");
        }
        for (data, place) in [
            ("ROOT/d/*.recordio", "ROOT/told"),
            ("ROOT/d/*.recordio", "ROOT/d/told"),
            ("ROOT/d/train-*", "ROOT/d"),
            ("s3://b/d/*", "s3://b/e"),
            ("s3://b/d/*", "b/d"),
        ] {
            assert!(!meets(data, place), "{data} {place}");
        }
    }
}
