//! The data set: files and objects found, chunk headers read, all pinned in a manifest. Reads headers only, never
//! payloads but the first of each file, whose checksum tells the layout; of numbered records, nothing.
//!
//! Every file has to be a file of its own that holds a record: one that is not is refused by name, and none is left out.
//! What is wrong is looked for in all files before anything is said of it.

mod folders;
mod headers;
mod names;
mod objects;
mod pattern;
mod progress;
mod refused;
#[cfg(test)]
mod tests;

pub(crate) use pattern::{means, pieces};
pub(crate) use progress::Progress;
pub use refused::Refused;

use anyhow::Context;
use futures_util::StreamExt;
use names::{Finding, Found, Identity};
use shoal_recordio::{Index, numbered};
use shoal_runtime::cluster::Manifest;
use shoal_runtime::host::storage::{Buckets, Remedy, StorageError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Files whose headers are read at the same time.
const FILES_AT_ONCE: usize = 16;

/// Pins the data set that two lists of names and patterns mean, what is trained on and then what is evaluated: in the order
/// given, each pattern's matches in the order of names. Returns as well how many records are trained on.
/// What blocks is done on threads for it: the future may be dropped at any await.
///
/// # Errors
/// [`Refused`] where somebody has to name other files, or to mend them; a bucket that does not answer or says no.
pub async fn scan(trained: &[String], evaluated: &[String]) -> anyhow::Result<(Manifest, u64)> {
    scan_telling(trained, evaluated, &Arc::default()).await
}

/// The same, which keeps `progress` up to date.
///
/// # Errors
/// As [`scan`].
pub(crate) async fn scan_telling(
    trained: &[String],
    evaluated: &[String],
    progress: &Arc<Progress>,
) -> anyhow::Result<(Manifest, u64)> {
    scan_in(&Buckets::default(), trained, evaluated, progress).await
}

async fn scan_in(
    buckets: &Buckets,
    trained: &[String],
    evaluated: &[String],
    progress: &Arc<Progress>,
) -> anyhow::Result<(Manifest, u64)> {
    let (mut manifest, mut refused) = (Manifest::default(), Refused::default());
    let mut records = [0; 2];
    for (given, records) in [trained, evaluated].into_iter().zip(&mut records) {
        append(&mut manifest, &mut refused, buckets, given, progress).await?;
        *records = manifest.record_count();
    }
    refused.check()?;
    Ok((manifest, records[0]))
}

/// Adds what the names mean to a manifest, and what is wrong with them to a refusal.
async fn append(
    manifest: &mut Manifest,
    refused: &mut Refused,
    buckets: &Buckets,
    given: &[String],
    progress: &Arc<Progress>,
) -> anyhow::Result<()> {
    progress.finding();
    let findings = once(names::find(buckets, given, progress).await?);
    progress.names_found(findings.len());
    let files = findings.iter().filter(|finding| !matches!(finding, Ok(Found::Numbered { .. }))).count();
    if files > 0 {
        tracing::info!(files, "reading the headers of the data set");
    }
    let counted = |finding| async {
        let indexed = index(finding).await;
        progress.read_one();
        indexed
    };
    let mut indexed = futures_util::stream::iter(findings).map(counted).buffered(FILES_AT_ONCE);
    while let Some(indexed) = indexed.next().await {
        match indexed? {
            Err(fault) => refused.add(fault),
            Ok((path, index)) => push(manifest, path, &index),
        }
    }
    Ok(())
}

fn push(manifest: &mut Manifest, path: String, index: &Index) {
    manifest.push_file(path, index.file_bytes);
    for chunk in &index.chunks {
        let bytes = (chunk.end() - chunk.offset) as u32;
        manifest.push_chunk(chunk.offset, bytes, chunk.records, chunk.checksum);
    }
}

/// Refuses what has come before, under whichever name.
fn once(mut findings: Vec<Finding>) -> Vec<Finding> {
    let mut first: BTreeMap<Identity, String> = BTreeMap::new();
    for finding in &mut findings {
        let Ok(found) = finding else { continue };
        let name = found.shown();
        match first.get(&found.identity()) {
            None => drop(first.insert(found.identity(), name)),
            Some(other) if *other == name => {
                *finding = Err(format!("{name}: named more than once: a file counts once"));
            }
            Some(other) => {
                *finding = Err(format!("{name}: the same file as {other}: a file counts once"));
            }
        }
    }
    findings
}

/// A file's name as trainers open it, and where its chunks are; or what is wrong with it.
///
/// # Errors
/// A bucket that does not answer, or says no, as it would for all others.
async fn index(finding: Finding) -> anyhow::Result<Result<(String, Index), String>> {
    let found = match finding {
        Ok(found) => found,
        Err(fault) => return Ok(Err(fault)),
    };
    let name = found.shown();
    let path = match found.opened_as() {
        Ok(path) if path.chars().any(char::is_control) => {
            return Ok(Err(format!("{name}: its name holds a control character: rename it")));
        }
        Ok(path) => path,
        Err(error) => return Ok(Err(format!("{name}: {error}"))),
    };
    let read = match found {
        Found::File { stat, .. } => {
            let path = PathBuf::from(&path);
            let called = name.clone();
            let read = tokio::task::spawn_blocking(move || headers::of_file(&path, &called, stat));
            read.await.context("reading headers")?
        }
        Found::Object { bucket, name, stamp } => headers::of_object(&bucket, &name, &stamp).await,
        Found::Numbered { records, .. } => Ok(numbered::index(records)),
    };
    match read {
        Err(error) if is_store_at_fault(&error) => Err(error),
        Err(error) => Ok(Err(format!("{error:#}"))),
        Ok(index) => Ok(usable(&name, &index).map(|()| (path, index))),
    }
}

/// Whether a store did not answer, or says no: nothing is known of the object then.
fn is_store_at_fault(error: &anyhow::Error) -> bool {
    let said = error.downcast_ref::<StorageError>();
    said.is_some_and(|said| said.remedy() != Remedy::GiveUp)
}

/// Why a whole file is no part of a data set.
fn usable(name: &str, index: &Index) -> Result<(), String> {
    let what = match index {
        Index { file_bytes: 0, .. } => "empty, 0 bytes: take it out, or leave it out of the pattern",
        _ if index.records() == 0 => "no record in it: take it out, or leave it out of the pattern",
        _ if index.chunks.iter().any(|chunk| u32::try_from(chunk.end() - chunk.offset).is_err()) => {
            "a chunk of 4 GiB or more: pack it into smaller ones"
        }
        _ => return Ok(()),
    };
    Err(format!("{name}: {what}"))
}
