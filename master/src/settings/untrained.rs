//! What a job that trains nothing has to say beside its data: the model, and of a prediction a place that is none of the data's own.

use super::{JobArguments, rooted};
use crate::data_set::{means, pieces};
use anyhow::{bail, ensure};
use std::path::{Component, Path, PathBuf};

/// The name of a prediction's first part. All are alike in what patterns may ask of them.
const PART: &str = "part-0000000000.recordio";

impl JobArguments {
    /// Refuses a job that trains nothing and does not say which model it is about, and outputs among the data.
    ///
    /// # Errors
    /// It is one.
    pub fn check_model_and_place(&self) -> anyhow::Result<()> {
        let is_without_training = self.predict.is_some() || self.epochs == 0;
        match (is_without_training, self.warm_start.is_some(), self.untrained) {
            (true, false, false) => {
                let what = if self.predict.is_some() { "--predict" } else { "--epochs 0" };
                bail!(
                    "{what}: the model would be as it begins, untrained: name one by --warm-start PLACE/FILE.safetensors, \
                     or say --untrained, for a baseline"
                )
            }
            (true, true, true) => bail!("--untrained: --warm-start names a model: give one of the two"),
            (false, _, true) => bail!("--untrained goes with --predict or --epochs 0: this job trains"),
            _ => {}
        }
        let Some(place) = &self.predict else { return Ok(()) };
        for pattern in self.data.iter().chain(&self.eval_data).flat_map(|given| pieces(given)) {
            ensure!(
                !names_part(pattern, place)?,
                "--predict {place}: --data {pattern} would name what is written there as well: give a place beside the data"
            );
        }
        Ok(())
    }
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
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        job: JobArguments,
    }

    fn refusal(flags: &str) -> Option<String> {
        let words = std::iter::once("shoal").chain(flags.split_whitespace());
        Command::try_parse_from(words).unwrap().job.data().err().map(|error| error.to_string())
    }

    #[test]
    fn a_job_that_trains_nothing_says_which_model_it_is_about() {
        for flags in ["--data d --predict p", "--epochs 0 --eval-data d", "--epochs 0 --data d --predict p"] {
            let why = refusal(flags).unwrap();
            assert!(why.contains("--warm-start") && why.contains("--untrained"), "{why}");
            assert_eq!(refusal(&format!("{flags} --untrained")), None);
            assert_eq!(refusal(&format!("{flags} --warm-start m/f")), None);
            assert!(
                refusal(&format!("{flags} --warm-start m/f --untrained")).unwrap().contains("one of the two")
            );
        }
        assert!(refusal("--data d --untrained").unwrap().contains("this job trains"));
        assert_eq!(refusal("--data d --eval-data e"), None);
    }

    #[test]
    fn outputs_are_not_written_where_a_pattern_of_the_data_would_find_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().display().to_string();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("d"), folder.path().join("l")).unwrap();
        let meets = |data: &str, place: &str| {
            let of = |text: &str| text.replace("ROOT", &root);
            refusal(&of(&format!("--data {data} --predict {place} --untrained"))).is_some()
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
