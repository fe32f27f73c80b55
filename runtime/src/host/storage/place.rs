//! Places as users write them. It must never guess: what is not understood is refused with the forms that are.

use super::folder::{Folder, SyncFolder, blocking, sync_folder};
use super::{Storage, StorageError};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

const FORMS: &str = "name a folder, file:///absolute/folder, s3://bucket/folder or gs://bucket/folder";

pub(super) async fn open(place: &str) -> Result<Storage, StorageError> {
    match place.split_once("://") {
        None if place.is_empty() => Err(refused(place, "no place is named", FORMS)),
        None => open_folder(place, PathBuf::from(place), Arc::new(sync_folder)).await,
        // A '%' might stand for another character: a path says it as it is.
        Some(("file", path)) if path.starts_with('/') && !path.contains('%') => {
            open_folder(place, PathBuf::from(path), Arc::new(sync_folder)).await
        }
        Some(("s3", _)) => s3::open(place),
        Some(("gs", _)) => gs::open(place),
        Some(_) => Err(refused(place, "no such kind of place", FORMS)),
    }
}

/// The same, but nothing is created.
pub(super) async fn open_existing(place: &str) -> Result<Storage, StorageError> {
    let folder = match place.split_once("://") {
        None => Some(PathBuf::from(place)),
        Some(("file", path)) => Some(PathBuf::from(path)),
        Some(_) => None,
    };
    if let Some(folder) = folder {
        let found = blocking(move || std::fs::metadata(&folder)).await;
        found.map_err(|error| StorageError::sort_io(place.to_owned(), &error))?;
    }
    open(place).await
}

/// A folder of this machine, created when missing, so that one that cannot be is found at once.
pub(crate) async fn open_folder(
    place: &str,
    path: PathBuf,
    sync: SyncFolder,
) -> Result<Storage, StorageError> {
    let root = blocking(move || {
        std::fs::create_dir_all(&path)?;
        std::fs::canonicalize(&path)
    })
    .await
    .map_err(|error| StorageError::sort_io(place.to_owned(), &error))?;
    let store = LocalFileSystem::new_with_prefix(&root)
        .map_err(|error| StorageError::sort(place.to_owned(), error))?
        .with_fsync(true);
    let folder = Some(Folder::new(root, sync));
    Ok(Storage { store: Arc::new(store), prefix: Path::default(), folder, place: place.into() })
}

#[cfg(feature = "s3")]
mod s3 {
    use super::{Storage, StorageError, bucket};
    use object_store::aws::AmazonS3Builder;

    pub(super) fn open(place: &str) -> Result<Storage, StorageError> {
        bucket(place, AmazonS3Builder::from_env().with_url(place).build())
    }
}
#[cfg(not(feature = "s3"))]
mod s3 {
    use super::{Storage, StorageError, without};

    pub(super) fn open(place: &str) -> Result<Storage, StorageError> {
        Err(without(place, "s3"))
    }
}

#[cfg(feature = "gs")]
mod gs {
    use super::{Storage, StorageError, bucket};
    use object_store::gcp::GoogleCloudStorageBuilder;

    pub(super) fn open(place: &str) -> Result<Storage, StorageError> {
        bucket(place, GoogleCloudStorageBuilder::from_env().with_url(place).build())
    }
}
#[cfg(not(feature = "gs"))]
mod gs {
    use super::{Storage, StorageError, without};

    pub(super) fn open(place: &str) -> Result<Storage, StorageError> {
        Err(without(place, "gs"))
    }
}

/// The part of a bucket that `place` names.
#[cfg(any(feature = "s3", feature = "gs"))]
fn bucket(
    place: &str,
    store: object_store::Result<impl object_store::ObjectStore>,
) -> Result<Storage, StorageError> {
    let store = store.map_err(|error| refused(place, error.to_string(), FORMS))?;
    let after_scheme = place.split_once("://").map_or("", |(_, rest)| rest);
    let prefix = Path::parse(after_scheme.split_once('/').map_or("", |(_, prefix)| prefix))
        .map_err(|error| refused(place, error.to_string(), FORMS))?;
    Ok(Storage { store: Arc::new(store), prefix, folder: None, place: place.into() })
}

#[cfg(not(all(feature = "s3", feature = "gs")))]
fn without(place: &str, feature: &str) -> StorageError {
    let what = format!("this build has no {feature}://");
    refused(place, what, format!("build Shoal with `--features shoal-runtime/{feature}`"))
}

fn refused(place: &str, what: impl Into<String>, advice: impl Into<String>) -> StorageError {
    StorageError::Refused { at: format!("{place:?}"), what: what.into(), advice: advice.into() }
}
