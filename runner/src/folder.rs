//! A run's folder: what lies where in it. Reads and names; it decides nothing.

use crate::exit::Exit;
use crate::journal::{self, Entry};
use crate::plan::Bounds;
use crate::shell;
use anyhow::Context;
use shoal_runtime::host::files;
use shoal_runtime::host::rpc::tls::Role;
use std::path::{Component, Path, PathBuf};

/// What a run keeps in its folder, beside the lock. Nobody else writes there.
const KEPT: [&str; 10] = [
    "state",
    "described",
    "logs",
    "tls",
    "hosts",
    "model.safetensors",
    "result.json",
    "journal.jsonl",
    "job.name",
    "master.address",
];

/// Of these, files whose place a new run takes. Folders it adds to, and another run's state is refused by itself.
const REPLACED: [&str; 4] = ["model.safetensors", "result.json", "journal.jsonl", "master.address"];

/// Refuses an output that would take the place of what a run keeps.
pub fn refuse_kept(output: &Path) -> Result<(), Exit> {
    let place = resolved(output);
    let is_run = |folder: &&Path| RunFolder(folder.to_path_buf()).job().is_file();
    place.ancestors().skip(1).filter(is_run).try_for_each(|folder| refuse_kept_in(folder, &place, output))
}

fn refuse_kept_in(folder: &Path, place: &Path, output: &Path) -> Result<(), Exit> {
    let first = place.strip_prefix(folder).ok().and_then(|below| below.components().next());
    match first.is_some_and(|first| KEPT.iter().any(|kept| first.as_os_str() == *kept)) {
        true => Err(Exit::Usage(format!(
            "{} is what the run in {} keeps: name another file or folder",
            output.display(),
            folder.display()
        ))),
        false => Ok(()),
    }
}

/// Where a file is or would be, without links.
fn resolved(file: &Path) -> PathBuf {
    let place = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let is_there = |folder: &Path| Some((folder.to_owned(), std::fs::canonicalize(folder).ok()?));
    match place.ancestors().find_map(is_there) {
        Some((folder, resolved)) => {
            let rest = place.strip_prefix(&folder).unwrap_or(Path::new(""));
            // What is not there is a folder once it is made.
            rest.components().fold(resolved, |at, part| match part {
                Component::ParentDir => at.parent().map_or_else(PathBuf::new, Path::to_owned),
                part => at.join(part),
            })
        }
        None => place,
    }
}

/// The folder of one local run.
#[derive(Clone, Debug)]
pub struct RunFolder(pub PathBuf);

impl RunFolder {
    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// Where the master listens, while it does.
    pub fn address(&self) -> PathBuf {
        self.0.join("master.address")
    }
    /// The master's store.
    pub fn state(&self) -> PathBuf {
        self.0.join("state")
    }
    /// The logs of its processes.
    pub fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }
    /// What the program has said of the job before it began.
    pub fn described(&self) -> PathBuf {
        self.0.join("described")
    }
    /// The model, once it is trained.
    pub fn model(&self) -> PathBuf {
        self.0.join("model.safetensors")
    }
    /// The closing object of a run that has ended.
    pub fn result(&self) -> PathBuf {
        self.0.join("result.json")
    }
    /// What happened, line by line.
    pub fn journal(&self) -> PathBuf {
        self.0.join("journal.jsonl")
    }
    /// What a run with TLS made for itself: an authority, and a folder for each role.
    pub fn tls(&self) -> PathBuf {
        self.0.join("tls")
    }
    /// What the hosts of a run with a network of its own are told by.
    pub fn hosts(&self) -> PathBuf {
        self.0.join("hosts")
    }
    /// The credentials of a role.
    pub fn tls_of(&self, role: Role) -> PathBuf {
        self.tls().join(role.word())
    }
    /// Locked by the process that works in it.
    pub fn lock(&self) -> PathBuf {
        self.0.join("run.lock")
    }
    fn job(&self) -> PathBuf {
        self.0.join("job.name")
    }

    /// The command of this name about this run, as a person can type it.
    pub fn command(&self, name: &str) -> String {
        format!("{} {name} --run {}", shell::shoal(), shell::path(&self.0))
    }

    /// The bounds on the number of trainers with which its newest life began; none where its journal does not tell.
    pub fn trainers(&self) -> Option<Bounds> {
        self.entries().into_iter().rev().find_map(|entry| match entry {
            Entry::Begun(begun) => Some(begun.trainers),
            _ => None,
        })?
    }

    /// How its newest life ended, in a word, and why, if its supervisor has said so.
    pub fn end(&self) -> Option<(String, String)> {
        match self.entries().pop()? {
            Entry::Closed { how, why, .. } => Some((how, why)),
            _ => None,
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let text = std::fs::read_to_string(self.journal()).unwrap_or_default();
        journal::read(&text).unwrap_or_default()
    }

    /// The command that goes on with it.
    pub fn resuming(&self) -> String {
        format!("{} run --resume --folder {} ...", shell::shoal(), shell::path(&self.0))
    }

    /// Where the master of this run listens, if it does.
    pub fn master(&self) -> Result<String, Exit> {
        let path = self.address();
        std::fs::read_to_string(&path).map(|text| text.trim().to_owned()).map_err(|error| {
            if let Some((how, _)) = self.end().filter(|_| !self.is_claimed()) {
                let (folder, status) = (self.path().display(), self.command("status"));
                return Exit::Unreachable(format!(
                    "the run in {folder} is over ({how}): `{status}` tells of it; name another by --run DIR"
                ));
            }
            let hint =
                "name the job by --master HOST:PORT or --run DIR; local runs are started by `shoal run`";
            Exit::Usage(format!("no running job found: {}: {error}; {hint}", path.display()))
        })
    }

    /// The name of the job that runs here; none where only a master's address was put here.
    pub fn job_name(&self) -> Result<Option<String>, Exit> {
        match std::fs::read_to_string(self.job()) {
            Ok(name) => Ok(Some(name)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Exit::Usage(format!("{}: {error}", self.job().display()))),
        }
    }

    /// Makes the folder that a job of this name runs in.
    pub fn begin(&self, job: &str) -> anyhow::Result<()> {
        std::fs::create_dir_all(self.logs())
            .with_context(|| format!("cannot make {}", self.logs().display()))?;
        files::write(&self.job(), job.as_bytes())?;
        self.forget_master();
        Ok(())
    }

    /// Nobody listens any more where its master did.
    pub fn forget_master(&self) {
        let _ = std::fs::remove_file(self.address());
    }

    /// Refuses a folder for event files that is a file, that this run or another keeps, or that cannot be made; and makes it.
    pub fn check_events(&self, place: &Path) -> Result<(), Exit> {
        refuse_kept(place)?;
        // This run may not have begun.
        refuse_kept_in(&resolved(&self.0), &resolved(place), place)?;
        if place.exists() && !place.is_dir() {
            let place = place.display();
            return Err(Exit::Usage(format!(
                "{place} is a file: event files go into a folder; name another one"
            )));
        }
        std::fs::create_dir_all(place).map_err(|error| {
            Exit::Usage(format!(
                "{} cannot be made ({error}): name another folder for event files",
                place.display()
            ))
        })
    }

    /// Refuses a folder in which others' files have the names of what a run keeps.
    pub fn check_foreign(&self) -> Result<(), Exit> {
        if self.job().is_file() {
            return Ok(());
        }
        let is_there = |name: &&&str| self.0.join(name).symlink_metadata().is_ok();
        let foreign: Vec<&str> = REPLACED.iter().chain(&["described"]).filter(is_there).copied().collect();
        match foreign.is_empty() {
            true => Ok(()),
            false => Err(Exit::Usage(format!(
                "{} holds {}, which a run would write and no run has made: name another --folder",
                self.0.display(),
                foreign.join(", ")
            ))),
        }
    }

    /// Refuses a folder that a job has begun in: its master would take up that job's state.
    pub fn check_new(&self) -> Result<(), Exit> {
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
    pub fn job_to_resume(&self) -> Result<String, Exit> {
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
    pub fn first_free(&self, role: &str) -> u32 {
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
    use crate::journal::{Begun, Journal};
    use crate::record::Record;
    use shoal_runtime::wire::proto::StatusReply;

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
    fn a_run_is_over_where_its_supervisor_has_said_so_nobody_listens_and_nobody_takes_it_up() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder(folder.path().to_owned());
        run.begin("job").unwrap();
        let why = || run.master().unwrap_err().to_string();
        assert!(why().contains("no running job found"), "{}", why());
        let begun = Begun::of(&[], &StatusReply::default(), 1);
        let mut record = Record::new(Journal::open(&run.journal()), begun);
        record.conclude("interrupted", "");
        assert!(why().contains("is over (interrupted)"), "{}", why());
        let claim = run.claim().unwrap();
        assert!(why().contains("no running job found"), "it goes on, and its master comes: {}", why());
        // Where the journal could not be written, the run is where its master is.
        std::fs::write(run.address(), "127.0.0.1:1").unwrap();
        assert_eq!(run.master().unwrap(), "127.0.0.1:1");
        drop(claim);
    }

    #[test]
    fn what_a_run_keeps_is_nobody_else_s_output() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder(folder.path().join("r"));
        run.begin("job").unwrap();
        std::fs::create_dir(run.state()).unwrap();
        std::os::unix::fs::symlink("r/journal.jsonl", folder.path().join("link")).unwrap();
        std::fs::write(run.journal(), "").unwrap();
        for kept in [
            "r/journal.jsonl",
            "r/model.safetensors",
            "r/state/deep/file",
            "r/logs/x",
            "r/../r/result.json",
            "new/../r/state",
            "link",
        ] {
            assert!(refuse_kept(&folder.path().join(kept)).is_err(), "{kept}");
        }
        for free in ["r/report.html", "r/other.safetensors", "model.safetensors", "r/deep/model.safetensors"]
        {
            refuse_kept(&folder.path().join(free)).unwrap();
        }
    }

    #[test]
    fn event_files_go_into_a_folder_that_no_run_keeps() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder(folder.path().join("r"));
        let why = |place: &str| run.check_events(&folder.path().join(place)).unwrap_err().to_string();
        assert!(why("r/logs").contains("keeps"), "before the run has begun");
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(why("file").contains("is a file"));
        assert!(why("file/below").contains("cannot be made"));
        run.begin("job").unwrap();
        let other = RunFolder(folder.path().join("other"));
        let kept = other.check_events(&folder.path().join("r/state/deep")).unwrap_err().to_string();
        assert!(kept.contains("keeps"), "{kept}");
        run.check_events(&folder.path().join("events/deep")).unwrap();
        assert!(folder.path().join("events/deep").is_dir());
    }

    #[test]
    fn a_folder_with_somebody_s_files_by_a_run_s_names_is_no_place_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder(folder.path().to_owned());
        std::fs::write(folder.path().join("notes"), "mine").unwrap();
        run.check_foreign().unwrap();
        std::fs::write(run.model(), "precious").unwrap();
        std::os::unix::fs::symlink("nowhere", run.result()).unwrap();
        let why = run.check_foreign().unwrap_err().to_string();
        assert!(why.contains("model.safetensors, result.json"), "{why}");
        run.begin("job").unwrap();
        run.check_foreign().unwrap();
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
