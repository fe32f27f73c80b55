//! The data set: files and objects found, chunk headers read, all pinned in a manifest. Reads headers only, never
//! payloads but the first of each file, whose checksum tells the layout.

mod headers;
mod names;
#[cfg(test)]
mod tests;

use anyhow::{Context, bail};
use futures_util::StreamExt;
use names::Found;
use shoal_recordio::{Index, Reader};
use shoal_runtime::cluster::Manifest;
use shoal_runtime::host::storage::Buckets;

/// Files whose headers are read at the same time.
const FILES_AT_ONCE: usize = 16;

/// Pins the data set that `patterns` name: each pattern's matches in name order, patterns in the order given.
///
/// # Errors
/// A pattern without a match, a bucket that does not answer or says no, a file that is no RecordIO (named with offset
/// and chunk), a data set without a record.
pub async fn scan(patterns: &[String]) -> anyhow::Result<Manifest> {
    scan_in(&Buckets::default(), patterns).await
}

/// [`scan`] over buckets opened elsewhere.
pub async fn scan_in(buckets: &Buckets, patterns: &[String]) -> anyhow::Result<Manifest> {
    let found = names::find(buckets, patterns).await?;
    tracing::info!(files = found.len(), "reading the headers of the data set");
    let mut manifest = Manifest::default();
    let mut indexed = futures_util::stream::iter(found).map(index).buffered(FILES_AT_ONCE);
    while let Some(indexed) = indexed.next().await {
        let (path, index) = indexed?;
        manifest.push_file(path, index.file_bytes);
        for chunk in &index.chunks {
            let bytes = u32::try_from(chunk.end() - chunk.offset).context("a chunk of 4 GiB or more")?;
            manifest.push_chunk(chunk.offset, bytes, chunk.records, chunk.checksum);
        }
    }
    if manifest.record_count() == 0 {
        bail!("--data {patterns:?}: the files hold no record; see `shoal recordio ls FILE`");
    }
    Ok(manifest)
}

/// A file's name as trainers open it, and where its chunks are.
async fn index(found: Found) -> anyhow::Result<(String, Index)> {
    match found {
        Found::File(file) => {
            let absolute = std::path::absolute(&file).with_context(|| file.clone())?;
            let index = Reader::open(&absolute)?.index().clone();
            Ok((absolute.to_string_lossy().into_owned(), index))
        }
        Found::Object { bucket, name, stamp } => {
            let index = headers::read(&bucket, &name, &stamp).await?;
            Ok((bucket.url(&name), index))
        }
    }
}
