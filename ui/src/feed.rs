//! Where a page's content comes from: the job's master is asked again and again, the run's journal is followed.

use crate::view::{Conclusion, Hash, View};
use crate::watcher::Watcher;
use serde_json::Value;
use shoal_runner::JobPlan;
use shoal_runner::client::{Client, JobChoice};
use shoal_runner::folder::RunFolder;
use shoal_runner::journal::Follower;
use shoal_runner::losses;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::rpc::Dial;
use shoal_runtime::wire::proto::StatusReply;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Between two looks, and where a job elsewhere has not answered.
const PAUSE: Duration = Duration::from_millis(500);
const AWAY_PAUSE: Duration = Duration::from_secs(2);
/// Between two readings of the losses, which ask for the whole declaration and routing.
const LOSSES_PAUSE: Duration = Duration::from_secs(2);
/// How long a master may take to answer.
const ANSWER: Duration = Duration::from_secs(3);

/// Which job is shown: how its master is found, and its run's folder if that is on this machine.
pub struct Source {
    way: Way,
    /// The run's folder; none of a job elsewhere.
    pub folder: Option<RunFolder>,
}

/// How a job's master is found.
enum Way {
    /// As a person names one.
    Choice(JobChoice),
    /// As `dial` reaches the address `master`.
    Dial { name: String, dial: Arc<dyn Dial>, master: String },
}

impl Source {
    /// The local run that is supervised here.
    pub fn of_run(plan: &JobPlan) -> Source {
        // On hosts of its own they speak plaintext as on one.
        let plaintext = plan.has_network && !plan.tls;
        let run = plan.folder.path().to_owned();
        Source::of(JobChoice { master: None, run, tls: None, plaintext })
    }

    /// The job that is meant.
    pub fn of(choice: JobChoice) -> Source {
        let folder = choice.master.is_none().then(|| RunFolder(choice.run.clone()));
        Source { way: Way::Choice(choice), folder }
    }

    /// The job `name`, whose members `dial` reaches by the addresses that they have, and its master as `master`.
    pub fn dialled(name: &str, dial: Arc<dyn Dial>, master: &str) -> Source {
        let way = Way::Dial { name: name.to_owned(), dial, master: master.to_owned() };
        Source { way, folder: None }
    }

    fn name(&self) -> String {
        let of_run = self.folder.as_ref().and_then(|folder| folder.job_name().ok().flatten());
        of_run.unwrap_or_else(|| match &self.way {
            Way::Choice(choice) => choice.master.clone().unwrap_or_default(),
            Way::Dial { name, .. } => name.clone(),
        })
    }

    async fn connect(&self) -> anyhow::Result<Client> {
        match &self.way {
            Way::Choice(choice) => choice.connect().await,
            Way::Dial { dial, master, .. } => Client::connect_by(Arc::clone(dial), master).await,
        }
    }
}

/// What is drawn at one moment, as JSON.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) text: Arc<str>,
    /// Nothing comes after it.
    pub(crate) is_last: bool,
}

impl Frame {
    pub(crate) fn nothing() -> Frame {
        Frame { text: "null".into(), is_last: false }
    }
}

/// Whether the losses of a job can be read.
#[derive(Debug, PartialEq)]
enum Readable {
    /// No trainer has said yet what the model has, or its blocks have no place.
    NotYet,
    /// The program counts none.
    Never,
    Now,
}

impl Readable {
    fn of(status: &StatusReply) -> Readable {
        let Some(declaration) = &status.declaration else { return Readable::NotYet };
        if !declaration.parameters.iter().any(|parameter| parameter.name == losses::NAME) {
            return Readable::Never;
        }
        let is_placed = status.is_progress_known && status.routing.is_some();
        if is_placed { Readable::Now } else { Readable::NotYet }
    }
}

/// A page's content as it becomes.
pub(crate) struct Feed {
    source: Source,
    view: View,
    client: Option<Client>,
    follower: Option<Follower>,
    watcher: Watcher,
    /// When a moment of the run was, so that time passes between two entries of its journal.
    mark: Option<(f64, Instant)>,
    losses_due: Option<Instant>,
    /// Whether the run's folder has told how it ended.
    is_folder_read: bool,
}

impl Feed {
    pub(crate) fn new(source: Source) -> Feed {
        let follower = source.folder.as_ref().map(|folder| Follower::new(folder.journal()));
        Feed {
            view: View::new(source.name()),
            source,
            client: None,
            follower,
            watcher: Watcher::default(),
            mark: None,
            losses_due: Some(Instant::now()),
            is_folder_read: false,
        }
    }

    /// Publishes on a thread of its own, so that nobody who runs the job waits for the page, until the other end of `concluded` is gone.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn begin(
        self,
        frames: watch::Sender<Frame>,
        concluded: watch::Receiver<Option<Conclusion>>,
    ) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let publish = move || runtime.block_on(self.publish(frames, concluded));
        std::thread::Builder::new().name("live page".to_owned()).spawn(publish).map(drop)
    }

    /// Publishes a frame twice a second, and the last one when the run has been concluded. Whoever knows how it ended says so; until then
    /// the folder of a run that is over tells.
    async fn publish(
        mut self,
        frames: watch::Sender<Frame>,
        mut concluded: watch::Receiver<Option<Conclusion>>,
    ) {
        loop {
            self.look().await;
            let conclusion = concluded.borrow_and_update().clone();
            let is_last = conclusion.is_some();
            match conclusion {
                Some(conclusion) => self.view.concluded(conclusion),
                None if !self.view.is_over() => self.is_folder_read = false,
                None if !self.is_folder_read => self.conclude_by_folder(),
                None => {}
            }
            frames.send_replace(Frame { text: self.view.frame().to_string().into(), is_last });
            if is_last {
                return;
            }
            // Of a master elsewhere others are asked where it is.
            let pause =
                if self.client.is_none() && self.source.folder.is_none() { AWAY_PAUSE } else { PAUSE };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = concluded.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn look(&mut self) {
        self.follow();
        // The master of a run that is over is gone, and another may listen in its place.
        if self.view.is_over() {
            return;
        }
        match self.ask(false).await {
            Ok(status) => {
                let at = self.now();
                if self.follower.is_none() {
                    let entries = self.watcher.look(at, &status, wall_seconds());
                    entries.into_iter().for_each(|entry| self.view.told(entry));
                }
                self.view.saw(at, status);
            }
            Err(error) => {
                // A new master may listen somewhere else.
                self.client = None;
                self.view.missed(format!("{error:#}"));
                return;
            }
        }
        if self.losses_due.is_some_and(|due| Instant::now() >= due) {
            self.losses_due = match self.read_losses().await {
                Ok(Readable::NotYet) => Some(Instant::now()),
                Ok(Readable::Never) => None,
                // Where the job's steps are faster than its losses are read, the next try may succeed.
                Ok(Readable::Now) | Err(_) => Some(Instant::now() + LOSSES_PAUSE),
            };
        }
    }

    fn follow(&mut self) {
        let Some(follower) = &mut self.follower else { return };
        match follower.news() {
            Ok(entries) => {
                let before = self.view.now();
                entries.into_iter().for_each(|entry| self.view.told(entry));
                if self.view.now() > before {
                    self.mark = Some((self.view.now(), Instant::now()));
                }
            }
            Err(error) => self.view.missed(format!("{error:#}")),
        }
    }

    /// Seconds since the run's beginning, or since the first look at a job elsewhere.
    fn now(&mut self) -> f64 {
        let (at, then) = *self.mark.get_or_insert((0.0, Instant::now()));
        at + then.elapsed().as_secs_f64()
    }

    async fn ask(&mut self, with_model: bool) -> anyhow::Result<StatusReply> {
        let client = match &mut self.client {
            Some(client) => client,
            None => self.client.insert(self.source.connect().await?),
        };
        client.status_within(ANSWER, with_model).await
    }

    async fn read_losses(&mut self) -> anyhow::Result<Readable> {
        let status = self.ask(true).await?;
        let readable = Readable::of(&status);
        if let (Readable::Now, Some(client)) = (&readable, &self.client) {
            let counted = losses::at_pservers(&status, client.dial()).await?;
            counted.into_iter().for_each(|losses| self.view.counted(losses));
        }
        Ok(readable)
    }

    /// What the closing object of a run that is done says.
    fn conclude_by_folder(&mut self) {
        self.is_folder_read = true;
        let Some(folder) = &self.source.folder else { return };
        let text = std::fs::read_to_string(folder.result()).unwrap_or_default();
        let closing: Value = serde_json::from_str(&text).unwrap_or_default();
        let Some(sha256) = closing["parameters_sha256"].as_str() else { return };
        let hashes = vec![Hash { of: "parameters".to_owned(), sha256: sha256.to_owned() }];
        self.view.concluded(Conclusion { hashes, ..Conclusion::default() });
        if let Some(losses) = self.view.begun().and_then(|begun| losses::in_model(&folder.model(), begun)) {
            self.view.counted(losses);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::{Declaration, Parameter, Routing};

    #[test]
    fn losses_are_read_once_a_model_that_counts_them_is_declared_and_has_its_place() {
        let declared = |name: &str| {
            let parameter = Parameter { name: name.to_owned(), ..Parameter::default() };
            Some(Declaration { parameters: vec![parameter], ..Declaration::default() })
        };
        let status = |declaration, routing, is_progress_known| StatusReply {
            declaration,
            routing,
            is_progress_known,
            ..StatusReply::default()
        };
        let placed = || Some(Routing::default());
        for (status, readable) in [
            (status(None, None, false), Readable::NotYet),
            (status(declared("loss"), None, true), Readable::NotYet),
            (status(declared("loss"), placed(), false), Readable::NotYet),
            (status(declared("loss"), placed(), true), Readable::Now),
            (status(declared("weight"), None, false), Readable::Never),
        ] {
            assert_eq!(Readable::of(&status), readable, "{status:?}");
        }
    }
}
