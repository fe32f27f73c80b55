//! A run's folder as one process's own, so that no two runs are in one: a lock in it that falls with the process, however
//! that ends.

use super::folder::RunFolder;
use crate::exit::Exit;
use crate::shell;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};

/// Nobody else works in a folder while this is held.
#[derive(Debug)]
pub struct Claim {
    _lock: File,
}

impl RunFolder {
    /// Makes the folder if need be, and claims it. What lies in it is as it was.
    ///
    /// # Errors
    /// Another process has it, or it can be no run's folder.
    pub fn claim(&self) -> Result<Claim, Exit> {
        let shown = shell::path(self.path());
        let usage = |why: String| Exit::Usage(format!("--folder {shown}: {why}"));
        let rooted = std::path::absolute(self.path()).map_err(|error| usage(error.to_string()))?;
        if rooted.to_str().is_none() {
            let rooted = shell::path(&rooted);
            return Err(usage(format!("the path {rooted} is not UTF-8, as places have to be: name another")));
        }
        std::fs::create_dir_all(self.path()).map_err(|error| match self.path().is_symlink() {
            true => usage("a link that leads to no folder".to_owned()),
            false => usage(format!("the folder cannot be made: {error}")),
        })?;
        let lock = File::options().read(true).write(true).create(true).truncate(false).open(self.lock());
        let mut lock = lock.map_err(|error| usage(format!("cannot write into it: {error}")))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(self.lives(&mut lock)),
            Err(TryLockError::Error(error)) => {
                let why = "a run's folder has to be where files can be locked: name another";
                return Err(usage(format!("{why} ({error})")));
            }
        }
        let mut text = String::new();
        let _ = lock.read_to_string(&mut text);
        if text.parse::<u32>().is_err() && !text.is_empty() {
            return Err(usage("its run.lock is somebody else's file: name another".to_owned()));
        }
        let _ = lock.rewind();
        // For people only: a number that cannot be written takes nothing from the lock.
        let _ = lock.set_len(0).and_then(|()| lock.write_all(std::process::id().to_string().as_bytes()));
        Ok(Claim { _lock: lock })
    }

    /// Whether some process works in it.
    pub fn is_claimed(&self) -> bool {
        let lock = File::open(self.lock());
        lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// The refusal of a folder that another process has.
    fn lives(&self, lock: &mut File) -> Exit {
        let mut text = String::new();
        let process = lock.read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<u32>().ok());
        let who = process.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
        // A demo's own folder has none.
        let has_master = self.address().exists();
        let look =
            if has_master { format!("look at it by `{}`; ", self.command("status")) } else { String::new() };
        Exit::Usage(format!(
            "the run in {} lives, {who} works there: {look}to take it up, end that process first; for another run, name another --folder",
            self.path().display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_folder_is_one_holders_until_it_lets_go() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder(folder.path().join("deep/er"));
        assert!(!run.is_claimed());
        let claim = run.claim().unwrap();
        assert!(run.is_claimed());
        let refusal = run.claim().unwrap_err().to_string();
        let who = format!("lives, process {} works there", std::process::id());
        assert!(refusal.contains(&who) && !refusal.contains("status --run"), "{refusal}");
        std::fs::write(run.address(), "127.0.0.1:1").unwrap();
        assert!(run.claim().unwrap_err().to_string().contains("status --run"));
        drop(claim);
        run.claim().unwrap();
    }

    #[test]
    fn what_can_be_no_folder_is_refused_with_why() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "precious").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("gone", &link).unwrap();
        let foreign = folder.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        let refusal = |path: &Path| RunFolder(path.to_owned()).claim().unwrap_err().to_string();
        for (path, why) in [
            (&file, "cannot be made"),
            (&file.join("below"), "cannot be made"),
            (&link, "leads to no folder"),
            (&foreign, "not UTF-8"),
        ] {
            assert!(refusal(path).contains(why), "{}", refusal(path));
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing was made");
    }
}
