//! What a name or a pattern means in the folders of this machine. Reads names and what they stand for, opens no file.
//!
//! What fits and cannot be read is a fault with its name, never left out: a link that leads nowhere, a folder on the way.

use super::headers::Stat;
use super::names::{Finding, Found};
use super::pattern::{Pattern, Positions, is_pattern};
use super::refused::shown;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Folders in folders, at most: as deep as anybody's are, and a bound to the stack.
const DEPTH_MAX: usize = 128;

/// What `name` means: that very file where there is one, or else what fits the pattern, in the order of names, folder by
/// folder. Nothing where there is none such.
pub(super) fn find(name: &Path) -> Vec<Finding> {
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
    let mut walk = Walk { pattern: &pattern, around: Vec::new(), found: Vec::new() };
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
                for name in entries.into_iter().map(|entry| entry.file_name()) {
                    let next = self.pattern.step(at, &name.to_string_lossy());
                    if !next.is_nowhere() {
                        self.meet(&folder.join(name), next);
                    }
                }
            }
        }
        self.around.pop();
    }

    /// Goes on with a name that fits so far.
    fn meet(&mut self, path: &Path, at: Positions) {
        let finding = match path.metadata() {
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
        self.found.push((path.to_owned(), finding));
    }
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
