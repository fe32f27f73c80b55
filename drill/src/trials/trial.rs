//! One job, undisturbed or under plan: from its start to its end, which has a bound.

use super::verdict::EndState;
use crate::chaos::Chaos;
use crate::flags::{ChaosFlags, ChaosPlan};
use shoal_job::spec::Mode;
use shoal_runner::JobPlan;
use shoal_runner::exit::Exit;
use shoal_runner::flags::{Conditions, JobFlags, RunIdentity};
use shoal_runner::folder::RunFolder;
use shoal_runner::life;
use shoal_runner::outcome::Outcome;
use shoal_runner::progress::Progress;
use shoal_runner::report::Fault;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::shutdown::Shutdown;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Jobs of the same flags.
pub(super) struct Trials {
    pub(super) flags: JobFlags<ChaosFlags>,
    pub(super) folder: PathBuf,
    pub(super) shutdown: Shutdown,
}

/// The job that the others are judged by.
pub(super) struct Baseline {
    pub(super) seconds: f64,
    pub(super) end: EndState,
}

/// A job under faults.
pub(super) struct Trial {
    pub(super) seed: u64,
    pub(super) folder: PathBuf,
    pub(super) seconds: f64,
    pub(super) faults: Vec<Fault>,
    /// Or why there is none.
    pub(super) end: Result<EndState, String>,
}

impl Trials {
    pub(super) async fn baseline(&mut self) -> anyhow::Result<Baseline> {
        let plan = self.plan("undisturbed", Conditions::default()).await?;
        let mut progress = Progress::begin();
        let began = Instant::now();
        let mut job = tokio::select! {
            biased;
            () = self.shutdown.wait() => return Err(Exit::interrupted(&self.shutdown).into()),
            job = life::start(plan, &mut progress) => job?,
        };
        let trained = tokio::select! {
            biased;
            () = self.shutdown.wait() => Err(Exit::interrupted(&self.shutdown).into()),
            trained = life::train(&mut job, &mut progress, ()) => trained.map(|(outcome, _)| outcome),
        };
        progress.end();
        job.stop().await;
        Ok(Baseline { seconds: began.elapsed().as_secs_f64(), end: self.end(&trained?) })
    }

    /// A job under faults, ended at the latest after `bound`.
    ///
    /// # Errors
    /// An interruption. What goes wrong with the job is in the trial.
    pub(super) async fn with_faults(&mut self, faults: ChaosPlan, bound: Duration) -> anyhow::Result<Trial> {
        let plan = self.plan(&format!("seed-{}", faults.seed), faults.conditions()).await?;
        let folder = plan.folder.path().to_owned();
        plan.folder.begin(&plan.name)?;
        let mut progress = Progress::into_file(&folder.join("run.log"))?;
        let began = Instant::now();
        let (injected, end) = self.play(plan, faults, &mut progress, began + bound).await?;
        let seconds = began.elapsed().as_secs_f64();
        Ok(Trial { seed: faults.seed, folder, seconds, faults: injected, end })
    }

    async fn play(
        &mut self,
        plan: JobPlan,
        faults: ChaosPlan,
        progress: &mut Progress,
        until: Instant,
    ) -> anyhow::Result<(Vec<Fault>, Result<EndState, String>)> {
        let hung = |what: &str| format!("hung: {what} in time");
        let started = tokio::select! {
            biased;
            () = self.shutdown.wait() => return Err(Exit::interrupted(&self.shutdown).into()),
            started = timeout_at(until, life::start(plan, progress)) => started,
        };
        let mut job = match started {
            Ok(Ok(job)) => job,
            Ok(Err(error)) => return Ok((Vec::new(), Err(format!("{error:#}")))),
            Err(_) => return Ok((Vec::new(), Err(hung("it did not start")))),
        };
        let chaos = Chaos::new(faults, &job.plan);
        let trained = tokio::select! {
            biased;
            () = self.shutdown.wait() => Err(anyhow::Error::from(Exit::interrupted(&self.shutdown))),
            trained = timeout_at(until, life::train(&mut job, progress, chaos)) => Ok(trained),
        };
        let ended = trained.map(|trained| match trained {
            Ok(Ok((outcome, _))) => Ok(self.end(&outcome)),
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(_) => Err(hung("it was not done")),
        });
        match &ended {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => job.record.conclude("failed", why),
            Err(error) => job.record.conclude("interrupted", &error.to_string()),
        }
        job.stop().await;
        job.notes.drain(..).for_each(|note| progress.say(&note));
        let end = ended?;
        Ok((job.record.injected().cloned().collect(), end))
    }

    fn end(&self, outcome: &Outcome) -> EndState {
        let status = &outcome.status;
        let is_whole = status.records_excluded == 0 && !status.is_stopped_early;
        EndState {
            is_synchronous: self.flags.spec.mode() == Mode::Sync,
            sha256: outcome.parameters_sha256.clone(),
            tally: outcome.tally(),
            records_trained: status.records_trained,
            records_planned: is_whole.then_some(status.records_planned),
            rewinds: status.rewind,
        }
    }

    /// The plan of one of the jobs. Each predicts into a place of its own.
    async fn plan(&self, part: &str, conditions: Conditions) -> anyhow::Result<JobPlan> {
        let mut flags = self.flags.clone();
        flags.spec.predict =
            flags.spec.predict.map(|place| format!("{}/{part}", place.trim_end_matches('/')));
        flags.plan(self.identity(part)?, conditions).await
    }

    fn identity(&self, part: &str) -> anyhow::Result<RunIdentity> {
        let unique = format!("{}-{}", wall_seconds(), std::process::id());
        let name = format!("{}-{part}-{unique}", self.flags.program_name());
        let folder = RunFolder(self.folder.join(part));
        let claim = folder.claim()?;
        folder.check_new()?;
        Ok(RunIdentity { name, folder, claim, is_resumed: false, http: None, tensorboard: None })
    }

    /// Removes what nobody needs: the undisturbed run, and the folder of all if no job is left in it.
    pub(super) fn clear(&self) {
        let _ = std::fs::remove_dir_all(self.folder.join("undisturbed"));
        let _ = std::fs::remove_dir(&self.folder);
    }
}

impl Trial {
    /// The last lines of what was noted while it ran.
    pub(super) fn last_lines(&self, lines: usize) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join("run.log")).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].iter().map(|line| (*line).to_owned()).collect()
    }
}
