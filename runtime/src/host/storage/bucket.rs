//! Objects that others wrote, by URL: found by name, read by range. It must never write, nor wait without a bound.
//!
//! Names are taken as they are: what an object is called is not for us to escape.

use super::place::{OBJECT_FORMS, open_bucket, refused, variables};
use super::{Storage, StorageError};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_stream::StreamExt;

/// How long an answer is waited for, all attempts together.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(30);
/// Pauses between attempts double from the first to the last.
const PAUSES: Range<Duration> = Duration::from_millis(200)..Duration::from_secs(10);

/// The buckets of URLs, each opened once.
#[derive(Debug, Default)]
pub struct Buckets {
    opened: Mutex<BTreeMap<String, Bucket>>,
}

/// One bucket to read from. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Bucket(Storage);

/// What tells one content of an object from another, by its store's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its length.
    pub bytes: u64,
    /// Its entity tag, where the store has them.
    pub tag: Option<String>,
}

/// What lies directly in a folder, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Names of objects in the bucket, and what they are.
    pub objects: Vec<(String, Stamp)>,
    /// Names of folders in the bucket.
    pub folders: Vec<String>,
}

impl Buckets {
    /// Takes `store` for the bucket `SCHEME://NAME`: for simulations and tests.
    pub fn with(self, bucket: &str, store: Arc<dyn ObjectStore>) -> Buckets {
        self.opened().insert(bucket.to_owned(), Bucket(Storage::over(store, bucket)));
        self
    }

    /// Opens the bucket of `SCHEME://NAME/OBJECT`. Gives it with the object's name, and asks the network nothing.
    ///
    /// # Errors
    /// A URL of another form, a kind of bucket that this build lacks, credentials that make no sense.
    pub fn open<'u>(&self, url: &'u str) -> Result<(Bucket, &'u str), StorageError> {
        let after_scheme = url.find("://").map(|at| at + 3);
        let slash = after_scheme.and_then(|from| Some(from + url[from..].find('/')?));
        let Some((bucket, name)) =
            slash.map(|at| (&url[..at], &url[at + 1..])).filter(|(_, name)| !name.is_empty())
        else {
            return Err(refused(url, "it names no object", OBJECT_FORMS));
        };
        let mut opened = self.opened();
        if let Some(found) = opened.get(bucket) {
            return Ok((found.clone(), name));
        }
        let found = Bucket(open_bucket(bucket)?);
        opened.insert(bucket.to_owned(), found.clone());
        Ok((found, name))
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Bucket>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket {
    /// How messages name an object.
    pub fn url(&self, name: &str) -> String {
        self.0.at(name)
    }

    /// What the object is at present: one request.
    pub async fn stamp(&self, name: &str) -> Result<Stamp, StorageError> {
        let path = &self.path(name)?;
        let meta = self.patiently(name, || self.0.meta(name, path)).await?;
        Ok(Stamp::of(&meta))
    }

    /// What lies directly in `folder` (`""` is the whole bucket's): a request for each thousand names.
    pub async fn folder(&self, folder: &str) -> Result<Listing, StorageError> {
        let path = &self.path(folder)?;
        let list = || async { self.0.store.list_with_delimiter(Some(path)).await };
        let found =
            self.patiently(folder, || async { list().await.map_err(|e| self.0.sort(folder, e)) }).await?;
        let mut folders: Vec<String> = found.common_prefixes.into_iter().map(String::from).collect();
        folders.sort();
        Ok(Listing { objects: named(found.objects), folders })
    }

    /// What lies anywhere below `folder`: a request for each thousand names.
    pub async fn below(&self, folder: &str) -> Result<Vec<(String, Stamp)>, StorageError> {
        let path = &self.path(folder)?;
        let list = || self.0.store.list(Some(path)).collect::<Result<Vec<ObjectMeta>, _>>();
        let found =
            self.patiently(folder, || async { list().await.map_err(|e| self.0.sort(folder, e)) }).await?;
        Ok(named(found))
    }

    /// Exactly these bytes of an object: one request. Refused when it is not, or no longer, what `stamp` says.
    pub async fn read(
        &self,
        name: &str,
        range: Range<u64>,
        stamp: Option<&Stamp>,
    ) -> Result<Bytes, StorageError> {
        let path = &self.path(name)?;
        let (meta, bytes) = self
            .patiently(name, || self.0.read_part(name, path, range.clone()))
            .await
            .map_err(|error| match (error, stamp) {
                (StorageError::Damaged { at, offset, .. }, Some(stamp)) => {
                    let what = format!("it had {} bytes and now ends after {offset}", stamp.bytes);
                    StorageError::Changed { at, what }
                }
                (error, _) => error,
            })?;
        match stamp {
            Some(stamp) if *stamp != Stamp::of(&meta) => {
                let what = "it has been replaced while it was read".to_owned();
                Err(StorageError::Changed { at: self.url(name), what })
            }
            _ => Ok(bytes),
        }
    }

    /// Tries until there is an answer, for a bounded time. What only a person can mend is told with what to set.
    async fn patiently<T, F: Future<Output = Result<T, StorageError>>>(
        &self,
        name: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, StorageError> {
        let end = Instant::now() + PATIENCE;
        let mut pause = PAUSES.start;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let deadline = end.min(Instant::now() + ATTEMPT);
            let what = match timeout_at(deadline, attempt()).await {
                Err(_) => "nothing came".to_owned(),
                Ok(Err(StorageError::Unreachable { what, .. })) => what,
                Ok(Err(StorageError::Refused { at, what, .. })) => {
                    return Err(StorageError::Refused { at, what, advice: self.way_out() });
                }
                Ok(answer) => return answer,
            };
            if Instant::now() + pause >= end {
                let what = format!("no answer in {attempts} attempts over {} s: {what}", PATIENCE.as_secs());
                return Err(StorageError::Refused { at: self.url(name), what, advice: self.way_out() });
            }
            tracing::warn!(object = %self.url(name), %what, "no answer from the object store: trying again");
            sleep(pause).await;
            pause = PAUSES.end.min(pause * 2);
        }
    }

    fn way_out(&self) -> String {
        let variables = variables(self.0.place());
        format!(
            "see that the bucket can be reached and that this process may list and read there: {variables}"
        )
    }

    fn path(&self, name: &str) -> Result<Path, StorageError> {
        Path::parse(name).map_err(|error| refused(&self.url(name), error.to_string(), OBJECT_FORMS))
    }
}

impl Stamp {
    fn of(meta: &ObjectMeta) -> Stamp {
        Stamp { bytes: meta.size, tag: meta.e_tag.clone() }
    }
}

fn named(objects: Vec<ObjectMeta>) -> Vec<(String, Stamp)> {
    let mut named: Vec<(String, Stamp)> =
        objects.into_iter().map(|meta| (meta.location.to_string(), Stamp::of(&meta))).collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}
