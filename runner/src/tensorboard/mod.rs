//! A run's event files, which TensorBoard and experiment trackers read: written as the run goes, a file for each of its lives. They
//! must never fail a run: what cannot be written is lost, and said once.

mod counted;
mod event;
mod series;
mod settings;

use crate::journal::{Begun, Seen};
use crate::losses::Losses;
pub(crate) use counted::Counting;
use event::{Content, Ended, Event, Hyperparameters, Tagged};
use series::{Scalar, Series};
use std::fs::{DirEntry, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// How the names of event files begin. Seconds since 1970 follow, by which TensorBoard orders them, and the host's name.
const PREFIX: &str = "events.out.tfevents.";
const BEGUN: &str = "_hparams_/session_start_info";
const ENDED: &str = "_hparams_/session_end_info";
const LOSS: &str = "loss";
/// Points of a loss curve; of more steps the means of stretches are told.
const LOSSES_MAX: u64 = 10_000;
/// A file of a life that is larger is none of ours: 64 MiB. A day takes about 2 MiB.
const READ_MAX: u64 = 64 << 20;
/// The hparams plugin's word for a run that is done.
const SUCCESS: i32 = 1;

/// The event file of one life of a run.
#[derive(Debug)]
pub(crate) struct Board {
    file: Option<(File, PathBuf)>,
    /// When this life began, by the wall clock.
    began: f64,
    /// Steps that were seen, and when, in seconds of this life.
    steps: Vec<(u64, f64)>,
    /// The last step whose loss is told.
    losses_told: u64,
    series: Series,
}

impl Board {
    /// Begins a file below `folder`, in a folder of the job's name: of a run that goes on it is the same again.
    pub(crate) fn open(folder: &Path, begun: &Begun) -> Board {
        let (began, place) = (begun.wall_seconds as f64, folder.join(&begun.job));
        let mut series = Series::default();
        let earlier = files(&place);
        let mut losses_told = 0;
        for (_, path) in &earlier {
            losses_told = losses_told.max(remember(path, &mut series));
        }
        // A clock that was put back must not put a later life before an earlier one.
        let after = earlier.last().map_or(0, |(seconds, _)| seconds.saturating_add(1));
        let path = place.join(format!("{PREFIX}{:010}.{}", begun.wall_seconds.max(after), host()));
        let made = std::fs::create_dir_all(&place)
            .and_then(|()| File::options().create_new(true).append(true).open(&path));
        let file = made.inspect_err(|error| complain(&path, error)).ok().map(|file| (file, path));
        let mut board = Board { file, began, steps: Vec::new(), losses_told, series };
        let values = settings::of(begun);
        let begun = event::Begun { values, group: begun.job.clone(), wall_time: began };
        let hyperparameters = Hyperparameters { begun: Some(begun), ended: None };
        board.write(&[
            Event::version(began),
            Event::values(began, 0, vec![Tagged::of_plugin(BEGUN, &hyperparameters)]),
        ]);
        board
    }

    /// How the run is.
    pub(crate) fn see(&mut self, seen: &Seen) {
        if self.steps.last().is_none_or(|(step, _)| *step < seen.step) {
            self.steps.push((seen.step, seen.at));
        }
        let scalars = self.series.see(seen);
        self.tell(seen.at, scalars);
    }

    /// Mean losses per record of the first `made` steps, those that were not told yet; each at the time at which its step had been
    /// seen.
    pub(crate) fn tell_losses(&mut self, losses: &Losses, made: u64) {
        let mut curve = losses.curve(LOSSES_MAX, made);
        curve.retain(|(step, _)| *step > self.losses_told);
        self.losses_told = curve.last().map_or(self.losses_told, |(step, _)| *step);
        let time = |step: u64| {
            let seen = self.steps.partition_point(|(seen, _)| *seen < step);
            self.began + self.steps.get(seen).or(self.steps.last()).map_or(0.0, |(_, at)| *at)
        };
        let event = |(step, loss): &(u64, f64)| {
            let tagged = Tagged::number(LOSS, *loss)?;
            Some(Event::values(time(*step), *step, vec![tagged]))
        };
        let events: Vec<Event> = curve.iter().filter_map(event).collect();
        self.write(&events);
    }

    /// This life of the run ends, at that second of it. Of one that is not done another may follow, and how it ends is not told.
    pub(crate) fn conclude(&mut self, at: f64, is_done: bool) {
        if let Some((at, scalars)) = self.series.close() {
            self.tell(at, scalars);
        }
        if is_done {
            let wall_time = self.began + at;
            let ended = Hyperparameters { begun: None, ended: Some(Ended { status: SUCCESS, wall_time }) };
            let step = self.steps.last().map_or(0, |(step, _)| *step);
            self.write(&[Event::values(wall_time, step, vec![Tagged::of_plugin(ENDED, &ended)])]);
        }
    }

    /// Writes values, those of one step in one event.
    fn tell(&mut self, at: f64, scalars: Vec<Scalar>) {
        let of_step = |scalars: &[Scalar]| {
            let step = scalars.first().map_or(0, |scalar| scalar.step);
            let value =
                scalars.iter().filter_map(|scalar| Tagged::number(&scalar.tag, scalar.value)).collect();
            Event::values(self.began + at, step, value)
        };
        let events: Vec<Event> = scalars.chunk_by(|one, next| one.step == next.step).map(of_step).collect();
        self.write(&events);
    }

    /// Whoever watches the file sees them at once.
    fn write(&mut self, events: &[Event]) {
        let bytes: Vec<u8> = events.iter().flat_map(Event::framed).collect();
        if let Some((file, path)) = &mut self.file
            && let Err(error) = file.write_all(&bytes)
        {
            complain(path, &error);
            self.file = None;
        }
    }
}

fn complain(file: &Path, error: &std::io::Error) {
    let file = file.display();
    note!("warning: TensorBoard will not be told of this run any more: {file} cannot be written: {error}");
}

/// The event files of a folder in TensorBoard's order, with the seconds in their names. What else is called so is not looked at: a pipe
/// would hold up the run.
fn files(folder: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let seconds = |path: &Path| -> Option<u64> {
        path.file_name()?.to_str()?.strip_prefix(PREFIX)?.split('.').next()?.parse().ok()
    };
    let is_file = |entry: &DirEntry| {
        entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= READ_MAX)
    };
    let files = entries.filter(is_file).filter_map(|entry| Some((seconds(&entry.path())?, entry.path())));
    let mut files: Vec<(u64, PathBuf)> = files.collect();
    files.sort();
    files
}

/// Takes note of what a file of an earlier life tells, and returns the last step whose loss it tells. A file in which no life of a run
/// begins is somebody else's: of the program, for instance.
fn remember(path: &Path, series: &mut Series) -> u64 {
    let mut losses_told = 0;
    let events = event::read(&std::fs::read(path).unwrap_or_default());
    if !events.iter().flat_map(Event::summary).any(|tagged| tagged.tag == BEGUN) {
        return 0;
    }
    for event in events {
        for tagged in event.summary() {
            if let (Some(Content::Number(value)), Ok(step)) = (&tagged.content, u64::try_from(event.step)) {
                series.remember(&tagged.tag, step, *value);
                if tagged.tag == LOSS {
                    losses_told = losses_told.max(step);
                }
            }
        }
    }
    losses_told
}

/// This host's name, of letters that any file's may have.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let name: String = name.trim().chars().filter(plain).take(64).collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Evaluated;
    use shoal_runtime::cluster::plan::EpochShape;
    use shoal_runtime::wire::proto::StatusReply;

    fn begun(wall_seconds: u64) -> Begun {
        let mut begun =
            Begun::of(&["program".into(), "--rate=2".into()], &StatusReply::default(), wall_seconds);
        begun.job = "job-1".to_owned();
        begun
    }
    fn seen(at: f64, step: u64, evaluated: &[u64]) -> Seen {
        let status = StatusReply { step, records_trained: 8 * step, ..Default::default() };
        let evaluation = |step: &u64| Evaluated {
            step: *step,
            metrics: vec![("auc".to_owned(), Some(0.1 * *step as f64)), ("odd".to_owned(), None)],
            rate: 1.0,
        };
        Seen { evaluated: evaluated.iter().map(evaluation).collect(), ..Seen::of(at, &status, &status) }
    }
    /// Every number of that tag in the files of the job, in TensorBoard's order: seconds since 1970, step, value.
    fn told(folder: &Path, tag: &str) -> Vec<(f64, i64, f32)> {
        let mut told = Vec::new();
        for (_, path) in files(&folder.join("job-1")) {
            for event in event::read(&std::fs::read(path).unwrap()) {
                for tagged in event.summary().iter().filter(|tagged| tagged.tag == tag) {
                    let Some(Content::Number(value)) = tagged.content else { continue };
                    told.push((event.wall_time, event.step, value));
                }
            }
        }
        told
    }

    #[test]
    fn a_run_that_goes_on_goes_on_in_a_file_of_its_own_and_tells_nothing_twice() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Board::open(folder.path(), &begun(100));
        first.see(&seen(0.5, 2, &[2]));
        // It is killed while it writes, and the clock is put back.
        let (_, killed) = files(&folder.path().join("job-1")).pop().unwrap();
        let mut torn = std::fs::read(&killed).unwrap();
        torn.extend([7; 9]);
        std::fs::write(&killed, torn).unwrap();
        let mut second = Board::open(folder.path(), &begun(90));
        second.see(&seen(0.5, 3, &[2, 3]));
        second.see(&seen(2.5, 7, &[]));
        // Ten steps of two records each.
        let losses = |sums: [f32; 10]| Losses::new(sums.to_vec(), EpochShape::new(20, 1, 2), 1).unwrap();
        let sums = [6.0, 4.0, 2.0, 8.0, 4.0, 2.0, f32::NAN, 6.0, 2.0, 2.0];
        second.tell_losses(&losses(sums), 5);
        second.tell_losses(&losses(sums), 9);
        second.conclude(3.0, true);
        let names: Vec<u64> =
            files(&folder.path().join("job-1")).into_iter().map(|(seconds, _)| seconds).collect();
        assert_eq!(names, [100, 101]);
        assert_eq!(told(folder.path(), "metrics/auc"), [(100.5, 2, 0.2), (90.5, 3, 0.3_f64 as f32)]);
        let expected = [(1, 3.0), (2, 2.0), (3, 1.0), (4, 4.0), (5, 2.0), (6, 1.0), (8, 3.0), (9, 1.0)];
        let losses_told = told(folder.path(), "loss");
        assert_eq!(losses_told.iter().map(|(_, step, loss)| (*step, *loss)).collect::<Vec<_>>(), expected);
        assert_eq!((losses_told[2].0, losses_told[3].0), (90.5, 92.5), "when its step had been seen");
        let mut third = Board::open(folder.path(), &begun(200));
        third.tell_losses(&losses(sums), 10);
        assert_eq!(
            told(folder.path(), "loss")[8..],
            [(200.0, 10, 1.0)],
            "what earlier lives told is not told again"
        );
        let trained: Vec<i64> =
            told(folder.path(), "progress/records_trained").iter().map(|(_, step, _)| *step).collect();
        assert_eq!((trained, told(folder.path(), "metrics/odd")), (vec![2, 3, 7], vec![]));
    }

    #[test]
    fn every_file_begins_with_its_version_and_the_hyperparameters_and_a_run_that_is_done_ends_with_that() {
        let folder = tempfile::tempdir().unwrap();
        let mut board = Board::open(folder.path(), &begun(100));
        board.conclude(1.0, false);
        let read = |folder: &Path| {
            let (_, path) = files(&folder.join("job-1")).pop().unwrap();
            event::read(&std::fs::read(path).unwrap())
        };
        let events = read(folder.path());
        assert_eq!(events[0], Event::version(100.0));
        assert_eq!(
            (events.len(), events[1].summary()[0].tag.as_str()),
            (2, BEGUN),
            "another life may follow"
        );
        board.conclude(1.0, true);
        let events = read(folder.path());
        assert_eq!((events.len(), events[2].summary()[0].tag.as_str()), (3, ENDED));
        assert_eq!(events[2].wall_time, 101.0);
    }

    #[test]
    fn what_is_called_like_an_event_file_and_is_none_of_ours_is_not_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let job = folder.path().join("job-1");
        std::fs::create_dir(&job).unwrap();
        let pipe = job.join(format!("{PREFIX}{}.pipe", u64::MAX));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // The program's own: a curve of the same name, and no life of a run.
        let own = Event::values(5.0, 1_000, vec![Tagged::number(LOSS, 0.5).unwrap()]);
        std::fs::write(job.join(format!("{PREFIX}{:010}.own", u64::MAX)), own.framed()).unwrap();
        let mut board = Board::open(folder.path(), &begun(100));
        let losses = Losses::new(vec![2.0; 10], EpochShape::new(20, 1, 2), 1).unwrap();
        board.tell_losses(&losses, 1);
        let losses_told = told(folder.path(), "loss");
        assert!(losses_told.contains(&(100.0, 1, 1.0)), "{losses_told:?}");
    }

    #[test]
    fn a_place_that_cannot_be_written_ends_no_run() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("job-1"), "no folder").unwrap();
        let mut board = Board::open(folder.path(), &begun(100));
        board.see(&seen(0.5, 2, &[2]));
        board.conclude(1.0, true);
        assert_eq!(std::fs::read_to_string(folder.path().join("job-1")).unwrap(), "no folder");
    }
}
