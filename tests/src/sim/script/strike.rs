//! What each fault does to the world, and how it is undone.

use super::{Happening, Memory, Script, address_of};
use crate::sim::faults::Fault;
use crate::sim::host::Host;
use crate::sim::watcher::{PLACE, STORE};
use crate::sim::world::MASTER;
use shoal_runtime::host::store::{DiskFault, ForgetfulDisk};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The duration of faults that strike at an unknown later time.
const LATE: Duration = Duration::from_secs(1_000_000);
/// Trainers that live at a time.
const LIVING_MAX: usize = 12;

impl Script {
    pub(super) fn strike(&mut self, fault: Fault) {
        self.world.network.note(4, format_args!("{fault:?}"));
        match fault {
            Fault::Crash(who) => self.with_trainer(who, |script, at| {
                let name = script.world.trainers[at].host.name.clone();
                script.world.trainers[at].host.crash();
                script.watcher.touch(&name, Duration::ZERO);
                script.world.met("trainers crashed");
            }),
            Fault::Leave(who) => {
                self.with_trainer(who, |script, at| script.world.trainers[at].ask_to_leave());
            }
            Fault::Pause(who, how_long) => self.with_trainer(who, |script, at| {
                script.pause(&script.world.trainers[at].host.name.clone(), how_long);
            }),
            Fault::PausePserver(who, how_long) => {
                if let Some(host) = self.living_pserver(who) {
                    self.pause(&host.name, how_long);
                }
            }
            Fault::PauseMaster(how_long) => {
                let master = self.world.masters.last().map(|host| host.name.clone());
                self.pause(&master.unwrap_or_default(), how_long);
            }
            Fault::CrashPserver(who, how_long) => self.crash_pserver(who, how_long),
            Fault::CrashMaster(how_long) => {
                self.crash_master(false);
                self.restart_master_after(how_long);
            }
            Fault::Join => self.join(format!("trainer-{}", self.world.trainers.len() + 1)),
            Fault::JoinAs(who) => {
                let at = who as usize % self.world.trainers.len();
                self.join(self.world.trainers[at].name.clone());
            }
            Fault::Cut(from, to, how_long) => {
                let (from, to) = (self.host(from), self.host(to));
                self.cut(&from, &to, how_long);
            }
            Fault::Part(one, other, how_long) => {
                let (one, other) = (self.host(one), self.host(other));
                self.part(&one, &other, how_long);
            }
            Fault::Isolate(who, how_long) => self.isolate(who, how_long),
            Fault::Slow(who, lag, how_long) => {
                let host = self.host(who).name.clone();
                self.slow_down(&host, lag);
                self.watcher.touch(&host, how_long + lag);
                self.world.met("hosts slowed down");
                self.plan(Instant::now() + how_long, Happening::Hasten(host));
            }
            // These are asked of the master, or of its document.
            Fault::ScalePservers(_) | Fault::Edit(_) | Fault::MigratePserver(_) | Fault::Rot(_) => {}
            _ => self.strike_memory(fault),
        }
    }

    /// What becomes of the master's store and of the checkpoints' place.
    fn strike_memory(&mut self, fault: Fault) {
        match fault {
            Fault::CutPower(away) => {
                self.crash_master(true);
                self.restart_master_after(away);
            }
            Fault::Disk(step, fault, with_power) => {
                self.disk_dies_with_power = with_power;
                self.with_disk(|disk| disk.fail(step, fault));
                self.watcher.touch(STORE, LATE);
                let refuses = matches!(fault, DiskFault::Refuses(_));
                self.world.met(if refuses { "disks that refused" } else { "disks that died" });
            }
            Fault::StallDisk(stall, how_long) => {
                self.with_disk(|disk| disk.set_stall(stall));
                self.watcher.touch(STORE, how_long + stall);
                self.world.met("disks stalled");
                self.plan(Instant::now() + how_long, Happening::Mended(Memory::Disk));
            }
            Fault::Swap(fault) => {
                self.world.stores.last().into_iter().for_each(|store| store.fail_next_swap(fault));
                self.watcher.touch(STORE, LATE);
                self.world.met("swaps without an answer");
            }
            Fault::Depose => {
                self.world.stores.last().into_iter().for_each(|store| store.depose());
                self.watcher.touch(MASTER, Duration::ZERO);
                self.world.met("masters deposed");
            }
            Fault::SilencePlace(how_long) => {
                self.world.place.iter().for_each(|place| place.set_silent(true));
                self.watcher.touch(PLACE, how_long);
                self.world.met("places silent");
                self.plan(Instant::now() + how_long, Happening::Mended(Memory::Silent));
            }
            Fault::SlowPlace(pace, how_long) => {
                self.world.place.iter().for_each(|place| place.set_pace(pace));
                self.watcher.touch(PLACE, how_long + pace * 8);
                self.world.met("places slow");
                self.plan(Instant::now() + how_long, Happening::Mended(Memory::Slow));
            }
            Fault::FillPlace(how_long) => {
                self.world.place.iter().for_each(|place| place.set_full(true));
                self.watcher.touch(PLACE, how_long);
                self.world.met("places full");
                self.plan(Instant::now() + how_long, Happening::Mended(Memory::Full));
            }
            other => unreachable!("{other:?} strikes no memory"),
        }
    }

    pub(super) fn mend(&mut self, what: Memory) {
        let place = self.world.place.as_ref();
        match what {
            Memory::Disk => self.with_disk(|disk| disk.set_stall(Duration::ZERO)),
            Memory::Silent => place.into_iter().for_each(|place| place.set_silent(false)),
            Memory::Slow => place.into_iter().for_each(|place| place.set_pace(Duration::ZERO)),
            Memory::Full => place.into_iter().for_each(|place| place.set_full(false)),
        }
    }

    /// Does what needs the master's word, or its document.
    pub(super) async fn ask(&mut self, fault: Fault) {
        match fault {
            Fault::ScalePservers(wanted) => {
                self.observer.scale_pservers(wanted).await;
                self.world.met("pservers scaled");
            }
            Fault::Edit(edit) => {
                // A master that does not answer goes on as it was.
                let spec = self.world.scenario.edited(edit);
                if self.observer.tell(&spec).await {
                    self.world.met("settings edited");
                }
            }
            Fault::MigratePserver(who) => {
                if let Some(host) = self.living_pserver(who) {
                    self.observer.migrate(address_of(&host)).await;
                    self.world.met("pservers migrated");
                }
            }
            Fault::Rot(luck) => self.rot(luck).await,
            _ => {}
        }
    }

    /// A kept checkpoint is damaged, mostly the newest, which is the one that is read first; not the last of all, which
    /// nobody could make again.
    async fn rot(&mut self, luck: u64) {
        let Some(document) = self.world.history.documents().pop() else { return };
        let kept = document.checkpoints.iter().filter(|kept| kept.version < document.last_version());
        let kept: Vec<_> = kept.map(|kept| kept.record.checkpoint).collect();
        let (Some(place), false) = (&self.world.place, kept.is_empty()) else { return };
        let back = if luck.is_multiple_of(4) { luck as usize / 4 % kept.len() } else { 0 };
        let folder = format!("checkpoint-{:08}/", kept[kept.len() - 1 - back].0);
        if place.rot(&folder, luck).await {
            self.watcher.touch(PLACE, LATE);
            self.world.met("checkpoints damaged");
        }
    }

    fn with_disk(&self, strike: impl FnOnce(&ForgetfulDisk)) {
        if let Some(disk) = &self.world.disk {
            strike(disk);
        }
    }

    fn with_trainer(&mut self, who: u64, strike: impl FnOnce(&mut Script, usize)) {
        let living: Vec<usize> =
            (0..self.world.trainers.len()).filter(|at| self.world.trainers[*at].is_alive()).collect();
        if let Some(at) = living.get(who as usize % living.len().max(1)) {
            strike(self, *at);
        }
    }

    /// Everything on the master's machine ends, and where the power goes, what was not synced is lost.
    pub(super) fn crash_master(&mut self, with_power: bool) {
        self.world.masters.iter().for_each(|host| host.crash());
        self.watcher.touch(MASTER, Duration::ZERO);
        self.world.met("masters crashed");
        if let Some(disk) = &self.world.disk {
            match with_power {
                true => disk.cut_power(&mut self.random),
                false => disk.processes_died(),
            }
            self.world.met(if with_power { "power cut" } else { "masters crashed with a disk" });
        }
    }

    fn crash_pserver(&mut self, who: u64, how_long: Duration) {
        if let Some(host) = self.living_pserver(who) {
            host.crash();
            self.watcher.touch(&host.name, how_long);
            self.world.met("pservers crashed");
            let address = address_of(&host).to_owned();
            self.to_replace += 1;
            self.plan(Instant::now() + how_long, Happening::Replace(address));
        }
    }

    fn join(&mut self, name: String) {
        let living = self.world.trainers.iter().filter(|trainer| trainer.is_alive());
        if living.count() < LIVING_MAX {
            self.world.start_trainer(&name);
            self.world.met("trainers joined later");
        }
    }

    fn living_pserver(&self, who: u64) -> Option<Arc<Host>> {
        let living: Vec<&Arc<Host>> = self.world.living_pservers().collect();
        living.get(who as usize % living.len().max(1)).map(|host| Arc::clone(host))
    }

    fn host(&self, who: u64) -> Arc<Host> {
        let hosts: Vec<&Arc<Host>> = self.world.hosts().collect();
        Arc::clone(hosts[who as usize % hosts.len()])
    }

    fn pause(&mut self, host: &str, how_long: Duration) {
        for found in self.world.hosts().filter(|found| found.name == host) {
            found.pause();
        }
        self.watcher.touch(host, how_long);
        self.plan(Instant::now() + how_long, Happening::Resume(host.to_owned()));
    }

    pub(super) fn resume(&self, host: &str) {
        for found in self.world.hosts().filter(|found| found.name == host) {
            found.resume();
        }
        self.world.network.note(5, format_args!("{host} goes on"));
    }

    pub(super) fn slow_down(&self, host: &str, lag: Duration) {
        for found in self.world.hosts().filter(|found| found.name == host) {
            found.slow_down(lag);
        }
    }

    /// What a host sends is lost: as a caller it goes by its own name, as who is called by its address.
    fn cut(&mut self, from: &Host, to: &Host, how_long: Duration) {
        let requests = (from.name.clone(), address_of(to).to_owned());
        let replies = (address_of(from).to_owned(), to.name.clone());
        let both = if requests == replies { vec![requests] } else { vec![requests, replies] };
        for (from, to) in both {
            self.world.network.cut(&from, &to);
            self.watcher.touch(&from, how_long);
            self.watcher.touch(&to, how_long);
            self.plan(Instant::now() + how_long, Happening::Mend(from, to));
        }
        self.world.met("ways cut");
    }

    fn part(&mut self, one: &Host, other: &Host, how_long: Duration) {
        self.cut(one, other, how_long);
        self.cut(other, one, how_long);
    }

    fn isolate(&mut self, who: u64, how_long: Duration) {
        let alone = self.host(who);
        let others: Vec<Arc<Host>> =
            self.world.hosts().filter(|host| host.name != alone.name).cloned().collect();
        for other in others {
            self.part(&alone, &other, how_long);
        }
        self.world.met("hosts isolated");
    }
}
