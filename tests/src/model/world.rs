//! All roles, the network between them, and the one way to make anything happen: an action. It must never act by itself.

use super::action::{Action, MasterAct};
use super::decide::{Case, Decision};
use super::master::{Master, Store};
use super::message::{Message, ToTrainer};
use super::pserver::{Pserver, Storage, Surroundings};
use super::trainer::Trainer;
use super::witness::Witness;
use super::words::{Document, Place, Setting, Version};
use std::rc::Rc;

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) setting: Setting,
    pub(crate) store: Store,
    pub(crate) storage: Storage,
    pub(crate) masters: Vec<Master>,
    pub(crate) pservers: Vec<Pserver>,
    pub(crate) trainers: Vec<Trainer>,
    /// Messages in flight, oldest first, none twice.
    pub(crate) soup: Vec<Message>,
    pub(crate) witness: Witness,
    /// Whether the record that may be excluded cannot be read any more.
    pub(crate) is_rotten: bool,
    /// What happened, if it is to be told.
    pub(crate) log: Option<Vec<Action>>,
    pub(crate) actions: u64,
}

impl World {
    pub(crate) fn new(setting: Setting) -> World {
        let shape = setting.shape;
        World {
            setting,
            store: Store { document: Rc::new(Document::first(&shape)) },
            storage: Storage::new(),
            masters: vec![Master::default(); shape.masters],
            pservers: (0..shape.pservers).map(Pserver::first).collect(),
            trainers: vec![Trainer::started(); shape.trainers],
            soup: Vec::new(),
            witness: Witness::default(),
            is_rotten: false,
            log: None,
            actions: 0,
        }
    }

    /// Does `action` if it can be done, and looks at what came of it. False: nothing happened.
    pub(crate) fn act(&mut self, action: Action) -> bool {
        let logged = self.log.is_some().then(|| action.clone());
        let has_happened = self.perform(action);
        if has_happened {
            self.actions += 1;
            if let (Some(log), Some(action)) = (&mut self.log, logged) {
                log.push(action);
            }
            self.witness.inspect(&self.setting, &self.store.document, &self.pservers);
        }
        has_happened
    }

    fn perform(&mut self, action: Action) -> bool {
        match action {
            Action::Deliver { message, master, again } => self.deliver(&message, master, again),
            Action::Forget(message) => self.take(&message),
            Action::Crash(place) => {
                let was_alive = std::mem::replace(&mut self.pservers[place].alive, false);
                if was_alive {
                    self.witness.loses();
                }
                was_alive
            }
            Action::Restart(place) => {
                let is_dead = !self.pservers[place].alive;
                if is_dead {
                    self.pservers[place] = self.pservers[place].restarted();
                }
                is_dead
            }
            Action::CrashTrainer(trainer) => std::mem::replace(&mut self.trainers[trainer].alive, false),
            Action::StartTrainer(trainer) => {
                let may = !self.trainers[trainer].alive && !self.trainers[trainer].left;
                if may {
                    self.trainers[trainer] = Trainer::started();
                }
                may
            }
            Action::Rot => !std::mem::replace(&mut self.is_rotten, true),
            Action::CrashMaster(master) => std::mem::take(&mut self.masters[master]).leads.is_some(),
            Action::Elect(master) => {
                let before = self.store.document.clone();
                self.masters[master].elect(&mut self.store);
                self.witness.commits(&self.setting, &before, &self.store.document, &self.storage);
                true
            }
            Action::OfMaster(master, act) => self.by_master(master, act),
            Action::OfPserver(place, act) => {
                self.at_pserver(place, |pserver, around| pserver.act(act, around))
            }
            Action::OfTrainer(trainer, act) => {
                self.at_trainer(trainer, |it, around| it.act(trainer, act, around))
            }
        }
    }

    fn by_master(&mut self, master: usize, act: MasterAct) -> bool {
        let message = match act {
            MasterAct::Decide(decision) => return self.decide(master, decision),
            MasterAct::Tell(place) => self.masters[master].slice(place),
            MasterAct::Inform(trainer) => {
                let routes = self.masters[master].leads.clone().map(ToTrainer::Routes);
                routes.map(|routes| Message::Trainer(trainer, routes))
            }
            MasterAct::AskLedger(block) => self.masters[master].ask_ledger(block, &self.setting),
            MasterAct::Lease { trainer, unit } => Some(Message::Trainer(trainer, ToTrainer::Lease(unit))),
        };
        message.is_some_and(|message| self.send(message))
    }

    fn deliver(&mut self, message: &Message, master: usize, again: bool) -> bool {
        let is_in_flight = if again { self.soup.contains(message) } else { self.take(message) };
        if !is_in_flight {
            return false;
        }
        match message.clone() {
            Message::Master(message) => {
                if let Some(next) = self.masters[master].hear(&message, &self.setting) {
                    self.swap(master, next);
                }
            }
            Message::Pserver(place, message) => {
                self.at_pserver(place, |pserver, around| {
                    pserver.hear(message, around);
                    true
                });
            }
            Message::Trainer(trainer, message) => {
                self.at_trainer(trainer, |it, around| {
                    it.hear(message, around);
                    true
                });
            }
        }
        true
    }

    fn decide(&mut self, master: usize, decision: Decision) -> bool {
        let is_all_published = self.published_everywhere() >= self.setting.shape.units;
        let it = &self.masters[master];
        let case = Case { setting: &self.setting, known: &it.known, is_all_published };
        let Some(next) = it.leads.as_ref().and_then(|document| case.decide(document, decision)) else {
            return false;
        };
        if let Decision::Lose { place, .. } = decision
            && self.is_given_up(master, place)
        {
            self.witness.loses();
        }
        self.swap(master, next)
    }

    /// Whether the leader is about to lose a process that lives: that is a loss like any other.
    fn is_given_up(&self, master: usize, place: Place) -> bool {
        let document = &self.store.document;
        let mut marks = document.blocks.iter().flat_map(|routing| &routing.copies);
        let lives = marks.any(|mark| mark.at.place == place && self.pservers[place].is(mark.at));
        lives && self.masters[master].leads.as_ref() == Some(document)
    }

    fn swap(&mut self, master: usize, next: Document) -> bool {
        let before = self.store.document.clone();
        let has_swapped = self.masters[master].swap(next, &self.setting, &mut self.store);
        if has_swapped {
            self.witness.commits(&self.setting, &before, &self.store.document, &self.storage);
            // What no durable checkpoint has is deleted.
            let durable = &self.store.document.durable;
            if let Some(pieces) = durable.as_ref().filter(|_| *durable != before.durable) {
                self.storage.retain(|piece, _| pieces.contains(piece));
            }
        }
        has_swapped
    }

    fn at_pserver(
        &mut self,
        place: Place,
        act: impl FnOnce(&mut Pserver, &mut Surroundings) -> bool,
    ) -> bool {
        let World { setting, storage, witness, pservers, soup, is_rotten, .. } = self;
        let mut sent = Vec::new();
        let is_rotten = *is_rotten;
        let mut around = Surroundings { setting, is_rotten, storage, witness, sent: &mut sent };
        let has_acted = pservers[place].alive && act(&mut pservers[place], &mut around);
        post(soup, sent);
        has_acted
    }

    fn at_trainer(
        &mut self,
        trainer: usize,
        act: impl FnOnce(&mut Trainer, &mut Surroundings) -> bool,
    ) -> bool {
        let World { setting, storage, witness, trainers, soup, is_rotten, .. } = self;
        let mut sent = Vec::new();
        let is_rotten = *is_rotten;
        let mut around = Surroundings { setting, is_rotten, storage, witness, sent: &mut sent };
        let has_acted = trainers[trainer].works() && act(&mut trainers[trainer], &mut around);
        post(soup, sent);
        has_acted
    }

    fn send(&mut self, message: Message) -> bool {
        let before = self.soup.len();
        post(&mut self.soup, vec![message]);
        self.soup.len() > before
    }

    fn take(&mut self, message: &Message) -> bool {
        let at = self.soup.iter().position(|other| other == message);
        at.map(|at| self.soup.remove(at)).is_some()
    }

    /// The lowest version that a block's present primary has published: what a truthful front would be.
    pub(crate) fn published_everywhere(&self) -> Version {
        let blocks = self.store.document.blocks.iter().enumerate();
        let published = blocks.map(|(block, routing)| {
            let pserver = &self.pservers[routing.primary.place];
            let copy = pserver.copies.get(&block).filter(|_| pserver.is(routing.primary));
            copy.filter(|copy| copy.reign.is_some()).map_or(0, |copy| copy.published)
        });
        published.min().unwrap_or(0)
    }
}

/// A message that is in flight already is the same message.
fn post(soup: &mut Vec<Message>, sent: Vec<Message>) {
    for message in sent {
        if !soup.contains(&message) {
            soup.push(message);
        }
    }
}
