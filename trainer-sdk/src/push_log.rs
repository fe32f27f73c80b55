//! A record of what pservers acknowledged, for tests: a file of JSON lines that recovered ledgers are compared with.
//! Nothing reads it but tests.

use crate::error::TrainError;
use crate::push::{Base, Of};
use shoal_runtime::cluster::BlockId;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

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
    pub(crate) fn applied(&self, of: &Of, block: BlockId, base: Base) -> Result<(), TrainError> {
        let Some(file) = &self.0 else { return Ok(()) };
        let line = line(of, block, base);
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes())
            .map_err(|error| TrainError::Settings(format!("SHOAL_PUSH_LOG cannot be written: {error}")))
    }
}

fn line(of: &Of, block: BlockId, base: Base) -> String {
    let Base { rewind, version } = base;
    match of {
        Of::Node(of) => format!(
            "{{\"step\":{},\"level\":{},\"index\":{},\"block\":{block},\"rewind\":{rewind}}}\n",
            of.step, of.node.level, of.node.index
        ),
        Of::Microbatch(position) => format!(
            "{{\"position\":{position},\"block\":{block},\"version\":{version},\"rewind\":{rewind}}}\n"
        ),
    }
}
