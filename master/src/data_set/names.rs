//! Which files and objects the patterns of `--data` name. Opens none of them.
//!
//! `*`, `?`, `[…]` and `**` mean in a bucket what they mean on a disk, and give the same order.

use anyhow::{Context, bail};
use glob::{MatchOptions, Pattern};
use shoal_runtime::host::storage::{Bucket, Buckets, Stamp, StorageError};

/// What a pattern has found.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// A file of this machine.
    File(String),
    /// An object in a bucket.
    Object { bucket: Bucket, name: String, stamp: Stamp },
}

/// Each pattern's matches in name order, patterns in the order given.
pub(super) async fn find(buckets: &Buckets, patterns: &[String]) -> anyhow::Result<Vec<Found>> {
    let mut found = Vec::new();
    for pattern in patterns {
        let matches = match pattern.split_once("://") {
            None => files(pattern)?,
            // A '%' might stand for another character: a path says it as it is.
            Some(("file", path)) if path.starts_with('/') && !path.contains('%') => files(path)?,
            Some(("file", _)) => {
                bail!("--data {pattern:?}: write file:///absolute/path, with every character as it is")
            }
            Some(_) => objects(buckets, pattern).await.with_context(|| format!("--data {pattern:?}"))?,
        };
        if matches.is_empty() && pattern.contains("://") {
            bail!(
                "--data {pattern:?} matches nothing: list what is there with the store's own tool, and compare; \
                 '*' does not reach into folders, '**' does"
            );
        }
        if matches.is_empty() {
            bail!(
                "--data {pattern:?} matches no file: quote the pattern, and check the path from where you stand"
            );
        }
        found.extend(matches);
    }
    Ok(found)
}

fn files(pattern: &str) -> anyhow::Result<Vec<Found>> {
    let mut files = Vec::new();
    for path in glob::glob(pattern).with_context(|| format!("--data {pattern:?} is no pattern"))? {
        let path = path.with_context(|| format!("--data {pattern:?}"))?;
        if path.is_file() {
            files.push(Found::File(
                path.to_str().with_context(|| format!("{path:?} is not UTF-8"))?.to_owned(),
            ));
        }
    }
    Ok(files)
}

/// Walks folder by folder, so that a bucket's other folders are not listed; only `**` lists all that is below.
async fn objects(buckets: &Buckets, url: &str) -> anyhow::Result<Vec<Found>> {
    let (bucket, pattern) = buckets.open(url)?;
    let segments: Vec<&str> = pattern.split('/').collect();
    let plain = segments.iter().take_while(|segment| !segment.contains(['*', '?', '['])).count();
    if plain == segments.len() {
        return match bucket.stamp(pattern).await {
            Ok(stamp) => Ok(vec![Found::Object { bucket, name: pattern.to_owned(), stamp }]),
            Err(StorageError::Missing { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        };
    }
    let mut named = match segments.iter().position(|segment| segment.contains("**")) {
        Some(deep) => below(&bucket, &segments[..plain.min(deep)].join("/"), pattern).await?,
        None => walk(&bucket, &segments, plain).await?,
    };
    // By folder, as on a disk: '/' before any other character.
    named.sort_by(|(a, _), (b, _)| a.split('/').cmp(b.split('/')));
    let object = |(name, stamp)| Found::Object { bucket: bucket.clone(), name, stamp };
    Ok(named.into_iter().map(object).collect())
}

async fn walk(bucket: &Bucket, segments: &[&str], plain: usize) -> anyhow::Result<Vec<(String, Stamp)>> {
    let mut folders = vec![segments[..plain].join("/")];
    let mut objects = Vec::new();
    for (at, segment) in segments.iter().enumerate().skip(plain) {
        let pattern = Pattern::new(segment)?;
        let fits = |name: &str| pattern.matches(name.rsplit('/').next().unwrap_or(name));
        let mut next = Vec::new();
        for folder in folders {
            let listing = bucket.folder(&folder).await?;
            if at + 1 == segments.len() {
                objects.extend(listing.objects.into_iter().filter(|(name, _)| fits(name)));
            } else {
                next.extend(listing.folders.into_iter().filter(|name| fits(name)));
            }
        }
        folders = next;
    }
    Ok(objects)
}

async fn below(bucket: &Bucket, folder: &str, pattern: &str) -> anyhow::Result<Vec<(String, Stamp)>> {
    let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
    let pattern = Pattern::new(pattern)?;
    let named = bucket.below(folder).await?;
    Ok(named.into_iter().filter(|(name, _)| pattern.matches_with(name, options)).collect())
}
