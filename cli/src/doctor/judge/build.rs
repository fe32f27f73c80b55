//! Which builds are here: this command, the kernel, the Python package, and the files of settings.

use crate::doctor::outcome::Outcome;
use serde_json::json;

/// What this build is, and what it runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Build {
    pub(crate) version: String,
    /// Features of the command.
    pub(crate) features: Vec<&'static str>,
    pub(crate) is_optimised: bool,
    pub(crate) target: String,
    pub(crate) wire: u32,
    /// The format of journals that it writes.
    pub(crate) journal: u32,
    /// The kernel's own name of itself; none where it does not say.
    pub(crate) kernel: Option<String>,
}

/// Judges this build.
pub(crate) fn judge(found: &Build) -> Outcome {
    let Build { version, features, is_optimised, target, wire, journal, kernel } = found;
    let how = if *is_optimised { "optimised" } else { "for debugging" };
    let kernel_said = kernel.as_deref().unwrap_or("unknown");
    let features_said = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    let said = format!(
        "shoal {version} ({how}, {target}), features: {features_said}; wire version {wire}, journal format {journal}; kernel {kernel_said}"
    );
    let outcome = if !is_optimised {
        Outcome::warning(said, "this build is several times slower: cargo install --path cli --features full")
    } else {
        Outcome::ok(said)
    };
    outcome.with(json!({
        "version": version, "features": features, "is_optimised": is_optimised, "target": target,
        "wire_version": wire, "journal_format": journal, "kernel": kernel,
    }))
}

/// What a Python says of the package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Python {
    /// There is none in the path.
    Absent,
    /// It did not answer as one does.
    Silent { program: String, why: String },
    /// Its own version, and that of the package, if that is installed.
    Answered { program: String, version: String, package: Option<String> },
}

/// Judges the Python package beside a command of that version.
pub(crate) fn judge_python(found: &Python, ours: &str) -> Outcome {
    let install = "pip install ./trainer-sdk/python ./cli";
    match found {
        Python::Absent => {
            Outcome::not_applicable("there is no python3 in the path: programs in Rust need none")
        }
        Python::Silent { program, why } => {
            Outcome::warning(format!("{program} does not answer: {why}"), format!("try {program} --version"))
        }
        Python::Answered { program, version, package } => {
            let facts = json!({ "program": program, "python": version, "package": package });
            let outcome = match package {
                None => Outcome::not_applicable(format!(
                    "{program} is Python {version}, without the package shoal: in a checkout, {install}"
                )),
                Some(theirs) if theirs == ours => {
                    Outcome::ok(format!("{program} is Python {version}, with the package shoal {theirs}"))
                }
                Some(theirs) => Outcome::failed(
                    format!("{program} has the package shoal {theirs}, and this command is {ours}"),
                    format!("install both of one version: {install}"),
                ),
            };
            outcome.with(facts)
        }
    }
}

/// Judges the files of settings: their paths, or why they cannot be used.
pub(crate) fn judge_files(found: Result<&[String], &str>) -> Outcome {
    match found {
        Ok([]) => Outcome::not_applicable("no shoal.toml here, above or of the user"),
        Ok(files) => Outcome::ok(files.join(", ")).with(json!({ "files": files })),
        Err(why) => Outcome::failed(why, "mend it; shoal config path lists what is read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::outcome::Level;

    #[test]
    fn a_build_for_debugging_is_warned_of() {
        let build = |is_optimised| judge(&Build { is_optimised, ..Build::default() });
        assert_eq!(build(true).level, Level::Ok);
        assert!(build(false).advice.is_some_and(|advice| advice.contains("cargo install")));
    }

    #[test]
    fn a_python_package_of_another_version_fails_and_none_is_no_fault() {
        let judge = |package: Option<&str>| {
            let (program, version) = ("python3".to_owned(), "3.11.2".to_owned());
            let found = Python::Answered { program, version, package: package.map(str::to_owned) };
            judge_python(&found, "0.1.0")
        };
        assert_eq!(judge(Some("0.1.0")).level, Level::Ok);
        assert_eq!(judge(None).level, Level::NotApplicable);
        let other = judge(Some("0.2.0"));
        assert!(other.level == Level::Failed && other.found.contains("0.2.0"), "{other:?}");
        assert_eq!(judge_python(&Python::Absent, "0.1.0").level, Level::NotApplicable);
        let silent = Python::Silent { program: "python3".to_owned(), why: "5 s".to_owned() };
        assert_eq!(judge_python(&silent, "0.1.0").level, Level::Warning);
    }

    #[test]
    fn a_wrong_file_of_settings_fails() {
        assert_eq!(judge_files(Ok(&[])).level, Level::NotApplicable);
        assert_eq!(judge_files(Ok(&["shoal.toml".to_owned()])).level, Level::Ok);
        assert_eq!(judge_files(Err("shoal.toml:3: no")).level, Level::Failed);
    }
}
