//! A trainer: learns the routes, asks every block, computes, pushes until applied. It must never count an update itself.

use super::action::TrainerAct;
use super::message::{Message, ToPserver, ToTrainer};
use super::pserver::Surroundings;
use super::rules::Rule;
use super::state::{Root, Update};
use super::words::{Block, Document, Exclusion, Number, Place, Setting, Unit, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

#[derive(Clone, Debug, Default)]
pub(crate) struct Trainer {
    pub(crate) alive: bool,
    /// It was told that the job is done, and does not come back.
    pub(crate) left: bool,
    view: Option<Rc<Document>>,
    /// What it leaves out.
    excluded: Option<Exclusion>,
    /// The step it wants to begin, and what blocks answered for it.
    pub(crate) wanted: Option<Unit>,
    answers: BTreeMap<Block, Vec<Update>>,
    summaries: BTreeSet<Place>,
    pub(crate) gradients: Vec<Gradient>,
}

/// A gradient of all blocks, kept until every block has applied it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gradient {
    pub(crate) unit: Unit,
    pub(crate) slots: u8,
    rewinds: Vec<Number>,
    without: bool,
    /// The number of the exclusion list.
    list: Number,
    due: BTreeSet<Block>,
    /// Sync: under which term a block holds it.
    held: BTreeMap<Block, Number>,
}

impl Trainer {
    pub(crate) fn started() -> Trainer {
        Trainer { alive: true, ..Trainer::default() }
    }
    /// Whether it has a gradient of all slots for `unit`.
    pub(crate) fn has_root(&self, unit: Unit, root: u8) -> bool {
        self.gradients.iter().any(|gradient| gradient.unit == unit && gradient.slots == root)
    }
    pub(crate) fn works(&self) -> bool {
        self.alive && !self.left
    }

    pub(crate) fn act(&mut self, me: usize, act: TrainerAct, around: &mut Surroundings) -> bool {
        match act {
            TrainerAct::Want(unit) => self.want(unit),
            TrainerAct::Ask(block) => self.ask(me, block, around),
            TrainerAct::AskAll(place) => self.ask_all(me, place, around),
            TrainerAct::Begin { slots } => self.begin(slots, around),
            TrainerAct::Compute(unit) => self.compute(unit, around),
            TrainerAct::Push { gradient, block } => self.push(me, gradient, block, around),
        }
    }

    pub(crate) fn hear(&mut self, message: ToTrainer, around: &mut Surroundings) {
        match message {
            ToTrainer::Routes(document) => self.learn(document, around),
            ToTrainer::Lease(unit) => {
                if !self.gradients.iter().any(|gradient| gradient.unit == unit) {
                    self.compute(unit, around);
                }
            }
            ToTrainer::Published { block, rewind, version, history } => {
                if self.is_current(block, rewind, around) {
                    self.ends(block, |unit| unit < version);
                    if self.reads(around.setting) == Some(version) {
                        self.answers.insert(block, history);
                    }
                }
            }
            ToTrainer::AllPublished { place, version } => {
                if self.reads(around.setting) == Some(version) {
                    self.summaries.insert(place);
                }
            }
            ToTrainer::Held { block, rewind, unit, slots, term } => {
                let is_it = |gradient: &&mut Gradient| gradient.unit == unit && gradient.slots == slots;
                if self.is_current(block, rewind, around)
                    && let Some(gradient) = self.gradients.iter_mut().find(is_it)
                {
                    gradient.held.insert(block, term);
                }
            }
            ToTrainer::Applied { block, rewind, unit } => {
                if self.is_current(block, rewind, around) {
                    self.ends(block, |known| known == unit);
                }
            }
        }
    }

    /// A block needs no gradient of these units any more.
    fn ends(&mut self, block: Block, is_it: impl Fn(Unit) -> bool) {
        for gradient in self.gradients.iter_mut().filter(|gradient| is_it(gradient.unit)) {
            gradient.due.remove(&block);
        }
        self.gradients.retain(|gradient| !gradient.due.is_empty());
    }

    /// A newer rewind number makes it begin again.
    fn learn(&mut self, document: Rc<Document>, around: &Surroundings) {
        let known = self.view.as_ref().map_or(0, |view| view.version);
        if document.version >= known {
            // What is not told with the routes is told after them.
            let is_told = around.has(Rule::ListWithRewind) || document.version == known;
            self.exclude(document.excluded.filter(|_| is_told));
        }
        if document.version <= known {
            return;
        }
        self.left |= document.done;
        let rewinds = |document: &Document| -> Vec<Number> {
            document.blocks.iter().map(|routing| routing.rewind).collect()
        };
        let present = rewinds(&document);
        if self.view.as_ref().is_some_and(|view| rewinds(view) != present) && around.has(Rule::RewindFence) {
            self.gradients.retain(|gradient| gradient.rewinds == present);
            (self.wanted, self.answers) = (None, BTreeMap::new());
        }
        self.view = Some(document);
    }

    /// A newer exclusion makes it compute again.
    fn exclude(&mut self, told: Option<Exclusion>) {
        if let Some(exclusion) = told.filter(|_| told != self.excluded) {
            self.excluded = told;
            self.gradients.retain(|gradient| gradient.list >= exclusion.number);
        }
    }

    fn is_current(&self, block: Block, rewind: Number, around: &Surroundings) -> bool {
        let now = self.view.as_ref().map(|view| view.blocks[block].rewind);
        now == Some(rewind) || !around.has(Rule::RewindFence)
    }

    /// Sets out for a step.
    fn want(&mut self, step: Unit) -> bool {
        let is_new = self.view.is_some() && self.wanted != Some(step);
        if is_new {
            self.wanted = Some(step);
            self.answers.clear();
            self.summaries.clear();
        }
        is_new
    }

    /// The version that the wanted step is computed from.
    fn reads(&self, setting: &Setting) -> Option<Version> {
        self.wanted.map(|step| setting.read_by(step))
    }

    /// Asks one block for what the wanted step reads.
    fn ask(&self, me: usize, block: Block, around: &mut Surroundings) -> bool {
        let (Some(view), Some(version)) = (&self.view, self.reads(around.setting)) else { return false };
        let Some(routing) = view.blocks.get(block).filter(|_| !self.answers.contains_key(&block)) else {
            return false;
        };
        let (place, rewind) = (routing.primary.place, routing.rewind);
        let ask = ToPserver::Ask { block, trainer: me, rewind, version };
        around.send(Message::Pserver(place, ask));
        true
    }

    /// Asks one pserver about all that it leads: only a protocol without the rule does.
    fn ask_all(&self, me: usize, place: Place, around: &mut Surroundings) -> bool {
        if around.has(Rule::PublishedPerBlock) {
            return false;
        }
        let Some(version) = self.reads(around.setting) else { return false };
        around.send(Message::Pserver(place, ToPserver::AskAll { trainer: me, version }));
        true
    }

    /// Sync: computes nodes of the wanted step, once every block has published what it reads.
    fn begin(&mut self, slots: u8, around: &mut Surroundings) -> bool {
        let (Some(view), Some(unit)) = (&self.view, self.wanted) else { return false };
        let (shape, slots) = (around.setting.shape, slots & around.setting.root(unit));
        let by_block = around.has(Rule::PublishedPerBlock);
        let is_awaited = |block: &Block| by_block || !around.setting.is_metric(*block);
        let awaited: Vec<Block> = (0..shape.blocks).filter(is_awaited).collect();
        let is_summed = by_block || (0..shape.pservers).all(|place| self.summaries.contains(&place));
        if !awaited.iter().all(|block| self.answers.contains_key(block))
            || !is_summed
            || slots == 0
            || !self.can_compute(unit, around)
        {
            return false;
        }
        let read: Vec<&Vec<Update>> = awaited.iter().map(|block| &self.answers[block]).collect();
        around.witness.begins(unit, &read);
        let gradient = self.gradient(view, unit, slots, around);
        self.keep(gradient);
        self.wanted = None;
        true
    }

    /// Async: computes a microbatch from whatever is published.
    fn compute(&mut self, unit: Unit, around: &Surroundings) -> bool {
        let Some(view) = self.view.as_ref().filter(|_| self.can_compute(unit, around)) else { return false };
        let gradient = self.gradient(view, unit, 1, around);
        self.keep(gradient);
        true
    }

    /// Whether `unit` has no record that cannot be read.
    fn can_compute(&self, unit: Unit, around: &Surroundings) -> bool {
        !around.is_rotten || self.leaves_out(unit)
    }
    fn leaves_out(&self, unit: Unit) -> bool {
        self.excluded.is_some_and(|exclusion| unit >= exclusion.first)
    }

    fn gradient(&self, view: &Document, unit: Unit, slots: u8, around: &Surroundings) -> Gradient {
        let rewinds = view.blocks.iter().map(|routing| routing.rewind).collect();
        let (without, list) = (self.leaves_out(unit), self.excluded.map_or(0, |it| it.number));
        let due = (0..around.setting.pushed_blocks()).collect();
        Gradient { unit, slots, rewinds, without, list, due, held: BTreeMap::new() }
    }

    fn keep(&mut self, gradient: Gradient) {
        let is_same = |known: &Gradient| {
            (known.unit, known.slots, &known.rewinds, known.list)
                == (gradient.unit, gradient.slots, &gradient.rewinds, gradient.list)
        };
        if !self.gradients.iter().any(is_same) {
            self.gradients.push(gradient);
        }
    }

    /// Pushes one block's part of a gradient to that block's primary.
    fn push(&self, me: usize, index: usize, block: Block, around: &mut Surroundings) -> bool {
        let (Some(view), Some(gradient)) = (&self.view, self.gradients.get(index)) else { return false };
        let term = view.blocks[block].term;
        let is_resent = |held: &Number| around.has(Rule::HeldIsPushedAgain) && *held != term;
        if !gradient.due.contains(&block) || gradient.held.get(&block).is_some_and(|held| !is_resent(held)) {
            return false;
        }
        let &Gradient { unit, slots, without, list, .. } = gradient;
        let root = Root { rewind: gradient.rewinds[block], unit, without };
        let push = ToPserver::Push { block, trainer: me, root, slots, list };
        around.send(Message::Pserver(view.blocks[block].primary.place, push));
        true
    }
}
