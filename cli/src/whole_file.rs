//! Files that appear whole or not at all: written beside their place, synced, and moved there.

use anyhow::Context;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file cannot be written: to ask again where its content comes from does not help.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unwritten(String);

impl Unwritten {
    /// That this file cannot be.
    pub(crate) fn file(path: &Path) -> Unwritten {
        Unwritten(format!("cannot write {}", path.display()))
    }
}

/// A file that is not there yet. Dropped before it is settled, it never will be.
#[derive(Debug)]
pub(crate) struct WholeFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl WholeFile {
    /// Begins one that is to be at `path`, in a folder that is made if need be.
    pub(crate) fn begin(path: &Path) -> anyhow::Result<WholeFile> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let shown = folder.display();
        std::fs::create_dir_all(folder).with_context(|| Unwritten(format!("cannot make folder {shown}")))?;
        let file = NamedTempFile::new_in(folder);
        let file = file.with_context(|| Unwritten(format!("cannot write in {shown}")))?;
        Ok(WholeFile { file, path: path.to_owned() })
    }

    /// Puts it into its place, in that of a file that was there.
    pub(crate) fn settle(self) -> anyhow::Result<()> {
        self.file.as_file().sync_all().with_context(|| Unwritten::file(&self.path))?;
        self.file.persist(&self.path).with_context(|| Unwritten::file(&self.path))?;
        Ok(())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Writes a file of these bytes.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut file = WholeFile::begin(path)?;
    file.write_all(bytes).with_context(|| Unwritten::file(path))?;
    file.settle()
}
