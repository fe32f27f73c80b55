//! How a primary without a state begins its term: at a checkpoint's piece, at its initial values, or at given ones. Once per
//! term; whatever comes for another changes nothing.

use super::answer::Placement;
use super::state::State;
use super::{Block, Role};
use crate::bucket::beginning::GivenRows;
use shoal_runtime::cluster::{ManifestRecord, Rewind, Term};

impl Block {
    /// The term under which it has to be restored, if it is a primary without a state.
    pub fn wants_state(&self) -> Option<(Term, Rewind)> {
        let Placement { term, rewind, .. } = self.placement;
        let is_wanted = matches!(self.role, Role::Primary(_)) && self.state.is_none() && term.0 == rewind.0;
        is_wanted.then_some((term, rewind))
    }

    /// What it has to be restored from, if that is not its initial values.
    pub fn origin(&self) -> Option<ManifestRecord> {
        self.placement.origin
    }

    /// Begins its term at the state that a checkpoint has of it.
    pub fn restore_from(&mut self, term: Term, state: State) {
        let is_wanted = self.wants_state().is_some_and(|(wanted, _)| wanted == term);
        if is_wanted && state.filled().is_none() {
            self.begin(state.under(term));
        }
    }

    /// Begins its term at the block's initial values.
    pub fn restore_initial(&mut self, term: Term) {
        self.restore_beginning(term, self.shape.initial(self.job.seed));
    }

    /// Begins its term before the first update, at these parameters.
    pub fn restore_beginning(&mut self, term: Term, parameters: Vec<f32>) {
        if self.wants_state().is_some_and(|(wanted, _)| wanted == term) {
            self.begin(State::beginning(&self.shape, parameters, term));
        }
    }

    /// Begins its term before the first update, a bucket at these rows.
    pub fn restore_rows(&mut self, term: Term, rows: &GivenRows) {
        if self.wants_state().is_some_and(|(wanted, _)| wanted == term) {
            self.begin(State::beginning_at(&self.shape, rows, term));
        }
    }

    fn begin(&mut self, state: State) {
        let version = state.version();
        if let Role::Primary(primary) = &mut self.role {
            (primary.held, primary.inherited) = (self.job.nothing_held(version), None);
        }
        (self.published, self.state) = (version, Some(self.house(state)));
        self.publish();
    }
}
