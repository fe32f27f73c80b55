//! Plays a scenario: trainers come, faults happen, everything heals, and the job is watched until it ends or stands
//! still for longer than it may.

mod strike;

use super::evidence::Evidence;
use super::faults::{Fault, When};
use super::host::{Host, HostState};
use super::observer::Observer;
use super::watcher::Watcher;
use super::world::{Trainer, World};
use shoal_runtime::cluster::Mode;
use shoal_runtime::cluster::permutation::key;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::store::ForgetfulDisk;
use shoal_runtime::wire::proto;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A run under way.
#[derive(Debug)]
pub struct Script {
    world: World,
    observer: Observer,
    began: Instant,
    /// When the first healing was.
    healed: Option<Instant>,
    to_come: BTreeMap<(Instant, usize), Happening>,
    /// What waits for the job to come so far, the last first.
    ahead: Vec<(When, Happening)>,
    /// Steps that were done at some time, of all.
    done: (u64, u64),
    /// Until the next look.
    pace: Duration,
    steps: Vec<(u64, u64, u64)>,
    advanced: Instant,
    stood_still: Duration,
    watcher: Watcher,
    /// Pservers that the master wants to run, by its newest word.
    wanted: usize,
    /// Where pservers answer that are leaving.
    leaving: BTreeSet<String>,
    /// Pservers that are to come in the place of others.
    to_replace: usize,
    /// Whether a master is to come in the place of one that is gone.
    master_is_coming: bool,
    /// Whether the machine loses its power when its disk dies.
    disk_dies_with_power: bool,
    /// What the disks' survivors are drawn from.
    random: Random,
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
    /// The checkpoints' place and the master's disk are as they should be again.
    Mended(Memory),
    /// Of a host, by name: it is no longer slow.
    Hasten(String),
    Heal,
    Look,
}

/// What is durable.
#[derive(Clone, Copy, Debug)]
enum Memory {
    Disk,
    Silent,
    Slow,
    Full,
}

/// Lives of pservers that a run may have in all.
const PSERVER_LIVES_MAX: usize = 40;

impl Script {
    /// Sets the stage.
    pub fn new(mut world: World) -> Script {
        let observer = Observer::new(&world.network);
        for number in 1..=world.scenario.trainers {
            world.start_trainer(&format!("trainer-{number}"));
        }
        let began = Instant::now();
        let random = Random::seeded(key(&[world.scenario.seed, 4]));
        let ttl = world.scenario.ttl;
        let mut script = Script {
            world,
            observer,
            began,
            healed: None,
            to_come: BTreeMap::new(),
            ahead: Vec::new(),
            done: (0, 1),
            pace: Duration::ZERO,
            steps: Vec::new(),
            advanced: began,
            stood_still: Duration::ZERO,
            watcher: Watcher::new(ttl, Duration::ZERO),
            wanted: 0,
            leaving: BTreeSet::new(),
            to_replace: 0,
            master_is_coming: false,
            disk_dies_with_power: false,
            random,
        };
        script.watcher = Watcher::new(ttl, script.may_stand_still() * 2);
        script.wanted = script.world.scenario.pservers as usize;
        let faults =
            script.world.scenario.faults.iter().map(|(when, fault)| (*when, Happening::Fault(*fault)));
        script.ahead = faults.chain([(script.world.scenario.healing, Happening::Heal)]).rev().collect();
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
                self.plan_what_is_due();
                self.plan_next_look();
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
        self.world.network.points.disarm();
        let (named, standstills) = self.watcher.into_verdict();
        self.world.met_times("causes named of a front that stood", named);
        let evidence = Evidence::gather(self.world, &self.observer, self.steps, patience).await;
        Evidence { stood_still, may_stand_still, standstills, ..evidence }
    }

    /// Two TTLs (P4) and what is no fault of leasing: an unanswered call's deadlines and pauses, and a task's work.
    fn may_stand_still(&self) -> Duration {
        let scenario = &self.world.scenario;
        let slowest = scenario.paces.iter().max().copied().unwrap_or_default();
        let work = slowest * scenario.microbatches_per_step;
        // Asynchronously each microbatch of a task is pulled for and pushed by itself, and its followers told.
        let is_async = matches!(scenario.mode, Mode::Async { .. });
        let calls = if is_async { scenario.microbatches_per_step } else { 0 };
        let deadlines = Duration::from_secs(5) + scenario.ttl / 4 + scenario.attempt + Duration::from_secs(2);
        // Three trainers in turn, or one three times, try what nobody can do; a word waits for a call to end.
        let troubles = if scenario.poison.is_some() { scenario.ttl * 3 } else { Duration::ZERO };
        scenario.ttl * 2
            + work * 2
            + deadlines
            + scenario.weather.late
            + scenario.weather.delay * (12 + calls * 8)
            + troubles
    }

    fn plan(&mut self, at: Instant, happening: Happening) {
        let number = self.to_come.keys().map(|(_, number)| number + 1).max().unwrap_or_default();
        self.to_come.insert((at, number), happening);
    }

    /// Plans what happens by as far as the job has come, or should have come by now.
    fn plan_what_is_due(&mut self) {
        let (done, of) = self.done;
        let patience = self.world.scenario.patience.as_millis().max(1) as u64;
        let over = self.began.elapsed().as_millis() as u64 * 1000 / patience;
        let permille = (done * 1000 / of.max(1)).max(over);
        while let Some((when, happening)) = self.ahead.pop_if(|(when, _)| when.permille <= permille) {
            self.plan(Instant::now() + when.later, happening);
        }
    }

    /// Often while there is something new to see.
    fn plan_next_look(&mut self) {
        let (often, seldom) = (self.world.scenario.weather.delay * 4, self.world.scenario.ttl / 8);
        self.pace = (self.pace * 2).max(often).min(seldom);
        self.plan(Instant::now() + self.pace, Happening::Look);
    }

    /// Returns true if only faults delay members, now and for some time before.
    fn is_fair(&self) -> bool {
        let scenario = &self.world.scenario;
        let is_slow =
            scenario.paces.iter().any(|pace| *pace * scenario.microbatches_per_step >= scenario.ttl / 4);
        let is_calm = self.healed.is_some_and(|healed| healed.elapsed() > self.may_stand_still() * 2);
        let is_fair = scenario.weather.is_fair() || is_calm;
        is_fair && !is_slow && scenario.stuck.is_none() && scenario.poison.is_none()
    }
    fn is_healed(&self) -> bool {
        self.healed.is_some()
    }
    fn stands_still(&self) -> Duration {
        self.healed.map_or(Duration::ZERO, |healed| self.advanced.max(healed).elapsed())
    }

    /// Takes the master's word; true when the job is over.
    fn look(&mut self, status: Option<proto::StatusReply>) -> bool {
        let Some(status) = status else { return false };
        let has_trainer = self.world.trainers.iter().any(Trainer::is_alive);
        self.watcher.saw(&status, has_trainer, self.is_fair());
        self.wanted = status.pservers_wanted as usize;
        let leaving = status.pservers.iter().filter(|pserver| pserver.is_leaving && !pserver.lost);
        self.leaving = leaving.map(|pserver| pserver.address.clone()).collect();
        let place = (u64::from(status.master_term), status.rewind, status.front);
        if self.steps.last().is_none_or(|last| *last != place) {
            self.pace = Duration::ZERO;
            self.stood_still = self.stood_still.max(self.stands_still());
            self.advanced = Instant::now();
            self.steps.push(place);
        }
        self.done = (self.done.0.max(status.step), status.steps);
        status.phase == "done" || status.phase == "failed"
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Fault(fault) if !self.is_healed() => self.strike(fault),
            Happening::Resume(host) => self.resume(&host),
            Happening::Mend(from, to) => self.world.network.mend(&from, &to),
            Happening::Replace(address) => self.replace(&address),
            Happening::RestartMaster => self.restart_master(),
            Happening::Mended(what) => self.mend(what),
            Happening::Hasten(host) => self.slow_down(&host, Duration::ZERO),
            Happening::Heal => self.heal(),
            Happening::Fault(_) | Happening::Look => {}
        }
    }

    /// Pservers that run and stay.
    fn staying(&self) -> usize {
        self.world.living_pservers().filter(|host| !self.leaving.contains(address_of(host))).count()
    }

    /// Starts the pservers that are wanted and are not still to come, as whoever keeps a job's processes does.
    fn supervise(&mut self) {
        self.look_after_master();
        if self.is_healed() && !self.world.trainers.iter().any(Trainer::is_alive) {
            self.rescue();
        }
        while self.staying() + self.to_replace < self.wanted && self.world.pservers.len() < PSERVER_LIVES_MAX
        {
            let address = format!("pserver-{}", self.world.pservers.len() + 1);
            self.world.network.note(3, format_args!("{address} starts"));
            self.world.start_pserver(&address);
        }
    }

    /// Starts a trainer that works. It must not be the one that gets stuck, should that one be still to come.
    fn rescue(&mut self) {
        if self.world.scenario.stuck == Some(self.world.trainers.len()) {
            self.world.scenario.stuck = None;
        }
        self.world.start_trainer("rescuer");
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

    /// A master that gave up, or whose disk died under it, is started again after a while.
    fn look_after_master(&mut self) {
        let died = self.world.disk.as_ref().is_some_and(ForgetfulDisk::is_dead);
        if died {
            self.crash_master(self.disk_dies_with_power);
        }
        let is_gone = self.world.masters.last().is_none_or(|host| host.state() == HostState::Crashed);
        if is_gone && !self.master_is_coming {
            self.restart_master_after(self.world.scenario.ttl / 2);
        }
    }

    fn restart_master_after(&mut self, away: Duration) {
        self.master_is_coming = true;
        self.plan(Instant::now() + away, Happening::RestartMaster);
    }

    fn restart_master(&mut self) {
        self.master_is_coming = false;
        if self.world.masters.last().is_none_or(|host| host.state() == HostState::Crashed) {
            self.world.network.note(3, "a master starts");
            self.world.start_master();
        }
    }

    /// No more faults: the weather clears, who stands still goes on, who was killed is replaced, and somebody is there
    /// to train.
    fn heal(&mut self) {
        self.healed.get_or_insert_with(Instant::now);
        for memory in [Memory::Disk, Memory::Silent, Memory::Slow, Memory::Full] {
            self.mend(memory);
        }
        self.look_after_master();
        self.restart_master();
        self.to_replace = 0;
        self.supervise();
        let world = &mut self.world;
        world.network.note(6, "healed");
        world.network.set_weather(world.scenario.weather.healed());
        world.network.mend_all();
        for host in world.hosts() {
            host.resume();
            host.slow_down(Duration::ZERO);
        }
        let names: Vec<&str> = world.trainers.iter().map(|trainer| trainer.name.as_str()).collect();
        let is_unique = |name: &str| names.iter().filter(|other| **other == name).count() == 1;
        let stays = world.trainers.iter().enumerate().any(|(number, trainer)| {
            let works = trainer.is_alive() && world.scenario.stuck != Some(number);
            works && !trainer.is_asked_to_leave && is_unique(&trainer.name)
        });
        if !stays {
            self.rescue();
        }
        debug_assert!(self.world.hosts().all(|host| host.state() != HostState::Paused));
    }
}

/// Where a pserver answers: its host's name without the number of its life.
fn address_of(host: &Host) -> &str {
    host.name.split('#').next().unwrap_or_default()
}
