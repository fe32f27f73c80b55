//! Data sets in folders and in buckets: what is found, in which order, at which cost, and what is said when it is not.

mod numbered;
mod patterns;
mod refusals;

use super::{scan, scan_in};
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use shoal_recordio::{Writer, WriterOptions};
use shoal_runtime::cluster::Manifest;
use shoal_runtime::host::storage::Buckets;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Counts what it is asked, and may put another object in an object's place at some request.
#[derive(Debug, Default)]
struct Watched {
    inner: InMemory,
    gets: AtomicU64,
    bytes: AtomicU64,
    lists: AtomicU64,
    replace_at: Mutex<Option<(u64, Path, Vec<u8>)>>,
}

impl std::fmt::Display for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watched")
    }
}

#[async_trait]
impl ObjectStore for Watched {
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
        let get = self.gets.fetch_add(1, SeqCst) + 1;
        let replaced = self.replace_at.lock().unwrap().take_if(|(at, _, _)| *at == get);
        if let Some((_, path, content)) = replaced {
            self.inner.put(&path, content.into()).await?;
        }
        // Some answers are quicker than others.
        for _ in 0..at.as_ref().bytes().last().unwrap_or(0) % 7 {
            tokio::task::yield_now().await;
        }
        let found = self.inner.get_opts(at, options).await?;
        self.bytes.fetch_add(found.range.end - found.range.start, SeqCst);
        Ok(found)
    }
    fn delete_stream(&self, at: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(at)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.lists.fetch_add(1, SeqCst);
        self.inner.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.lists.fetch_add(1, SeqCst);
        self.inner.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// A file of `records` records of `bytes` bytes, one a chunk.
fn file(seed: u8, records: usize, bytes: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), WriterOptions { chunk_bytes: 1, ..Default::default() });
    for record in 0..records {
        writer.write(&vec![seed.wrapping_add(record as u8); bytes]).unwrap();
    }
    writer.finish().unwrap()
}

async fn bucket_of(objects: &[(&str, Vec<u8>)]) -> (Arc<Watched>, Buckets) {
    let store = Arc::new(Watched::default());
    for (name, content) in objects {
        store.inner.put(&Path::parse(name).unwrap(), content.clone().into()).await.unwrap();
    }
    (store.clone(), Buckets::default().with("s3://b", store))
}

async fn scan_one(buckets: &Buckets, pattern: &str) -> anyhow::Result<Manifest> {
    scan_all(buckets, &[pattern.to_owned()]).await
}

/// The names after `root`, and the content of the rest.
fn relative(manifest: &Manifest, root: &str) -> Vec<String> {
    manifest.files().iter().map(|file| file.path.strip_prefix(root).unwrap().to_owned()).collect()
}

async fn scan_all(buckets: &Buckets, patterns: &[String]) -> anyhow::Result<Manifest> {
    Ok(scan_in(buckets, patterns, &[], &Arc::default()).await?.0)
}

#[tokio::test]
async fn the_manifest_has_the_order_of_patterns_and_names_though_many_are_read_at_once() {
    let names: Vec<String> = (0..60).map(|n| format!("a/{n:02}")).collect();
    let objects: Vec<(&str, Vec<u8>)> =
        names.iter().enumerate().map(|(n, name)| (name.as_str(), file(n as u8, 60 - n, 5000))).collect();
    let (_, buckets) = bucket_of(&objects).await;
    let patterns = ["s3://b/a/3*".to_owned(), "s3://b/a/59".into(), "s3://b/a/0?".into()];
    let manifest = scan_all(&buckets, &patterns).await.unwrap();
    let expected: Vec<String> = (30..40).chain([59]).chain(0..10).map(|n| format!("a/{n:02}")).collect();
    assert_eq!(relative(&manifest, "s3://b/"), expected);
}

/// Gets, bytes got and lists that a scan of one object costs, and its chunks.
async fn cost(content: Vec<u8>) -> (u64, u64, u64, u32) {
    let (store, buckets) = bucket_of(&[("a/x", content)]).await;
    let manifest = scan_one(&buckets, "s3://b/a/*").await.unwrap();
    (store.gets.load(SeqCst), store.bytes.load(SeqCst), store.lists.load(SeqCst), manifest.chunk_count())
}

#[tokio::test]
async fn many_small_chunks_share_a_request_and_large_ones_cost_one_each_and_few_bytes() {
    // 12 MB in chunks of 1 KB: three or four requests of 4 MiB.
    let (gets, _, lists, chunks) = cost(file(0, 12_000, 1000)).await;
    assert!(gets <= 4 && lists == 1 && chunks == 12_000, "{gets} gets, {lists} lists");
    // Twenty chunks of 1 MB: the first four are looked through for the layout's sake, then a small request each.
    let (gets, bytes, _, chunks) = cost(file(0, 20, 1_000_000)).await;
    assert!(
        gets <= 1 + 16 && bytes <= (4 << 20) + 16 * (16 << 10) && chunks == 20,
        "{gets} gets, {bytes} bytes"
    );
    // A first payload larger than a request is read in several.
    let (gets, bytes, _, _) = cost(file(0, 2, 9_000_000)).await;
    assert!(gets <= 5 && bytes <= 9_000_000 + (64 << 10), "{gets} gets, {bytes} bytes");
    // A small object is one request; one that is named without a pattern needs no list.
    assert_eq!(cost(file(0, 1, 10)).await.0, 1);
    let (store, buckets) = bucket_of(&[("a/x", file(0, 1, 10))]).await;
    scan_one(&buckets, "s3://b/a/x").await.unwrap();
    assert_eq!((store.gets.load(SeqCst), store.lists.load(SeqCst)), (2, 0));
}

#[tokio::test]
async fn folders_that_the_pattern_does_not_name_are_not_listed() {
    let (store, buckets) =
        bucket_of(&[("a/x/1", file(0, 1, 1)), ("b/y/1", file(0, 1, 1)), ("c", file(0, 1, 1))]).await;
    scan_one(&buckets, "s3://b/a/*/1").await.unwrap();
    assert_eq!(store.lists.load(SeqCst), 2);
}

#[tokio::test]
async fn an_object_that_changes_between_two_requests_is_refused_by_name() {
    let (store, buckets) = bucket_of(&[("a", file(0, 20, 1_000_000))]).await;
    for other in [file(1, 20, 1_000_000), file(0, 19, 1_000_000), file(0, 1, 1)] {
        store.gets.store(0, SeqCst);
        *store.replace_at.lock().unwrap() = Some((5, Path::from("a"), other));
        let text = format!("{:#}", scan_one(&buckets, "s3://b/a").await.unwrap_err());
        assert!(
            text.contains("s3://b/a") && text.contains("publish changed objects under new names"),
            "{text}"
        );
        let original = file(0, 20, 1_000_000);
        store.inner.put(&Path::from("a"), original.into()).await.unwrap();
    }
}

#[tokio::test]
async fn a_damaged_object_is_named_with_chunk_and_offset() {
    let whole = file(0, 3, 1000);
    let mut broken = whole.clone();
    broken[2048] = 9;
    for (content, needle) in [(whole[..2500].to_vec(), "cut short"), (broken, "magic number")] {
        let (_, buckets) = bucket_of(&[("a", content)]).await;
        let text = scan_one(&buckets, "s3://b/a").await.unwrap_err().to_string();
        assert!(text.contains("s3://b/a: chunk 2 at offset 2048") && text.contains(needle), "{text}");
    }
}
