//! The programs that are run, as they were when the bench began: whoever builds meanwhile changes nothing.

use super::sets::Set;
use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Copies of them.
#[derive(Debug)]
pub(crate) struct Programs {
    folder: TempDir,
}

const SHOAL: &str = "shoal";
const EXAMPLES: [&str; 2] = ["mnist", "resnet"];

impl Programs {
    /// Those in `folder`; builds them where none is given.
    pub(crate) fn found(folder: Option<&Path>) -> anyhow::Result<Programs> {
        let from = match folder {
            Some(folder) => folder.to_owned(),
            None => built()?,
        };
        let copies = tempfile::tempdir()?;
        for (name, from) in EXAMPLES
            .map(|name| (name, from.join("examples").join(name)))
            .into_iter()
            .chain([(SHOAL, from.join(SHOAL))])
        {
            std::fs::copy(&from, copies.path().join(name)).with_context(|| {
                format!(
                    "{}: build it with `cargo build --release --workspace --bins --examples`",
                    from.display()
                )
            })?;
        }
        Ok(Programs { folder: copies })
    }

    /// A folder for what one job leaves, gone with it.
    pub(crate) fn scratch(&self) -> anyhow::Result<TempDir> {
        Ok(tempfile::tempdir_in(self.folder.path())?)
    }

    /// What trains on a set.
    pub(crate) fn example(&self, set: Set) -> PathBuf {
        self.folder.path().join(set.program().0)
    }

    /// `shoal`, untouched by variables that whoever runs the bench has for other jobs.
    pub(crate) fn shoal(&self) -> Command {
        let mut command = Command::new(self.folder.path().join(SHOAL));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SHOAL_"))
        {
            command.env_remove(name);
        }
        command
    }
}

/// Builds all of the workspace, as `--package` would take other features and build dependencies again.
fn built() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let built = own.parent().context("this program lies in no folder")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--workspace", "--bins", "--examples"]);
    cargo.args(built.ends_with("release").then_some("--release"));
    // What cargo tells this program of its package would have some of the dependencies built anew.
    let of_package = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.starts_with(of));
    for (name, _) in std::env::vars_os().filter(|(name, _)| of_package(&name.to_string_lossy())) {
        cargo.env_remove(name);
    }
    let target = built.parent().context("this program was not built by cargo")?;
    let cargo = cargo.env("CARGO_TARGET_DIR", target).current_dir(env!("CARGO_MANIFEST_DIR"));
    let status =
        cargo.status().context("cannot start cargo: name the folder of built programs with --programs")?;
    ensure!(status.success(), "the programs do not build");
    Ok(built.to_owned())
}
