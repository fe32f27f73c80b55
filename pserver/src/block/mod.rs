//! One pserver's copy of one block: its state, and its part as primary or follower.
//!
//! A pure state machine: version `v + 1` is a function of version `v` and one log entry, whatever order,
//! repetition or cover the entry's gradients came in. It must never know of time, messages or other blocks, and
//! nothing in it changes when it refuses. Invariants:
//! - `published <= version`; nothing is published that some required copy lacks;
//! - a term is entered once: by a restore or by a promotion; words of other terms change nothing;
//! - a state is replaced only by one that it is the past of, or under a new fill.

pub mod answer;
mod beginning;
mod dense;
pub mod effects;
pub mod entry;
mod follower;
pub mod held;
mod held_steps;
mod housing;
pub mod memory;
mod piece;
mod positions;
pub mod primary;
pub mod published;
pub mod reading;
pub mod restoring;
mod room;
mod row_counts;
mod scalars;
pub mod shape;
mod standing;
pub mod state;
pub mod sum;
mod terms;
pub mod verdicts;

pub use answer::{Cursor, News, Placement, PushOutcome, Reading, Standing};

use crate::bucket::arena::Slot;
use crate::bucket::plan::Plan;
use entry::Entry;
use held::{Arrival, Judgement};
use memory::Hold;
pub use piece::{GivenPiece, NamedCheckpoint};
pub use positions::PositionGradient;
use primary::{Next, Primary};
pub use row_counts::RowCounts;
pub use scalars::Told;
use shape::{BlockShape, NodeGradient};
use shoal_runtime::cluster::{
    BlockCopy, Fill, Incarnation, Refusal, RefusalKind, Rewind, StateName, Step, Term, Version,
};
use state::{CopyOf, State, Update};
use std::sync::{Arc, Weak};
use sum::Sum;
pub use terms::Terms;
use verdicts::Verdicts;

/// One copy of one block.
#[derive(Debug)]
pub struct Block {
    shape: Arc<BlockShape>,
    job: Arc<Terms>,
    placement: Placement,
    verdicts: Verdicts,
    state: Option<State>,
    published: Version,
    role: Role,
    /// Bytes copied because an update met buffers that somebody still had.
    copied: u64,
    /// Of updates made here as a primary, since the last effects.
    row_counts: RowCounts,
    piece: Option<piece::Piece>,
    /// Times that a device has said that something is there.
    landed: u64,
    /// Whether it was kept waiting for memory since the last effects.
    is_starved: bool,
    /// Of pieces that may not be written yet.
    holds: Vec<Weak<Hold>>,
}

#[derive(Debug)]
enum Role {
    Primary(Primary),
    /// Whether the primary has said that nothing can follow this copy's state.
    Follower {
        is_broken: bool,
    },
    /// Dropped: whoever still has it in hand finds nothing.
    Retired,
}

impl Block {
    /// A copy that holds nothing yet. `me` is the pserver that it is on.
    pub fn new(shape: Arc<BlockShape>, job: Arc<Terms>, placement: Placement, me: Incarnation) -> Block {
        let mut block = Block {
            shape,
            job,
            state: None,
            published: Version(0),
            role: Role::Follower { is_broken: false },
            placement,
            verdicts: Verdicts::default(),
            copied: 0,
            row_counts: RowCounts::default(),
            piece: None,
            landed: 0,
            is_starved: false,
            holds: Vec::new(),
        };
        if block.placement.primary == me {
            block.role = block.lead(None);
        }
        block
    }

    /// The master has placed this copy anew, under the same fill. A lower term changes nothing.
    pub fn place(&mut self, placement: Placement, me: Incarnation) {
        if placement.fill != self.placement.fill || placement.term < self.placement.term {
            return;
        }
        let is_new_term = placement.term > self.placement.term;
        if placement.rewind != self.placement.rewind {
            (self.state, self.published, self.piece) = (None, Version(0), None);
            // What is still being written shares nothing with the state to come.
            self.holds.clear();
        }
        self.placement = placement;
        match (&mut self.role, self.placement.primary == me) {
            (Role::Retired, _) => {}
            (Role::Primary(primary), true) if !is_new_term => primary.place(&self.placement.copies),
            // Promoted or restored, once per term: nothing is acknowledged, nothing held.
            (_, true) => self.role = self.lead(self.state.as_ref().map(State::name)),
            (Role::Follower { .. }, false) => {}
            (Role::Primary(_), false) => self.role = Role::Follower { is_broken: false },
        }
        self.publish();
        self.go_on();
    }

    /// Whether this copy is its block's primary.
    pub fn is_primary(&self) -> bool {
        matches!(self.role, Role::Primary(_))
    }

    /// Nothing more is done with this copy.
    pub fn retire(&mut self) {
        (self.role, self.state, self.piece) = (Role::Retired, None, None);
    }

    fn lead(&self, inherited: Option<StateName>) -> Role {
        let version = inherited.map_or(Version(0), |name| name.version);
        Role::Primary(Primary::new(self.job.nothing_held(version), inherited, &self.placement.copies))
    }

    /// How it is placed.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }
    /// Rows that the block has as a primary, and the bytes of their memory; of a dense block none.
    pub fn rows(&self) -> (u64, u64) {
        match (&self.role, &self.state) {
            (Role::Primary(_), Some(state)) => state.rows(),
            _ => (0, 0),
        }
    }

    /// Refuses what [`push`](Self::push) would refuse, and changes nothing.
    pub fn check(&self, rewind: Rewind, arriving: &NodeGradient<'_>) -> Result<(), Refusal> {
        let Some((primary, version)) = self.led(rewind).ok() else { return Ok(()) };
        let NodeGradient { step, node, weight, came } = arriving;
        let (step, node) = (*step, *node);
        if step.replaces() < version {
            return Ok(());
        }
        let Some(held) = primary.held.of(step) else {
            let detail = format!("the push is for step {step}, the block is at version {version}");
            return Err(Refusal::new(RefusalKind::Ahead, &self.shape, detail));
        };
        match held.judge(node, *weight, came) {
            Judgement::Nondeterministic(difference) => {
                Err(self.shape.nondeterministic(step, node, difference))
            }
            Judgement::Take => self.shape.check_rows_bytes(held.rows() + came.rows()),
            Judgement::Covered | Judgement::Busy => Ok(()),
        }
    }

    /// The primary's part and the version, or what a caller with that rewind number is told instead.
    fn led(&self, rewind: Rewind) -> Result<(&Primary, Version), PushOutcome> {
        match (&self.role, &self.state) {
            (Role::Primary(_), _) if rewind < self.placement.rewind => Err(PushOutcome::Rewound),
            (Role::Primary(_), _) if rewind > self.placement.rewind => Err(PushOutcome::Busy),
            (Role::Primary(primary), Some(state)) => Ok((primary, state.version())),
            (Role::Primary(_), None) => Err(PushOutcome::Busy),
            (Role::Follower { .. } | Role::Retired, _) => Err(PushOutcome::Moved),
        }
    }

    /// Takes in a gradient, computed under `rewind`, that has passed the shape's check.
    pub fn push(&mut self, rewind: Rewind, arriving: NodeGradient<'_>) -> Result<PushOutcome, Refusal> {
        self.check(rewind, &arriving)?;
        let NodeGradient { step, node, weight, mut came } = arriving;
        if let Err(outcome) = self.led(rewind).and_then(|(_, version)| self.before_taking(step, version)) {
            return Ok(outcome);
        }
        if !self.has_memory(came.rows()) {
            return Ok(PushOutcome::Throttled);
        }
        let Role::Primary(primary) = &mut self.role else { return Ok(PushOutcome::Moved) };
        let Some(held) = primary.held.of_mut(step) else { return Ok(PushOutcome::Busy) };
        let is_short = held.tree().present() < self.job.microbatches_per_step;
        if held.meet(&mut came).is_err() {
            // The device has failed, and the process is about to end.
            return Ok(PushOutcome::Busy);
        }
        let arrival = held.arrive(node, weight, came);
        if matches!(arrival, Arrival::Held { .. } | Arrival::Complete { .. }) {
            primary.held.note_taken();
        }
        match arrival {
            Arrival::Held { replaced } => Ok(PushOutcome::Held { replaced }),
            Arrival::Covered => Ok(PushOutcome::Covered),
            Arrival::Busy => Ok(PushOutcome::Busy),
            Arrival::Nondeterministic(difference) => Err(self.shape.nondeterministic(step, node, difference)),
            Arrival::Complete { replaced } => Ok(self.complete(step, replaced, is_short)),
        }
    }

    /// The root of a step has come: it is applied if its time has come, or waits.
    fn complete(&mut self, step: Step, replaced: usize, is_short: bool) -> PushOutcome {
        self.go_on();
        if let Role::Primary(primary) = &mut self.role {
            primary.held.settle(step);
        }
        let is_applied = self.state.as_ref().is_some_and(|state| step.replaces() < state.version());
        let is_published = step.replaces() < self.published;
        match is_applied {
            true => PushOutcome::Applied { replaced, is_short, is_published },
            false => PushOutcome::Whole { replaced },
        }
    }

    /// Makes the versions whose time has come: the root of the next step is whole, all before it is published, what is to
    /// be decided of it is, and memory is there.
    pub fn go_on(&mut self) {
        while let Some(rows) = self.due()
            && self.has_memory(rows)
            && let (Role::Primary(primary), Some(state)) = (&mut self.role, &self.state)
        {
            let is_needed_here = primary.is_followed() || !state.is_on_device();
            if is_needed_here && primary.held.bring_root().is_err() {
                // The device has failed, and the process is about to end.
                return;
            }
            let (decision, step) = (primary.scalars.decision(), Step(state.version().0));
            primary.scalars.advance();
            let last = self.job.nothing_of(self.job.last_held(Version(state.version().0 + 1)));
            let Some(root) = primary.held.advance(last) else { return };
            let is_skipped = decision.is_some_and(|decision| decision.is_skipped);
            let weight = if is_skipped { 0 } else { root.weight };
            let factor = decision.map_or(1.0, |decision| decision.factor);
            let rate = self.rate(step.0);
            let (plan, position, staleness) = (Plan::default(), None, 0);
            self.update(Update { weight, sum: root.sum, plan, position, staleness, factor, rate });
        }
    }

    /// Rows of the next version's sum, if its time has come but for memory.
    fn due(&self) -> Option<usize> {
        let (Role::Primary(primary), Some(state)) = (&self.role, &self.state) else { return None };
        let root = primary.held.root()?;
        let is_decided = !self.shape.is_decided || primary.scalars.decision().is_some();
        let is_due = state.version() == self.published && self.placement.heir.is_none() && is_decided;
        is_due.then(|| root.sum.rows())
    }

    /// The sum is there: the next version is made, logged for whoever follows, and published when it may be.
    fn update(&mut self, mut update: Update) {
        let (Role::Primary(primary), Some(state)) = (&mut self.role, &mut self.state) else { return };
        if update.weight == 0 {
            // Nobody adds up what is of no record: followers are not given it.
            update.sum = Sum::nothing(self.shape.bucket.is_some());
        }
        let pace = self.job.pace(&self.shape, state, &update);
        update.plan = state.plan(&self.shape, pace, &update);
        if primary.is_followed() {
            primary.append(Entry::of(&mut update, state.name(), self.placement.term));
        }
        self.row_counts.count(&update.plan);
        self.copied += state.apply(&self.shape, self.placement.term, pace, update);
        if let Some(piece::Piece::Open(_, piece)) = &self.piece {
            self.settle_saved(&piece.hold);
        }
        self.publish();
    }

    /// Publishes what every required copy has.
    fn publish(&mut self) {
        let (Role::Primary(primary), Some(state)) = (&mut self.role, &mut self.state) else { return };
        if let Some(version) = primary.publishable(state.ready()) {
            self.published = self.published.max(version);
        }
        primary.note_published(self.published, state);
        state.release(self.published, self.job.mode.earlier_states());
        self.take_piece_if_due();
    }

    /// A copy at exactly `version`, which must be the newest and published; of a bucket the segment from slot `from` on.
    pub fn copy_at(&self, version: Version, from: Slot) -> Result<BlockCopy, Refusal> {
        let state = self.state.as_ref().filter(|_| matches!(self.role, Role::Primary(_)));
        let state = state.ok_or_else(|| {
            let detail = "this pserver has no primary copy of it: learn the present routing";
            Refusal::new(RefusalKind::UnknownBlock, &self.shape, detail)
        })?;
        if version != self.published || version != state.version() {
            let kind = if version < self.published { RefusalKind::StepGone } else { RefusalKind::NotReady };
            let detail = format!("the block is at version {}, asked was {version}", self.published);
            return Err(Refusal::new(kind, &self.shape, detail));
        }
        state.copy(&self.shape, self.copy_of(0, from)).ok_or_else(|| {
            let detail = "its device does not give it: it has failed";
            Refusal::new(RefusalKind::NotReady, &self.shape, detail)
        })
    }

    fn copy_of(&self, earlier: u64, from: Slot) -> CopyOf {
        let (rewind, published, segment_bytes) =
            (self.placement.rewind, self.published, self.job.segment_bytes);
        CopyOf { rewind, published, earlier, from, segment_bytes }
    }

    /// A follower, under `term` and with copy `fill`, says what it holds and asks for what follows, of which so many bytes may be
    /// given to it.
    pub fn follow(
        &mut self,
        follower: Incarnation,
        fill: Fill,
        term: Term,
        theirs: Option<Cursor>,
        room: usize,
    ) -> News {
        let whole = self.copy_of(self.job.mode.earlier_states(), 0);
        let (Role::Primary(primary), Some(state)) = (&mut self.role, &self.state) else {
            return News::NotHere;
        };
        if term != self.placement.term || !primary.knows(follower, fill) {
            return News::NotHere;
        }
        let next = theirs.map_or(Next::State, |theirs| primary.hear(follower, theirs, state.name()));
        let fits = |news: News| if news.bytes() <= room { news } else { News::Later };
        let news = match next {
            Next::Nothing => News::Nothing,
            Next::Broken => News::Broken,
            Next::Entry(entry) => fits(News::Entry(entry)),
            Next::State | Next::Segment(_) if room == 0 => News::Later,
            Next::State | Next::Segment(_) => {
                let from = if let Next::Segment(from) = next { from } else { 0 };
                let copy = state.copy(&self.shape, CopyOf { from, ..whole });
                let news = copy.map_or(News::Nothing, |copy| fits(News::Copy(Box::new(copy))));
                if from == 0 && matches!(news, News::Copy(_)) {
                    primary.give_state(follower);
                }
                news
            }
        };
        self.publish();
        self.go_on();
        news
    }

    /// Whether there is a copy to ask for that was not asked for yet.
    pub fn is_admission_due(&self) -> bool {
        matches!(&self.role, Role::Primary(primary) if primary.is_admission_due(self.published))
            || self.hand_over().is_some()
    }

    /// Updates made; none without a state.
    pub fn version(&self) -> Option<Version> {
        self.state.as_ref().map(State::version)
    }

    /// What is published.
    pub fn published(&self) -> Version {
        self.published
    }

    /// Copies to ask the master to admit. They are required from now on.
    pub fn ask_for(&mut self) -> Vec<(Incarnation, Fill)> {
        match (&mut self.role, &self.state) {
            (Role::Primary(primary), Some(_)) => primary.ask_for(self.published),
            _ => Vec::new(),
        }
    }

    /// The heir that may take over now: every required copy has all that there is, so none of them is ahead of it.
    pub fn hand_over(&self) -> Option<(Incarnation, Fill)> {
        let (Role::Primary(primary), Some(state)) = (&self.role, &self.state) else { return None };
        let heir = self.placement.heir.filter(|_| self.published == state.version())?;
        Some((heir, primary.in_sync_fill(heir)?))
    }
}

#[cfg(test)]
pub(crate) mod tests;
