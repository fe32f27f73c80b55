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

/// Pins the data set that two lists of patterns name, what is trained on and then what is evaluated: each pattern's matches
/// in name order, patterns in the order given. Returns as well how many records are trained on.
///
/// # Errors
/// A pattern without a match, a bucket that does not answer or says no, a file that is no RecordIO (named with offset
/// and chunk), files without a record.
pub async fn scan(trained: &[String], evaluated: &[String]) -> anyhow::Result<(Manifest, u64)> {
    let mut manifest = Manifest::default();
    let mut records = [0; 2];
    for (patterns, records) in [trained, evaluated].into_iter().zip(&mut records) {
        if !patterns.is_empty() {
            append(&mut manifest, &Buckets::default(), patterns).await?;
        }
        *records = manifest.record_count();
    }
    Ok((manifest, records[0]))
}

/// Adds what `patterns` name, in buckets opened elsewhere, to a manifest.
///
/// # Errors
/// See [`scan`].
pub async fn append(manifest: &mut Manifest, buckets: &Buckets, patterns: &[String]) -> anyhow::Result<()> {
    let before = manifest.record_count();
    let found = names::find(buckets, patterns).await?;
    tracing::info!(files = found.len(), "reading the headers of the data set");
    let mut indexed = futures_util::stream::iter(found).map(index).buffered(FILES_AT_ONCE);
    while let Some(indexed) = indexed.next().await {
        let (path, index) = indexed?;
        manifest.push_file(path, index.file_bytes);
        for chunk in &index.chunks {
            let bytes = u32::try_from(chunk.end() - chunk.offset).context("a chunk of 4 GiB or more")?;
            manifest.push_chunk(chunk.offset, bytes, chunk.records, chunk.checksum);
        }
    }
    if manifest.record_count() == before {
        bail!("{patterns:?}: the files hold no record; see `shoal recordio ls FILE`");
    }
    Ok(())
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
