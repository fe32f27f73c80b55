//! The door to where checkpoints are kept: a folder of this machine or a bucket, by one set of operations. Objects that
//! others wrote are read through [`Buckets`].
//!
//! An object is written once, whole and durably, or not at all; a name is never given other content. It must never know
//! what the objects are for.

mod bucket;
#[cfg(test)]
mod bucket_tests;
mod error;
mod folder;
#[cfg(test)]
pub(crate) mod frail;
mod place;
#[cfg(test)]
mod tests;
mod upload;

pub use bucket::{Bucket, Buckets, Listing, Stamp};
pub use error::{Remedy, StorageError};
pub use upload::Upload;

#[cfg(test)]
pub(crate) use place::open_folder;

use crate::cluster::waits::WaitKind;
use crate::host::waits::{OpenWait, Waits};
use bytes::Bytes;
use folder::Folder;
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A place that keeps objects. Cheap to clone; clones are the same place.
///
/// Names of objects are `name` or `folder/name`.
#[derive(Clone)]
pub struct Storage {
    store: Arc<dyn ObjectStore>,
    /// What every object's name in the store begins with.
    prefix: Path,
    /// Set when the place is a folder of this machine.
    folder: Option<Folder>,
    place: Arc<str>,
    /// Calls in progress, for the watch.
    waits: Waits,
}

/// An object, as a listing has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name in the folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

impl Storage {
    /// Opens a place that a user named: a folder (created when missing) as a path or `file://` URL; `s3://` and `gs://`
    /// in builds with these features, with credentials from the environment.
    pub async fn open(place: &str) -> Result<Storage, StorageError> {
        place::open(place).await
    }

    /// The same for a place that must be there already, such as one that is only read.
    pub async fn open_existing(place: &str) -> Result<Storage, StorageError> {
        place::open_existing(place).await
    }

    /// A store made elsewhere, for simulations and tests. `place` is its name in messages.
    pub fn over(store: Arc<dyn ObjectStore>, place: &str) -> Storage {
        Storage { store, prefix: Path::default(), folder: None, place: place.into(), waits: Waits::default() }
    }

    /// Returns the same place, whose calls in progress `waits` has.
    pub fn watched_by(mut self, waits: &Waits) -> Storage {
        self.waits = waits.clone();
        self
    }

    /// Begins a call about an object. Every call of this door does so first: one that hangs is seen, whatever it is.
    fn call(&self, what: &str, name: &str) -> OpenWait {
        self.waits.begin(WaitKind::Storage, format!("{what} {}", self.at(name)))
    }

    /// What the user called it.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Writes a small object; durable when it returns. The same content again is no fault and durable again, other
    /// content is [`StorageError::Taken`].
    pub async fn put(&self, name: &str, content: Bytes) -> Result<(), StorageError> {
        let _call = self.call("write", name);
        let (path, payload) = (self.path(name), PutPayload::from(content.clone()));
        match self.store.put_opts(&path, payload.clone(), PutMode::Create.into()).await {
            Err(object_store::Error::AlreadyExists { .. }) => {
                match self.read(name, content.len() as u64).await {
                    Ok(found) if found == content => {}
                    Err(error) if error.remedy() != Remedy::GiveUp => return Err(error),
                    _ => return Err(StorageError::Taken { at: self.at(name) }),
                }
                // Who wrote it may have failed before it was durable: the same bytes once more, whole.
                self.store.put(&path, payload).await
            }
            answer => answer,
        }
        .map_err(|error| self.sort(name, error))?;
        self.settle(name).await
    }

    /// Begins an object of any size. Its name must belong to this writer alone.
    pub async fn upload(&self, name: &str) -> Result<Upload, StorageError> {
        Upload::begin(self, name).await
    }

    /// A whole object of at most `bytes_max` bytes.
    pub async fn read(&self, name: &str, bytes_max: u64) -> Result<Bytes, StorageError> {
        let _call = self.call("read", name);
        let found = self.store.get(&self.path(name)).await.map_err(|error| self.sort(name, error))?;
        if found.meta.size > bytes_max {
            let what = format!("it has {} bytes, at most {bytes_max} are expected", found.meta.size);
            return Err(StorageError::Damaged { at: self.at(name), offset: bytes_max, what });
        }
        found.bytes().await.map_err(|error| self.sort(name, error))
    }

    /// Exactly these bytes of an object. Allocates no more than the object has.
    pub async fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes, StorageError> {
        let (_, bytes) = self.read_part(name, &self.path(name), range).await?;
        Ok(bytes)
    }

    /// Exactly these bytes of the object at `path`, and what the store says of it.
    async fn read_part(
        &self,
        name: &str,
        path: &Path,
        range: Range<u64>,
    ) -> Result<(ObjectMeta, Bytes), StorageError> {
        let _call = self.call("read", name);
        let needed = range.end.saturating_sub(range.start);
        let options = GetOptions::new().with_range(Some(range.clone()));
        let found = match self.store.get_opts(path, options).await {
            Ok(found) => {
                let meta = found.meta.clone();
                found.bytes().await.map(|bytes| (meta, bytes))
            }
            Err(error) => Err(error),
        };
        match found {
            Ok((meta, bytes)) if bytes.len() as u64 == needed => Ok((meta, bytes)),
            Ok(_) => Err(self.short(name, range, self.meta(name, path).await?.size)),
            // Stores disagree on what a range beyond the end is.
            Err(error @ object_store::Error::Generic { .. }) => match self.meta(name, path).await {
                Ok(meta) if meta.size < range.end => Err(self.short(name, range, meta.size)),
                Err(missing @ StorageError::Missing { .. }) => Err(missing),
                _ => Err(self.sort(name, error)),
            },
            Err(error) => Err(self.sort(name, error)),
        }
    }

    /// The length of an object.
    pub async fn bytes_of(&self, name: &str) -> Result<u64, StorageError> {
        Ok(self.meta(name, &self.path(name)).await?.size)
    }

    async fn meta(&self, name: &str, path: &Path) -> Result<ObjectMeta, StorageError> {
        let _call = self.call("look at", name);
        self.store.head(path).await.map_err(|error| self.sort(name, error))
    }

    /// When an object was written, as its store says: a label for people, in UTC.
    pub async fn written_at(&self, name: &str) -> Result<String, StorageError> {
        let found = self.meta(name, &self.path(name)).await?;
        Ok(found.last_modified.format("%Y-%m-%dT%H:%M:%SZ").to_string())
    }

    /// The objects directly in a folder, by name; none where there is no such folder.
    pub async fn list(&self, folder: &str) -> Result<Vec<Listed>, StorageError> {
        let found = self.listing(folder).await?;
        let mut listed: Vec<Listed> = (found.objects.iter())
            .filter_map(|meta| Some(Listed { name: meta.location.filename()?.to_owned(), bytes: meta.size }))
            .collect();
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listed)
    }

    /// The folders directly in this place, by name.
    pub async fn folders(&self) -> Result<Vec<String>, StorageError> {
        let found = self.listing("").await?;
        let mut folders: Vec<String> =
            found.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned)).collect();
        folders.sort();
        Ok(folders)
    }

    /// Deletes an object for good; no fault where there is none.
    pub async fn delete(&self, name: &str) -> Result<(), StorageError> {
        let _call = self.call("remove", name);
        match self.store.delete(&self.path(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => self.settle(name).await,
            Err(error) => Err(self.sort(name, error)),
        }
    }

    /// Deletes a folder with whatever is in it, in no particular order.
    pub async fn delete_folder(&self, name: &str) -> Result<(), StorageError> {
        let _call = self.call("remove", name);
        for object in self.list(name).await? {
            let path = self.path(&format!("{name}/{}", object.name));
            match self.store.delete(&path).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.sort(name, error)),
            }
        }
        match &self.folder {
            Some(folder) => {
                folder.remove(name).await.map_err(|error| StorageError::sort_io(self.at(name), &error))
            }
            None => Ok(()),
        }
    }

    /// How messages name an object.
    pub fn at(&self, name: &str) -> String {
        match name {
            "" => self.place.to_string(),
            _ => format!("{}/{name}", self.place.trim_end_matches('/')),
        }
    }

    async fn listing(&self, folder: &str) -> Result<object_store::ListResult, StorageError> {
        let _call = self.call("list", folder);
        let path = self.path(folder);
        self.store.list_with_delimiter(Some(&path)).await.map_err(|error| self.sort(folder, error))
    }

    fn path(&self, name: &str) -> Path {
        self.prefix.parts().chain(Path::from(name).parts()).collect()
    }

    async fn settle(&self, name: &str) -> Result<(), StorageError> {
        match &self.folder {
            Some(folder) => {
                folder.settle(name).await.map_err(|error| StorageError::sort_io(self.at(name), &error))
            }
            None => Ok(()),
        }
    }

    fn sort(&self, name: &str, error: object_store::Error) -> StorageError {
        StorageError::sort(self.at(name), error)
    }

    fn short(&self, name: &str, range: Range<u64>, bytes: u64) -> StorageError {
        let what =
            format!("it ends after {bytes} bytes; those from {} to {} were written", range.start, range.end);
        StorageError::Damaged { at: self.at(name), offset: bytes.min(range.end), what }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Storage({}: {:?})", self.place, self.store)
    }
}
