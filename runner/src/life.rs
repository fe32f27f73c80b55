//! One run from its start to the end of its training, with whatever somebody does to it meanwhile.

use super::outcome::Outcome;
use super::progress::Progress;
use super::{JobPlan, Supervisor};
use crate::data_size;
use serde_json::Value;
use std::time::Duration;

/// After so long a start is worth a word.
const SLOW_START: Duration = Duration::from_secs(5);

/// What is done to a job while it trains, beside what its supervisor does: faults, for example. `()` does nothing.
pub trait Interference {
    /// Does what is due; called after each look at the job.
    fn tick(&mut self, job: &mut Supervisor) -> impl Future<Output = ()>;
    /// Undoes what lasts: the job is done.
    fn end(&mut self, job: &mut Supervisor) -> impl Future<Output = ()>;
}

impl Interference for () {
    async fn tick(&mut self, _: &mut Supervisor) {}
    async fn end(&mut self, _: &mut Supervisor) {}
}

impl<I: Interference> Interference for Option<I> {
    async fn tick(&mut self, job: &mut Supervisor) {
        if let Some(interference) = self {
            interference.tick(job).await;
        }
    }
    async fn end(&mut self, job: &mut Supervisor) {
        if let Some(interference) = self {
            interference.end(job).await;
        }
    }
}

/// Two at work on one job.
impl<I: Interference, J: Interference> Interference for (I, J) {
    async fn tick(&mut self, job: &mut Supervisor) {
        self.0.tick(job).await;
        self.1.tick(job).await;
    }
    async fn end(&mut self, job: &mut Supervisor) {
        self.0.end(job).await;
        self.1.end(job).await;
    }
}

/// Starts a job, and says so where it takes long.
///
/// # Errors
/// A process that cannot be started, or a master that does not lead.
pub async fn start(plan: JobPlan, progress: &mut Progress) -> anyhow::Result<Supervisor> {
    progress.say(&format!("job {} in {}", plan.name, plan.folder.path().display()));
    let mut started = std::pin::pin!(Supervisor::start(plan));
    let job = match tokio::time::timeout(SLOW_START, &mut started).await {
        Ok(job) => job?,
        Err(_) => {
            progress.say("the master still looks at the data set");
            started.await?
        }
    };
    data_size::line(&job.status).into_iter().for_each(|line| progress.say(&line));
    Ok(job)
}

/// Until the job is done; its processes still run then. Returns its outcome and its closing object.
///
/// # Errors
/// The job has failed, or cannot be kept.
pub async fn train(
    job: &mut Supervisor,
    progress: &mut Progress,
    mut interference: impl Interference,
) -> anyhow::Result<(Outcome, Value)> {
    let mut resumes = job.plan.resumed.is_some();
    loop {
        let goes_on = job.tick().await;
        job.notes.drain(..).for_each(|note| progress.say(&note));
        if !goes_on? {
            break;
        }
        interference.tick(job).await;
        job.notes.drain(..).for_each(|note| progress.say(&note));
        if resumes && job.status.is_progress_known {
            progress.say(&format!("goes on at step {} of {}", job.status.step, job.status.steps));
            resumes = false;
        }
        progress.show(&job.status);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    interference.end(job).await;
    let outcome = Outcome::read(job).await?;
    let closing = outcome.json(job);
    Ok((outcome, closing))
}
