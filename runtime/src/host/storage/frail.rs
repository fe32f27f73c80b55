//! A store for tests that dies after a number of operations. It must never be part of a build without tests.

use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What becomes of the change after which the store dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// It is not carried out.
    Lost,
    /// It is carried out, and answered by a failure.
    Unanswered,
    /// It is carried out and answered; death comes right after.
    Answered,
}

/// Lets a number of changes through to `inner`; then every operation fails as `failure` says.
#[derive(Debug)]
pub(crate) struct Frail {
    inner: Arc<dyn ObjectStore>,
    life: Arc<Life>,
}

#[derive(Debug)]
struct Life {
    left: AtomicU64,
    last: Last,
    /// The operating system's number of every failure.
    failure: i32,
    /// The largest part that came in one piece.
    part_bytes_max: AtomicUsize,
}

impl Life {
    fn alive(&self) -> Result<()> {
        if self.left.load(Ordering::SeqCst) == 0 { Err(self.error()) } else { Ok(()) }
    }
    fn error(&self) -> Error {
        let source = Box::new(io::Error::from_raw_os_error(self.failure));
        Error::Generic { store: "frail", source }
    }
    async fn through<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let spent = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match (spent, self.last) {
            (Err(_), _) | (Ok(1), Last::Lost) => Err(self.error()),
            (Ok(1), Last::Unanswered) => {
                let _ = work.await;
                Err(self.error())
            }
            _ => work.await,
        }
    }
}

impl Frail {
    /// A store over `inner` that dies with its `changes`-th change.
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, changes: u64, last: Last, failure: i32) -> Arc<Frail> {
        let (left, part_bytes_max) = (AtomicU64::new(changes), AtomicUsize::new(0));
        Arc::new(Frail { inner, life: Arc::new(Life { left, last, failure, part_bytes_max }) })
    }
    pub(crate) fn left(&self) -> u64 {
        self.life.left.load(Ordering::SeqCst)
    }
    pub(crate) fn part_bytes_max(&self) -> usize {
        self.life.part_bytes_max.load(Ordering::SeqCst)
    }
}

impl fmt::Display for Frail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frail({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Frail {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.life.through(self.inner.put_opts(at, payload, options)).await
    }
    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.life.through(self.inner.put_multipart_opts(at, options)).await?;
        Ok(Box::new(FrailUpload { inner, life: self.life.clone() }))
    }
    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.life.alive()?;
        self.inner.get_opts(at, options).await
    }
    fn delete_stream(&self, at: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (life, inner) = (self.life.clone(), self.inner.clone());
        at.then(move |path| {
            let (life, inner) = (life.clone(), inner.clone());
            async move {
                let one = futures_util::stream::once(async { path }).boxed();
                let gone = async { inner.delete_stream(one).next().await.unwrap() };
                life.through(gone).await
            }
        })
        .boxed()
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.life.alive()?;
        self.inner.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.life.through(self.inner.copy_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct FrailUpload {
    inner: Box<dyn MultipartUpload>,
    life: Arc<Life>,
}

#[async_trait]
impl MultipartUpload for FrailUpload {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        self.life.part_bytes_max.fetch_max(part.content_length(), Ordering::SeqCst);
        let (life, sent) = (self.life.clone(), self.inner.put_part(part));
        Box::pin(async move { life.through(sent).await })
    }
    async fn complete(&mut self) -> Result<PutResult> {
        self.life.through(self.inner.complete()).await
    }
    async fn abort(&mut self) -> Result<()> {
        self.life.through(self.inner.abort()).await
    }
}
