//! What a name or a pattern means in a bucket. Lists, and reads no object.
//!
//! Walks folder by folder, so that a bucket's other folders are not listed; only `**` lists all that is below.

use super::names::{Finding, Found};
use super::pattern::{Pattern, Positions, is_pattern};
use super::progress::Progress;
use super::refused::shown;
use shoal_runtime::host::storage::{Bucket, Buckets, Stamp, StorageError};
use std::collections::BTreeMap;

/// Findings by name.
type Named = BTreeMap<String, Result<Stamp, String>>;

/// What `url` means, in the order of names, folder by folder. Nothing where there is none such.
///
/// # Errors
/// A bucket that does not answer, or says no.
pub(super) async fn find(buckets: &Buckets, url: &str, progress: &Progress) -> anyhow::Result<Vec<Finding>> {
    let (bucket, name) = match buckets.open(url) {
        Ok(opened) => opened,
        Err(error) => return Ok(vec![Err(error.to_string())]),
    };
    let pattern = match is_pattern(name).then(|| Pattern::new(name)).transpose() {
        Ok(pattern) => pattern,
        Err(why) => return Ok(vec![Err(format!("{url:?} is no pattern: {why}"))]),
    };
    let plain = pattern.as_ref().map_or(name, |pattern| pattern.base.as_str());
    if !(plain.is_empty() || plain.split('/').all(|part| !matches!(part, "" | "." | ".."))) {
        let why = "a part between two '/' is empty, '.' or '..': write the object's name without it";
        return Ok(vec![Err(format!("{url:?}: {why}"))]);
    }
    let named = match pattern {
        Some(pattern) => Walk { bucket: &bucket, pattern, named: Named::new(), progress }.walk().await,
        None => match bucket.stamp(name).await {
            Err(StorageError::Missing { .. }) => Ok(Named::new()),
            stamp => stamp.map(|stamp| Named::from([(name.to_owned(), Ok(stamp))])),
        },
    };
    // What a store says may repeat names that it holds, whatever is in them.
    let mut named: Vec<_> = named.map_err(|error| anyhow::anyhow!(seen(&error)))?.into_iter().collect();
    // By folder, as on a disk: '/' before any other character.
    named.sort_by(|(a, _), (b, _)| a.split('/').cmp(b.split('/')));
    let object = |(name, stamp): (String, Result<Stamp, String>)| {
        stamp.map(|stamp| Found::Object { bucket: bucket.clone(), name, stamp })
    };
    Ok(named.into_iter().map(object).collect())
}

/// An error with nothing in it that a terminal would act upon.
fn seen(error: &StorageError) -> String {
    let text = error.to_string();
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() }).collect()
}

struct Walk<'b> {
    bucket: &'b Bucket,
    pattern: Pattern,
    named: Named,
    progress: &'b Progress,
}

impl Walk<'_> {
    async fn walk(mut self) -> Result<Named, StorageError> {
        if self.pattern.is_deep() {
            self.below().await?;
            return Ok(self.named);
        }
        let mut folders = vec![(self.pattern.base.clone(), self.pattern.start())];
        while let Some((folder, at)) = folders.pop() {
            let listing = self.bucket.folder(&folder).await?;
            self.progress.found(listing.objects.len());
            for (name, stamp) in listing.objects {
                // A folder may be marked by an object of its own name, which is listed with what is in it.
                let Some(rest) = inside(&name, &folder) else { continue };
                if self.pattern.is_met(self.pattern.step(at, rest)) {
                    self.named.insert(name, Ok(stamp));
                }
            }
            for name in listing.folders {
                let next = inside(&name, &folder).map(|rest| self.pattern.step(at, rest));
                let Some(next) = next.filter(|next| !next.is_nowhere()) else { continue };
                if self.pattern.names_folder(next) {
                    self.refuse(&name);
                } else if self.pattern.goes_on(next) {
                    folders.push((name, next));
                }
            }
        }
        Ok(self.named)
    }

    /// All that is below the first part with a wildcard, in one listing.
    async fn below(&mut self) -> Result<(), StorageError> {
        let base = self.pattern.base.clone();
        let listed = self.bucket.below(&base).await?;
        self.progress.found(listed.len());
        for (name, stamp) in &listed {
            let Some(rest) = inside(name, &base) else { continue };
            let folder_of = |rest: &str| name[..name.len() - rest.len()].trim_end_matches('/').to_owned();
            match self.reach(rest) {
                Reached::Folder(rest) => self.refuse(&folder_of(rest)),
                // Who makes a folder in a store's own pages leaves an object of its name.
                Reached::Object if stamp.bytes == 0 && is_folder(&listed, name) => {}
                Reached::Object => drop(self.named.insert(name.clone(), Ok(stamp.clone()))),
                Reached::Nothing => {}
            }
        }
        Ok(())
    }

    /// How far the parts of a name fit.
    fn reach<'n>(&self, name: &'n str) -> Reached<'n> {
        let mut at: Positions = self.pattern.start();
        let mut rest = name;
        while let Some((part, after)) = rest.split_once('/') {
            at = self.pattern.step(at, part);
            rest = after;
            if at.is_nowhere() {
                return Reached::Nothing;
            }
            if self.pattern.names_folder(at) {
                return Reached::Folder(rest);
            }
        }
        if self.pattern.is_met(self.pattern.step(at, rest)) { Reached::Object } else { Reached::Nothing }
    }

    fn refuse(&mut self, folder: &str) {
        let url = shown(&self.bucket.url(folder));
        let why = format!("{url}: a folder: name the objects in it, as in '{url}/*'");
        self.named.insert(folder.to_owned(), Err(why));
    }
}

enum Reached<'n> {
    Nothing,
    Object,
    /// A folder that the whole pattern fits; what comes after its name.
    Folder(&'n str),
}

/// A name as it is in a folder; nothing where it is not in it.
fn inside<'n>(name: &'n str, folder: &str) -> Option<&'n str> {
    let rest = match folder {
        "" => Some(name),
        _ => name.strip_prefix(folder)?.strip_prefix('/'),
    };
    rest.filter(|rest| !rest.is_empty())
}

/// Whether something is listed in a folder of that name. What is listed is in the order of names.
fn is_folder(listed: &[(String, Stamp)], name: &str) -> bool {
    let inside = format!("{name}/");
    let first = listed.partition_point(|(other, _)| other.as_str() < inside.as_str());
    listed.get(first).is_some_and(|(other, _)| other.starts_with(&inside))
}
