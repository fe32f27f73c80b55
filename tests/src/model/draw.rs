//! Draws the next action of a walk from what could happen now. It must never do it.

use super::action::{Action, MasterAct, PserverAct, TrainerAct};
use super::copy::Copy;
use super::decide::Decision;
use super::pserver::Pserver;
use super::rules::Rule;
use super::weather::{Dice, Kind, Weather};
use super::words::{Block, Mode, Place};
use super::world::World;

/// An action of this kind, or none where there is nothing of the kind to do.
pub(crate) fn draw(kind: Kind, world: &World, dice: &mut Dice, weather: &Weather) -> Option<Action> {
    let shape = world.setting.shape;
    let (trainer, master) = (dice.below(shape.trainers), dice.below(shape.masters));
    let block = dice.below(shape.blocks);
    // Half of what happens, happens to a primary.
    let primary = world.store.document.blocks[block].primary.place;
    let place = if dice.one_in(2) { primary } else { dice.below(shape.pservers) };
    let of_master = |act| Some(Action::OfMaster(master, act));
    let of_pserver = |place, act| Some(Action::OfPserver(place, act));
    match kind {
        Kind::Deliver | Kind::Forget => from_soup(kind, world, dice, weather),
        Kind::Crash => Some(Action::Crash(place)),
        Kind::Restart => Some(Action::Restart(place)),
        Kind::TrainerCrash => Some(Action::CrashTrainer(trainer)),
        Kind::TrainerStart => Some(Action::StartTrainer(trainer)),
        Kind::Rot => Some(Action::Rot),
        Kind::MasterCrash => Some(Action::CrashMaster(master)),
        Kind::Elect => {
            let may = world.masters[master].leads.is_none() || dice.one_in(10);
            may.then_some(Action::Elect(master))
        }
        Kind::Tell => of_master(MasterAct::Tell(place)),
        Kind::Inform => of_master(MasterAct::Inform(trainer)),
        Kind::Ledger => of_master(MasterAct::AskLedger(block)),
        Kind::Greet => {
            let known = world.masters[master].known.lives.get(&place);
            let is_known = known == Some(&world.pservers[place].me.life);
            of_pserver(place, PserverAct::Greet).filter(|_| !is_known || dice.one_in(10))
        }
        Kind::Pull => {
            let (place, block) = copy_where(world, dice, |copy| copy.reign.is_none())?;
            let primary = world.pservers[place].copies[&block].routing.primary.place;
            let of = if dice.one_in(8) { dice.below(shape.pservers) } else { primary };
            of_pserver(place, PserverAct::Pull { block, of })
        }
        Kind::Admission | Kind::HandOver | Kind::Supply | Kind::Partial => {
            let (place, block) = copy_where(world, dice, |copy| copy.reign.is_some())?;
            let act = match kind {
                Kind::Admission => PserverAct::AskAdmission(block),
                Kind::HandOver => PserverAct::AskHandOver(block),
                Kind::Partial => PserverAct::SendPartial(block),
                _ => PserverAct::Supply(block),
            };
            of_pserver(place, act)
        }
        Kind::Work => Some(Action::OfTrainer(trainer, work(world, dice, weather, trainer, block, place))),
        Kind::Round => None,
        _ => of_master(MasterAct::Decide(decision(kind, world, dice, block, place)?)),
    }
}

fn from_soup(kind: Kind, world: &World, dice: &mut Dice, weather: &Weather) -> Option<Action> {
    let many = world.soup.len().max(1);
    let at = if dice.one_in(weather.overtakes) { dice.below(many) } else { 0 };
    let message = world.soup.get(at).filter(|message| !weather.holds(message))?.clone();
    let (master, again) = (dice.below(world.masters.len()), weather.again(dice));
    Some(match kind {
        Kind::Forget => Action::Forget(message),
        _ => Action::Deliver { message, master, again },
    })
}

fn decision(kind: Kind, world: &World, dice: &mut Dice, block: Block, place: Place) -> Option<Decision> {
    let shape = world.setting.shape;
    let document = &world.store.document;
    Some(match kind {
        Kind::Lose | Kind::Suspect => {
            let mut marks = document.blocks.iter().flat_map(|routing| &routing.copies);
            let is_dead = marks.any(|mark| mark.at.place == place && !world.pservers[place].is(mark.at));
            if kind == Kind::Lose && !is_dead {
                return None;
            }
            Decision::Lose { place, pick: dice.below(4) }
        }
        Kind::Add => {
            // Now and then one more than wanted, so that something can move.
            let wanted = 1 + shape.followers + usize::from(dice.one_in(4));
            if document.blocks[block].copies.len() >= wanted {
                return None;
            }
            Decision::Add { block, place }
        }
        Kind::Drop => Decision::Drop { block, place },
        Kind::Appoint if world.setting.rules.on(Rule::HandOverDrained) => Decision::Appoint { block, place },
        Kind::Appoint => Decision::Promote { block, place },
        Kind::Name => Decision::Name { version: 1 + dice.below(shape.units) },
        Kind::Exclude => Decision::Exclude { unit: dice.below(shape.units) },
        Kind::Commit if dice.one_in(3) => Decision::Finish,
        Kind::Commit => Decision::Commit,
        _ => return None,
    })
}

/// A copy that somebody holds.
fn copy_where(world: &World, dice: &mut Dice, is_it: impl Fn(&Copy) -> bool) -> Option<(Place, Block)> {
    let copies_of = |pserver: &Pserver| -> Vec<(Place, Block)> {
        let held = pserver.copies.iter().filter(|(_, copy)| is_it(copy));
        held.map(|(block, _)| (pserver.me.place, *block)).collect()
    };
    let living = world.pservers.iter().filter(|pserver| pserver.alive);
    let copies: Vec<(Place, Block)> = living.flat_map(copies_of).collect();
    if copies.is_empty() { None } else { Some(dice.among(&copies)) }
}

fn work(
    world: &World,
    dice: &mut Dice,
    weather: &Weather,
    trainer: usize,
    block: Block,
    place: Place,
) -> TrainerAct {
    let shape = world.setting.shape;
    let it = &world.trainers[trainer];
    let is_spared = weather.starved == Some(block) && !dice.one_in(8);
    if !it.gradients.is_empty() && !is_spared && dice.one_in(2) {
        return TrainerAct::Push { gradient: dice.below(it.gradients.len()), block };
    }
    if shape.mode == Mode::Async {
        return TrainerAct::Compute(dice.below(shape.units));
    }
    let step = (world.published_everywhere() + dice.below(2 + shape.delay)).min(shape.units - 1);
    match dice.below(8) {
        0 if it.wanted.is_none() || dice.one_in(4) => TrainerAct::Want(step),
        1 => TrainerAct::AskAll(place),
        2 | 3 => TrainerAct::Begin { slots: dice.among(&[1, 2, 3]) },
        _ if it.wanted.is_none() => TrainerAct::Want(step),
        _ => TrainerAct::Ask(block),
    }
}
