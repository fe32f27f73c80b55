//! Where files of settings lie, and what is in them. It judges no setting, and reads no file of somebody else's that nobody named.

use super::text::BYTES_MAX;
use rustix::fs::{Mode, OFlags};
use shoal_runner::exit::Exit;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a file of settings is called.
pub(crate) const NAME: &str = "shoal.toml";

/// A file as it was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// As messages call it: by its name alone where it lies in the working directory.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// The files that count, the nearest first: `named` alone, or that of the working directory or of a folder above it, and the user's.
///
/// # Errors
/// One cannot be read, is no text, is too long, or is somebody else's.
pub(crate) fn files(named: Option<&Path>) -> Result<Vec<Found>, Exit> {
    if let Some(path) = named {
        return Ok(vec![read(path, false)?.ok_or_else(|| absent(path))?]);
    }
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = variable("HOME").map(PathBuf::from);
    // In a folder that is gone there is nothing to be found, and nothing to be said.
    let folder = std::env::current_dir().unwrap_or_default();
    let above = folders(&folder, home.as_deref(), |folder| folder.join(".git").exists());
    let mut found = Vec::new();
    for above in above {
        let near = if above == folder { PathBuf::from(NAME) } else { above.join(NAME) };
        if let Some(file) = read(&near, true)? {
            found.push(file);
            break;
        }
    }
    if let Some(path) = of_user(variable("XDG_CONFIG_HOME"), home)
        && let Some(file) = read(&path, true)?
    {
        found.push(file);
    }
    Ok(found)
}

/// The folder and those above it, up to the first that is a repository's root or the home folder.
fn folders(folder: &Path, home: Option<&Path>, is_root: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in folder.ancestors().filter(|folder| folder.is_absolute()) {
        found.push(folder.to_owned());
        if home == Some(folder) || is_root(folder) {
            break;
        }
    }
    found
}

/// The user's own. A folder for configuration that is no absolute path does not count: so XDG has it.
fn of_user(folder: Option<OsString>, home: Option<PathBuf>) -> Option<PathBuf> {
    let folder = folder.map(PathBuf::from).filter(|folder| folder.is_absolute());
    let folder = folder.or_else(|| home.filter(|home| home.is_absolute()).map(|home| home.join(".config")));
    folder.map(|folder| folder.join("shoal").join(NAME))
}

fn absent(path: &Path) -> Exit {
    Exit::Usage(format!(
        "{}: there is no such file: name another by --config, or in SHOAL_CONFIG",
        path.display()
    ))
}

/// The file, if it is there. One that was only come across has to belong to the user, or to root.
fn read(path: &Path, is_come_across: bool) -> Result<Option<Found>, Exit> {
    let shown = path.display();
    let unread = |why: &dyn std::fmt::Display| {
        Exit::Usage(format!("{shown}: cannot be read: {why}: mend it, or name another by --config"))
    };
    // Opening a pipe that lies about would wait for whoever writes to it.
    let is_there = match std::fs::metadata(path) {
        Ok(metadata) => metadata.is_file() || !is_come_across,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) if is_come_across && error.kind() == ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(unread(&error)),
    };
    if !is_there {
        return Err(unread(&"it is no file"));
    }
    // What has been put in the place of a file that was come across does not hold this up.
    let waits = if is_come_across { OFlags::NONBLOCK } else { OFlags::empty() };
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | waits, Mode::empty());
    let file = File::from(opened.map_err(|error| unread(&std::io::Error::from(error)))?);
    let metadata = file.metadata().map_err(|error| unread(&error))?;
    if is_come_across && !metadata.is_file() {
        return Err(unread(&"it is no file"));
    }
    // Whoever made a link says what is read, too.
    let link = std::fs::symlink_metadata(path).map_err(|error| unread(&error))?;
    let user = rustix::process::geteuid().as_raw();
    let foreign = [metadata.uid(), link.uid()].into_iter().find(|owner| !is_trusted(*owner, user));
    if let Some(owner) = foreign.filter(|_| is_come_across) {
        return Err(Exit::Usage(format!(
            "{shown}: belongs to user {owner}, who could so choose what you run: read it, and name it by --config {shown}; \
             --config /dev/null goes on without it"
        )));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| unread(&error))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(unread(&format_args!("it is longer than {BYTES_MAX} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let line =
            1 + error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count();
        Exit::Usage(format!("{shown}:{line}: no UTF-8: save the file as UTF-8"))
    })?;
    Ok(Some(Found { path: path.to_owned(), text }))
}

/// Whether a file of that owner may say what this user runs.
fn is_trusted(owner: u32, user: u32) -> bool {
    owner == user || owner == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_looked_through_up_to_a_repository_s_root_or_the_home_folder() {
        let paths = |folder: &str, home: Option<&str>, root: &str| -> Vec<String> {
            let found = folders(folder.as_ref(), home.map(Path::new), |folder| folder == Path::new(root));
            found.iter().map(|folder| folder.display().to_string()).collect()
        };
        assert_eq!(paths("/h/a/b/c", Some("/h"), "/h/a"), ["/h/a/b/c", "/h/a/b", "/h/a"]);
        assert_eq!(paths("/h/a/b", Some("/h"), "/x"), ["/h/a/b", "/h/a", "/h"]);
        assert_eq!(paths("/srv/a", Some("/h"), "/x"), ["/srv/a", "/srv", "/"]);
        assert_eq!(paths("/srv", None, "/x"), ["/srv", "/"]);
        assert!(paths("", None, "/x").is_empty());
    }

    #[test]
    fn the_user_s_file_is_where_xdg_has_it() {
        let of = |xdg: Option<&str>, home: Option<&str>| {
            of_user(xdg.map(OsString::from), home.map(PathBuf::from)).map(|path| path.display().to_string())
        };
        assert_eq!(of(Some("/x"), Some("/h")).as_deref(), Some("/x/shoal/shoal.toml"));
        assert_eq!(of(Some("rel"), Some("/h")).as_deref(), Some("/h/.config/shoal/shoal.toml"));
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn a_file_of_another_user_is_not_come_across_even_by_root() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000) && is_trusted(0, 0));
        assert!(!is_trusted(1001, 1000) && !is_trusted(1000, 0));
    }

    /// Only root gives links away.
    #[test]
    fn a_link_of_another_user_is_followed_only_where_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("mine.toml"), folder.path().join(NAME));
        std::fs::write(&file, "[run]\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(read(&link, true).unwrap().is_some());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(1001), None).unwrap();
            let why = read(&link, true).unwrap_err().to_string();
            assert!(why.contains("belongs to user 1001"), "{why}");
            assert!(read(&link, false).unwrap().is_some());
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        assert!(read(&path, true).unwrap().is_none());
        std::fs::write(&path, b"[run]\n# \xff\n").unwrap();
        let why = read(&path, true).unwrap_err().to_string();
        assert!(why.contains("shoal.toml:2: no UTF-8"), "{why}");
        std::fs::write(&path, vec![b'#'; BYTES_MAX as usize + 1]).unwrap();
        assert!(read(&path, true).unwrap_err().to_string().contains("longer than 1048576 bytes"));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read(&path, true).unwrap_err().to_string().contains("no file"));
        assert!(files(Some(&folder.path().join("no"))).unwrap_err().to_string().contains("--config"));
    }
}
