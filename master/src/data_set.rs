//! The data set: files found, chunk headers read, all pinned in a manifest. Reads headers only, never payloads.

use anyhow::{Context, bail};
use shoal_recordio::Reader;
use shoal_runtime::cluster::Manifest;

/// The files that `patterns` name: each pattern's matches in name order, patterns in the order given.
pub fn files(patterns: &[String]) -> anyhow::Result<Vec<String>> {
    let mut files = Vec::new();
    for pattern in patterns {
        let before = files.len();
        for path in glob::glob(pattern).with_context(|| format!("--data {pattern:?} is no pattern"))? {
            let path = path.with_context(|| format!("--data {pattern:?}"))?;
            if path.is_file() {
                files.push(path.to_str().with_context(|| format!("{path:?} is not UTF-8"))?.to_owned());
            }
        }
        if files.len() == before {
            bail!(
                "--data {pattern:?} matches no file: quote the pattern, and check the path from where you stand"
            );
        }
    }
    Ok(files)
}

/// Pins the data set that `patterns` name.
///
/// # Errors
/// A pattern without a match, a file that is no RecordIO (named with offset and chunk), a data set without a record.
pub fn scan(patterns: &[String]) -> anyhow::Result<Manifest> {
    let mut manifest = Manifest::default();
    for file in files(patterns)? {
        let absolute = std::path::absolute(&file).with_context(|| file.clone())?;
        let reader = Reader::open(&absolute)?;
        let index = reader.index();
        manifest.push_file(absolute.to_string_lossy().into_owned(), index.file_bytes);
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
