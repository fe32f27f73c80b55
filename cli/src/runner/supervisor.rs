//! Keeps the processes of one job as the job wants them: replaces trainers, pservers and the master when they die,
//! follows `shoal scale`, and leaves nothing running. What to do is decided in [`super::upkeep`].

use super::chaos::disk::Disk;
use super::chaos::network::Network;
use super::counts::Counts;
use super::plan::JobPlan;
use super::process::Process;
use super::record::Record;
use super::roles::Role;
use super::upkeep::{self, Budget, Meaning, Outage, OutageNews, Running};
use crate::client::Client;
use crate::exit::Exit;
use anyhow::bail;
use rustix::process::Signal;
use shoal_runtime::wire::proto::StatusReply;
use std::ffi::OsString;
use std::time::Duration;
use tokio::time::Instant;

/// Trainers that end with an error, without a step made in between, before the run gives up.
pub(super) const TRAINER_FAILURES_MAX: u32 = 5;
/// The same for pservers and the master, which may be killed more often than steps are made.
pub(super) const SERVER_FAILURES_MAX: u32 = 20;
/// How long the master may be away before the run gives up.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long trainers of a job that is done may take to hear of it.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A running job.
pub(crate) struct Supervisor {
    pub(crate) plan: JobPlan,
    pub(crate) record: Record,
    pub(crate) client: Client,
    /// The newest that the master has said.
    pub(crate) status: StatusReply,
    pub(crate) counts: Counts,
    pub(crate) trainers: Vec<Process>,
    pub(crate) pservers: Vec<Process>,
    /// What people may want to read; whoever shows the progress takes it away.
    pub(crate) notes: Vec<String>,
    pub(super) shoal: OsString,
    pub(super) master_address: String,
    pub(super) master: Process,
    pub(super) is_master_gone: bool,
    /// Trainers that were asked to leave: their end is no failure.
    pub(super) leaving: Vec<u32>,
    pub(super) next_trainer: u32,
    pub(super) next_pserver: u32,
    pub(super) trainer_failures: Budget,
    pub(super) server_failures: Budget,
    pub(super) outage: Outage,
    pub(super) started: Instant,
    /// Where each process is a host of its own. Last, as the next: processes end before what they stand on.
    pub(super) network: Option<Network>,
    /// Where the disk of the master's state can be filled.
    pub(super) disk: Option<Disk>,
}

impl Supervisor {
    /// Looks at the job and its processes once, and makes them agree. Returns whether the job goes on. While the master
    /// is away it is started again and waited for; everybody else goes on.
    pub(crate) async fn tick(&mut self) -> anyhow::Result<bool> {
        let ticked = self.look_after().await;
        if let Err(error) = &ticked {
            self.record.conclude("failed", &format!("{error:#}"));
        }
        ticked
    }

    async fn look_after(&mut self) -> anyhow::Result<bool> {
        self.reap()?;
        self.keep_master()?;
        if !self.look().await? {
            return Ok(true);
        }
        match self.status.phase.as_str() {
            "failed" => bail!("job {:?} failed: {}", self.plan.name, self.status.failure),
            "done" => {
                self.record.sample(&self.status, &self.counts.over(&self.status));
                return Ok(false);
            }
            // The status may be older than the end of somebody.
            _ => {
                self.reap()?;
                self.reconcile()?;
            }
        }
        let live = crate::commands::status::live(&self.status);
        if self.record.is_sample_due(live) {
            self.record.sample(&self.status, &self.counts.over(&self.status));
        }
        Ok(true)
    }

    /// Asks the master how the job is. Returns whether it answered.
    pub(super) async fn look(&mut self) -> anyhow::Result<bool> {
        let asked = self.client.status_within(self.outage.question()).await;
        let now = self.started.elapsed();
        let status = match asked {
            Ok(status) => status,
            Err(error) if Exit::is_unreachable(&error) => {
                match self.outage.miss(now, PATIENCE) {
                    OutageNews::Nothing => {}
                    OutageNews::Lasts => self.notes.push(format!(
                        "the master is away: pservers and trainers go on; waiting for it up to {} s ({error:#})",
                        PATIENCE.as_secs()
                    )),
                    OutageNews::Over(lasted) => return Err(error.context(format!(
                        "the master did not come back within {} s; see {}",
                        lasted.as_secs(),
                        self.master.log.display()
                    ))),
                }
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if let Some(away) = self.outage.end(now) {
            self.notes.push(format!("the master is back after {:.1} s", away.as_secs_f64()));
        }
        self.trainer_failures.see(status.rewind, status.step);
        self.server_failures.see(status.rewind, status.step);
        self.counts.see(&status);
        self.status = status;
        Ok(true)
    }

    /// Takes note of who has ended.
    fn reap(&mut self) -> anyhow::Result<()> {
        for (mut trainer, meaning) in ended(&mut self.trainers, |one| self.leaving.contains(&one.pid))? {
            self.leaving.retain(|pid| *pid != trainer.pid);
            self.forget_host(&trainer.name);
            self.note_end(Role::Trainer, &mut trainer, meaning)?;
        }
        let is_leaving = |one: &Process| is_leaving(&self.status, &one.name);
        for (mut pserver, meaning) in ended(&mut self.pservers, is_leaving)? {
            self.forget_host(&pserver.name);
            self.note_end(Role::Pserver, &mut pserver, meaning)?;
        }
        Ok(())
    }

    fn forget_host(&mut self, name: &str) {
        self.network.iter_mut().for_each(|network| network.forget(name));
    }

    /// Says why a process was ended by a signal that nobody here sent.
    fn note_reason(&mut self, role: Role, name: &str, reason: Option<String>) {
        if let Some(reason) = reason {
            self.record.fault("lost", role, name, &reason);
            self.notes.push(format!("{name} was lost: {reason}"));
        }
    }

    fn note_end(&mut self, role: Role, process: &mut Process, meaning: Meaning) -> anyhow::Result<()> {
        self.record.ended(process.pid, meaning.word);
        self.note_reason(role, &process.name, process.reason());
        // A trainer that was killed by a signal is not at fault: on a cluster that is preemption.
        let is_failure = meaning.is_failure && (role != Role::Trainer || !process.was_signalled());
        let now = self.started.elapsed();
        if !is_failure {
            if role == Role::Pserver {
                self.server_failures.rest(now);
            }
            return Ok(());
        }
        let budget =
            if role == Role::Trainer { &mut self.trainer_failures } else { &mut self.server_failures };
        let is_over = budget.fail(now) || meaning.is_hopeless;
        let (name, log, words) = (&process.name, process.log.display(), process.last_words());
        let what =
            format!("{name} ended ({}); its last words (all of them in {log}):\n{words}", process.how());
        if is_over {
            bail!("{what}");
        }
        if !process.was_signalled() {
            self.notes.push(format!("warning: {what}"));
        }
        Ok(())
    }

    /// Starts the master again if it has ended: at the same address, over the same store.
    fn keep_master(&mut self) -> anyhow::Result<()> {
        if !self.is_master_gone
            && let Some(end) = self.master.ended()?
        {
            self.is_master_gone = true;
            let meaning = Meaning { is_failure: true, ..upkeep::meaning(end, false) };
            self.record.ended(self.master.pid, meaning.word);
            self.note_reason(Role::Master, "master", self.master.reason());
            if self.server_failures.fail(self.started.elapsed()) || meaning.is_hopeless {
                let (log, words) = (self.master.log.display(), self.master.last_words());
                bail!(
                    "the master ended ({}); its last words (all of them in {log}):\n{words}",
                    self.master.how()
                );
            }
        }
        if self.is_master_gone && self.server_failures.may_start(self.started.elapsed()) {
            self.start_master()?;
        }
        Ok(())
    }

    /// Starts who is missing, asks superfluous trainers to leave.
    fn reconcile(&mut self) -> anyhow::Result<()> {
        let now = self.started.elapsed();
        let bounds = self.plan.trainers;
        let running: Vec<Running> = self.trainers.iter().map(|one| self.running(one.pid)).collect();
        let upkeep = upkeep::trainers(self.status.trainers_wanted.clamp(bounds.min, bounds.max), &running);
        if self.trainer_failures.may_start(now) {
            (0..upkeep.start).try_for_each(|_| self.start_trainer())?;
        }
        upkeep.stop.into_iter().for_each(|pid| self.ask_to_leave(pid));
        let running: Vec<Running> = self
            .pservers
            .iter()
            .map(|one| Running { pid: one.pid, is_leaving: is_leaving(&self.status, &one.name) })
            .collect();
        let upkeep = upkeep::pservers(self.status.pservers_wanted, &running);
        if self.server_failures.may_start(now) {
            (0..upkeep.start).try_for_each(|_| self.start_pserver())?;
        }
        Ok(())
    }

    fn running(&self, pid: u32) -> Running {
        Running { pid, is_leaving: self.leaving.contains(&pid) }
    }

    /// Trainers that take part: in the master's eyes, and not leaving or gone. Name, process, tasks in hand.
    pub(crate) fn members(&self) -> Vec<(String, u32, u32)> {
        let is_here =
            |pid: u32| self.trainers.iter().any(|trainer| trainer.pid == pid) && !self.leaving.contains(&pid);
        self.status
            .trainers
            .iter()
            .filter(|trainer| trainer.state == "live" && is_here(trainer.process))
            .map(|trainer| (trainer.name.clone(), trainer.process, trainer.tasks_in_hand))
            .collect()
    }

    /// Whether the master answered when it was last asked.
    pub(crate) fn is_master_here(&self) -> bool {
        !self.outage.is_on() && !self.is_master_gone
    }

    /// Every process of this job that still runs.
    fn processes(&self) -> impl Iterator<Item = &Process> {
        let master = Some(&self.master).filter(|_| !self.is_master_gone);
        self.trainers.iter().chain(&self.pservers).chain(master)
    }

    /// The process of this name, if it still runs.
    pub(crate) fn pid_of(&self, name: &str) -> Option<u32> {
        self.processes().find(|process| process.name == name).map(|process| process.pid)
    }

    /// Sends a signal to a process of this job, and to no other.
    pub(crate) fn signal(&self, pid: u32, signal: Signal) {
        self.processes().filter(|process| process.pid == pid).for_each(|process| process.signal(signal));
    }

    /// Kills a trainer and waits until it is gone.
    pub(crate) async fn kill(&mut self, pid: u32) {
        for trainer in self.trainers.iter_mut().filter(|trainer| trainer.pid == pid) {
            trainer.kill().await;
        }
    }

    /// Asks a trainer to hand back its tasks and leave.
    pub(crate) fn ask_to_leave(&mut self, pid: u32) {
        self.leaving.push(pid);
        self.signal(pid, Signal::TERM);
    }

    /// Waits for the trainers of a job that is done to hear of it and end; then reads the last status.
    pub(crate) async fn let_trainers_end(&mut self) -> anyhow::Result<()> {
        self.processes().for_each(|process| process.signal(Signal::CONT));
        let deadline = Instant::now() + LAST_WORDS;
        while !self.trainers.is_empty() && Instant::now() < deadline {
            self.reap()?;
            self.keep_master()?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        while !self.look().await? {
            self.keep_master()?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Stops everything that still runs: trainers first, the master last. Pservers would stay until others have their
    /// blocks; the job is over, so they are killed.
    pub(crate) async fn stop(&mut self) {
        let killed = futures_util::future::join_all(self.pservers.iter_mut().map(Process::kill));
        let stopped = futures_util::future::join_all(self.trainers.iter_mut().map(Process::stop));
        futures_util::future::join(stopped, killed).await;
        self.master.stop().await;
        self.record.close();
    }
}

/// Whether the master has told a pserver to leave.
fn is_leaving(status: &StatusReply, pserver: &str) -> bool {
    status.pservers.iter().any(|one| one.name == pserver && one.is_leaving)
}

/// Takes the processes out that have ended.
fn ended(
    processes: &mut Vec<Process>,
    is_leaving: impl Fn(&Process) -> bool,
) -> anyhow::Result<Vec<(Process, Meaning)>> {
    let (mut gone, mut at) = (Vec::new(), 0);
    while at < processes.len() {
        match processes[at].ended()? {
            None => at += 1,
            Some(end) => {
                let process = processes.remove(at);
                let meaning = upkeep::meaning(end, is_leaving(&process));
                gone.push((process, meaning));
            }
        }
    }
    Ok(gone)
}
