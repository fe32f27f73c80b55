//! Keeps the processes of one job as the job wants them: starts master, pservers and trainers, replaces trainers that
//! die, follows `shoal scale`, and leaves nothing running.

use super::process::{End, Process};
use super::record::Record;
use crate::client::Client;
use crate::exit::Exit;
use anyhow::{Context, bail};
use rustix::process::Signal;
use shoal_master::settings::JobArguments;
use shoal_runtime::wire::proto::StatusReply;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How long the master may take to listen: it reads the headers of the data set first.
const MASTER_START: Duration = Duration::from_secs(60);
/// Trainers that end by themselves with an error, one after the other, before the run gives up.
const FAILURES_MAX: u32 = 5;

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct JobPlan {
    pub(crate) name: String,
    pub(crate) job: JobArguments,
    pub(crate) pservers: u32,
    pub(crate) trainers_min: u32,
    pub(crate) trainers_max: u32,
    pub(crate) trainers_wanted: u32,
    /// The training program and its arguments.
    pub(crate) program: Vec<OsString>,
    /// A pause before each microbatch, which changes no bit.
    pub(crate) pace: Duration,
    pub(crate) folder: PathBuf,
}

/// A running job.
pub(crate) struct Supervisor {
    pub(crate) plan: JobPlan,
    pub(crate) record: Record,
    pub(crate) client: Client,
    pub(crate) status: StatusReply,
    pub(crate) trainers: Vec<Process>,
    master_address: String,
    master: Process,
    pservers: Vec<Process>,
    /// Trainers that were asked to leave: their end is no failure.
    leaving: Vec<u32>,
    next_trainer: u32,
    failures: u32,
}

impl Supervisor {
    /// Starts master, pservers and the first trainers.
    pub(crate) async fn start(plan: JobPlan) -> anyhow::Result<Supervisor> {
        let logs = plan.folder.join("logs");
        std::fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let shoal = std::env::current_exe().context("cannot find this program's own file")?.into_os_string();
        let mut master = Process::start("master", &master_command(&plan, &shoal), &[], &logs)?;
        let master_address = master_address(&mut master, &plan.folder).await?;
        let mut record = Record::new();
        record.joined("master", "master", master.pid);
        let mut pservers = Vec::new();
        for at in 0..plan.pservers {
            let name = format!("pserver-{at}");
            let words = [
                "pserver",
                "--listen",
                "127.0.0.1:0",
                "--master",
                &master_address,
                "--name",
                &name,
                "--job",
                &plan.name,
            ];
            let command: Vec<OsString> =
                std::iter::once(shoal.clone()).chain(words.map(OsString::from)).collect();
            let pserver = Process::start(&name, &command, &[], &logs)?;
            record.joined("pserver", &name, pserver.pid);
            pservers.push(pserver);
        }
        let mut client = Client::connect(&master_address).await?;
        let status = client.status().await?;
        let mut supervisor = Supervisor {
            plan,
            record,
            client,
            status,
            trainers: Vec::new(),
            master_address,
            master,
            pservers,
            leaving: Vec::new(),
            next_trainer: 0,
            failures: 0,
        };
        supervisor.reconcile()?;
        Ok(supervisor)
    }

    /// Looks at the job and its processes once, and makes them agree. Returns whether the job goes on.
    pub(crate) async fn tick(&mut self) -> anyhow::Result<bool> {
        self.check_servers()?;
        self.status = self.client.status().await?;
        self.reap()?;
        match self.status.phase.as_str() {
            "failed" => bail!("job {:?} failed: {}", self.plan.name, self.status.failure),
            "done" => return Ok(false),
            _ => self.reconcile()?,
        }
        let live = crate::commands::status::live(&self.status);
        self.record.sample(self.status.step, live, self.status.records_trained);
        Ok(true)
    }

    fn check_servers(&mut self) -> anyhow::Result<()> {
        for server in std::iter::once(&mut self.master).chain(&mut self.pservers) {
            if let Some(end) = server.ended()? {
                let (name, log) = (&server.name, server.log.display());
                bail!(
                    "{name} ended ({end:?}) in mid-job; its last words (all of them in {log}):\n{}",
                    server.last_words()
                );
            }
        }
        Ok(())
    }

    fn reap(&mut self) -> anyhow::Result<()> {
        let mut at = 0;
        while at < self.trainers.len() {
            let Some(end) = self.trainers[at].ended()? else {
                at += 1;
                continue;
            };
            let trainer = self.trainers.remove(at);
            let was_asked = self.leaving.contains(&trainer.pid);
            self.leaving.retain(|pid| *pid != trainer.pid);
            let how = match end {
                End::Exited(0) if was_asked => "left",
                End::Exited(0) => "ended",
                End::Exited(_) | End::Signalled(_) => "killed",
            };
            self.record.ended(trainer.pid, how);
            match end {
                End::Exited(code) if code != 0 => self.count_failure(&trainer, code)?,
                _ => self.failures = 0,
            }
        }
        Ok(())
    }

    fn count_failure(&mut self, trainer: &Process, code: i32) -> anyhow::Result<()> {
        self.failures += 1;
        let log = trainer.log.display();
        let what = format!(
            "{} exited with {code}; its last words (all of them in {log}):\n{}",
            trainer.name,
            trainer.last_words()
        );
        if self.failures >= FAILURES_MAX || code == 2 || code == 127 {
            bail!("{what}");
        }
        eprintln!("warning: {what}");
        Ok(())
    }

    /// Starts trainers that are missing, asks superfluous ones to leave, newest first.
    fn reconcile(&mut self) -> anyhow::Result<()> {
        let wanted = self.status.trainers_wanted.clamp(self.plan.trainers_min, self.plan.trainers_max);
        let staying = |trainer: &&Process, leaving: &[u32]| !leaving.contains(&trainer.pid);
        let count = self.trainers.iter().filter(|trainer| staying(trainer, &self.leaving)).count() as u32;
        for _ in count..wanted {
            self.start_trainer()?;
        }
        for _ in wanted..count {
            let newest =
                self.trainers.iter().rev().find(|trainer| staying(trainer, &self.leaving)).map(|t| t.pid);
            newest.into_iter().for_each(|pid| self.ask_to_leave(pid));
        }
        Ok(())
    }

    fn start_trainer(&mut self) -> anyhow::Result<()> {
        let name = format!("trainer-{}", self.next_trainer);
        self.next_trainer += 1;
        let environment = [
            ("SHOAL_MASTER", self.master_address.clone()),
            ("SHOAL_JOB", self.plan.name.clone()),
            ("SHOAL_TRAINER_NAME", name.clone()),
            ("SHOAL_PACE_MILLIS", self.plan.pace.as_millis().to_string()),
        ];
        let trainer = Process::start(&name, &self.plan.program, &environment, &self.plan.folder.join("logs"))
            .map_err(|error| Exit::Usage(format!("{error:#}: is the program built, and its path right?")))?;
        self.record.joined("trainer", &name, trainer.pid);
        self.trainers.push(trainer);
        Ok(())
    }

    /// Trainers that take part: in the master's eyes, and not frozen, leaving or gone.
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

    /// Sends a signal to a trainer of this job, and to no other process.
    pub(crate) fn signal(&self, pid: u32, signal: Signal) {
        self.trainers.iter().filter(|trainer| trainer.pid == pid).for_each(|trainer| trainer.signal(signal));
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
        let deadline = Instant::now() + Duration::from_secs(10);
        for trainer in &self.trainers {
            trainer.signal(Signal::CONT);
        }
        while !self.trainers.is_empty() && Instant::now() < deadline {
            self.reap()?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.status = self.client.status().await?;
        Ok(())
    }

    /// Stops everything that still runs: trainers first, then pservers, the master last.
    pub(crate) async fn stop(&mut self) {
        let stops = self.trainers.iter_mut().chain(&mut self.pservers).map(Process::stop);
        futures_util::future::join_all(stops).await;
        self.master.stop().await;
        self.record.close();
    }
}

fn master_command(plan: &JobPlan, shoal: &OsString) -> Vec<OsString> {
    let job = &plan.job;
    let mut command = vec![shoal.clone(), "master".into(), "--listen".into(), "127.0.0.1:0".into()];
    let address_file = plan.folder.join("master.address").to_string_lossy().into_owned();
    for (flag, value) in [
        ("--job", plan.name.clone()),
        ("--address-file", address_file),
        ("--data", job.data.join(",")),
        ("--epochs", job.epochs.to_string()),
        ("--seed", job.seed.to_string()),
        ("--microbatch-records", job.microbatch_records.to_string()),
        ("--microbatches-per-step", job.microbatches_per_step.to_string()),
        ("--shuffle-run", job.shuffle_run.to_string()),
        ("--lease-ttl-millis", job.lease_ttl_millis.to_string()),
        ("--pservers", plan.pservers.to_string()),
        ("--trainers", plan.trainers_wanted.to_string()),
    ] {
        command.extend([flag.into(), value.into()]);
    }
    command
}

async fn master_address(master: &mut Process, folder: &Path) -> anyhow::Result<String> {
    let file = folder.join("master.address");
    let deadline = Instant::now() + MASTER_START;
    loop {
        if let Ok(address) = std::fs::read_to_string(&file) {
            return Ok(address);
        }
        if let Some(end) = master.ended()? {
            bail!("the master ended at its start ({end:?}):\n{}", master.last_words());
        }
        if Instant::now() >= deadline {
            bail!(
                "the master does not listen after {} s; see {}",
                MASTER_START.as_secs(),
                master.log.display()
            );
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
