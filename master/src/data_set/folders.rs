//! What a name or a pattern means in the folders of this machine. Reads names and what they stand for, opens no file.
//!
//! What fits and cannot be read is a fault with its name, never left out: a link that leads nowhere, a folder on the way.

use super::headers::Stat;
use super::names::{Finding, Found};
use super::pattern::{Pattern, Positions, is_pattern};
use super::progress::Progress;
use super::refused::shown;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Folders in folders, at most: as deep as anybody's are, and a bound to the stack.
const DEPTH_MAX: usize = 128;
/// Paths that a disk is asked about at the same time, as many as files whose headers are.
const LOOKS_AT_ONCE: usize = super::FILES_AT_ONCE;
/// Paths that are asked about by one thread, at least: fewer are not worth one.
const SHARE_MIN: usize = 16;
/// Paths that are looked at before those among them that are folders are entered.
const BATCH: usize = 1024;

/// What `name` means: that very file where there is one, or else what fits the pattern, in the order of names, folder by
/// folder. Nothing where there is none such.
pub(super) fn find(name: &Path, progress: &Progress) -> Vec<Finding> {
    let text = name.to_string_lossy();
    match name.metadata() {
        Err(error) if is_absent(name, &error) => {}
        Err(_) if is_pattern(&text) && name.symlink_metadata().is_err() => {}
        answer => {
            return vec![answer.map_err(|error| unread(name, &error)).and_then(|seen| file(name, &seen))];
        }
    }
    if !is_pattern(&text) {
        return Vec::new();
    }
    let pattern = match Pattern::new(&text) {
        Ok(pattern) => pattern,
        Err(why) => return vec![Err(format!("{:?} is no pattern: {why}", &*text))],
    };
    let mut walk = Walk { pattern: &pattern, around: Vec::new(), found: Vec::new(), progress };
    walk.begin(Path::new(&pattern.base));
    walk.found.sort_by(|(a, _), (b, _)| parts(a).cmp(parts(b)));
    walk.found.into_iter().map(|(_, finding)| finding).collect()
}

/// The names on the way to a file, which are compared one by one: a folder's content stays together.
fn parts(path: &Path) -> impl Iterator<Item = &[u8]> {
    path.as_os_str().as_bytes().split(|byte| *byte == b'/')
}

struct Walk<'p> {
    pattern: &'p Pattern,
    /// Device and inode of the folders that are being walked, each in the one before.
    around: Vec<(u64, u64)>,
    found: Vec<(PathBuf, Finding)>,
    progress: &'p Progress,
}

impl Walk<'_> {
    fn begin(&mut self, base: &Path) {
        let here = if base.as_os_str().is_empty() { Path::new(".") } else { base };
        match here.metadata() {
            Ok(seen) if seen.is_dir() => self.enter(base, &seen, self.pattern.start()),
            Ok(_) => {}
            Err(error) if is_absent(here, &error) => {}
            Err(error) => self.found.push((base.to_owned(), Err(unread(base, &error)))),
        }
    }

    /// Looks at what lies in a folder.
    fn enter(&mut self, folder: &Path, seen: &Metadata, at: Positions) {
        let identity = (seen.dev(), seen.ino());
        let endless = if self.around.contains(&identity) {
            Some("a link to a folder around it, which never ends".to_owned())
        } else {
            (self.around.len() >= DEPTH_MAX).then(|| format!("more than {DEPTH_MAX} folders in one another"))
        };
        if let Some(why) = endless {
            let fault = format!("{}: {why}", shown(folder));
            return self.found.push((folder.to_owned(), Err(fault)));
        }
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        self.around.push(identity);
        let entries = here.read_dir().and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
        match entries {
            Err(error) => self.found.push((folder.to_owned(), Err(unread(here, &error)))),
            Ok(entries) => {
                let fitting = entries.into_iter().map(|entry| entry.file_name()).filter_map(|name| {
                    let next = self.pattern.step(at, &name.to_string_lossy());
                    (!next.is_nowhere()).then(|| (folder.join(name), next))
                });
                let fitting: Vec<(PathBuf, Positions)> = fitting.collect();
                for batch in fitting.chunks(BATCH) {
                    for ((path, next), seen) in batch.iter().zip(looked_at(batch)) {
                        self.meet(path, *next, seen);
                    }
                }
            }
        }
        self.around.pop();
    }

    /// Goes on with a name that fits so far.
    fn meet(&mut self, path: &Path, at: Positions, seen: io::Result<Metadata>) {
        let finding = match seen {
            Err(error) => Err(unread(path, &error)),
            Ok(seen) if seen.is_dir() && !self.pattern.names_folder(at) => {
                if self.pattern.goes_on(at) {
                    self.enter(path, &seen, at);
                }
                return;
            }
            Ok(_) if !self.pattern.is_met(at) => return,
            Ok(seen) => file(path, &seen),
        };
        self.progress.found(1);
        self.found.push((path.to_owned(), finding));
    }
}

/// What a disk says of each of these paths, in their order. Many are asked for at a time: over a network each takes a round trip.
fn looked_at(paths: &[(PathBuf, Positions)]) -> Vec<io::Result<Metadata>> {
    let each =
        |share: &[(PathBuf, Positions)]| share.iter().map(|(path, _)| path.metadata()).collect::<Vec<_>>();
    let share = paths.len().div_ceil(LOOKS_AT_ONCE).max(SHARE_MIN);
    if paths.len() <= share {
        return each(paths);
    }
    std::thread::scope(|scope| {
        let begin = |share| (share, std::thread::Builder::new().spawn_scoped(scope, move || each(share)));
        let begun: Vec<_> = paths.chunks(share).map(begin).collect();
        // Where no thread is to be had, or one ends early, this one asks.
        let answers = begun.into_iter().flat_map(|(share, begun)| match begun.map(|thread| thread.join()) {
            Ok(Ok(answers)) => answers,
            Ok(Err(_)) | Err(_) => each(share),
        });
        answers.collect()
    })
}

/// A file that may be part of a data set, or why it may not.
fn file(path: &Path, seen: &Metadata) -> Finding {
    let name = shown(path);
    let text = path.to_str();
    match (text, other_kind(seen.file_type())) {
        (_, Some("folder")) => Err(format!("{name}: a folder: name the files in it, as in '{name}/*'")),
        (_, Some(kind)) => Err(format!("{name}: a {kind}, and no file")),
        (None, _) => Err(format!("{name}: its name is not UTF-8: rename it")),
        (Some(_), None) => Ok(Found::File { path: path.to_owned(), stat: Stat::of(seen) }),
    }
}

fn other_kind(kind: FileType) -> Option<&'static str> {
    Some(match kind {
        _ if kind.is_file() => return None,
        _ if kind.is_dir() => "folder",
        _ if kind.is_fifo() => "named pipe",
        _ if kind.is_socket() => "socket",
        _ => "device",
    })
}

/// Whether there is nothing of that name, not even a link that leads nowhere.
fn is_absent(path: &Path, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err()
}

/// Why something that is there, or was a moment ago, cannot be read.
fn unread(path: &Path, error: &io::Error) -> String {
    let name = shown(path);
    match (error.kind(), path.read_link()) {
        (io::ErrorKind::NotFound, Ok(target)) => {
            format!("{name}: a link that leads nowhere, to {}", shown(&target))
        }
        (io::ErrorKind::NotFound, Err(_)) => {
            format!("{name}: it was there a moment ago, and is not any more")
        }
        _ => format!("{name}: cannot be read: {error}"),
    }
}
