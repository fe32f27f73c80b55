//! A run's folder: what lies where in it. Reads and names; it decides nothing.

use crate::exit::Exit;
use crate::shell;
use anyhow::Context;
use shoal_runtime::host::files;
use shoal_runtime::host::rpc::tls::Role;
use std::path::{Path, PathBuf};

/// The folder of one local run.
#[derive(Clone, Debug)]
pub(crate) struct RunFolder(pub(crate) PathBuf);

impl RunFolder {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
    /// Where the master listens, while it does.
    pub(crate) fn address(&self) -> PathBuf {
        self.0.join("master.address")
    }
    /// The master's store.
    pub(crate) fn state(&self) -> PathBuf {
        self.0.join("state")
    }
    pub(crate) fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }
    pub(crate) fn model(&self) -> PathBuf {
        self.0.join("model.safetensors")
    }
    /// The closing object of a run that has ended.
    pub(crate) fn result(&self) -> PathBuf {
        self.0.join("result.json")
    }
    /// What happened, line by line.
    pub(crate) fn journal(&self) -> PathBuf {
        self.0.join("journal.jsonl")
    }
    /// What a run with TLS made for itself: an authority, and a folder for each role.
    pub(crate) fn tls(&self) -> PathBuf {
        self.0.join("tls")
    }
    /// What the hosts of a run with a network of its own are told by.
    pub(crate) fn hosts(&self) -> PathBuf {
        self.0.join("hosts")
    }
    /// The credentials of a role.
    pub(crate) fn tls_of(&self, role: Role) -> PathBuf {
        self.tls().join(role.word())
    }
    /// Locked by the process that works in it.
    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join("run.lock")
    }
    fn job(&self) -> PathBuf {
        self.0.join("job.name")
    }

    /// The command of this name about this run, as a person can type it.
    pub(crate) fn command(&self, name: &str) -> String {
        format!("{} {name} --run {}", shell::shoal(), shell::path(&self.0))
    }

    /// The command that goes on with it.
    fn resuming(&self) -> String {
        format!("{} run --resume --folder {} ...", shell::shoal(), shell::path(&self.0))
    }

    /// Where the master of this run listens, if it does.
    pub(crate) fn master(&self) -> Result<String, Exit> {
        let path = self.address();
        std::fs::read_to_string(&path).map(|text| text.trim().to_owned()).map_err(|error| {
            let hint =
                "name the job by --master HOST:PORT or --run DIR; local runs are started by `shoal run`";
            Exit::Usage(format!("no running job found: {}: {error}; {hint}", path.display()))
        })
    }

    /// The name of the job that runs here; none where only a master's address was put here.
    pub(crate) fn job_name(&self) -> Result<Option<String>, Exit> {
        match std::fs::read_to_string(self.job()) {
            Ok(name) => Ok(Some(name)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Exit::Usage(format!("{}: {error}", self.job().display()))),
        }
    }

    /// Makes the folder that a job of this name runs in.
    pub(crate) fn begin(&self, job: &str) -> anyhow::Result<()> {
        std::fs::create_dir_all(self.logs())
            .with_context(|| format!("cannot make {}", self.logs().display()))?;
        files::write(&self.job(), job.as_bytes())?;
        // Of an earlier master: nobody listens there.
        let _ = std::fs::remove_file(self.address());
        Ok(())
    }

    /// Refuses a folder that a job has begun in: its master would take up that job's state.
    pub(crate) fn check_new(&self) -> Result<(), Exit> {
        if !self.state().exists() {
            return Ok(());
        }
        let folder = self.0.display();
        Err(Exit::Usage(format!(
            "{folder} holds the state of another run: go on with that one by `{}`, or name another --folder",
            self.resuming()
        )))
    }

    /// The name of the job that may go on here.
    pub(crate) fn job_to_resume(&self) -> Result<String, Exit> {
        let folder = self.0.display();
        if self.result().exists() {
            let model = self.model();
            let model = model.display();
            return Err(Exit::Usage(format!("the run in {folder} has ended: its model is {model}")));
        }
        let job = std::fs::read_to_string(self.job()).ok().filter(|_| self.state().exists());
        job.ok_or_else(|| {
            Exit::Usage(format!(
                "{folder} holds no state to resume: leave out --resume, or name the run by --folder"
            ))
        })
    }

    /// The first number that no process of this role has had here: each has a log.
    pub(crate) fn first_free(&self, role: &str) -> u32 {
        let files = std::fs::read_dir(self.logs()).into_iter().flatten().flatten();
        let number = |file: std::fs::DirEntry| {
            let name = file.file_name().to_string_lossy().into_owned();
            name.strip_prefix(role)?.strip_prefix('-')?.strip_suffix(".log")?.parse::<u32>().ok()
        };
        files.filter_map(number).max().map_or(0, |highest| highest + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_never_given_twice_in_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder(folder.path().to_owned());
        assert_eq!(run.first_free("pserver"), 0);
        run.begin("job").unwrap();
        for log in ["pserver-0.log", "pserver-11.log", "pserver-2.log", "trainer-40.log", "pserver-x.log"] {
            std::fs::write(run.logs().join(log), "").unwrap();
        }
        assert_eq!((run.first_free("pserver"), run.first_free("trainer")), (12, 41));
    }

    #[test]
    fn a_folder_with_state_is_for_resuming_and_one_without_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder(folder.path().to_owned());
        run.begin("digits-7").unwrap();
        run.check_new().unwrap();
        assert!(run.job_to_resume().unwrap_err().to_string().contains("no state"));
        std::fs::create_dir(run.state()).unwrap();
        assert!(run.check_new().unwrap_err().to_string().contains("--resume"));
        assert_eq!(run.job_to_resume().unwrap(), "digits-7");
        std::fs::write(run.result(), "{}").unwrap();
        assert!(run.job_to_resume().unwrap_err().to_string().contains("has ended"));
    }
}
