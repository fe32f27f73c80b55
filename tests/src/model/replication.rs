//! How a copy follows its primary: by asking for what comes after the state it names. It must never guess a past.

use super::copy::Reign;
use super::message::{Message, ToMaster, ToPserver};
use super::pserver::{Pserver, Surroundings};
use super::rules::Rule;
use super::state::{Entry, Name, State};
use super::words::{Block, Incarnation, Mark, Number, Place, Setting, Version};
use std::rc::Rc;

/// What a primary has for a copy that names its state.
enum Next {
    Nothing,
    Everything,
    Entry(Entry),
    Broken(Name),
}

impl Reign {
    /// The version that a copy holds, as far as is known.
    pub(crate) fn held_by(&self, mark: &Mark, setting: &Setting) -> Version {
        self.acknowledged.get(&key(mark.at, mark.fill, setting)).copied().unwrap_or(0)
    }
}

/// Whom an acknowledgement is for.
fn key(at: Incarnation, fill: Number, setting: &Setting) -> (Incarnation, Number) {
    (at, if setting.rules.on(Rule::AcksByFill) { fill } else { 0 })
}

impl Pserver {
    /// A follower asks the primary, or whom it takes for one.
    pub(super) fn pull(&self, block: Block, of: Place, around: &mut Surroundings) -> bool {
        let Some(copy) = self.copies.get(&block).filter(|copy| copy.reign.is_none()) else { return false };
        let is_primary = of == copy.routing.primary.place;
        if !is_primary && (around.has(Rule::FillsFromPrimary) || copy.state.is_some()) {
            return false;
        }
        let name = copy.state.as_ref().map(|state| state.name);
        let (from, fill, term) = (self.me, copy.fill, copy.routing.term);
        around.send(Message::Pserver(of, ToPserver::Have { block, from, fill, term, name }));
        true
    }

    /// Asks for the admission of every filling copy that is level, and requires it from now on.
    pub(super) fn ask_admission(&mut self, block: Block, around: &mut Surroundings) -> bool {
        let Some(copy) = self.copies.get_mut(&block) else { return false };
        let Some(reign) = &mut copy.reign else { return false };
        let covers_promotion = around.has(Rule::AdmissionCoversPromotion);
        let level = if covers_promotion { copy.published.max(reign.began_with) } else { copy.published };
        let mut has_asked = false;
        for mark in copy.routing.copies.iter().filter(|mark| !mark.in_sync) {
            let is_known = reign.acknowledged.contains_key(&key(mark.at, mark.fill, around.setting));
            if is_known && reign.held_by(mark, around.setting) >= level {
                reign.asked.insert(mark.fill);
                let (copy, fill, term, primary) = (mark.at, mark.fill, copy.routing.term, self.me);
                around.send(Message::Master(ToMaster::Admit { block, copy, fill, term, primary }));
                has_asked = true;
            }
        }
        has_asked
    }

    pub(crate) fn hear_copies(&mut self, message: ToPserver, around: &mut Surroundings) {
        match message {
            ToPserver::Have { block, from, fill, term, name } => {
                self.serve(block, from, (fill, term), name, around);
            }
            ToPserver::Fill { to, block, fill, term, state, published } => {
                self.follow(to, block, (fill, term), published, around, |own, _| match own {
                    Some(own) if own.name.term != state.name.term => false,
                    Some(own) if own.version() >= state.version() => false,
                    _ => {
                        *own = Some(State::clone(&state));
                        true
                    }
                });
            }
            ToPserver::Append { to, block, fill, term, entry, published } => {
                let setting = around.setting;
                self.follow(to, block, (fill, term), published, around, |own, by_name| {
                    let Some(own) = own else { return false };
                    let is_next = match by_name {
                        true => own.name == entry.follows,
                        false => own.version() == entry.follows.version,
                    };
                    if is_next {
                        own.append(entry, setting);
                    }
                    is_next
                });
            }
            ToPserver::Broken { to, block, fill, term, name } => {
                let Some(copy) = self.copies.get(&block).filter(|_| to == self.me) else { return };
                let is_present = copy.state.as_ref().is_some_and(|state| state.name == name);
                if copy.fill == fill && copy.routing.term == term && is_present {
                    around.send(Message::Master(ToMaster::Diverged { block, fill, term }));
                }
            }
            _ => {}
        }
    }

    /// The primary's side: an acknowledgement comes in, what follows goes out.
    fn serve(
        &mut self,
        block: Block,
        from: Incarnation,
        (fill, term): (Number, Number),
        name: Option<Name>,
        around: &mut Surroundings,
    ) {
        let Some(copy) = self.copies.get_mut(&block) else { return };
        let by_fill = |mark: &&Mark| mark.fill == fill || !around.has(Rule::AcksByFill);
        let is_listed = copy.routing.copy_at(from).filter(by_fill).is_some();
        let is_of_term = copy.routing.term == term || !around.has(Rule::CopiesFencedByTerm);
        let Some(state) = copy.state.as_ref().filter(|_| is_listed && is_of_term) else { return };
        let next = next_after(state, name, around);
        if let (Some(reign), Some(name)) = (&mut copy.reign, name)
            && !matches!(next, Next::Broken(_))
        {
            let known = reign.acknowledged.entry(key(from, fill, around.setting)).or_default();
            *known = name.version.max(*known);
        }
        if copy.reign.is_some() {
            copy.advance(block, around);
        }
        let (Some(state), published, to) = (&copy.state, copy.published, from) else { return };
        let answer = match next {
            Next::Nothing => return,
            Next::Broken(_) if !around.has(Rule::DivergedIsPresent) => {
                return around.send(Message::Master(ToMaster::Diverged { block, fill, term }));
            }
            Next::Broken(name) => ToPserver::Broken { to, block, fill, term, name },
            Next::Entry(entry) => ToPserver::Append { to, block, fill, term, entry, published },
            Next::Everything => {
                let mut state = state.clone();
                if !around.has(Rule::PreviousOnFollowers) {
                    state.oldest = state.version();
                }
                ToPserver::Fill { to, block, fill, term, state: Rc::new(state), published }
            }
        };
        around.send(Message::Pserver(from.place, answer));
    }

    /// The follower's side: `advance` says whether it brought the state forward.
    fn follow(
        &mut self,
        to: Incarnation,
        block: Block,
        (fill, term): (Number, Number),
        published: Version,
        around: &mut Surroundings,
        advance: impl FnOnce(&mut Option<State>, bool) -> bool,
    ) {
        let Some(copy) = self.copies.get_mut(&block).filter(|copy| copy.fill == fill) else { return };
        let is_of_term = copy.routing.term == term || !around.has(Rule::CopiesFencedByTerm);
        if to != self.me || copy.reign.is_some() || !is_of_term {
            return;
        }
        if advance(&mut copy.state, around.has(Rule::EntriesNamePredecessor)) {
            copy.published = copy.published.max(published);
            if let Some(state) = copy.state.as_mut().filter(|_| !around.has(Rule::PreviousOnFollowers)) {
                state.oldest = state.version();
            }
        }
    }
}

/// Where `name` stands on the history of `state`: at its end, before a kept entry, further back, or not on it.
fn next_after(state: &State, name: Option<Name>, around: &Surroundings) -> Next {
    let Some(name) = name else { return Next::Everything };
    if !around.has(Rule::EntriesNamePredecessor) {
        let entry = state.kept.iter().find(|entry| entry.follows.version == name.version);
        return entry.map_or(Next::Nothing, |entry| Next::Entry(entry.clone()));
    }
    if name == state.name {
        return Next::Nothing;
    }
    if let Some(entry) = state.kept.iter().find(|entry| entry.follows == name) {
        return Next::Entry(entry.clone());
    }
    match name.term == state.name.term && name.version < state.version() {
        true => Next::Everything,
        false => Next::Broken(name),
    }
}
