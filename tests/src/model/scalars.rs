//! Decisions over all blocks: partials to the scalar block's primary, decisions back. No decision may be made of the
//! partials of two histories, and none be told that a loss can take back.

use super::copy::Copy;
use super::message::{Message, ToPserver};
use super::pserver::{Pserver, Surroundings};
use super::rules::Rule;
use super::state::{Decision, Root, Update};
use super::words::{Block, Number, PARTIALS_MAX, Place, Unit};
use std::collections::{BTreeMap, BTreeSet};

/// What a primary knows of partials and decisions in one term.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exchange {
    /// The decision for the block's next step.
    pub(crate) decided: Option<Decision>,
    /// The step whose partial a scalar primary holds, as it said.
    waits_for: Option<Unit>,
    /// Of the scalar block: partials for its next step.
    partials: BTreeMap<Block, Root>,
    /// Of the scalar block: who is to be told.
    awaiting: BTreeSet<(Unit, Block, Place)>,
}

impl Pserver {
    /// A block's partial for its next step, once the step's root is whole.
    pub(super) fn send_partial(&self, block: Block, around: &mut Surroundings) -> bool {
        let Some(copy) = self.copies.get(&block).filter(|_| around.setting.shape.scalars) else {
            return false;
        };
        let (Some(reign), Some(state)) = (&copy.reign, &copy.state) else { return false };
        let whole = reign.held.whole(state.version(), around.setting.all_slots());
        let is_level = copy.published == state.version() || !around.has(Rule::PartialWhenPublished);
        let is_silent =
            reign.exchange.waits_for == Some(state.version()) && !around.has(Rule::PartialSentAgain);
        let Some((root, _)) = whole.filter(|_| is_level && !is_silent) else { return false };
        let from = self.me.place;
        around.send(Message::Pserver(self.scalars_at, ToPserver::Partial { from, block, root }));
        true
    }

    /// The scalar block's side: a partial comes in.
    pub(super) fn collect(&mut self, from: Place, block: Block, root: Root, around: &mut Surroundings) {
        let Some(scalars) = around.setting.scalar_block() else { return };
        let Some(copy) = self.copies.get_mut(&scalars) else { return };
        let is_fenced = around.has(Rule::PartialsFenced) && root.rewind != copy.routing.rewind;
        let is_leaving = copy.is_leaving(around);
        let (Some(reign), Some(state)) = (&mut copy.reign, &mut copy.state) else { return };
        let is_level = copy.published == state.version() || !around.has(Rule::OneUnpublished);
        if is_fenced {
            return;
        }
        reign.exchange.awaiting.insert((root.unit, block, from));
        around.send(Message::Pserver(from, ToPserver::Waits { block, root }));
        if root.unit == state.version() && is_level && !is_leaving {
            reign.exchange.partials.insert(block, root);
            if let Some(update) = combined(&reign.exchange.partials, scalars) {
                around.witness.takes(scalars, copy.routing.rewind, update);
                state.append(state.next(copy.routing.term, update), around.setting);
                reign.exchange.partials.clear();
            }
        }
        copy.advance(scalars, around);
    }

    pub(super) fn waits(&mut self, block: Block, root: Root) {
        let copy = self.copies.get_mut(&block).filter(|copy| copy.routing.rewind == root.rewind);
        if let Some(reign) = copy.and_then(|copy| copy.reign.as_mut()) {
            reign.exchange.waits_for = Some(root.unit);
        }
    }

    /// A decision comes in.
    pub(super) fn decided(
        &mut self,
        block: Block,
        (rewind, unit): (Number, Unit),
        decision: Decision,
        around: &mut Surroundings,
    ) {
        let Some(copy) = self.copies.get_mut(&block) else { return };
        let is_fenced = around.has(Rule::DecisionsFenced) && rewind != copy.routing.rewind;
        let (Some(reign), Some(state)) = (&mut copy.reign, &copy.state) else { return };
        if !is_fenced && unit == state.version() {
            reign.exchange.decided = Some(decision);
            copy.advance(block, around);
        }
    }
}

impl Copy {
    /// Of the scalar block: tells what is published to those who asked.
    pub(super) fn tell_decisions(&mut self, around: &mut Surroundings) {
        let (Some(reign), Some(state)) = (&mut self.reign, &self.state) else { return };
        let until = if around.has(Rule::DecisionTellsPublished) { self.published } else { state.version() };
        let waiting = reign.exchange.awaiting.split_off(&(until, 0, 0));
        let kept_from =
            if around.has(Rule::DecisionsKept) { state.oldest } else { state.version().saturating_sub(1) };
        for (unit, block, place) in std::mem::replace(&mut reign.exchange.awaiting, waiting) {
            let kept = state.history.get(unit).filter(|_| unit >= kept_from);
            if let Some(decision) = kept.and_then(|update| update.decision) {
                let rewind = self.routing.rewind;
                let decided = ToPserver::Decided { block, rewind, unit, decision };
                around.send(Message::Pserver(place, decided));
            }
        }
    }
}

/// The scalar block's update, once every other block's partial is there.
fn combined(partials: &BTreeMap<Block, Root>, blocks: usize) -> Option<Update> {
    let mut decision = [None; PARTIALS_MAX];
    for (block, partial) in decision.iter_mut().enumerate().take(blocks) {
        *partial = Some(*partials.get(&block)?);
    }
    Some(Update { root: decision[0]?, decision: Some(decision) })
}
