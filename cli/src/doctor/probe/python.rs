//! The Python of the path, and the package `shoal` in it. Nothing of that package is run.

use crate::doctor::judge::build::Python;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// How long it may take: a Python on a slow disk begins in a second or two.
const PATIENCE: Duration = Duration::from_secs(8);
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Asks for versions alone. The working directory is no place for modules: a file there may be called as one of these is.
const QUESTION: &str =
    "import sys; sys.path[:] = [p for p in sys.path if p]; import platform; from importlib import metadata
try: package = metadata.version('shoal')
except metadata.PackageNotFoundError: package = ''
print(platform.python_version(), package)";

pub(crate) fn ask() -> Python {
    for program in ["python3", "python"] {
        let asked = Command::new(program)
            .args(["-c", QUESTION])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = asked else { continue };
        let program = program.to_owned();
        let began = Instant::now();
        let (_sleeper, bell) = std::sync::mpsc::channel::<()>();
        let ended = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if began.elapsed() < PATIENCE => {
                    let _ = bell.recv_timeout(LOOK);
                }
                Ok(None) => break Err(format!("it has not ended within {} s", PATIENCE.as_secs())),
                Err(error) => break Err(error.to_string()),
            }
        };
        if ended.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let mut said = String::new();
        let read = child.stdout.take().map(|out| out.take(4096).read_to_string(&mut said));
        let mut words = said.split_whitespace().map(str::to_owned);
        return match (ended, read, words.next()) {
            (Ok(status), Some(Ok(_)), Some(version)) if status.success() => {
                Python::Answered { program, version, package: words.next() }
            }
            (Ok(status), ..) => Python::Silent { program, why: status.to_string() },
            (Err(why), ..) => Python::Silent { program, why },
        };
    }
    Python::Absent
}
