//! A pserver: obeys slices, takes gradients, publishes, supplies pieces. How copies follow is in `replication.rs`.
//!
//! It learns its terms from slices alone, and acts on what it holds; it must never believe another role's memory.

use super::action::PserverAct;
use super::message::{Message, ToMaster, ToPserver, ToTrainer};
use super::rules::Rule;
use super::witness::Witness;
use super::words::{
    Block, Document, EPOCH, Incarnation, KEPT, Mark, Named, Number, Piece, Place, Routing, Setting, State,
    Unit, Update, Version,
};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Storage = BTreeMap<Piece, Vec<Update>>;

/// What surrounds whoever acts.
pub(crate) struct Surroundings<'a> {
    pub(crate) setting: &'a Setting,
    pub(crate) storage: &'a mut Storage,
    pub(crate) witness: &'a mut Witness,
    pub(crate) sent: &'a mut Vec<Message>,
}

impl Surroundings<'_> {
    pub(crate) fn has(&self, rule: Rule) -> bool {
        self.setting.rules.on(rule)
    }
    pub(crate) fn send(&mut self, message: Message) {
        self.sent.push(message);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Pserver {
    pub(crate) me: Incarnation,
    pub(crate) alive: bool,
    /// The slice it obeys: document version, master term.
    obeyed: (Number, Number),
    pub(crate) copies: BTreeMap<Block, Copy>,
}

#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) fill: Number,
    /// The block's line in the newest slice.
    pub(crate) routing: Routing,
    /// None while nothing has arrived.
    pub(crate) state: Option<State>,
    /// The highest version known to be published.
    pub(crate) published: Version,
    /// The checkpoint that is wanted.
    named: Option<Named>,
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
    /// Sync: tree nodes of the step in progress.
    held: u8,
    /// Which version was set aside for which named checkpoint, while it was the current one.
    captured: Option<(Number, Version)>,
}

impl Pserver {
    pub(crate) fn first(place: Place) -> Pserver {
        let me = Incarnation { place, life: 1 };
        Pserver { me, alive: true, obeyed: (0, 0), copies: BTreeMap::new() }
    }
    /// A new life with nothing in it.
    pub(crate) fn restarted(&self) -> Pserver {
        let me = Incarnation { life: self.me.life + 1, ..self.me };
        Pserver { me, ..Pserver::first(self.me.place) }
    }
    pub(crate) fn is(&self, at: Incarnation) -> bool {
        self.alive && self.me == at
    }

    pub(crate) fn act(&mut self, act: PserverAct, around: &mut Surroundings) -> bool {
        match act {
            PserverAct::Greet => {
                around.send(Message::Master(ToMaster::Hello(self.me)));
                true
            }
            PserverAct::Pull { block, of } => self.pull(block, of, around),
            PserverAct::AskAdmission(block) => self.ask_admission(block, around),
            PserverAct::AskHandOver(block) => self.ask_hand_over(block, around),
            PserverAct::Supply(block) => self.supply(block, around),
        }
    }

    pub(crate) fn hear(&mut self, message: ToPserver, around: &mut Surroundings) {
        match message {
            ToPserver::Slice { to, document } => self.obey(to, &document, around),
            ToPserver::AskLedger { block } => self.answer_ledger(block, around),
            ToPserver::Ask { block, trainer, rewind, step } => {
                self.answer_pull(block, trainer, rewind, step, around);
            }
            ToPserver::AskAll { trainer, step } => {
                let mut led = self.copies.values().filter(|copy| copy.reign.is_some());
                if led.all(|copy| copy.published >= step) {
                    let place = self.me.place;
                    around.send(Message::Trainer(trainer, ToTrainer::AllPublished { place, step }));
                }
            }
            ToPserver::Push { block, trainer, rewind, unit, slots } => {
                self.answer_push(block, trainer, Update { rewind, unit }, slots, around);
            }
            replication => self.hear_copies(replication, around),
        }
    }

    fn answer_push(
        &mut self,
        block: Block,
        trainer: usize,
        update: Update,
        slots: u8,
        around: &mut Surroundings,
    ) {
        let Some(copy) = self.copies.get_mut(&block) else { return };
        let has_taken = copy.take(block, update, slots, around);
        let (Update { rewind, unit }, term) = (update, copy.routing.term);
        if copy.stands(update, around) {
            around.witness.answers_applied(block, copy.routing.rewind, unit);
            let answer = ToTrainer::Applied { block, rewind, unit };
            around.send(Message::Trainer(trainer, answer));
        } else if has_taken && around.setting.is_sync() {
            let answer = ToTrainer::Held { block, rewind, unit, slots, term };
            around.send(Message::Trainer(trainer, answer));
        }
    }

    /// Slices are state, not commands: what is not in one is dropped, what is in it comes to be.
    fn obey(&mut self, to: Incarnation, document: &Document, around: &mut Surroundings) {
        let is_old = document.version <= self.obeyed.0 || document.master_term < self.obeyed.1;
        if (around.has(Rule::SlicesNameIncarnations) && to != self.me)
            || (around.has(Rule::SlicesInOrder) && is_old)
        {
            return;
        }
        self.obeyed = (document.version, document.master_term);
        for (block, routing) in document.blocks.iter().enumerate() {
            let Some(mark) = routing.copy_at(to) else {
                self.copies.remove(&block);
                continue;
            };
            let held = self.copies.remove(&block).filter(|copy| copy.fill == mark.fill);
            let mut copy = held.unwrap_or_else(|| Copy::empty(mark.fill, routing));
            copy.named = document.named;
            copy.obey(block, routing, to, around);
            self.copies.insert(block, copy);
        }
    }

    fn answer_pull(
        &self,
        block: Block,
        trainer: usize,
        rewind: Number,
        step: Unit,
        around: &mut Surroundings,
    ) {
        let Some(copy) = self.copies.get(&block).filter(|copy| copy.reign.is_some()) else { return };
        let is_fenced = around.has(Rule::RewindFence) && rewind != copy.routing.rewind;
        let Some(state) = copy.state.as_ref().filter(|_| !is_fenced) else { return };
        // A metric has no parameters to pull: what counts is that the step before is in it.
        let is_metric = block >= around.setting.read_blocks();
        if copy.published >= step && (state.oldest <= step || is_metric) {
            let history = state.history[..step].to_vec();
            (0..step).for_each(|unit| around.witness.answers_applied(block, copy.routing.rewind, unit));
            let answer = ToTrainer::Published { block, rewind, step, history };
            around.send(Message::Trainer(trainer, answer));
        }
    }

    fn answer_ledger(&self, block: Block, around: &mut Surroundings) {
        let Some(copy) = self.copies.get(&block).filter(|copy| copy.reign.is_some()) else { return };
        let Some(state) = &copy.state else { return };
        let units = state.history.iter().take(copy.published).map(|update| update.unit).collect();
        let term = copy.routing.term;
        around.send(Message::Master(ToMaster::Ledger { block, term, units }));
    }

    /// Supplies a piece of the named checkpoint, says again that it did, or says that it cannot any more.
    fn supply(&self, block: Block, around: &mut Surroundings) -> bool {
        let Some(copy) = self.copies.get(&block) else { return false };
        let (Some(reign), Some(state), Some(named)) = (&copy.reign, &copy.state, copy.named) else {
            return false;
        };
        let (number, rewind, term) = (named.number, copy.routing.rewind, copy.routing.term);
        let answer = match reign.captured.filter(|(known, _)| *known == number) {
            Some((_, version)) => {
                if copy.published < version && around.has(Rule::PiecesArePublished) {
                    return false;
                }
                let piece = Piece { block, rewind, term, version };
                around.storage.entry(piece).or_insert_with(|| state.history[..version].to_vec());
                ToMaster::Supplied { number, piece }
            }
            None if state.version() > named.version => ToMaster::Passed { number, block, rewind },
            None => return false,
        };
        around.send(Message::Master(answer));
        true
    }

    /// Asks to hand over, once nothing is on its way.
    fn ask_hand_over(&self, block: Block, around: &mut Surroundings) -> bool {
        let Some(copy) = self.copies.get(&block).filter(|copy| copy.reign.is_some()) else { return false };
        let (Some(fill), Some(state)) = (copy.routing.heir, &copy.state) else { return false };
        if copy.published < state.version() {
            return false;
        }
        let (term, primary) = (copy.routing.term, self.me);
        around.send(Message::Master(ToMaster::HandOver { block, fill, term, primary }));
        true
    }
}

impl Copy {
    fn empty(fill: Number, routing: &Routing) -> Copy {
        Copy { fill, routing: routing.clone(), state: None, published: 0, named: None, reign: None }
    }

    fn obey(&mut self, block: Block, routing: &Routing, to: Incarnation, around: &mut Surroundings) {
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
                self.state = Some(State::restored(routing.term, history));
            }
            let version = self.state.as_ref().map_or(0, State::version);
            // It cannot serve what it does not hold; that it never has to is what the witness looks at.
            self.published = self.published.min(version);
            if !around.has(Rule::PromotedWaits) {
                self.published = version;
            }
            self.reign = Some(Reign::begun(routing.term, version));
        }
        if let Some(reign) = &mut self.reign {
            reign.asked.retain(|fill| routing.copy_filled(*fill).is_some());
        }
        self.publish(block, around);
    }

    /// Takes a gradient, if it is of this history and its turn has come; says whether it is taken now.
    fn take(&mut self, block: Block, update: Update, slots: u8, around: &mut Surroundings) -> bool {
        let is_leaving = self.routing.heir.is_some() && around.has(Rule::HandOverDrained);
        let is_fenced = around.has(Rule::RewindFence) && update.rewind != self.routing.rewind;
        let (Some(reign), Some(state)) = (&mut self.reign, &mut self.state) else { return false };
        if is_fenced || is_leaving {
            return false;
        }
        if around.setting.is_sync() {
            let is_level = self.published == state.version() || !around.has(Rule::TakenWhenPublished);
            if update.unit != state.version() || !is_level {
                return false;
            }
            reign.held |= slots;
            if reign.held != around.setting.root() {
                return true;
            }
            reign.held = 0;
        } else {
            let is_busy = state.version() >= self.published + KEPT;
            if is_busy || ledger_has(state, update.unit, around) {
                return false;
            }
        }
        around.witness.takes(block, self.routing.rewind, update);
        state.append(state.next(self.routing.term, update));
        self.publish(block, around);
        true
    }

    /// Whether `update` may be answered `Applied`.
    fn stands(&self, update: Update, around: &Surroundings) -> bool {
        let is_fenced = around.has(Rule::RewindFence) && update.rewind != self.routing.rewind;
        let (Some(_), Some(state)) = (&self.reign, &self.state) else { return false };
        let place = state.history.iter().position(|known| known.unit == update.unit);
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
    pub(crate) fn publish(&mut self, block: Block, around: &mut Surroundings) {
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
        Reign { term, began_with, acknowledged, asked, held: 0, captured: None }
    }
}

/// Async: whether the ledger has `unit`.
fn ledger_has(state: &State, unit: Unit, around: &Surroundings) -> bool {
    let is_in = |unit: Unit| state.history.iter().any(|update| update.unit == unit);
    let epoch = unit / EPOCH * EPOCH;
    let is_forgotten = !around.has(Rule::PositionsAbsolute) && (epoch..epoch + EPOCH).all(is_in);
    is_in(unit) && !is_forgotten
}
