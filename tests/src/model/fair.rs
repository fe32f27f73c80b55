//! The fair schedule: everybody does what is due, everything arrives in order. It must never do what a role would not.

use super::action::{Action, MasterAct, PserverAct, TrainerAct};
use super::decide::Decision;
use super::witness::Fault;
use super::words::{Incarnation, Place};
use super::world::World;

/// Microbatches leased beyond the lowest that is lacking.
const WINDOW: usize = 2;
/// Rounds in which any job of the model's size is finished.
const ROUNDS_MAX: usize = 60;

impl World {
    /// Heals everything and goes on fairly until the job is done and its last checkpoint durable.
    pub(crate) fn finish(&mut self) -> bool {
        for _ in 0..ROUNDS_MAX {
            for place in 0..self.pservers.len() {
                self.act(Action::Restart(place));
            }
            for trainer in 0..self.trainers.len() {
                self.act(Action::StartTrainer(trainer));
            }
            self.round();
            let document = &self.store.document;
            if document.done && document.is_final(self.setting.shape.units) {
                return true;
            }
        }
        let published: Vec<_> = self.pservers.iter().map(|pserver| &pserver.copies).collect();
        let story = format!("{:?}\n{published:#?}", self.store.document);
        self.witness.broken(Fault::CannotFinish, story);
        false
    }

    /// One turn for everybody who lives.
    pub(crate) fn round(&mut self) {
        let Some(master) = self.leader() else { return };
        self.master_turn(master);
        self.arrive(master);
        self.pserver_turn(master);
        if self.setting.is_sync() {
            self.step_turn(master);
        } else {
            self.microbatch_turn(master);
        }
    }

    /// The master that leads; another is elected where none does.
    fn leader(&mut self) -> Option<usize> {
        let newest = self.store.document.clone();
        let leads = |world: &World, master: usize| world.masters[master].leads.as_ref() == Some(&newest);
        let known = (0..self.masters.len()).find(|master| leads(self, *master));
        known.or_else(|| {
            self.act(Action::Elect(0));
            (!self.masters.is_empty()).then_some(0)
        })
    }

    /// Everything in flight arrives, in order, and what it causes.
    pub(crate) fn arrive(&mut self, master: usize) {
        for _ in 0..10_000 {
            let Some(message) = self.soup.first().cloned() else { return };
            self.act(Action::Deliver { message, master, again: false });
        }
    }

    fn decide_fairly(&mut self, master: usize, decision: Decision) {
        self.act(Action::OfMaster(master, MasterAct::Decide(decision)));
    }

    fn master_turn(&mut self, master: usize) {
        (0..self.pservers.len()).for_each(|place| {
            self.act(Action::OfPserver(place, PserverAct::Greet));
        });
        self.arrive(master);
        for place in 0..self.pservers.len() {
            let is_gone = |at: Incarnation| at.place == place && !self.pservers[place].is(at);
            let mut marks = self.store.document.blocks.iter().flat_map(|routing| &routing.copies);
            if marks.any(|mark| is_gone(mark.at)) {
                self.decide_fairly(master, Decision::Lose { place, pick: place });
            }
        }
        for block in 0..self.setting.shape.blocks {
            for place in 0..self.pservers.len() {
                let (wanted, copies) =
                    (1 + self.setting.shape.followers, self.store.document.blocks[block].copies.len());
                if copies > wanted {
                    self.decide_fairly(master, Decision::Drop { block, place });
                } else if copies < wanted && self.pservers[place].alive {
                    self.decide_fairly(master, Decision::Add { block, place });
                }
            }
        }
        if self.is_rotten {
            self.exclude_fairly(master);
        }
        self.decide_fairly(master, Decision::Commit);
        self.decide_fairly(master, Decision::Finish);
        if self.is_time_to_name(master) {
            let version = self.setting.shape.units;
            self.decide_fairly(master, Decision::Name { version });
        }
        for place in 0..self.pservers.len() {
            self.act(Action::OfMaster(master, MasterAct::Tell(place)));
        }
        for trainer in 0..self.trainers.len() {
            self.act(Action::OfMaster(master, MasterAct::Inform(trainer)));
        }
    }

    /// Somebody reports the record that cannot be read, once it is known where the job stands.
    fn exclude_fairly(&mut self, master: usize) {
        for block in 0..self.setting.shape.blocks {
            self.act(Action::OfMaster(master, MasterAct::AskLedger(block)));
        }
        self.arrive(master);
        let unit = self.published_everywhere();
        if unit < self.setting.shape.units {
            self.decide_fairly(master, Decision::Exclude { unit });
        }
    }

    /// The last checkpoint is named when everything is applied: its step is never passed.
    fn is_time_to_name(&self, master: usize) -> bool {
        let units = self.setting.shape.units;
        let is_full = |block| self.masters[master].ledger(block).is_some_and(|ledger| ledger.len() == units);
        let is_whole = match self.setting.is_sync() {
            true => self.published_everywhere() == units,
            false => (0..self.setting.shape.blocks).all(is_full),
        };
        is_whole && !self.store.document.is_final(units)
    }

    fn pserver_turn(&mut self, master: usize) {
        for block in 0..self.setting.shape.blocks {
            for place in 0..self.pservers.len() {
                if let Some(of) = self.primary_known_at(place, block) {
                    self.act(Action::OfPserver(place, PserverAct::Pull { block, of }));
                }
            }
            self.arrive(master);
            for place in 0..self.pservers.len() {
                self.act(Action::OfPserver(place, PserverAct::AskAdmission(block)));
                self.act(Action::OfPserver(place, PserverAct::AskHandOver(block)));
                self.act(Action::OfPserver(place, PserverAct::Supply(block)));
                self.act(Action::OfPserver(place, PserverAct::SendPartial(block)));
            }
            self.arrive(master);
        }
    }

    fn primary_known_at(&self, place: Place, block: usize) -> Option<Place> {
        self.pservers[place].copies.get(&block).map(|copy| copy.routing.primary.place)
    }

    fn step_turn(&mut self, master: usize) {
        let front = self.published_everywhere();
        let root = self.setting.root(front);
        for trainer in 0..self.trainers.len() {
            if front < self.setting.shape.units && !self.trainers[trainer].has_root(front, root) {
                self.act(Action::OfTrainer(trainer, TrainerAct::Want(front)));
            }
            for block in 0..self.setting.shape.blocks {
                self.act(Action::OfTrainer(trainer, TrainerAct::Ask(block)));
            }
            for place in 0..self.pservers.len() {
                self.act(Action::OfTrainer(trainer, TrainerAct::AskAll(place)));
            }
            self.arrive(master);
            self.act(Action::OfTrainer(trainer, TrainerAct::Begin { slots: root }));
            self.push_all(trainer);
        }
        self.arrive(master);
    }

    fn microbatch_turn(&mut self, master: usize) {
        for block in 0..self.setting.shape.blocks {
            self.act(Action::OfMaster(master, MasterAct::AskLedger(block)));
        }
        self.arrive(master);
        let is_known = |unit: usize| {
            let has = |block| self.masters[master].ledger(block).is_some_and(|l| l.contains(&unit));
            (0..self.setting.shape.blocks).all(has)
        };
        let lacking = (0..self.setting.shape.units).filter(|unit| !is_known(*unit));
        let lacking: Vec<usize> = lacking.take(WINDOW).collect();
        for trainer in 0..self.trainers.len() {
            for unit in &lacking {
                self.act(Action::OfMaster(master, MasterAct::Lease { trainer, unit: *unit }));
            }
        }
        self.arrive(master);
        (0..self.trainers.len()).for_each(|trainer| self.push_all(trainer));
        self.arrive(master);
    }

    fn push_all(&mut self, trainer: usize) {
        for gradient in 0..self.trainers[trainer].gradients.len() {
            for block in 0..self.setting.shape.blocks {
                self.act(Action::OfTrainer(trainer, TrainerAct::Push { gradient, block }));
            }
        }
    }
}
