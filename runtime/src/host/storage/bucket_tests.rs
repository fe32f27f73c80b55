//! What is read from buckets, over memory, over a folder, and over a store that fails, hangs or is written to meanwhile.

use super::bucket::{Bucket, Buckets, Stamp};
use super::{Remedy, StorageError};
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use tokio::time::Instant;

/// How a [`Moody`] store fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Unreachable,
    Hanging,
    Forbidden,
}

/// Fails so many times, then answers with `inner`'s words.
#[derive(Debug)]
struct Moody {
    inner: Arc<dyn ObjectStore>,
    failures: u32,
    asked: AtomicU32,
    mood: Mood,
}

impl Moody {
    async fn answer(&self) -> Result<()> {
        if self.asked.fetch_add(1, SeqCst) >= self.failures {
            return Ok(());
        }
        match self.mood {
            Mood::Hanging => std::future::pending().await,
            Mood::Unreachable => Err(Error::Generic { store: "moody", source: "HTTP 503".into() }),
            Mood::Forbidden => Err(Error::PermissionDenied { path: "a".into(), source: "HTTP 403".into() }),
        }
    }
}

impl std::fmt::Display for Moody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Moody")
    }
}

#[async_trait]
impl ObjectStore for Moody {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(at, payload, options).await
    }
    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, options).await
    }
    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.answer().await?;
        self.inner.get_opts(at, options).await
    }
    fn delete_stream(&self, at: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(at)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.answer().await?;
        self.inner.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

async fn put(store: &dyn ObjectStore, name: &str, content: &'static [u8]) {
    store.put(&Path::parse(name).unwrap(), content.into()).await.unwrap();
}

fn open(store: Arc<dyn ObjectStore>) -> Bucket {
    let buckets = Buckets::default().with("s3://b", store);
    let (bucket, name) = buckets.open("s3://b/deep/name").unwrap();
    assert_eq!(name, "deep/name");
    bucket
}

fn moody(mood: Mood, failures: u32) -> (Arc<Moody>, Bucket) {
    let inner = Arc::new(InMemory::new());
    let store = Arc::new(Moody { inner, failures, asked: AtomicU32::new(0), mood });
    (store.clone(), open(store))
}

#[tokio::test]
async fn names_are_taken_as_they_are_and_listed_with_what_they_are() {
    let root = tempfile::tempdir().unwrap();
    let folder = LocalFileSystem::new_with_prefix(root.path()).unwrap();
    for store in [Arc::new(InMemory::new()) as Arc<dyn ObjectStore>, Arc::new(folder)] {
        for name in ["top", "a/2 b", "a/1", "a/c/[x]", "b/1"] {
            put(&*store, name, b"content").await;
        }
        let bucket = open(store);
        let names = |named: &[(String, Stamp)]| -> Vec<String> {
            assert!(named.iter().all(|(_, stamp)| stamp.bytes == 7 && stamp.tag.is_some()));
            named.iter().map(|(name, _)| name.clone()).collect()
        };
        let listed = bucket.folder("a").await.unwrap();
        assert_eq!(
            (names(&listed.objects), listed.folders),
            (vec!["a/1".into(), "a/2 b".into()], vec!["a/c".into()])
        );
        let listed = bucket.folder("").await.unwrap();
        assert_eq!(
            (names(&listed.objects), listed.folders),
            (vec!["top".into()], vec!["a".into(), "b".into()])
        );
        assert_eq!(names(&bucket.below("a").await.unwrap()), ["a/1", "a/2 b", "a/c/[x]"]);
        assert_eq!(bucket.folder("none").await.unwrap().objects, []);
        assert_eq!(bucket.read("a/c/[x]", 1..3, None).await.unwrap(), "on");
        assert_eq!(bucket.stamp("a/2 b").await.unwrap().bytes, 7);
        assert_eq!(bucket.stamp("no").await.unwrap_err(), StorageError::Missing { at: "s3://b/no".into() });
    }
}

#[tokio::test]
async fn an_object_that_is_replaced_or_cut_short_while_it_is_read_is_refused() {
    let store = Arc::new(InMemory::new());
    put(&*store, "a", b"content").await;
    let bucket = open(store.clone());
    let stamp = bucket.stamp("a").await.unwrap();
    assert_eq!(bucket.read("a", 0..7, Some(&stamp)).await.unwrap(), "content");
    for (other, needle) in [(b"CONTENT".as_slice(), "replaced"), (b"con", "7 bytes and now ends after 3")] {
        put(&*store, "a", other).await;
        let error = bucket.read("a", 3..7, Some(&stamp)).await.unwrap_err();
        assert_eq!(error.remedy(), Remedy::GiveUp);
        assert!(matches!(error, StorageError::Changed { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("s3://b/a") && text.contains(needle) && text.contains("new names"), "{text}");
    }
    // Who has no stamp is told where it ends.
    let error = bucket.read("a", 3..7, None).await.unwrap_err();
    assert!(matches!(error, StorageError::Damaged { offset: 3, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_fails_in_passing_is_asked_again() {
    for (mood, failures) in [(Mood::Unreachable, 1), (Mood::Unreachable, 4), (Mood::Hanging, 1)] {
        let open = async || {
            let (store, bucket) = moody(mood, failures);
            put(&*store.inner, "a", b"content").await;
            bucket
        };
        assert_eq!(open().await.stamp("a").await.unwrap().bytes, 7);
        assert_eq!(open().await.read("a", 0..2, None).await.unwrap(), "co");
        assert_eq!(open().await.folder("").await.unwrap().objects.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_never_answers_is_told_within_a_minute_with_what_to_set() {
    for (mood, what) in [(Mood::Unreachable, "HTTP 503"), (Mood::Hanging, "nothing came")] {
        let (store, bucket) = moody(mood, u32::MAX);
        let began = Instant::now();
        let error = bucket.read("a", 0..2, None).await.unwrap_err();
        assert!(began.elapsed() <= Duration::from_secs(60), "{:?}", began.elapsed());
        assert!((2..30).contains(&store.asked.load(SeqCst)));
        assert_eq!(error.remedy(), Remedy::Fix);
        let text = error.to_string();
        for needle in ["s3://b/a", what, "over 60 s", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID"] {
            assert!(text.contains(needle), "{needle}: {text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_forbidden_is_told_at_once_with_what_to_set() {
    let (store, bucket) = moody(Mood::Forbidden, u32::MAX);
    let text = bucket.stamp("a").await.unwrap_err().to_string();
    assert!(text.contains("HTTP 403") && text.contains("AWS_SECRET_ACCESS_KEY"), "{text}");
    assert_eq!(store.asked.load(SeqCst), 1);
}

#[test]
fn a_url_of_another_form_is_refused_with_the_forms() {
    let buckets = Buckets::default();
    for url in ["s3://", "s3://b", "s3://b/", "s3:///a", "ftp://b/a", "a/b", "://b/a"] {
        let text = buckets.open(url).unwrap_err().to_string();
        assert!(text.contains("s3://bucket/name") && text.contains("file:///"), "{text}");
    }
    for feature in ["s3", "gs"] {
        if let Err(error) = buckets.open(&format!("{feature}://b/a")) {
            let (text, build) = (error.to_string(), format!("cargo build --release --features {feature}"));
            assert!(text.contains(&build) && text.contains("shoal-trainer-sdk"), "{text}");
        }
    }
}
