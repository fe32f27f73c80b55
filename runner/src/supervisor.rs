//! Keeps the processes of one job as the job wants them: replaces trainers, pservers and the master when they die,
//! follows `shoal scale`, and leaves nothing running. What to do is decided in [`super::upkeep`].

use super::counts::Counts;
use super::hosts::disk::Disk;
use super::hosts::network::Network;
use super::plan::JobPlan;
use super::process::Process;
use super::reaper::Reaper;
use super::record::Record;
use super::tensorboard::Counting;
use super::upkeep::{self, Answers, Budgets, Names, Outage, OutageNews, Running};
use crate::client::Client;
use crate::exit::Exit;
use anyhow::bail;
use rustix::process::Signal;
use shoal_job::Role;
use shoal_job::ends::{self, End, Life};
use shoal_runtime::wire::proto::StatusReply;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;
use tokio::time::Instant;

/// How long the master may be away before the run gives up.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long trainers of a job that is done may take to hear of it.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A running job.
pub struct Supervisor {
    /// What is run.
    pub plan: JobPlan,
    /// What has happened.
    pub record: Record,
    /// How the master is asked.
    pub client: Client,
    /// The newest that the master has said.
    pub status: StatusReply,
    /// Whether somebody breaks things, who has to know where blocks are.
    pub is_disturbed: bool,
    pub(crate) counts: Counts,
    /// Trainers, until their ends are judged.
    pub trainers: Vec<Process>,
    /// Pservers, until their ends are judged.
    pub pservers: Vec<Process>,
    /// What people may want to read; whoever shows the progress takes it away.
    pub notes: Vec<String>,
    pub(super) shoal: OsString,
    pub(super) master_address: String,
    pub(super) master: Process,
    pub(super) is_master_gone: bool,
    pub(super) answers: Answers,
    pub(super) trainer_names: Names,
    pub(super) pserver_names: Names,
    pub(super) budgets: Budgets,
    pub(super) reaper: Reaper,
    pub(super) outage: Outage,
    /// Losses, where TensorBoard is told of them.
    pub(super) counting: Option<Counting>,
    pub(super) started: Instant,
    /// Where each process is a host of its own. Last, as the next: processes end before what they stand on.
    pub network: Option<Network>,
    /// Where the disk of the master's state can be filled.
    pub disk: Option<Disk>,
}

impl Supervisor {
    /// Looks at the job and its processes once, and makes them agree. Returns whether the job goes on. While the master
    /// is away it is started again and waited for; everybody else goes on.
    pub async fn tick(&mut self) -> anyhow::Result<bool> {
        let ticked = self.look_after().await;
        if let Err(error) = &ticked {
            self.record.conclude("failed", &format!("{error:#}"));
        }
        ticked
    }

    async fn look_after(&mut self) -> anyhow::Result<bool> {
        self.notice_ends()?;
        self.tell_stops();
        self.keep_master()?;
        if !self.look(self.is_disturbed).await? {
            return Ok(true);
        }
        match self.status.phase.as_str() {
            "failed" => bail!("job {:?} failed: {}", self.plan.name, self.status.failure),
            "done" => {
                self.record.sample(&self.status, &self.counts.over(&self.status));
                return Ok(false);
            }
            _ => {
                self.tell_ends().await;
                self.judge_ends()?;
                self.reconcile()?;
            }
        }
        let live = crate::reading::live(&self.status);
        if self.record.is_sample_due(live) {
            self.record.sample(&self.status, &self.counts.over(&self.status));
            self.keep_logs_short();
        }
        if let Some(counting) = &mut self.counting
            && let Some((made, losses)) = counting.news(&self.client, self.status.step)
        {
            self.record.tell_losses(&losses, made);
        }
        Ok(true)
    }

    /// Asks the master how the job is, and of its declaration and routing where they are wanted. Returns whether it answered.
    pub(super) async fn look(&mut self, with_model: bool) -> anyhow::Result<bool> {
        let asked = self.client.status_within(self.outage.question(), with_model).await;
        self.listen_to_master(!asked.as_ref().is_err_and(Exit::is_unanswered));
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
        self.budgets.see(status.step);
        self.counts.see(&status);
        self.status = status;
        Ok(true)
    }

    /// Takes note of who has ended. What that means is judged once the master has said, later, that the job is not done.
    fn notice_ends(&mut self) -> anyhow::Result<()> {
        let Supervisor { trainers, pservers, status, network, record, .. } = self;
        for process in trainers.iter_mut().chain(pservers).filter(|process| !process.is_over()) {
            if let Some(end) = process.ended()? {
                let was_told = process.was_told() || is_leaving(status, &process.name);
                record.ended(process.pid, end.word(was_told));
                network.iter_mut().for_each(|network| network.forget(&process.name));
            }
        }
        Ok(())
    }

    /// Tells the master of trainers that have ended without a word, so that it need not wait until they have been silent for long,
    /// and knows what they were lost with. If it does not hear of it, it waits.
    async fn tell_ends(&mut self) {
        let ended: Vec<Ended> =
            self.trainers.iter().filter(|one| one.is_over()).filter_map(Ended::of).collect();
        for ended in ended {
            let word = ends::word_to_master(&ended.name, ended.end, self.life(&ended), &ended.words);
            let of_name = self.status.trainers.iter().filter(|trainer| trainer.name == ended.name);
            let (Some(word), Some(trainer)) = (word, of_name.map(|trainer| trainer.incarnation).max()) else {
                continue;
            };
            if let Err(error) = self.client.end_trainer(trainer, &word).await {
                tracing::debug!(name = ended.name, %error, "the master was not told of its end");
            }
        }
    }

    /// What is known of a process that has ended.
    fn life(&self, ended: &Ended) -> Life {
        let Ended { role, name, was_killed, .. } = ended;
        let (part, has_left) = self.counts.part(*role, name);
        let was_told = ended.was_told || self.counts.was_leaving(name);
        let is_first = !self.counts.has_any(*role);
        let is_alone = !self.status.trainers.iter().any(|trainer| trainer.state == "live");
        Life { role: *role, part, is_first, was_told, was_killed: *was_killed, has_left, is_alone }
    }

    /// Judges every end that was noticed before the master was asked last.
    fn judge_ends(&mut self) -> anyhow::Result<()> {
        let ended = self.trainers.extract_if(.., |one| one.is_over());
        let ended: Vec<Process> = ended.chain(self.pservers.extract_if(.., |one| one.is_over())).collect();
        ended.iter().filter_map(Ended::of).try_for_each(|ended| self.judge(&ended))
    }

    /// What the end of a process means: another try, after a pause perhaps, or the end of the run.
    fn judge(&mut self, ended: &Ended) -> anyhow::Result<()> {
        let Ended { role, name, end, .. } = ended;
        let life = self.life(ended);
        if life.part == ends::Part::NeverJoined {
            self.trainer_names.give_back(name);
            self.pserver_names.give_back(name);
        }
        let meaning = ends::meaning(*end, life);
        let is_over = self.budgets.charge(*role, meaning, self.started.elapsed());
        if meaning <= ends::Meaning::Killed {
            return Ok(());
        }
        let what = ends::sentence(name, *end, life, &ended.words);
        let told = match ended.words.trim() {
            "" => format!("{what}; it has said nothing ({} is empty)", ended.log),
            words => format!("{what}; its last words (all of them in {}):\n{words}", ended.log),
        };
        if is_over {
            bail!("{told}");
        }
        self.record.fault("lost", *role, name, &what);
        self.notes.push(match meaning {
            ends::Meaning::Preempted => what,
            _ => format!("warning: {told}"),
        });
        Ok(())
    }

    /// Starts the master again if it has ended: at the same address, over the same store.
    fn keep_master(&mut self) -> anyhow::Result<()> {
        if !self.is_master_gone
            && let Some(end) = self.master.ended()?
        {
            self.is_master_gone = true;
            self.record.ended(self.master.pid, end.word(false));
            Ended::of(&self.master).map_or(Ok(()), |ended| self.judge(&ended))?;
        }
        if self.is_master_gone && self.budgets.may_start(Role::Master, self.started.elapsed()) {
            let started = self.start_master();
            self.excuse(Role::Master, started)?;
        }
        Ok(())
    }

    /// Starts who is missing, asks superfluous trainers to leave.
    fn reconcile(&mut self) -> anyhow::Result<()> {
        let now = self.started.elapsed();
        let bounds = self.plan.trainers;
        let running: Vec<Running> =
            self.trainers.iter().map(|one| Running { pid: one.pid, is_leaving: one.was_told() }).collect();
        let upkeep = upkeep::trainers(self.status.trainers_wanted.clamp(bounds.min, bounds.max), &running);
        if self.budgets.may_start(Role::Trainer, now) {
            let started = (0..upkeep.start).try_for_each(|_| self.start_trainer());
            self.excuse(Role::Trainer, started)?;
        }
        upkeep.stop.into_iter().for_each(|pid| self.ask_to_leave(pid));
        self.miss_trainers();
        self.give_up_silent();
        self.trainers.iter().for_each(Process::kill_if_late);
        let running: Vec<Running> = self
            .pservers
            .iter()
            .map(|one| Running { pid: one.pid, is_leaving: is_leaving(&self.status, &one.name) })
            .collect();
        let upkeep = upkeep::pservers(self.status.pservers_wanted, &running);
        if self.budgets.may_start(Role::Pserver, now) {
            let started = (0..upkeep.start).try_for_each(|_| self.start_pserver());
            self.excuse(Role::Pserver, started)?;
        }
        Ok(())
    }

    /// Passes over a start that failed because the machine lacks something at the moment, as memory or files: one more failure.
    fn excuse(&mut self, role: Role, started: anyhow::Result<()>) -> anyhow::Result<()> {
        let Err(error) = started else { return Ok(()) };
        let is_lack =
            error.downcast_ref::<std::io::Error>().is_some() && error.downcast_ref::<Exit>().is_none();
        if !is_lack || self.budgets.charge(role, ends::Meaning::Failed, self.started.elapsed()) {
            return Err(error);
        }
        self.notes.push(format!("warning: {error:#}: once more in a moment"));
        Ok(())
    }

    /// Trainers that take part: in the master's eyes, and not leaving or gone. Name, process, tasks in hand.
    pub fn members(&self) -> Vec<(String, u32, u32)> {
        let live = self.status.trainers.iter().filter(|trainer| trainer.state == "live");
        let here = live.filter_map(|trainer| {
            let is_it = |one: &&Process| one.name == trainer.name && !one.was_told() && !one.is_over();
            let process = self.trainers.iter().find(is_it)?;
            Some((trainer.name.clone(), process.pid, trainer.tasks_in_hand))
        });
        here.collect()
    }

    /// Whether the master answered when it was last asked.
    pub fn is_master_here(&self) -> bool {
        !self.outage.is_on() && !self.is_master_gone
    }

    /// Every process of this job that still runs.
    fn processes(&self) -> impl Iterator<Item = &Process> {
        let all = self.trainers.iter().chain(&self.pservers).chain([&self.master]);
        all.filter(|process| !process.is_over())
    }

    /// The names of the processes of a role that still run.
    pub fn running(&self, role: Role) -> BTreeSet<&str> {
        self.processes().filter(|process| process.role == role).map(|process| process.name.as_str()).collect()
    }

    /// The process of this name, if it still runs.
    pub fn pid_of(&self, name: &str) -> Option<u32> {
        self.processes().find(|process| process.name == name).map(|process| process.pid)
    }

    /// Sends a signal to a process of this job, and to no other.
    pub fn signal(&self, pid: u32, signal: Signal) {
        self.processes().filter(|process| process.pid == pid).for_each(|process| process.signal(signal));
    }

    /// Kills a trainer and waits until it is gone.
    pub async fn kill(&mut self, pid: u32) {
        for trainer in self.trainers.iter_mut().filter(|trainer| trainer.pid == pid) {
            trainer.kill().await;
            self.record.ended(pid, "killed");
        }
    }

    /// Asks a trainer to hand back its tasks and leave.
    pub fn ask_to_leave(&self, pid: u32) {
        self.processes().filter(|process| process.pid == pid).for_each(Process::ask_to_leave);
    }

    /// Waits for the trainers of a job that is done to hear of it and end; then reads the last status.
    pub async fn let_trainers_end(&mut self) -> anyhow::Result<()> {
        self.processes().for_each(|process| process.signal(Signal::CONT));
        let deadline = Instant::now() + LAST_WORDS;
        while self.trainers.iter().any(|trainer| !trainer.is_over()) && Instant::now() < deadline {
            self.notice_ends()?;
            self.keep_master()?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // A master that has just taken over has yet to hear how far the job is.
        let deadline = Instant::now() + LAST_WORDS;
        while !self.look(true).await? || (!self.status.is_progress_known && Instant::now() < deadline) {
            self.keep_master()?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Stops everything that still runs: trainers first, the master last. Pservers would stay until others have their
    /// blocks; the job is over, so they are killed.
    pub async fn stop(&mut self) {
        let killed = futures_util::future::join_all(self.pservers.iter_mut().map(Process::kill));
        let stopped = futures_util::future::join_all(self.trainers.iter_mut().map(Process::stop));
        futures_util::future::join(stopped, killed).await;
        self.master.stop().await;
        // Nobody listens there any more, and whoever looks is told how the run ended.
        self.plan.folder.forget_master();
        self.reaper.end().await;
        self.record.close();
    }

    /// Cuts logs that have become too long.
    fn keep_logs_short(&self) {
        for keep_short in self.processes().filter_map(Process::keep_log_short) {
            tokio::task::spawn_blocking(keep_short);
        }
    }
}

/// Whether the master has told a pserver to leave.
fn is_leaving(status: &StatusReply, pserver: &str) -> bool {
    status.pservers.iter().any(|one| one.name == pserver && one.is_leaving)
}

/// A process that has ended, as far as itself can tell.
struct Ended {
    role: Role,
    name: String,
    end: End,
    was_told: bool,
    was_killed: bool,
    log: String,
    words: String,
}

impl Ended {
    /// None of one that runs.
    fn of(process: &Process) -> Option<Ended> {
        Some(Ended {
            role: process.role,
            name: process.name.clone(),
            end: process.end()?,
            was_told: process.was_told(),
            was_killed: process.was_killed(),
            log: process.log.display().to_string(),
            words: process.last_words(),
        })
    }
}
