//! A run's journal: what happened, one JSON object a line, written as it happens, so that it tells of a run that was
//! killed too. It must never fail a run: what cannot be written is lost, and said once.

use crate::breakdown::Breakdown;
use crate::exclusions::{self, Excluded, NAMED_MAX};
use crate::plan::{Bounds, JobPlan};
use crate::reading::{gradients, live};
use crate::report::Fault;
use crate::rewinds;
use crate::waste::Waste;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use shoal_job::spec::Spec;
use shoal_runtime::cluster::{Precision, RewindCauses};
use shoal_runtime::wire::OtherFormat;
use shoal_runtime::wire::proto::{EvaluationStatus, MetricValue, Mode, StatusReply};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The format of journals. It is raised when an older build would misread one.
pub const FORMAT: u32 = 1;
/// Bytes that are read at a time of one that is followed: more than a line ever has.
const NEWS_BYTES_MAX: u64 = 16 << 20;

/// Why a journal is not read.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// Something of it is not what was written, or is missing.
    #[error("damaged: {0}")]
    Damaged(String),
    /// Another build's.
    #[error(transparent)]
    Other(#[from] OtherFormat),
}

/// One line. Times are seconds since the life of the run's supervisor began that the last `Begun` tells of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// A supervisor begins, or goes on with the run.
    Begun(Begun),
    /// A process was started.
    Joined {
        /// When, in seconds.
        at: f64,
        /// In a word.
        role: String,
        /// Such as `trainer-3`.
        name: String,
        /// Its process id.
        process: u32,
    },
    /// A process has ended, and how, in a word.
    Ended {
        /// When, in seconds.
        at: f64,
        /// Its process id.
        process: u32,
        /// How, in a word.
        end: String,
    },
    /// Something was done to a process.
    Fault(Fault),
    /// How the job was.
    Seen(Seen),
    /// The supervisor ends: `done`, `failed` or `interrupted`, and why.
    Closed {
        /// When, in seconds.
        at: f64,
        /// In a word.
        how: String,
        /// In a sentence.
        why: String,
    },
}

/// What is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begun {
    /// `FORMAT`; 0 in journals from before formats were numbered.
    #[serde(default)]
    pub format: u32,
    /// The job's name.
    pub job: String,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// By the wall clock, since 1970.
    pub wall_seconds: u64,
    /// `sync` or `async`.
    pub mode: String,
    /// The job's seed.
    pub seed: u64,
    /// How often each record is trained on.
    pub epochs: u64,
    /// Records that are trained on.
    pub records: u64,
    /// Records of a microbatch.
    pub microbatch_records: u32,
    /// Microbatches of a step.
    pub microbatches_per_step: u32,
    /// Copies of each block beside its primary.
    pub replicas: u32,
    /// In which precision gradients travel, where that is not f32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradients: Option<String>,
    /// What the job is, as its master was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<Spec>>,
    /// Where the command was given: relative paths are seen from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// The bounds on the number of trainers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trainers: Option<Bounds>,
    /// Variables that the program was given beside the command's own, by name alone: their values may be secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
}

/// How the job was at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// When, in seconds.
    pub at: f64,
    /// Steps that every block has applied.
    pub step: u64,
    /// Steps of the whole job.
    pub steps: u64,
    /// Trainers that took part.
    pub trainers_live: u32,
    /// Pservers that were there.
    pub pservers_live: u32,
    /// Records that counted.
    pub records_trained: u64,
    /// How often the job has gone back.
    pub rewinds: u64,
    /// Of those, how often for which cause.
    #[serde(default, skip_serializing_if = "RewindCauses::is_empty")]
    pub rewind_causes: RewindCauses,
    /// How many records are left out, and who of them was told of for the first time; of each life of the run the first
    /// [`NAMED_MAX`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub records_excluded: u64,
    /// Those that were told of for the first time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Excluded>,
    /// Evaluations that were told of for the first time, in each life of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evaluated: Vec<Evaluated>,
    /// The term of the master that said so.
    pub master_term: u32,
    /// Microbatches computed.
    pub computed: u64,
    /// Of those, the ones that were computed for nothing.
    pub wasted: u64,
    /// What trainers' time went to.
    pub time: Breakdown,
}

/// One evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluated {
    /// Steps that the model had when it was evaluated.
    pub step: u64,
    /// By the metrics' names, in the order of their declaration; none of no record, and none that is no finite number.
    pub metrics: Vec<(String, Option<f64>)>,
    /// The factor on the program's learning rates from there on.
    pub rate: f64,
}

/// What older builds wrote nothing of.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Begun {
    /// What a job is that begins with this status.
    pub fn of(program: &[std::ffi::OsString], status: &StatusReply, wall_seconds: u64) -> Begun {
        let settings = status.settings.clone().unwrap_or_default();
        let mode = if settings.mode() == Mode::Async { "async" } else { "sync" };
        let gradients = Some(gradients(&settings)).filter(|precision| *precision != Precision::F32.name());
        Begun {
            gradients: gradients.map(str::to_owned),
            format: FORMAT,
            job: settings.job,
            program: program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            wall_seconds,
            mode: mode.to_owned(),
            seed: settings.seed,
            epochs: settings.epochs,
            records: settings.records,
            microbatch_records: settings.microbatch_records,
            microbatches_per_step: settings.microbatches_per_step,
            replicas: status.replicas_wanted,
            spec: None,
            directory: None,
            trainers: None,
            variables: Vec::new(),
        }
    }

    /// The same with all that it takes to do it again.
    pub fn planned(plan: &JobPlan, status: &StatusReply, wall_seconds: u64) -> Begun {
        Begun {
            spec: Some(Box::new(plan.job.clone())),
            directory: std::env::current_dir().ok(),
            trainers: Some(plan.trainers),
            variables: plan.environment.iter().map(|(name, _)| name.clone()).collect(),
            ..Begun::of(&plan.program, status, wall_seconds)
        }
    }
}

impl Seen {
    /// `over` is `status` with the counts of the whole run.
    pub fn of(at: f64, status: &StatusReply, over: &StatusReply) -> Seen {
        let Waste { computed, wasted, .. } = Waste::of(over);
        Seen {
            at,
            step: status.step,
            steps: status.steps,
            trainers_live: live(status),
            pservers_live: status.pservers.iter().filter(|pserver| !pserver.lost).count() as u32,
            records_trained: status.records_trained,
            rewinds: status.rewind,
            rewind_causes: rewinds::causes(status),
            records_excluded: status.records_excluded,
            excluded: exclusions::of(status).into_iter().take(NAMED_MAX).collect(),
            evaluated: status.evaluations.iter().map(Evaluated::of).collect(),
            master_term: status.master_term,
            computed,
            wasted,
            time: Breakdown::of(&over.trainer_totals.unwrap_or_default()),
        }
    }
}

impl Evaluated {
    fn of(evaluation: &EvaluationStatus) -> Evaluated {
        let value = |metric: &MetricValue| metric.value.filter(|value| value.is_finite());
        let metrics = evaluation.values.iter().map(|metric| (metric.name.clone(), value(metric))).collect();
        Evaluated { step: evaluation.step, metrics, rate: evaluation.rate.into() }
    }
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Journal {
    file: Option<File>,
}

impl Journal {
    /// Goes on with the journal at `path`, or begins it.
    pub fn open(path: &Path) -> Journal {
        let file = File::options().create(true).append(true).open(path);
        let file = file.inspect_err(|error| complain(&format!("{}: {error}", path.display()))).ok();
        let mut journal = Journal { file };
        // What a killed supervisor left half written stays a line of its own.
        if std::fs::read(path).is_ok_and(|bytes| bytes.last().is_some_and(|last| *last != b'\n')) {
            journal.write_line(String::new());
        }
        journal
    }

    /// Appends a line. A journal that cannot be written ends no run.
    pub fn write(&mut self, entry: &Entry) {
        match serde_json::to_string(entry) {
            Ok(line) => self.write_line(line),
            Err(error) => complain(&error.to_string()),
        }
    }

    fn write_line(&mut self, mut line: String) {
        line.push('\n');
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(line.as_bytes())
        {
            complain(&error.to_string());
            self.file = None;
        }
    }
}

fn complain(why: &str) {
    note!("warning: the run's journal cannot be written, and there will be no report: {why}");
}

/// Reads a journal's lines. A line that a killed supervisor left half written is passed over.
///
/// # Errors
/// What is damaged, by its line, or missing.
pub fn read(text: &str) -> Result<Vec<Entry>, Unread> {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut entries = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        check_format(line)?;
        // Nothing follows it, or another supervisor's beginning does.
        let is_torn = || {
            let next = lines[at + 1..].iter().find(|line| !line.is_empty());
            next.is_none_or(|next| next.contains("\"entry\":\"begun\""))
        };
        match serde_json::from_str(line) {
            Ok(entry) => entries.push(entry),
            Err(_) if line.is_empty() || is_torn() => {}
            Err(error) => return Err(Unread::Damaged(format!("line {}: {error}", at + 1))),
        }
    }
    match entries.first() {
        Some(Entry::Begun(_)) => Ok(entries),
        _ => Err(Unread::Damaged("it does not tell how the run began".to_owned())),
    }
}

/// A journal that is read while it is written.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    /// Bytes of whole lines that were read.
    read: u64,
}

impl Follower {
    /// Of the journal at `path`, from its beginning on. It need not be there yet.
    pub fn new(path: PathBuf) -> Follower {
        Follower { path, read: 0 }
    }

    /// What has been written since the last call, up to the last line that is whole. Lines that a killed supervisor left half written are
    /// passed over.
    ///
    /// # Errors
    /// A file that cannot be read, or of another format.
    pub fn news(&mut self) -> anyhow::Result<Vec<Entry>> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file.with_context(|| format!("cannot read {}", self.path.display()))?,
        };
        // Another run's has taken its place.
        if file.metadata()?.len() < self.read {
            self.read = 0;
        }
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.take(NEWS_BYTES_MAX).read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.read += whole as u64;
        let text = String::from_utf8_lossy(&bytes[..whole]);
        text.lines().try_for_each(check_format)?;
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}

/// Each supervisor's first line tells the format, whatever else is in it.
fn check_format(line: &str) -> Result<(), OtherFormat> {
    #[derive(Deserialize)]
    struct Head {
        entry: String,
        #[serde(default)]
        format: u32,
    }
    match serde_json::from_str(line) {
        Ok(Head { entry, format: found }) if entry == "begun" && found != FORMAT => {
            Err(OtherFormat { what: "a run's journal", found, read: FORMAT })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::TrainerCounters;

    fn begun(wall_seconds: u64) -> Entry {
        Entry::Begun(Begun::of(&["program".into()], &StatusReply::default(), wall_seconds))
    }
    fn joined(process: u32) -> Entry {
        Entry::Joined { at: 0.5, role: "trainer".to_owned(), name: "trainer-0".to_owned(), process }
    }

    #[test]
    fn what_was_written_is_read_in_its_order_across_lives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let entries = [begun(1), joined(3), begun(9), joined(4)];
        for life in entries.chunks(2) {
            let mut journal = Journal::open(&path);
            life.iter().for_each(|entry| journal.write(entry));
        }
        assert_eq!(read(&std::fs::read_to_string(&path).unwrap()).unwrap(), entries);
    }

    /// Every entry with no field at its default: see `docs/versions.md`.
    fn every() -> Vec<Entry> {
        let at = 1.5;
        let counters = TrainerCounters {
            read_micros: 1,
            pull_micros: 2,
            compute_micros: 3,
            push_micros: 4,
            wait_micros: 5,
            ..Default::default()
        };
        let begun = Begun {
            format: FORMAT,
            job: "digits-1".to_owned(),
            program: vec!["program".to_owned(), "--flag".to_owned()],
            wall_seconds: 6,
            mode: "async".to_owned(),
            seed: 7,
            epochs: 8,
            records: 9,
            microbatch_records: 10,
            microbatches_per_step: 11,
            replicas: 12,
            gradients: None,
            spec: None,
            directory: None,
            trainers: None,
            variables: Vec::new(),
        };
        let [kind, role, name, what] = ["kill", "pserver", "pserver-0", "kill -9"].map(str::to_owned);
        let fault = Fault { kind, role, name, at_seconds: 2.5, what };
        let seen = Seen {
            at,
            step: 13,
            steps: 14,
            trainers_live: 15,
            pservers_live: 16,
            records_trained: 17,
            rewinds: 18,
            rewind_causes: RewindCauses::new(),
            records_excluded: 0,
            excluded: Vec::new(),
            evaluated: Vec::new(),
            master_term: 19,
            computed: 20,
            wasted: 21,
            time: Breakdown::of(&counters),
        };
        let [how, why] = ["failed", "a reason"].map(str::to_owned);
        let ended = Entry::Ended { at, process: 22, end: "killed".to_owned() };
        let closed = Entry::Closed { at, how, why };
        vec![Entry::Begun(begun), joined(23), ended, Entry::Fault(fault), Entry::Seen(seen), closed]
    }

    #[test]
    fn the_recorded_journal_says_what_it_said_and_is_written_with_the_same_bytes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/journal.jsonl");
        if std::env::var_os("SHOAL_RECORD_FIXTURES").is_some() && !path.exists() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut journal = Journal::open(&path);
            every().iter().for_each(|entry| journal.write(entry));
        }
        let recorded = std::fs::read_to_string(path).unwrap();
        assert_eq!(read(&recorded).unwrap(), every());
        let lines: Vec<String> = every().iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        assert_eq!(recorded.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_journal_is_followed_line_by_line_as_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut follower = Follower::new(path.clone());
        assert_eq!(follower.news().unwrap(), []);
        let mut journal = Journal::open(&path);
        journal.write(&begun(1));
        assert_eq!(follower.news().unwrap(), [begun(1)]);
        let line = serde_json::to_string(&joined(3)).unwrap();
        File::options().append(true).open(&path).unwrap().write_all(line.as_bytes()).unwrap();
        assert_eq!(follower.news().unwrap(), [], "a line is told of when it is whole");
        [begun(9), joined(4)].iter().for_each(|entry| Journal::open(&path).write(entry));
        assert_eq!(follower.news().unwrap(), [joined(3), begun(9), joined(4)]);
        std::fs::remove_file(&path).unwrap();
        Journal::open(&path).write(&begun(5));
        assert_eq!(follower.news().unwrap(), [begun(5)], "another run's is read from its beginning");
    }

    #[test]
    fn a_journal_of_another_format_is_told_from_a_damaged_one() {
        let line = serde_json::to_string(&begun(1)).unwrap();
        assert_eq!(read(&line).unwrap(), [begun(1)]);
        for found in [0, 2] {
            let other = line.replace("\"format\":1", &format!("\"format\":{found}"));
            assert!(matches!(read(&other), Err(Unread::Other(other)) if other.found == found));
        }
        let unknown = r#"{"entry":"begun","format":2,"job":7}"#;
        assert!(matches!(read(unknown), Err(Unread::Other(_))));
    }

    #[test]
    fn a_line_torn_by_a_kill_is_passed_over_and_damage_elsewhere_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::open(&path);
        [begun(1), joined(3)].iter().for_each(|entry| journal.write(entry));
        let whole = std::fs::read_to_string(&path).unwrap();
        for cut in 1..whole.len() - whole.find('\n').unwrap() - 1 {
            let torn = &whole[..whole.len() - cut];
            let kept = read(torn).unwrap();
            assert!(kept == [begun(1)] || cut == 1 && kept == [begun(1), joined(3)], "{torn}");
            std::fs::write(&path, torn).unwrap();
            Journal::open(&path).write(&begun(9));
            let again = read(&std::fs::read_to_string(&path).unwrap()).unwrap();
            assert_eq!(again.last(), Some(&begun(9)), "the run goes on");
        }
        let damaged = whole.replacen("\"joined\"", "\"jo", 1) + &whole[whole.find('\n').unwrap() + 1..];
        assert!(read(&damaged).unwrap_err().to_string().starts_with("damaged: line 2"));
        assert!(read("").is_err() && read(&whole[whole.find('\n').unwrap() + 1..]).is_err());
    }
}
