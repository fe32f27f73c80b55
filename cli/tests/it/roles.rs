//! What tests with real processes share: the `shoal` command, its processes, small data sets. It tests nothing.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

/// The command, in a folder, with nothing inherited that would change what it does.
pub(crate) fn shoal(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SHOAL_") {
            command.env_remove(name);
        }
    }
    // Nor settings of whoever runs the tests.
    command.env("SHOAL_CONFIG", "/dev/null");
    command.env_remove("RUST_LOG").current_dir(folder).stdin(Stdio::null());
    command
}

/// A data set of 96 handwritten digits as the demo's program reads them: a label, then 64 pixels.
pub(crate) fn digits(folder: &Path) -> PathBuf {
    let (count, mut images, mut labels) = (96u32, Vec::new(), Vec::new());
    images.extend([0, 0, 8, 3]);
    images.extend([count, 8, 8].iter().flat_map(|size| size.to_be_bytes()));
    labels.extend([0, 0, 8, 1]);
    labels.extend(count.to_be_bytes());
    for digit in 0..count {
        labels.push((digit % 10) as u8);
        images.extend((0..64).map(|pixel| ((digit % 10 * 7 + pixel) % 17) as u8));
    }
    let (idx, data) = (folder.join("images.idx"), folder.join("digits.recordio"));
    std::fs::write(&idx, images).unwrap();
    std::fs::write(folder.join("labels.idx"), labels).unwrap();
    let mut pack = shoal(folder);
    pack.args(["recordio", "pack", "idx", "--images", "images.idx", "--labels", "labels.idx"]);
    let packed = pack.args(["--output", "digits.recordio", "--chunk-bytes", "1024"]).output().unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    data
}

/// A process whose log is read line by line; killed when it is dropped.
pub(crate) struct Role {
    pub(crate) child: Child,
    log: BufReader<ChildStderr>,
}

impl Role {
    pub(crate) fn start(command: &mut Command) -> Role {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Role { child, log }
    }

    /// The next line that the role logs, as JSON.
    pub(crate) fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        (self.log.read_line(&mut line).unwrap() > 0).then(|| parsed(&line))
    }

    /// The first line from here on that says so.
    pub(crate) fn until(&mut self, message: &str) -> Value {
        loop {
            let line = self.line().unwrap_or_else(|| panic!("never said: {message}"));
            if line["message"].as_str().is_some_and(|said| said.contains(message)) {
                return line;
            }
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// All that a command has logged, each line as JSON.
pub(crate) fn log_of(output: &Output) -> Vec<Value> {
    std::str::from_utf8(&output.stderr).unwrap().lines().map(parsed).collect()
}

/// Status code and body of a page.
pub(crate) fn page(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}
