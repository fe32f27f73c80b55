//! What a folder of this machine needs beyond the storage library's own syncing, so that what was written or deleted
//! stays so after a power cut. It must never touch a file's content.
//!
//! The library syncs a file and the folders that it created itself. It does not sync a folder that another process
//! created a moment ago, and after a deletion it syncs nothing. So every folder above an object is synced here.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes a folder's entries durable.
pub(super) type SyncFolder = Arc<dyn Fn(&Path) -> io::Result<()> + Send + Sync>;

/// A folder that objects lie in.
#[derive(Clone)]
pub(super) struct Folder {
    root: PathBuf,
    sync: SyncFolder,
}

impl Folder {
    pub(super) fn new(root: PathBuf, sync: SyncFolder) -> Folder {
        Folder { root, sync }
    }

    /// Syncs every folder above the object `name`: below the root, the root, and those above it on the same file
    /// system, which this or another process may just have created.
    pub(super) async fn settle(&self, name: &str) -> io::Result<()> {
        let (folder, object) = (self.clone(), self.root.join(name));
        blocking(move || folder.sync_above(&object)).await
    }

    /// Removes the folder `name` with whatever is in it: what a killed writer left is not listed as objects.
    pub(super) async fn remove(&self, name: &str) -> io::Result<()> {
        let (folder, path) = (self.clone(), self.root.join(name));
        blocking(move || {
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            (folder.sync)(&folder.root)
        })
        .await
    }

    fn sync_above(&self, object: &Path) -> io::Result<()> {
        let device = std::fs::metadata(&self.root)?.dev();
        for above in object.ancestors().skip(1) {
            if above.starts_with(&self.root) {
                match (self.sync)(above) {
                    // A deleted object's folder may have gone with it.
                    Err(error) if error.kind() == ErrorKind::NotFound && above != self.root => {}
                    synced => synced?,
                }
                continue;
            }
            if std::fs::metadata(above)?.dev() != device {
                break;
            }
            match (self.sync)(above) {
                // Who may not open a folder did not create anything in it.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
        }
        Ok(())
    }
}

/// Opens a folder and asks the operating system to make its entries durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

/// Runs what blocks where it may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
