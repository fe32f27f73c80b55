//! Which files and objects the names and patterns of `--data` mean. Opens none of them.
//!
//! | what is given | what it means |
//! | --- | --- |
//! | `records:N` | N records without a file, alone in its list |
//! | a path that is there as it stands, also after `file://` | that file, whatever its name holds |
//! | several names with commas between them | each of them; a comma in brackets, `[,]`, is part of a name |
//! | a name with `*`, `?`, `[…]` | a [`Pattern`], the same in folders and in buckets |

use super::folders;
use super::headers::Stat;
use super::objects;
use super::pattern::{is_pattern, pieces};
use super::progress::Progress;
use super::refused::shown;
use anyhow::Context;
use shoal_job::numbered::{self, is_numbered};
use shoal_runtime::host::storage::{Bucket, Buckets, Stamp};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Something that is to be read.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// A file of this machine.
    File { path: PathBuf, stat: Stat },
    /// An object in a bucket.
    Object { bucket: Bucket, name: String, stamp: Stamp },
    /// So many records without a file.
    Numbered { name: String, records: u64 },
}

/// What a name has come to: something to read, or what is wrong with it, name first.
pub(super) type Finding = Result<Found, String>;

/// What tells a file from all others, however it is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Identity {
    File { device: u64, inode: u64 },
    Object(String),
    Numbered,
}

impl Found {
    pub(super) fn identity(&self) -> Identity {
        match self {
            Found::File { stat, .. } => Identity::File { device: stat.device, inode: stat.inode },
            Found::Object { bucket, name, .. } => Identity::Object(bucket.url(name)),
            Found::Numbered { .. } => Identity::Numbered,
        }
    }

    /// Its name as trainers open it.
    ///
    /// # Errors
    /// There is no folder here any more.
    pub(super) fn opened_as(&self) -> std::io::Result<String> {
        match self {
            Found::File { path, .. } => Ok(std::path::absolute(path)?.to_string_lossy().into_owned()),
            Found::Object { bucket, name, .. } => Ok(bucket.url(name)),
            Found::Numbered { name, .. } => Ok(name.clone()),
        }
    }

    /// As messages name it.
    pub(super) fn shown(&self) -> String {
        match self {
            Found::File { path, .. } => shown(path),
            Found::Object { bucket, name, .. } => shown(&bucket.url(name)),
            Found::Numbered { name, .. } => name.clone(),
        }
    }
}

/// What was given, in the order given, and each pattern's findings in the order of names.
///
/// # Errors
/// A bucket that does not answer, or says no.
pub(super) async fn find(
    buckets: &Buckets,
    given: &[String],
    progress: &Arc<Progress>,
) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for entry in given {
        // Above all what a shell has expanded: a pattern or a list is not meant.
        if is_there(entry).await? {
            findings.extend(one(buckets, entry, progress).await?);
            continue;
        }
        for piece in pieces(entry) {
            let found = one(buckets, piece, progress).await?;
            if found.is_empty() {
                findings.push(Err(nothing(piece, piece != entry)));
            }
            findings.extend(found);
        }
    }
    Ok(alone(findings))
}

/// Refuses numbered records that are not all that a list means: their numbers would not be their indexes.
fn alone(mut findings: Vec<Finding>) -> Vec<Finding> {
    if findings.len() > 1 {
        for finding in &mut findings {
            if let Ok(Found::Numbered { name, .. }) = finding {
                *finding = Err(numbered::not_alone(name));
            }
        }
    }
    findings
}

/// What one name means; nothing where there is none such.
async fn one(buckets: &Buckets, name: &str, progress: &Arc<Progress>) -> anyhow::Result<Vec<Finding>> {
    if is_numbered(name) {
        let name = name.to_owned();
        return blocking(move || vec![numbered_records(&name)]).await;
    }
    let named = name.to_owned();
    if let Some(path) = blocking(move || local(&named).map(Path::to_owned)).await? {
        let progress = Arc::clone(progress);
        return blocking(move || folders::find(&path, &progress)).await;
    }
    match name.split_once("://") {
        Some(("file", _)) => {
            let why = "write file:///absolute/path, with every character as it is: %20 is no space";
            Ok(vec![Err(format!("{name:?}: {why}"))])
        }
        _ => objects::find(buckets, name, progress).await,
    }
}

/// Whether there is something of that very name on this machine.
async fn is_there(name: &str) -> anyhow::Result<bool> {
    let name = name.to_owned();
    blocking(move || local(&name).is_some_and(|path| path.symlink_metadata().is_ok())).await
}

/// Asks a disk on a thread that may wait for it: who waits for the answer must hear a signal, and answer probes, meanwhile.
async fn blocking<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(ask).await.context("finding files")
}

/// The records that a name means without a file, unless a file has it.
fn numbered_records(name: &str) -> Finding {
    if Path::new(name).symlink_metadata().is_ok() {
        return Err(format!(
            "{name}: a file here is called so, and without it this would mean a number of records: name the file \
             ./{name}, or move it away"
        ));
    }
    Ok(Found::Numbered { name: name.to_owned(), records: numbered::records(name)? })
}

/// The path that a name is or may be, if it means files of this machine.
fn local(name: &str) -> Option<&Path> {
    match name.split_once("://") {
        None => Some(Path::new(name)),
        // A '%' might stand for another character, unless there is such a file.
        Some(("file", path)) if path.starts_with('/') => {
            let path = Path::new(path);
            (!name.contains('%') || path.symlink_metadata().is_ok()).then_some(path)
        }
        Some(_) => None,
    }
}

/// What is said of a name that nothing has.
fn nothing(name: &str, is_piece: bool) -> String {
    let mut fault = if !is_pattern(name) && local(name).is_some() {
        format!("{name:?}: there is no such file: check the path from where you stand")
    } else if local(name).is_some() {
        format!("{name:?} matches no file: quote the pattern, and check the path from where you stand")
    } else {
        format!(
            "{name:?} matches nothing: list what is there with the store's own tool, and compare; '*' does not reach \
             into folders, '**' does"
        )
    };
    if is_piece {
        fault.push_str("; a comma divides names: write '[,]' for one that is part of a name");
    }
    if name.contains(['{', '}']) {
        fault.push_str("; braces are the shell's: leave them unquoted");
    }
    if is_pattern(name) && name.contains('\\') {
        fault.push_str("; a character stands for itself in brackets, as in '[*]', and not after '\\'");
    }
    fault
}
