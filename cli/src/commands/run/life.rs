//! One run from its start to the end of its training, with or without chaos.

use crate::data_size;
use crate::runner::chaos::Chaos;
use crate::runner::outcome::Outcome;
use crate::runner::progress::Progress;
use crate::runner::{JobPlan, Supervisor};
use serde_json::Value;
use std::time::Duration;

/// After so long a start is worth a word.
const SLOW_START: Duration = Duration::from_secs(5);

pub(crate) async fn start(plan: JobPlan, progress: &mut Progress) -> anyhow::Result<Supervisor> {
    progress.say(&format!("job {} in {}", plan.name, plan.folder.path().display()));
    let mut started = std::pin::pin!(Supervisor::start(plan));
    let job = match tokio::time::timeout(SLOW_START, &mut started).await {
        Ok(job) => job?,
        Err(_) => {
            progress.say("the master still reads the headers of the data set");
            started.await?
        }
    };
    data_size::line(&job.status).into_iter().for_each(|line| progress.say(&line));
    Ok(job)
}

/// Until the job is done; its processes still run then. Returns its outcome and its closing object.
pub(crate) async fn train(
    job: &mut Supervisor,
    progress: &mut Progress,
    mut chaos: Option<&mut Chaos>,
) -> anyhow::Result<(Outcome, Value)> {
    let mut resumes = job.plan.resumed.is_some();
    loop {
        let goes_on = job.tick().await;
        job.notes.drain(..).for_each(|note| progress.say(&note));
        if !goes_on? {
            break;
        }
        if let Some(chaos) = chaos.as_deref_mut() {
            chaos.tick(job).await;
        }
        job.notes.drain(..).for_each(|note| progress.say(&note));
        if resumes && job.status.is_progress_known {
            progress.say(&format!("goes on at step {} of {}", job.status.step, job.status.steps));
            resumes = false;
        }
        progress.show(&job.status);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if let Some(chaos) = chaos {
        chaos.end(job).await;
    }
    let outcome = Outcome::read(job).await?;
    let closing = outcome.json(job);
    Ok((outcome, closing))
}
