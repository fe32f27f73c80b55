//! Whether a job is over: by its master's word, or because it cannot go on. Pure.
//!
//! No exit code says that a job is done. A master that has ended unheard is started again, and says what its document says.

use super::progress;
use super::upkeep::Upkeep;
use super::view::{PodState, Role, Unusable};
use crate::api::Phase;

/// How long an image may be unusable, where the job does not say, in seconds.
const IMAGE_SECONDS: u64 = 600;

/// Whether the job is over; if so its status says how.
pub(super) fn reached(next: &mut Upkeep<'_>) -> bool {
    let view = next.view;
    match view.master.map(|master| (master, master.phase.as_str())) {
        Some((master, "done")) => {
            progress::see(&mut next.status, master, view.ready(Role::Trainer), view.now);
            succeed(next);
        }
        Some((master, "failed")) => {
            progress::see(&mut next.status, master, view.ready(Role::Trainer), view.now);
            fail(next, "JobFailed", &master.failure);
        }
        _ => {
            if let Some(why) = unusable(next) {
                fail(next, "ImageUnusable", &why);
            }
        }
    }
    next.status.phase.is_over()
}

fn succeed(next: &mut Upkeep<'_>) {
    next.status.phase = Phase::Succeeded;
    next.status.completion_time = Some(next.view.now);
    next.status.message = "done".to_owned();
    progress::complete(&mut next.status);
    next.event(false, "Succeeded", "the job is done");
}

/// The job will not go on.
pub(super) fn fail(next: &mut Upkeep<'_>, reason: &'static str, why: &str) {
    next.status.phase = Phase::Failed;
    next.status.completion_time = Some(next.view.now);
    next.status.message = format!("{reason}: {why}");
    next.event(true, reason, why.to_owned());
}

/// Why no pod of some role can ever run, once that has lasted too long.
fn unusable(next: &Upkeep<'_>) -> Option<String> {
    let view = next.view;
    let patience = view.job.spec.failure_policy.image_seconds.unwrap_or(IMAGE_SECONDS);
    [Role::Master, Role::Pserver, Role::Trainer].into_iter().find_map(|role| {
        let is_running = view.of(role).any(|pod| pod.state == PodState::Running);
        view.of(role).filter(|_| !is_running).find_map(|pod| match &pod.state {
            PodState::Starting(Some(Unusable { reason, message }))
                if view.now.since(pod.created) >= patience =>
            {
                Some(format!("{}: {reason} for {patience} s: {message}", pod.name))
            }
            _ => None,
        })
    })
}
