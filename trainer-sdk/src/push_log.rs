//! A record of what pservers answered to pushes, and how long pushes lasted, for tests: a file of JSON lines that recovered
//! ledgers are compared with. Nothing reads it but tests.

use crate::error::TrainError;
use crate::origin::{BaseState, Origin};
use shoal_runtime::cluster::BlockId;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Where acknowledgements are written, if anywhere.
#[derive(Debug, Default)]
pub(crate) struct PushLog(Option<Mutex<File>>);

impl PushLog {
    /// Appends to `file`; without one, nothing is written.
    pub(crate) fn open(file: Option<&Path>) -> Result<PushLog, TrainError> {
        let Some(path) = file else { return Ok(PushLog::default()) };
        let opened = File::options().append(true).create(true).open(path);
        let opened =
            opened.map_err(|error| TrainError::Settings(format!("SHOAL_PUSH_LOG={path:?}: {error}")))?;
        Ok(PushLog(Some(Mutex::new(opened))))
    }

    /// A block answered `Applied`. One write for each line, so that a killed trainer leaves whole ones.
    pub(crate) fn applied(&self, of: &Origin, block: BlockId, base: BaseState) -> Result<(), TrainError> {
        self.write(|| {
            let (what, BaseState { rewind, version }) = (name(of), base);
            format!(
                "{{\"applied\":{{{what},\"block\":{block},\"rewind\":{rewind},\"version\":{version}}}}}\n"
            )
        })
    }

    /// Every block has answered a push, or it was given up, after so long.
    pub(crate) fn lasted(&self, time: Duration) -> Result<(), TrainError> {
        self.write(|| format!("{{\"push_micros\":{}}}\n", time.as_micros()))
    }

    fn write(&self, line: impl FnOnce() -> String) -> Result<(), TrainError> {
        let Some(file) = &self.0 else { return Ok(()) };
        let line = line();
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes())
            .map_err(|error| TrainError::Settings(format!("SHOAL_PUSH_LOG cannot be written: {error}")))
    }
}

fn name(of: &Origin) -> String {
    match of {
        Origin::Node(of) => {
            format!("\"step\":{},\"level\":{},\"index\":{}", of.step, of.node.level, of.node.index)
        }
        Origin::Microbatch(position) => format!("\"position\":{position}"),
    }
}
