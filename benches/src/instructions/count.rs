//! Counting: this program walks one path under valgrind, so often and twice as often, and the difference is counted. What it
//! takes to start and to get ready is in both. It must never depend on the machine: neither on its processor nor on what its
//! environment says.

use crate::instructions::baseline::{Count, Origin};
use crate::instructions::paths::HotPath;
use anyhow::{Context, ensure};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// What is run under.
pub(crate) struct Valgrind {
    program: PathBuf,
    this: PathBuf,
    /// Of what is counted here.
    pub(crate) origin: Origin,
}

impl Valgrind {
    /// The installed one.
    pub(crate) fn find() -> anyhow::Result<Valgrind> {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let mut programs = std::env::split_paths(&folders).map(|folder| folder.join("valgrind"));
        let program = programs.find(|program| program.is_file());
        let program = program.context("valgrind is missing: apt-get install valgrind")?;
        let origin = Origin {
            rustc: env!("SHOAL_RUSTC").to_owned(),
            target: env!("SHOAL_TARGET").to_owned(),
            libc: said(Command::new("getconf").arg("GNU_LIBC_VERSION"))?,
            valgrind: said(Command::new(&program).arg("--version"))?,
        };
        Ok(Valgrind { program, this: std::env::current_exe()?, origin })
    }

    /// Instructions of one unit of a path.
    pub(crate) fn count(&self, path: &HotPath) -> anyhow::Result<Count> {
        let counted = || -> anyhow::Result<u64> {
            // Side by side: that takes half the time.
            let [once, twice] = [1, 2].map(|times| self.begin(path.name, times * path.repetitions));
            let (once, twice) = (total(once?)?, total(twice?)?);
            twice.checked_sub(once).context("twice as many repetitions took fewer instructions")
        };
        let instructions = counted().with_context(|| path.name)?;
        let units = f64::from(path.repetitions) * f64::from(path.units);
        let (name, unit) = (path.name.to_owned(), path.unit.to_owned());
        Ok(Count { name, unit, instructions: instructions as f64 / units })
    }

    fn begin(&self, name: &str, repetitions: u32) -> anyhow::Result<Child> {
        let mut command = Command::new(&self.program);
        command
            // The environment lies on the stack and moves what is above it.
            .env_clear()
            // Valgrind counts every byte of `rep movsb`, and not every version of it has processors with that.
            .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-ERMS,-FSRM")
            .args(["--command-line-only=yes", "--tool=cachegrind", "--cache-sim=no"])
            .args(["--cachegrind-out-file=/dev/null", "--vgdb=no"])
            .arg(&self.this)
            // As many digits for both: reading them takes instructions too.
            .args(["--walk", name, "--repetitions", &format!("{repetitions:06}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.spawn().context("starting valgrind")
    }
}

/// What a command says on one line.
fn said(command: &mut Command) -> anyhow::Result<String> {
    let said = command.output().with_context(|| format!("{:?}", command.get_program()))?;
    ensure!(said.status.success(), "{:?} ended with {}", command.get_program(), said.status);
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

fn total(child: Child) -> anyhow::Result<u64> {
    let ended = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "under valgrind it ended with {}:\n{said}", ended.status);
    instructions(&said).with_context(|| format!("valgrind has counted no instructions:\n{said}"))
}

/// The total in what valgrind says: `==7== I   refs:      1,234`, of later versions `==7== I refs:        1,234`.
fn instructions(said: &str) -> Option<u64> {
    said.lines().find_map(|line| {
        let mut words = line.strip_prefix("==")?.split_once("==")?.1.split_whitespace();
        if (words.next(), words.next()) != (Some("I"), Some("refs:")) {
            return None;
        }
        words.next()?.replace(',', "").parse().ok()
    })
}

/// Whether the processor that valgrind shows is the one whose code is counted.
pub(crate) fn check_processor() -> anyhow::Result<()> {
    #[cfg(target_arch = "x86_64")]
    {
        let has = [
            ("AVX2", is_x86_feature_detected!("avx2"), true),
            ("PCLMULQDQ", is_x86_feature_detected!("pclmulqdq"), true),
            ("VPCLMULQDQ", is_x86_feature_detected!("vpclmulqdq"), false),
            ("AVX-512", is_x86_feature_detected!("avx512f"), false),
        ];
        for (name, is_there, is_expected) in has {
            let verb = if is_there { "has" } else { "has no" };
            ensure!(
                is_there == is_expected,
                "the processor that valgrind shows here {verb} {name}: other code would run than that of the baseline, \
                 which is made for AVX2"
            );
        }
        Ok(())
    }
    #[cfg(not(target_arch = "x86_64"))]
    anyhow::bail!("instructions are counted on x86-64 with AVX2 only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_found_as_old_and_new_versions_say_it() {
        let old =
            "==7== Command: ./x\n--7-- warning: L3 cache found\n==7== \n==7== I   refs:      1,893,232\n";
        let new = "==12345== \n==12345== I refs:        893\n";
        assert_eq!((instructions(old), instructions(new)), (Some(1_893_232), Some(893)));
    }

    #[test]
    fn what_the_walk_itself_says_is_no_total() {
        for said in ["", "I refs: 12", "==7== I refs:", "==7== D refs: 12", "==7== I refs: many"] {
            assert_eq!(instructions(said), None, "{said}");
        }
    }
}
