//! Decisions over all blocks, on both sides: a block whose step is whole tells what it knows of it and waits for what is
//! decided; the scalar block collects what all others know, and makes a version of it. Pure.
//!
//! The scalar block is a block like any other: what it decides is an entry of its log, told only when it is published,
//! and kept as long as states are. So a decision is made once in a history, and can be asked for again.

use super::dense::Published;
use super::reduce::Sum;
use super::state::Update;
use super::{Block, Role};
use bytes::Bytes;
use shoal_runtime::cluster::{
    BlockId, Decision, Partial, Refusal, RefusalKind, Rewind, Step, Tally, Version,
};
use std::collections::BTreeMap;

/// What a primary knows of the decision for the step that is next.
#[derive(Debug, Default)]
pub(super) struct Scalars {
    /// What this block knows of it, once its root is whole.
    partial: Option<Partial>,
    /// What is decided.
    decision: Option<Decision>,
    /// Of the scalar block: what others know of the step, and what they knew of the one before.
    partials: BTreeMap<BlockId, Partial>,
    decided: BTreeMap<BlockId, Partial>,
}

impl Scalars {
    /// The next step's turn has come.
    pub(super) fn advance(&mut self) {
        let decided = std::mem::take(&mut self.partials);
        *self = Scalars { decided, ..Scalars::default() };
    }

    pub(super) fn decision(&self) -> Option<Decision> {
        self.decision
    }
}

/// What becomes of partial results that come to the scalar block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialsOutcome {
    /// They are taken in, or were before.
    Taken,
    /// The step is decided now.
    Decided,
    /// Not here or not now: again after a pause, or elsewhere.
    NotHere,
}

impl Block {
    /// The step whose decision this block waits for.
    pub(super) fn undecided_step(&self) -> Option<Step> {
        let (Role::Primary(primary), Some(state)) = (&self.role, &self.state) else { return None };
        let is_waiting = self.shape.is_decided
            && primary.held.root().is_some()
            && state.version() == self.published
            && primary.scalars.decision.is_none();
        is_waiting.then(|| Step(state.version().0))
    }

    /// The same, and what this block knows of the step: that is worked out once.
    pub fn undecided(&mut self) -> Option<(Rewind, Step, Partial)> {
        let step = self.undecided_step()?;
        let Role::Primary(primary) = &mut self.role else { return None };
        let root = primary.held.root()?;
        let partial =
            *primary.scalars.partial.get_or_insert_with(|| self.shape.partial(root.weight, &root.sum));
        Some((self.placement.rewind, step, partial))
    }

    /// A step is decided, in the history `rewind`. Whatever it does not wait for changes nothing.
    pub fn decide(&mut self, rewind: Rewind, step: Step, decision: Decision) {
        let is_awaited = (self.placement.rewind, self.undecided_step()) == (rewind, Some(step));
        if let Role::Primary(primary) = &mut self.role
            && is_awaited
        {
            primary.scalars.decision = Some(decision);
            self.go_on();
        }
    }

    /// What blocks know of a step comes to the scalar block, one of `blocks` + 1.
    ///
    /// # Errors
    /// Two results of one block for one step differ; the job cannot go on after this step; this is no scalar block.
    pub fn tell_partials(
        &mut self,
        rewind: Rewind,
        step: Step,
        partials: &[(BlockId, Partial)],
        blocks: usize,
    ) -> Result<PartialsOutcome, Refusal> {
        let Some(decisions) = self.shape.decisions else { return Err(self.is_no_scalar_block()) };
        if self.led(rewind).is_err() {
            return Ok(PartialsOutcome::NotHere);
        }
        let (Role::Primary(primary), Some(state)) = (&mut self.role, &self.state) else {
            return Ok(PartialsOutcome::NotHere);
        };
        let version = state.version();
        if step.replaces() < version {
            let known = if step.0 + 1 == version.0 { Some(&primary.scalars.decided) } else { None };
            for (block, partial) in partials {
                check(known.and_then(|known| known.get(block)), *block, partial, step)?;
            }
            return Ok(PartialsOutcome::Taken);
        }
        if step.replaces() > version || version != self.published {
            return Ok(PartialsOutcome::NotHere);
        }
        for (block, partial) in partials {
            check(primary.scalars.partials.get(block), *block, partial, step)?;
        }
        let mut new = partials.to_vec();
        new.retain(|(block, _)| !primary.scalars.partials.contains_key(block));
        primary.scalars.partials.extend(new.iter().copied());
        let is_whole = primary.scalars.partials.len() >= blocks;
        if !is_whole || self.placement.heir.is_some() || !self.has_memory(0) {
            return Ok(PartialsOutcome::Taken);
        }
        let (Role::Primary(primary), Some(state)) = (&mut self.role, &self.state) else {
            return Ok(PartialsOutcome::NotHere);
        };
        let before = |version| {
            let kept = state.parameters(version).map(|kept| Decision::from_values(kept.values()));
            kept.flatten().unwrap_or_else(|| decisions.initial())
        };
        let tally = Tally::of(&primary.scalars.partials, before(self.job.reads(step)).loss_scale);
        if let Some(failure) = decisions.failure(before(version), tally) {
            // Refused: it changes nothing.
            for (block, _) in new {
                primary.scalars.partials.remove(&block);
            }
            return Err(Refusal::new(RefusalKind::JobFailed, format!("step {step}"), failure));
        }
        primary.scalars.advance();
        let sum = Sum::Dense(tally.to_values().into());
        self.update(Update::new(state.name(), self.placement.term, 1, sum));
        Ok(PartialsOutcome::Decided)
    }

    /// What is decided of a step, once it is published; none elsewhere, or while it is not.
    ///
    /// # Errors
    /// The decision is kept no more: every block has applied the step.
    pub fn decided(&self, rewind: Rewind, step: Step) -> Result<Option<Bytes>, Refusal> {
        let after = Version(step.0 + 1);
        if self.led(rewind).is_err() || after > self.published {
            return Ok(None);
        }
        let kept = self.state.as_ref().and_then(|state| state.parameters(after));
        let gone = || {
            let detail =
                format!("what was decided is kept no more, the block is at version {}", self.published);
            Refusal::new(RefusalKind::StepGone, format!("step {step}"), detail)
        };
        kept.map(Published::bytes).ok_or_else(gone)
    }

    fn is_no_scalar_block(&self) -> Refusal {
        let detail = "it decides nothing: build all roles from the same version";
        Refusal::new(RefusalKind::Malformed, &self.shape, detail)
    }
}

/// Refuses what differs from what the same block said before.
fn check(known: Option<&Partial>, block: BlockId, partial: &Partial, step: Step) -> Result<(), Refusal> {
    let is_same = |known: &Partial| {
        let squares = |partial: &Partial| partial.is_finite.then_some(partial.sum_of_squares.to_bits());
        (squares(known), known.weight) == (squares(partial), partial.weight)
    };
    if known.is_none_or(is_same) {
        return Ok(());
    }
    let detail = format!("two results for step {step} differ: {known:?}, then {partial:?}");
    Err(Refusal::new(RefusalKind::Nondeterministic, format!("block {block}"), detail))
}
