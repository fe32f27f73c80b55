//! Places as users write them. It must never guess: what is not understood is refused with the forms that are.

use super::folder::{Folder, SyncFolder, blocking, sync_folder};
use super::{Storage, StorageError};
use crate::host::waits::Waits;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

const FORMS: &str = "name a folder, file:///absolute/folder, s3://bucket/folder or gs://bucket/folder";
pub(super) const OBJECT_FORMS: &str =
    "name files of this machine, file:///absolute/path, s3://bucket/name or gs://bucket/name";

pub(super) async fn open(place: &str) -> Result<Storage, StorageError> {
    match place.split_once("://") {
        None if place.is_empty() => Err(refused(place, "no place is named", FORMS)),
        None => open_folder(place, PathBuf::from(place), Arc::new(sync_folder)).await,
        // A '%' might stand for another character: a path says it as it is.
        Some(("file", path)) if path.starts_with('/') && !path.contains('%') => {
            open_folder(place, PathBuf::from(path), Arc::new(sync_folder)).await
        }
        Some(("s3", _)) => s3::open(place, Retries::Client),
        Some(("gs", _)) => gs::open(place, Retries::Client),
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

/// A bucket as `SCHEME://NAME`, for who tries again by itself.
pub(super) fn open_bucket(bucket: &str) -> Result<Storage, StorageError> {
    match bucket.split_once("://") {
        Some((_, "")) => Err(refused(bucket, "no bucket is named", OBJECT_FORMS)),
        Some(("s3", _)) => s3::open(bucket, Retries::Caller),
        Some(("gs", _)) => gs::open(bucket, Retries::Caller),
        _ => Err(refused(bucket, "no such kind of place", OBJECT_FORMS)),
    }
}

/// What gives access to buckets of this kind: settings of the environment, which the clients read.
pub(super) fn variables(bucket: &str) -> &'static str {
    match bucket.split_once("://") {
        Some(("s3", _)) => {
            "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, for a store of your own AWS_ENDPOINT_URL (and \
             AWS_ALLOW_HTTP=true), for a public bucket AWS_SKIP_SIGNATURE=true"
        }
        Some(("gs", _)) => {
            "set GOOGLE_SERVICE_ACCOUNT or GOOGLE_APPLICATION_CREDENTIALS to a key's file, for a public bucket \
             GOOGLE_SKIP_SIGNATURE=true"
        }
        _ => "see who may read there",
    }
}

/// A folder of this machine, created when missing, so that one that cannot be is found at once.
pub(crate) async fn open_folder(
    place: &str,
    path: PathBuf,
    sync: SyncFolder,
) -> Result<Storage, StorageError> {
    let (root, store) = blocking(move || {
        std::fs::create_dir_all(&path)?;
        let root = std::fs::canonicalize(&path)?;
        // It looks at the folder, too.
        let store = LocalFileSystem::new_with_prefix(&root);
        Ok((root, store))
    })
    .await
    .map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => refused(place, "the folder cannot be made here", FORMS),
        _ => StorageError::sort_io(place.to_owned(), &error),
    })?;
    let store = store.map_err(|error| StorageError::sort(place.to_owned(), error))?.with_fsync(true);
    let folder = Some(Folder::new(root, sync));
    Ok(Storage {
        store: Arc::new(store),
        prefix: Path::default(),
        folder,
        place: place.into(),
        waits: Waits::default(),
    })
}

/// Who tries again what failed in passing.
#[derive(Clone, Copy)]
enum Retries {
    /// The store's client, for some minutes.
    Client,
    /// The caller, who has a bound of its own.
    Caller,
}

#[cfg(feature = "s3")]
mod s3 {
    use super::{Retries, Storage, StorageError, bucket};
    use object_store::aws::AmazonS3Builder;

    pub(super) fn open(place: &str, retries: Retries) -> Result<Storage, StorageError> {
        let builder = AmazonS3Builder::from_env().with_url(place);
        let builder = match retries {
            Retries::Client => builder,
            Retries::Caller => builder.with_retry(super::once()),
        };
        bucket(place, builder.build())
    }
}
#[cfg(not(feature = "s3"))]
mod s3 {
    use super::{Retries, Storage, StorageError, without};

    pub(super) fn open(place: &str, _: Retries) -> Result<Storage, StorageError> {
        Err(without(place, "s3"))
    }
}

#[cfg(feature = "gs")]
mod gs {
    use super::{Retries, Storage, StorageError, bucket};
    use object_store::gcp::GoogleCloudStorageBuilder;

    pub(super) fn open(place: &str, retries: Retries) -> Result<Storage, StorageError> {
        let builder = GoogleCloudStorageBuilder::from_env().with_url(place);
        let builder = match retries {
            Retries::Client => builder,
            Retries::Caller => builder.with_retry(super::once()),
        };
        bucket(place, builder.build())
    }
}
#[cfg(not(feature = "gs"))]
mod gs {
    use super::{Retries, Storage, StorageError, without};

    pub(super) fn open(place: &str, _: Retries) -> Result<Storage, StorageError> {
        Err(without(place, "gs"))
    }
}

/// No second attempt by the client.
#[cfg(any(feature = "s3", feature = "gs"))]
fn once() -> object_store::RetryConfig {
    object_store::RetryConfig { max_retries: 0, ..Default::default() }
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
    Ok(Storage { store: Arc::new(store), prefix, folder: None, place: place.into(), waits: Waits::default() })
}

#[cfg(not(all(feature = "s3", feature = "gs")))]
fn without(place: &str, feature: &str) -> StorageError {
    let what = format!("this build has no {feature}://");
    let advice = format!(
        "build the shoal command with `cargo build --release --features {feature}`, and a training program with the feature \
             {feature:?} of its dependency shoal-trainer-sdk"
    );
    refused(place, what, advice)
}

pub(super) fn refused(place: &str, what: impl Into<String>, advice: impl Into<String>) -> StorageError {
    StorageError::Refused { at: format!("{place:?}"), what: what.into(), advice: advice.into() }
}
