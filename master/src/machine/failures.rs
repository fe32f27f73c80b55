//! Trainers that could not go on, counted until a job fails for them, and how it does.

use super::Machine;
use crate::document::End;
use shoal_runtime::cluster::Step;

/// Trainers that may end because they could not go on, one after another without a step between them, before the job fails.
const FAILURES_MAX: u32 = 3;

impl Machine {
    /// A trainer could not go on. Steps that others have made since the failures before forgive those: what ends every trainer lets
    /// none be made. Steps that are made again after going back forgive nothing.
    pub(super) fn count_failure(&mut self, failure: &str) {
        let is_known = self.job.as_ref().is_none_or(|job| job.is_heard);
        if is_known {
            let (front, before) = (self.front(), self.failed_at.unwrap_or(Step(0)));
            if front > before {
                self.wishes.failures = 0;
            }
            self.failed_at = Some(front.max(before));
        }
        self.wishes.failures += 1;
        self.is_changed = true;
        if self.wishes.failures >= FAILURES_MAX {
            self.fail(format!(
                "{FAILURES_MAX} trainers failed without a step between them; the last: {failure}"
            ));
        }
    }

    pub(crate) fn fail(&mut self, why: String) {
        if self.wishes.end.is_none() {
            self.wishes.end = Some(End::Failed(why));
            self.is_changed = true;
        }
    }
}
