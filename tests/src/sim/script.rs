//! Plays a scenario: trainers come, faults happen, everything heals, and the job is watched until it ends or stands
//! still for longer than it may.

use super::evidence::Evidence;
use super::host::{Host, HostState};
use super::observer::Observer;
use super::scenario::Fault;
use super::world::World;
use shoal_runtime::wire::proto;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A run under way.
#[derive(Debug)]
pub struct Script {
    world: World,
    observer: Observer,
    began: Instant,
    to_come: BTreeMap<(Instant, usize), Happening>,
    steps: Vec<(u64, u64, u64)>,
    advanced: Instant,
    stood_still: Duration,
    /// Pservers that the master wants to run, by its newest word.
    wanted: usize,
    /// Where pservers answer that are leaving.
    leaving: BTreeSet<String>,
    /// Pservers that are to come in the place of others.
    to_replace: usize,
}

#[derive(Clone, Debug)]
enum Happening {
    Fault(Fault),
    /// Of a host, by name.
    Resume(String),
    Mend(String, String),
    /// A pserver comes in the place of the one that answered there.
    Replace(String),
    RestartMaster,
    Heal,
    Look,
}

/// Lives of pservers that a run may have in all.
const PSERVER_LIVES_MAX: usize = 40;
/// Trainers that a run may have in all.
const LIVES_MAX: usize = 12;

impl Script {
    /// Sets the stage.
    pub fn new(mut world: World) -> Script {
        let observer = Observer::new(&world.network);
        for number in 1..=world.scenario.trainers {
            world.start_trainer(&format!("trainer-{number}"));
        }
        let began = Instant::now();
        let mut script = Script {
            world,
            observer,
            began,
            to_come: BTreeMap::new(),
            steps: Vec::new(),
            advanced: began,
            stood_still: Duration::ZERO,
            wanted: 0,
            leaving: BTreeSet::new(),
            to_replace: 0,
        };
        script.wanted = script.world.scenario.pservers as usize;
        for (at, fault) in script.world.scenario.faults.clone() {
            script.plan(began + at, Happening::Fault(fault));
        }
        script.plan(began + script.world.scenario.healing, Happening::Heal);
        script.plan(began, Happening::Look);
        script
    }

    /// Plays to the end.
    pub async fn play(mut self) -> Evidence {
        let may_stand_still = self.may_stand_still();
        while let Some(((at, _), happening)) = self.to_come.pop_first() {
            sleep_until(at).await;
            if matches!(happening, Happening::Look) {
                let status = self.observer.status().await;
                if self.look(status) || self.stands_still() > may_stand_still {
                    break;
                }
                self.supervise();
                self.plan(Instant::now() + self.world.scenario.ttl / 8, Happening::Look);
                continue;
            }
            self.happen(happening.clone());
            if let Happening::Fault(fault) = happening
                && !self.is_healed()
            {
                self.ask(fault).await;
            }
        }
        // A job that ends before its faults are over is healed as well.
        self.happen(Happening::Heal);
        let stood_still = self.stood_still.max(self.stands_still());
        let patience = may_stand_still * 2;
        let evidence = Evidence::gather(self.world, &self.observer, self.steps, patience).await;
        Evidence { stood_still, may_stand_still, ..evidence }
    }

    /// Two TTLs (P4) and what is no fault of leasing: an unanswered call's deadlines and pauses, and a task's work.
    fn may_stand_still(&self) -> Duration {
        let scenario = &self.world.scenario;
        let slowest = scenario.paces.iter().max().copied().unwrap_or_default();
        let work = slowest * scenario.microbatches_per_step;
        let deadlines = Duration::from_secs(5) + scenario.ttl / 4 + scenario.attempt + Duration::from_secs(2);
        scenario.ttl * 2 + work * 2 + deadlines + scenario.weather.late + scenario.weather.delay * 12
    }

    fn plan(&mut self, at: Instant, happening: Happening) {
        let number = self.to_come.keys().map(|(_, number)| number + 1).max().unwrap_or_default();
        self.to_come.insert((at, number), happening);
    }

    fn is_healed(&self) -> bool {
        self.began.elapsed() >= self.world.scenario.healing
    }
    fn stands_still(&self) -> Duration {
        let healed = self.began + self.world.scenario.healing;
        Instant::now().saturating_duration_since(self.advanced.max(healed))
    }

    /// Takes the master's word; true when the job is over.
    fn look(&mut self, status: Option<proto::StatusReply>) -> bool {
        let Some(status) = status else { return false };
        self.wanted = status.pservers_wanted as usize;
        let leaving = status.pservers.iter().filter(|pserver| pserver.is_leaving && !pserver.lost);
        self.leaving = leaving.map(|pserver| pserver.address.clone()).collect();
        let place = (u64::from(status.master_term), status.rewind, status.front);
        if self.steps.last().is_none_or(|last| *last != place) {
            self.stood_still = self.stood_still.max(self.stands_still());
            self.advanced = Instant::now();
            self.steps.push(place);
        }
        status.phase == "done" || status.phase == "failed"
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Fault(fault) if !self.is_healed() => self.strike(fault),
            Happening::Resume(host) => self.resume(&host),
            Happening::Mend(from, to) => self.world.network.mend(&from, &to),
            Happening::Replace(address) => self.replace(&address),
            Happening::RestartMaster => self.restart_master(),
            Happening::Heal => self.heal(),
            Happening::Fault(_) | Happening::Look => {}
        }
    }

    fn strike(&mut self, fault: Fault) {
        self.world.network.note(4, format_args!("{fault:?}"));
        match fault {
            Fault::Crash(who) => {
                if let Some(at) = self.living(who) {
                    self.world.trainers[at].host.crash();
                    self.world.met("trainers crashed");
                }
            }
            Fault::Leave(who) => {
                if let Some(at) = self.living(who) {
                    self.world.trainers[at].ask_to_leave();
                }
            }
            Fault::Pause(who, how_long) => {
                if let Some(at) = self.living(who) {
                    self.pause(&self.world.trainers[at].host.name.clone(), how_long);
                }
            }
            Fault::PausePserver(who, how_long) => {
                if let Some(host) = self.living_pserver(who) {
                    self.pause(&host.name, how_long);
                }
            }
            Fault::PauseMaster(how_long) => {
                let master = self.world.masters.last().map(|host| host.name.clone());
                self.pause(&master.unwrap_or_default(), how_long);
            }
            Fault::CrashPserver(who, how_long) => {
                if let Some(host) = self.living_pserver(who) {
                    host.crash();
                    self.world.met("pservers crashed");
                    let address = address_of(&host).to_owned();
                    self.to_replace += 1;
                    self.plan(Instant::now() + how_long, Happening::Replace(address));
                }
            }
            Fault::CrashMaster(how_long) => {
                self.world.masters.iter().for_each(|host| host.crash());
                self.world.met("masters crashed");
                self.plan(Instant::now() + how_long, Happening::RestartMaster);
            }
            Fault::Join => self.join(format!("trainer-{}", self.world.trainers.len() + 1)),
            Fault::JoinAs(who) => {
                let at = who as usize % self.world.trainers.len();
                self.join(self.world.trainers[at].name.clone());
            }
            Fault::Cut(from, to, how_long) => self.cut(from, to, how_long),
            // These are asked of the master.
            Fault::ScalePservers(_) | Fault::MigratePserver(_) => {}
        }
    }

    /// Asks the master for what only it can do.
    async fn ask(&mut self, fault: Fault) {
        match fault {
            Fault::ScalePservers(wanted) => {
                self.observer.scale_pservers(wanted).await;
                self.world.met("pservers scaled");
            }
            Fault::MigratePserver(who) => {
                if let Some(host) = self.living_pserver(who) {
                    self.observer.migrate(address_of(&host)).await;
                    self.world.met("pservers migrated");
                }
            }
            _ => {}
        }
    }

    /// Pservers that run and stay.
    fn staying(&self) -> usize {
        self.world.living_pservers().filter(|host| !self.leaving.contains(address_of(host))).count()
    }

    /// Starts the pservers that are wanted and are not still to come, as whoever keeps a job's processes does.
    fn supervise(&mut self) {
        while self.staying() + self.to_replace < self.wanted && self.world.pservers.len() < PSERVER_LIVES_MAX
        {
            let address = format!("pserver-{}", self.world.pservers.len() + 1);
            self.world.network.note(3, format_args!("{address} starts"));
            self.world.start_pserver(&address);
        }
    }

    fn join(&mut self, name: String) {
        if self.world.trainers.len() < LIVES_MAX {
            self.world.start_trainer(&name);
        }
    }

    fn living_pserver(&self, who: u64) -> Option<Arc<Host>> {
        let living: Vec<&Arc<Host>> = self.world.living_pservers().collect();
        living.get(who as usize % living.len().max(1)).map(|host| Arc::clone(host))
    }

    /// Under its name where that is free, as on a cluster; every other time under a new one, as `shoal run` does.
    fn replace(&mut self, address: &str) {
        self.to_replace = self.to_replace.saturating_sub(1);
        if self.staying() >= self.wanted {
            return;
        }
        let number = self.world.pservers.len() + 1;
        let is_taken = self.world.living_pservers().any(|host| address_of(host) == address);
        let address = if is_taken || number.is_multiple_of(2) {
            format!("pserver-{number}")
        } else {
            address.to_owned()
        };
        self.world.network.note(3, format_args!("{address} starts"));
        self.world.start_pserver(&address);
    }

    fn restart_master(&mut self) {
        if self.world.masters.last().is_none_or(|host| host.state() == HostState::Crashed) {
            self.world.network.note(3, "a master starts");
            self.world.start_master();
        }
    }

    fn living(&self, who: u64) -> Option<usize> {
        let living: Vec<usize> =
            (0..self.world.trainers.len()).filter(|at| self.world.trainers[*at].is_alive()).collect();
        living.get(who as usize % living.len().max(1)).copied()
    }

    fn pause(&mut self, host: &str, how_long: Duration) {
        for found in self.world.hosts().filter(|found| found.name == host) {
            found.pause();
        }
        self.plan(Instant::now() + how_long, Happening::Resume(host.to_owned()));
    }

    fn resume(&self, host: &str) {
        for found in self.world.hosts().filter(|found| found.name == host) {
            found.resume();
        }
        self.world.network.note(5, format_args!("{host} goes on"));
    }

    fn cut(&mut self, from: u64, to: u64, how_long: Duration) {
        let names: Vec<String> = self.world.hosts().map(|host| host.name.clone()).collect();
        let (from, to) = (&names[from as usize % names.len()], &names[to as usize % names.len()]);
        self.world.network.cut(from, to);
        self.plan(Instant::now() + how_long, Happening::Mend(from.clone(), to.clone()));
    }

    /// No more faults: the weather clears, who stands still goes on, who was killed is replaced, and somebody is there
    /// to train.
    fn heal(&mut self) {
        self.restart_master();
        self.to_replace = 0;
        self.supervise();
        let world = &mut self.world;
        world.network.note(6, "healed");
        world.network.set_weather(world.scenario.weather.healed());
        world.network.mend_all();
        world.hosts().for_each(|host| host.resume());
        let names: Vec<&str> = world.trainers.iter().map(|trainer| trainer.name.as_str()).collect();
        let is_unique = |name: &str| names.iter().filter(|other| **other == name).count() == 1;
        let stays = world.trainers.iter().enumerate().any(|(number, trainer)| {
            let works = trainer.is_alive() && world.scenario.stuck != Some(number);
            works && !trainer.is_asked_to_leave && is_unique(&trainer.name)
        });
        if !stays {
            // It must not be the one that gets stuck, should that one be still to come.
            self.world.scenario.stuck = None;
            self.world.start_trainer("rescuer");
        }
        debug_assert!(self.world.hosts().all(|host| host.state() != HostState::Paused));
    }
}

/// Where a pserver answers: its host's name without the number of its life.
fn address_of(host: &Host) -> &str {
    host.name.split('#').next().unwrap_or_default()
}
