//! What is told to people of one reconcile of a job: events, and decisions that its status remembers. Pure.

use super::view::Act;
use crate::api::{DecisionRecord, Moment, TrainingJobStatus};

/// How many decisions a job remembers.
const DECISIONS_MAX: usize = 10;

/// What there is to tell.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    events: Vec<Act>,
    decisions: Vec<(String, String)>,
}

impl Notes {
    /// Something that has happened.
    pub(super) fn event(&mut self, is_warning: bool, reason: &'static str, note: impl Into<String>) {
        self.events.push(Act::Event { is_warning, reason, note: note.into() });
    }

    /// Something that was decided, and why.
    pub(super) fn decided(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.decisions.push((what.into(), why.into()));
    }

    /// These, and then others.
    pub(super) fn and(mut self, others: Notes) -> Notes {
        self.events.extend(others.events);
        self.decisions.extend(others.decisions);
        self
    }

    /// Remembers the decisions, but for one that is the newest already.
    pub(super) fn remember(&self, status: &mut TrainingJobStatus, now: Moment) {
        for (what, why) in &self.decisions {
            let newest = status.decisions.first().map(|newest| (&newest.what, &newest.why));
            if newest != Some((what, why)) {
                status.decisions.insert(0, DecisionRecord { at: now, what: what.clone(), why: why.clone() });
                status.decisions.truncate(DECISIONS_MAX);
            }
        }
    }

    /// The events, as acts.
    pub(super) fn into_events(self) -> Vec<Act> {
        self.events
    }
}
