//! One copy of a block at one pserver: its state, and as a primary its reign: it takes, applies, publishes. It must
//! never hear of another block.

use super::held::Held;
use super::pserver::Surroundings;
use super::rules::Rule;
use super::scalars::Exchange;
use super::state::{Root, State, Update};
use super::words::{
    Block, EPOCH, Exclusion, Incarnation, Mark, Named, Number, Routing, Unit, Version, WAITING,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) fill: Number,
    /// The block's line in the newest slice.
    pub(crate) routing: Routing,
    /// None while nothing has arrived.
    pub(crate) state: Option<State>,
    /// The highest version known to be published.
    pub(crate) published: Version,
    /// The exclusion that it was told of.
    pub(crate) excluded: Option<Exclusion>,
    /// The checkpoint that is wanted.
    pub(crate) named: Option<Named>,
    /// Of a primary.
    pub(crate) reign: Option<Reign>,
}

/// What a primary knows in one term, and forgets with it.
#[derive(Clone, Debug)]
pub(crate) struct Reign {
    pub(crate) term: Number,
    /// The version that it was promoted with, or restored to.
    pub(crate) began_with: Version,
    pub(crate) acknowledged: BTreeMap<(Incarnation, Number), Version>,
    /// Fills whose admission was asked for.
    pub(crate) asked: BTreeSet<Number>,
    /// Sync: tree nodes of this step and the next ones.
    pub(crate) held: Held,
    /// Partials and decisions.
    pub(crate) exchange: Exchange,
    /// Which version was set aside for which named checkpoint, while it was the current one.
    pub(crate) captured: Option<(Number, Version)>,
}

impl Copy {
    pub(crate) fn empty(fill: Number, routing: &Routing) -> Copy {
        Copy {
            fill,
            routing: routing.clone(),
            state: None,
            published: 0,
            excluded: None,
            named: None,
            reign: None,
        }
    }

    pub(crate) fn obey(
        &mut self,
        block: Block,
        routing: &Routing,
        to: Incarnation,
        around: &mut Surroundings,
    ) {
        self.routing = routing.clone();
        if routing.primary != to {
            self.reign = None;
            return;
        }
        let is_known = self.reign.as_ref().is_some_and(|reign| reign.term == routing.term);
        if !is_known || !around.has(Rule::RestoreOncePerTerm) {
            if routing.rewind == routing.term {
                let history = routing.origin.map_or(Some(Vec::new()), |it| around.storage.get(&it).cloned());
                // A piece that is deleted is one that a newer slice does not name: that slice is on its way.
                let Some(history) = history else { return };
                self.published = history.len();
                self.state = Some(State::restored(routing.term, history, around.setting));
            }
            let version = self.state.as_ref().map_or(0, State::version);
            // It cannot serve what it does not hold; that it never has to is what the witness looks at.
            self.published = self.published.min(version);
            if !around.has(Rule::PromotedServesTold) {
                self.published = self.published.max(version.saturating_sub(1));
            }
            if !around.has(Rule::PromotedWaits) {
                self.published = version;
            }
            self.reign = Some(Reign::begun(routing.term, version));
        }
        if let Some(reign) = &mut self.reign {
            reign.asked.retain(|fill| routing.copy_filled(*fill).is_some());
        }
        self.advance(block, around);
    }

    /// Takes a gradient, if it is of this history and its turn has come; says whether it is taken now.
    pub(crate) fn take(
        &mut self,
        block: Block,
        gradient: Root,
        slots: u8,
        list: Number,
        around: &mut Surroundings,
    ) -> bool {
        let is_fenced = around.has(Rule::RewindFence) && gradient.rewind != self.routing.rewind;
        let is_leaving = self.is_leaving(around);
        let (Some(reign), Some(state)) = (&mut self.reign, &mut self.state) else { return false };
        let is_outdated = around.has(Rule::ListFencesPushes)
            && self.excluded.is_some_and(|exclusion| list < exclusion.number);
        if is_fenced || is_outdated || is_leaving {
            return false;
        }
        if around.setting.is_sync() {
            let level = if around.has(Rule::OneUnpublished) { self.published } else { state.version() };
            if !(state.version()..=level + around.setting.shape.delay).contains(&gradient.unit) {
                return false;
            }
            let judged_by = if around.has(Rule::AbsenceByStep) { gradient.unit } else { state.version() };
            let others = reign.held.take(gradient, slots, around.setting.root(judged_by));
            around.witness.joins(block, others, gradient);
        } else {
            let is_busy = state.version() >= self.published + WAITING;
            if is_busy || ledger_has(state, gradient.unit, around) {
                return false;
            }
            let update = Update { root: gradient, decision: None };
            around.witness.leaves_out(block, self.excluded, gradient);
            around.witness.takes(block, self.routing.rewind, update);
            state.append(state.next(self.routing.term, update), around.setting);
        }
        self.advance(block, around);
        true
    }

    pub(crate) fn is_leaving(&self, around: &Surroundings) -> bool {
        self.routing.heir.is_some() && around.has(Rule::HandOverDrained)
    }

    /// Publishes and applies, for as long as one makes the other possible.
    pub(crate) fn advance(&mut self, block: Block, around: &mut Surroundings) {
        self.publish(block, around);
        while self.apply_root(block, around) {
            self.publish(block, around);
        }
        self.tell_decisions(around);
    }

    /// Sync: applies the root of the next step, if it is whole and the update before it published.
    fn apply_root(&mut self, block: Block, around: &mut Surroundings) -> bool {
        let is_leaving = self.is_leaving(around);
        let (Some(reign), Some(state)) = (&mut self.reign, &mut self.state) else { return false };
        let is_level = self.published == state.version() || !around.has(Rule::OneUnpublished);
        let whole = reign.held.whole(state.version(), around.setting.all_slots());
        let Some((root, pushed)) = whole.filter(|_| is_level && !is_leaving) else { return false };
        let decision = reign.exchange.decided.filter(|_| around.setting.shape.scalars);
        if around.setting.shape.scalars && decision.is_none() && around.has(Rule::AppliedAsDecided) {
            return false;
        }
        let update = Update { root, decision };
        around.witness.takes(block, self.routing.rewind, update);
        around.witness.completes(around.setting, block, update, pushed);
        state.append(state.next(self.routing.term, update), around.setting);
        reign.held.forget_before(state.version());
        reign.exchange.decided = None;
        true
    }

    /// Whether `gradient` may be answered `Applied`.
    pub(crate) fn stands(&self, gradient: Root, around: &Surroundings) -> bool {
        let is_fenced = around.has(Rule::RewindFence) && gradient.rewind != self.routing.rewind;
        let (Some(_), Some(state)) = (&self.reign, &self.state) else { return false };
        let place = state.history.iter().position(|known| known.root.unit == gradient.unit);
        let until = if around.has(Rule::AppliedMeansPublished) { self.published } else { state.version() };
        !is_fenced && place.is_some_and(|place| place < until)
    }

    /// Sets the current state aside, if it is the one that is wanted: only the current state is whole, of the previous
    /// one there is what trainers read.
    fn capture(&mut self, around: &Surroundings) {
        let (Some(reign), Some(state), Some(named)) = (&mut self.reign, &self.state, self.named) else {
            return;
        };
        let is_set_aside = reign.captured.is_some_and(|(number, _)| number == named.number);
        if !is_set_aside && (!around.setting.is_sync() || state.version() == named.version) {
            reign.captured = Some((named.number, state.version()));
        }
    }

    /// Publishes what every required copy holds: those in-sync in the newest slice, those asked for.
    fn publish(&mut self, block: Block, around: &mut Surroundings) {
        self.capture(around);
        let (Some(reign), Some(state)) = (&self.reign, &self.state) else { return };
        let is_required = |mark: &&Mark| {
            mark.in_sync || (reign.asked.contains(&mark.fill) && around.has(Rule::RequiredBeforeAsked))
        };
        let followers = self.routing.copies.iter().filter(|mark| mark.at != self.routing.primary);
        let held = followers.filter(is_required).map(|mark| reign.held_by(mark, around.setting));
        let all = held.fold(state.version(), Version::min);
        self.published = self.published.max(all);
        around.witness.publishes(block, self.routing.rewind, &state.history[..self.published]);
    }
}

impl Reign {
    fn begun(term: Number, began_with: Version) -> Reign {
        let (acknowledged, asked) = (BTreeMap::new(), BTreeSet::new());
        Reign {
            term,
            began_with,
            acknowledged,
            asked,
            held: Held::default(),
            exchange: Exchange::default(),
            captured: None,
        }
    }
}

/// Async: whether the ledger has `unit`.
fn ledger_has(state: &State, unit: Unit, around: &Surroundings) -> bool {
    let is_in = |unit: Unit| state.history.iter().any(|update| update.root.unit == unit);
    let epoch = unit / EPOCH * EPOCH;
    let is_forgotten = !around.has(Rule::PositionsAbsolute) && (epoch..epoch + EPOCH).all(is_in);
    is_in(unit) && !is_forgotten
}
