//! A pserver: obeys slices, answers trainers and masters. What a copy does is in `copy.rs`, how it follows in
//! `replication.rs`.
//!
//! It learns its terms from slices alone, and acts on what it holds; it must never believe another role's memory.

use super::action::PserverAct;
use super::copy::Copy;
use super::message::{Message, ToMaster, ToPserver, ToTrainer};
use super::rules::Rule;
use super::state::{Root, Update};
use super::witness::Witness;
use super::words::{Block, Document, Incarnation, Number, Piece, Place, Setting, Version};
use std::collections::BTreeMap;

pub(crate) type Storage = BTreeMap<Piece, Vec<Update>>;

/// What surrounds whoever acts.
pub(crate) struct Surroundings<'a> {
    pub(crate) setting: &'a Setting,
    /// Whether the record that may be excluded cannot be read any more.
    pub(crate) is_rotten: bool,
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
    /// Where that slice has the scalar block's primary.
    pub(crate) scalars_at: Place,
}

impl Pserver {
    pub(crate) fn first(place: Place) -> Pserver {
        let me = Incarnation { place, life: 1 };
        Pserver { me, alive: true, obeyed: (0, 0), copies: BTreeMap::new(), scalars_at: place }
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
            PserverAct::SendPartial(block) => self.send_partial(block, around),
        }
    }

    pub(crate) fn hear(&mut self, message: ToPserver, around: &mut Surroundings) {
        match message {
            ToPserver::Slice { to, document } => self.obey(to, &document, around),
            ToPserver::AskLedger { block } => self.answer_ledger(block, around),
            ToPserver::Ask { block, trainer, rewind, version } => {
                self.answer_pull(block, trainer, rewind, version, around);
            }
            ToPserver::AskAll { trainer, version } => {
                let mut led = self.copies.values().filter(|copy| copy.reign.is_some());
                if led.all(|copy| copy.published >= version) {
                    let place = self.me.place;
                    around.send(Message::Trainer(trainer, ToTrainer::AllPublished { place, version }));
                }
            }
            ToPserver::Push { block, trainer, root, slots, list } => {
                self.answer_push(block, trainer, root, slots, list, around);
            }
            ToPserver::Partial { from, block, root } => self.collect(from, block, root, around),
            ToPserver::Waits { block, root } => self.waits(block, root),
            ToPserver::Decided { block, rewind, unit, decision } => {
                self.decided(block, (rewind, unit), decision, around);
            }
            replication => self.hear_copies(replication, around),
        }
    }

    fn answer_push(
        &mut self,
        block: Block,
        trainer: usize,
        gradient: Root,
        slots: u8,
        list: Number,
        around: &mut Surroundings,
    ) {
        let Some(copy) = self.copies.get_mut(&block) else { return };
        let has_taken = copy.take(block, gradient, slots, list, around);
        let (Root { rewind, unit, .. }, term) = (gradient, copy.routing.term);
        if copy.stands(gradient, around) {
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
        self.scalars_at = document.blocks.last().map_or(to.place, |routing| routing.primary.place);
        for (block, routing) in document.blocks.iter().enumerate() {
            let Some(mark) = routing.copy_at(to) else {
                self.copies.remove(&block);
                continue;
            };
            let held = self.copies.remove(&block).filter(|copy| copy.fill == mark.fill);
            let mut copy = held.unwrap_or_else(|| Copy::empty(mark.fill, routing));
            (copy.named, copy.excluded) = (document.named, document.excluded);
            copy.obey(block, routing, to, around);
            self.copies.insert(block, copy);
        }
    }

    fn answer_pull(
        &self,
        block: Block,
        trainer: usize,
        rewind: Number,
        version: Version,
        around: &mut Surroundings,
    ) {
        let Some(copy) = self.copies.get(&block).filter(|copy| copy.reign.is_some()) else { return };
        let is_fenced = around.has(Rule::RewindFence) && rewind != copy.routing.rewind;
        let Some(state) = copy.state.as_ref().filter(|_| !is_fenced) else { return };
        // A metric has no parameters to pull: what counts is that the step before is in it.
        let is_metric = around.setting.is_metric(block);
        if copy.published >= version && (state.oldest <= version || is_metric) {
            let history = state.history[..version].to_vec();
            (0..version).for_each(|unit| around.witness.answers_applied(block, copy.routing.rewind, unit));
            let answer = ToTrainer::Published { block, rewind, version, history };
            around.send(Message::Trainer(trainer, answer));
        }
    }

    fn answer_ledger(&self, block: Block, around: &mut Surroundings) {
        let Some(copy) = self.copies.get(&block).filter(|copy| copy.reign.is_some()) else { return };
        let Some(state) = &copy.state else { return };
        let units = state.history.iter().take(copy.published).map(|update| update.root.unit).collect();
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
