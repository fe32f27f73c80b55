//! Words for traces: each is a few actions and the arrival of what they send. They must never do what an action cannot.

use super::action::{Action, MasterAct, PserverAct, TrainerAct};
use super::decide::Decision;
use super::message::Message;
use super::rules::{Rule, Rules};
use super::witness::Violation;
use super::words::{Setting, Shape};
use super::world::World;

/// Messages in flight, kept aside to arrive late or again.
#[derive(Clone, Debug)]
#[must_use = "a message that is not to be late need not be kept aside"]
pub struct Letters(Vec<Message>);

/// A trace in the making. Blocks, pservers, trainers and masters are named by their index; the words say whether
/// what they describe could be done.
#[derive(Clone, Debug)]
pub struct Script {
    world: World,
    master: usize,
}

impl Script {
    /// A job whose pservers and trainers know their routes, led by the first master.
    pub fn begin(shape: Shape, rules: Rules) -> Script {
        let mut script = Script { world: World::new(Setting { shape, rules }), master: 0 };
        script.elect(0);
        script
    }
    /// Heals everything, goes on fairly, and tells what was broken.
    pub fn finish(mut self) -> Vec<Violation> {
        self.world.finish();
        self.world.witness.violations().to_vec()
    }

    fn act(&mut self, action: Action) -> bool {
        self.world.act(action)
    }
    /// Does `action` and keeps what it sends aside.
    fn send(&mut self, action: Action) -> Letters {
        let before = self.world.soup.len();
        self.act(action);
        Letters(self.world.soup[before..].to_vec())
    }
    /// Does `action`; what it sends, and what that causes, arrives. What was in flight before stays there.
    fn through(&mut self, action: Action) -> bool {
        let takes_one =
            matches!(&action, Action::Deliver { message, again: false, .. } if self.is_in_flight(message));
        let before = self.world.soup.len() - usize::from(takes_one);
        let has_happened = self.act(action);
        while self.world.soup.len() > before {
            let message = self.world.soup[before].clone();
            self.act(Action::Deliver { message, master: self.master, again: false });
        }
        has_happened
    }

    fn is_in_flight(&self, message: &Message) -> bool {
        self.world.soup.contains(message)
    }

    /// What was kept aside arrives, and what it causes.
    pub fn arrive(&mut self, letters: &Letters) {
        for message in &letters.0 {
            self.through(Action::Deliver { message: message.clone(), master: self.master, again: false });
        }
    }
    /// What was kept aside arrives; what it sends is lost.
    pub fn arrive_unanswered(&mut self, letters: &Letters) {
        for message in &letters.0 {
            self.act(Action::Deliver { message: message.clone(), master: self.master, again: false });
        }
        while let Some(message) = self.world.soup.first().cloned() {
            self.act(Action::Forget(message));
        }
    }
    /// What was kept aside arrives, and may arrive again.
    pub fn arrive_again(&mut self, letters: &Letters) {
        for message in &letters.0 {
            self.through(Action::Deliver { message: message.clone(), master: self.master, again: true });
        }
    }

    // Masters.

    /// `master` leads from now on, and everybody is told.
    pub fn elect(&mut self, master: usize) {
        self.act(Action::Elect(master));
        self.lead(master);
        (0..self.world.pservers.len()).for_each(|place| {
            self.through(Action::OfPserver(place, PserverAct::Greet));
        });
        self.tell_all();
    }
    /// What follows is done by `master`, whether it still leads or not.
    pub fn lead(&mut self, master: usize) {
        self.master = master;
    }
    /// The master tells a pserver its slice.
    pub fn tell(&mut self, place: usize) -> bool {
        let master = self.master;
        self.through(Action::OfMaster(master, MasterAct::Tell(place)))
    }
    /// The master tells a pserver its slice, late.
    pub fn tell_late(&mut self, place: usize) -> Letters {
        let master = self.master;
        self.send(Action::OfMaster(master, MasterAct::Tell(place)))
    }
    /// The master tells the trainers their routes.
    pub fn inform(&mut self) {
        for trainer in 0..self.world.trainers.len() {
            self.through(Action::OfMaster(self.master, MasterAct::Inform(trainer)));
        }
    }
    /// The master tells everybody.
    pub fn tell_all(&mut self) {
        (0..self.world.pservers.len()).for_each(|place| {
            self.tell(place);
        });
        self.inform();
    }
    fn decide(&mut self, decision: Decision) -> bool {
        self.through(Action::OfMaster(self.master, MasterAct::Decide(decision)))
    }
    /// The master gives up whoever is at `place`; `pick` chooses among those that may lead instead.
    pub fn lose(&mut self, place: usize, pick: usize) -> bool {
        self.decide(Decision::Lose { place, pick })
    }
    /// The master adds a copy.
    pub fn add(&mut self, block: usize, place: usize) -> bool {
        self.decide(Decision::Add { block, place })
    }
    /// The master drops a copy that is not needed.
    pub fn drop_copy(&mut self, block: usize, place: usize) -> bool {
        self.decide(Decision::Drop { block, place })
    }
    /// The master names a checkpoint.
    pub fn name(&mut self, version: usize) -> bool {
        self.decide(Decision::Name { version })
    }
    /// The master commits the named checkpoint.
    pub fn commit(&mut self) -> bool {
        self.decide(Decision::Commit)
    }
    /// The master hears that a unit cannot be read.
    pub fn exclude(&mut self, unit: usize) -> bool {
        self.decide(Decision::Exclude { unit })
    }
    /// From now on a record cannot be read.
    pub fn rot(&mut self) {
        self.act(Action::Rot);
    }
    /// The master ends the job.
    pub fn end(&mut self) -> bool {
        self.decide(Decision::Finish)
    }
    /// The master asks for all ledgers.
    pub fn ask_ledgers(&mut self) {
        for block in 0..self.world.setting.shape.blocks {
            self.through(Action::OfMaster(self.master, MasterAct::AskLedger(block)));
        }
    }
    /// The master asks for a ledger; the answer is late.
    pub fn ask_ledger_late(&mut self, block: usize) -> Letters {
        let asked = self.send(Action::OfMaster(self.master, MasterAct::AskLedger(block)));
        self.answer_late(&asked)
    }
    /// What was kept aside arrives; what it causes is kept aside.
    fn answer_late(&mut self, letters: &Letters) -> Letters {
        let mut answers = Vec::new();
        for message in &letters.0 {
            let deliver = Action::Deliver { message: message.clone(), master: self.master, again: false };
            self.act(deliver);
            answers.extend(self.world.soup.last().cloned());
        }
        Letters(answers)
    }

    // Pservers.

    /// The process at `place` dies.
    pub fn crash(&mut self, place: usize) {
        self.act(Action::Crash(place));
    }
    /// Another process starts at `place`; nobody has heard of it yet.
    pub fn restart(&mut self, place: usize) {
        self.act(Action::Restart(place));
    }
    /// A follower asks its primary once; the answer arrives.
    pub fn follow(&mut self, block: usize, place: usize) -> bool {
        self.pull(block, place).is_some_and(|pull| self.through(pull))
    }
    /// A follower asks its primary once; the question is late.
    pub fn follow_late(&mut self, block: usize, place: usize) -> Letters {
        self.pull(block, place).map_or(Letters(Vec::new()), |pull| self.send(pull))
    }
    /// A follower asks its primary once; the answer is late.
    pub fn follow_unanswered(&mut self, block: usize, place: usize) -> Letters {
        let asked = self.follow_late(block, place);
        self.answer_late(&asked)
    }
    /// A follower without a state asks another follower.
    pub fn fill_from(&mut self, block: usize, place: usize, of: usize) -> bool {
        self.through(Action::OfPserver(place, PserverAct::Pull { block, of }))
    }
    fn pull(&self, block: usize, place: usize) -> Option<Action> {
        let of = self.world.pservers[place].copies.get(&block)?.routing.primary.place;
        Some(Action::OfPserver(place, PserverAct::Pull { block, of }))
    }
    /// The primary at `place` asks for the admission of whoever is level.
    pub fn admit(&mut self, block: usize, place: usize) -> bool {
        self.through(Action::OfPserver(place, PserverAct::AskAdmission(block)))
    }
    /// The same; the master hears it late.
    pub fn admit_late(&mut self, block: usize, place: usize) -> Letters {
        self.send(Action::OfPserver(place, PserverAct::AskAdmission(block)))
    }
    /// A copy at `place` is added, filled, brought level and admitted; everybody is told.
    pub fn copy(&mut self, block: usize, place: usize) {
        self.add(block, place);
        self.tell_all();
        self.follow(block, place);
        self.follow(block, place);
        self.admit(block, self.primary(block));
        self.tell_all();
    }
    /// A planned change of primary; without its rule, at once.
    pub fn hand_over(&mut self, block: usize, place: usize) -> bool {
        if !self.world.setting.rules.on(Rule::HandOverDrained) {
            return self.decide(Decision::Promote { block, place });
        }
        let primary = self.primary(block);
        self.decide(Decision::Appoint { block, place });
        self.tell(primary);
        self.through(Action::OfPserver(primary, PserverAct::AskHandOver(block)))
    }
    /// The primary supplies its piece of the named checkpoint.
    pub fn supply(&mut self, block: usize) -> bool {
        let place = self.primary(block);
        self.through(Action::OfPserver(place, PserverAct::Supply(block)))
    }
    /// A block's primary sends the partial of its next step to the scalar block.
    pub fn partial(&mut self, block: usize) -> bool {
        let place = self.primary(block);
        self.through(Action::OfPserver(place, PserverAct::SendPartial(block)))
    }
    /// The same, late.
    pub fn partial_late(&mut self, block: usize) -> Letters {
        let place = self.primary(block);
        self.send(Action::OfPserver(place, PserverAct::SendPartial(block)))
    }
    /// The same; the last of the answers is late.
    pub fn partial_unanswered(&mut self, block: usize) -> Letters {
        let asked = self.partial_late(block);
        self.answer_late(&asked)
    }
    fn primary(&self, block: usize) -> usize {
        self.world.store.document.blocks[block].primary.place
    }

    // Trainers.

    /// A trainer dies.
    pub fn crash_trainer(&mut self, trainer: usize) {
        self.act(Action::CrashTrainer(trainer));
    }
    /// Sync: a trainer sets out for a step and asks all blocks.
    pub fn ask(&mut self, trainer: usize, unit: usize) {
        self.act(Action::OfTrainer(trainer, TrainerAct::Want(unit)));
        for block in 0..self.world.setting.shape.blocks {
            self.through(Action::OfTrainer(trainer, TrainerAct::Ask(block)));
        }
    }
    /// Sync: a trainer asks one pserver about all that it leads.
    pub fn ask_all(&mut self, trainer: usize, place: usize) -> bool {
        self.through(Action::OfTrainer(trainer, TrainerAct::AskAll(place)))
    }
    /// A trainer computes a whole step, if every block has published it; a microbatch in any case.
    pub fn compute(&mut self, trainer: usize, unit: usize) -> bool {
        if !self.world.setting.is_sync() {
            return self.act(Action::OfTrainer(trainer, TrainerAct::Compute(unit)));
        }
        self.ask(trainer, unit);
        if !self.world.setting.rules.on(Rule::PublishedPerBlock) {
            (0..self.world.pservers.len()).for_each(|place| {
                self.ask_all(trainer, place);
            });
        }
        self.compute_asked(trainer)
    }
    /// Sync: a trainer computes the step that it asked for.
    pub fn compute_asked(&mut self, trainer: usize) -> bool {
        let slots = self.world.setting.all_slots();
        self.act(Action::OfTrainer(trainer, TrainerAct::Begin { slots }))
    }
    /// Sync: a trainer asks for a step and computes some of its nodes.
    pub fn compute_nodes(&mut self, trainer: usize, unit: usize, slots: u8) -> bool {
        self.ask(trainer, unit);
        self.act(Action::OfTrainer(trainer, TrainerAct::Begin { slots }))
    }
    fn push_of(&self, trainer: usize, unit: usize, block: usize) -> Option<Action> {
        let gradients = &self.world.trainers[trainer].gradients;
        let gradient = gradients.iter().position(|gradient| gradient.unit == unit)?;
        Some(Action::OfTrainer(trainer, TrainerAct::Push { gradient, block }))
    }
    /// A trainer pushes one block's part of a gradient that it has.
    pub fn push(&mut self, trainer: usize, unit: usize, block: usize) -> bool {
        self.push_of(trainer, unit, block).is_some_and(|push| self.through(push))
    }
    /// The same, late.
    pub fn push_late(&mut self, trainer: usize, unit: usize, block: usize) -> Letters {
        self.push_of(trainer, unit, block).map_or(Letters(Vec::new()), |push| self.send(push))
    }
    /// A trainer computes a unit and pushes it to all blocks.
    pub fn train(&mut self, trainer: usize, unit: usize) {
        self.compute(trainer, unit);
        for block in 0..self.world.setting.shape.blocks {
            self.push(trainer, unit, block);
        }
    }
}
