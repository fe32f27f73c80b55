//! The little that the document's file needs of a disk. Each step by itself, so that a test can cut the power between.

use std::fmt::Debug;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Error, Read, Result, Write};
use std::path::{Path, PathBuf};

/// A folder on a disk. Errors name the file and what was tried. Clones are the same folder.
pub trait Disk: Clone + Debug + Send + Sync + 'static {
    /// A file that is being written.
    type File: Send;
    /// A lock that falls when it is dropped, or with its process.
    type Lock: Debug + Send + Sync + 'static;
    /// Runs `action` where it may wait for the disk. It is carried out even if nobody waits for it any more.
    ///
    /// # Errors
    /// Its thread ended, in words.
    fn perform<T: Send + 'static>(
        &self,
        action: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> impl Future<Output = std::result::Result<T, String>> + Send;
    /// Where a file of this folder is, for messages.
    fn path(&self, name: &str) -> PathBuf;
    /// All bytes of a file.
    fn read(&self, name: &str) -> Result<Vec<u8>>;
    /// A file without bytes, in the place of any of that name.
    fn create(&self, name: &str) -> Result<Self::File>;
    /// Writes all of `bytes`. They survive a power cut only after [`Disk::sync`].
    fn write(&self, file: &mut Self::File, bytes: &[u8]) -> Result<()>;
    /// Makes what was written survive a power cut; not the file's name.
    fn sync(&self, file: &Self::File) -> Result<()>;
    /// Gives a file another name, in one step. That survives a power cut only after [`Disk::sync_folder`].
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Makes the folder's names survive a power cut.
    fn sync_folder(&self) -> Result<()>;
    /// The lock that a file stands for; none while another holds it.
    fn try_lock(&self, name: &str) -> Result<Option<Self::Lock>>;
    /// Puts into a lock's file who holds it: for people only.
    fn sign(&self, lock: &mut Self::Lock, holder: &str) -> Result<()>;
}

/// A folder of this machine.
#[derive(Clone, Debug)]
pub struct OsDisk {
    folder: PathBuf,
}

impl OsDisk {
    /// Makes the folder where it is missing, so that it survives a power cut.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(folder: &Path) -> Result<OsDisk> {
        make_folder(folder)?;
        Ok(OsDisk { folder: folder.to_owned() })
    }
}

fn make_folder(folder: &Path) -> Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().unwrap_or(Path::new("/"));
    make_folder(parent)?;
    match std::fs::create_dir(folder) {
        // Another process made it just now.
        Err(error) if folder.is_dir() => tracing::debug!(%error, "the folder is there already"),
        made => made.map_err(|error| tried("make the folder", folder, &error))?,
    }
    sync_folder(parent)
}

fn sync_folder(folder: &Path) -> Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| tried("sync the folder", folder, &error))
}

fn tried(what: &str, path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: cannot {what}: {error}", path.display()))
}

impl Disk for OsDisk {
    type File = (File, PathBuf);
    type Lock = File;

    async fn perform<T: Send + 'static>(
        &self,
        action: impl FnOnce(&OsDisk) -> T + Send + 'static,
    ) -> std::result::Result<T, String> {
        let disk = self.clone();
        let done = tokio::task::spawn_blocking(move || action(&disk)).await;
        done.map_err(|error| format!("the disk's thread ended: {error}"))
    }
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
    fn read(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.path(name);
        let mut bytes = Vec::new();
        File::open(&path)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(|error| tried("read", &path, &error))?;
        Ok(bytes)
    }
    fn create(&self, name: &str) -> Result<(File, PathBuf)> {
        let path = self.path(name);
        let opened = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
        let file = opened.map_err(|error| tried("create", &path, &error))?;
        Ok((file, path))
    }
    fn write(&self, (file, path): &mut (File, PathBuf), bytes: &[u8]) -> Result<()> {
        file.write_all(bytes).map_err(|error| tried("write", path, &error))
    }
    fn sync(&self, (file, path): &(File, PathBuf)) -> Result<()> {
        file.sync_all().map_err(|error| tried("sync", path, &error))
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.path(from), self.path(to));
        std::fs::rename(&from, &to).map_err(|error| tried("rename to its final name", &from, &error))
    }
    fn sync_folder(&self) -> Result<()> {
        sync_folder(&self.folder)
    }
    fn try_lock(&self, name: &str) -> Result<Option<File>> {
        let path = self.path(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| tried("lock", &path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(tried("lock", &path, &error)),
        }
    }
    fn sign(&self, lock: &mut File, holder: &str) -> Result<()> {
        lock.set_len(0)?;
        lock.write_all(holder.as_bytes())
    }
}
