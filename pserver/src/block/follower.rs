//! A block's follower: reports its state, takes a state or the next entry. Messages for another fill or of another term change nothing. A
//! copy that cannot take an entry or a state is broken: it needs a new fill.

use super::piece::Piece;
use super::state::{State, Update};
use super::{Block, Cursor, News, Placement, Role};
use shoal_runtime::cluster::block_copy::WHOLE;
use shoal_runtime::cluster::{BlockCopy, Fill, Refusal, Term, Version};
use std::sync::Arc;

/// A copy whose state nothing can follow.
const BROKEN: Role = Role::Follower { is_broken: true };

impl Block {
    /// What a follower says to its primary: its fill and term, and what it holds. Nothing of a primary or a copy that
    /// needs a new fill.
    pub fn cursor(&self) -> Option<(Fill, Term, Option<Cursor>)> {
        let Placement { fill, term, .. } = self.placement;
        let cursor = |state: &State| Cursor { name: state.name(), filled: state.filled() };
        self.is_following().then(|| (fill, term, self.state.as_ref().map(cursor)))
    }

    fn is_following(&self) -> bool {
        matches!(self.role, Role::Follower { is_broken: false })
    }

    fn is_for(&self, fill: Fill, term: Term) -> bool {
        self.is_following() && (fill, term) == (self.placement.fill, self.placement.term)
    }

    /// Takes in the primary's news for this follower, given under `term` for `fill`. News for another copy change nothing.
    ///
    /// # Errors
    /// The news do not fit the copy, which is broken from then on: the primary would give the same again for ever.
    pub fn hear(&mut self, fill: Fill, term: Term, published: Version, news: News) -> Result<(), Refusal> {
        if !self.is_for(fill, term) {
            return Ok(());
        }
        let taken = self.take_in(published, news);
        if taken.is_err() {
            self.role = BROKEN;
        }
        taken
    }

    /// News for this follower that could not be read break it as those do that do not fit.
    ///
    /// # Errors
    /// `why`, if they were for this copy.
    pub fn refuse(&mut self, fill: Fill, term: Term, why: Refusal) -> Result<(), Refusal> {
        if !self.is_for(fill, term) {
            return Ok(());
        }
        self.role = BROKEN;
        Err(why)
    }

    fn take_in(&mut self, published: Version, news: News) -> Result<(), Refusal> {
        match news {
            News::Nothing | News::Later | News::NotHere => {}
            News::Broken => {
                // What is published is no state of this copy's.
                self.role = BROKEN;
                return Ok(());
            }
            News::Copy(copy) if copy.rewind == self.placement.rewind => self.take_copy(&copy)?,
            News::Copy(_) => {}
            News::Entry(entry) => self.append(Arc::unwrap_or_clone(entry))?,
        }
        if let Some(state) = &mut self.state {
            self.published = self.published.max(published.min(state.ready()));
            state.release(self.published, self.job.mode.earlier_states());
        }
        Ok(())
    }

    /// A state to start from, if it is newer than what is here, or the segment that comes next.
    fn take_copy(&mut self, copy: &BlockCopy) -> Result<(), Refusal> {
        let is_newer = self.state.as_ref().is_none_or(|state| copy.name > state.name());
        let is_first = copy.segment.as_ref().is_none_or(|segment| segment.slots.start == 0);
        let is_all = copy.segment.as_ref().is_none_or(|segment| segment.slots == WHOLE);
        let is_whole = self.state.as_ref().is_some_and(|state| state.filled().is_none());
        if is_newer && is_first && is_whole && !is_all {
            // What is here may be in-sync, and promoted; a part of what is newer may not. It is filled anew once its
            // mark says so.
            self.role = BROKEN;
            return Ok(());
        }
        match &mut self.state {
            _ if is_newer && is_first => {
                let state = State::from_copy(&self.shape, copy)?;
                self.state = Some(self.place_on_device(state));
            }
            Some(state) => state.fill(&self.shape, copy)?,
            None => {}
        }
        Ok(())
    }

    fn append(&mut self, update: Update) -> Result<(), Refusal> {
        let Some(state) = self.state.as_mut().filter(|state| state.name() == update.follows) else {
            return Ok(());
        };
        state.check(&self.shape, &update)?;
        let context = self.job.context(&self.shape, state, &update);
        self.copied += state.apply(&self.shape, context, update);
        if let Some(Piece::Open(_, piece)) = &self.piece {
            self.settle_saved(&piece.hold);
        }
        self.record();
        Ok(())
    }
}
