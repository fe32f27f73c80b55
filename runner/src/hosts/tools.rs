//! Programs of the system that change networks and mounts: called, and their complaints passed on.

use anyhow::{Context, bail};
use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a program to its end; a matter of milliseconds.
///
/// # Errors
/// It is not there, or fails: with what it said.
pub fn call<Word: AsRef<OsStr>>(program: &str, words: &[Word]) -> anyhow::Result<()> {
    said_to(program, words, "")
}

/// The same with so much to read on its standard input.
pub fn said_to<Word: AsRef<OsStr>>(program: &str, words: &[Word], input: &str) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{program} cannot be run"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that fails early does not read all of it: its complaint says more.
        let _ = stdin.write_all(input.as_bytes());
    }
    let done = child.wait_with_output().with_context(|| format!("{program} cannot be waited for"))?;
    if !done.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}
