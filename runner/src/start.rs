//! Starting the processes of a job: the first ones, and those that take the place of others. Decides nothing.

use super::counts::Counts;
use super::credentials;
use super::hosts::disk::Disk;
use super::hosts::network::Network;
use super::journal::{Begun, Journal};
use super::plan::{Bounds, JobPlan, Resumed};
use super::process::Process;
use super::reaper::Reaper;
use super::record::Record;
use super::supervisor::Supervisor;
use super::tensorboard::{Board, Counting};
use super::upkeep::{Answers, Budgets, Names, Outage};
use crate::client::Client;
use crate::exit::Exit;
use anyhow::{Context, bail};
use shoal_job::Role;
use shoal_job::ends::End;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::telemetry;
use shoal_runtime::wire::proto::StatusReply;
use std::ffi::OsString;
use std::time::Duration;
use tokio::time::Instant;

/// The system's word for a file that it cannot execute.
const ENOEXEC: i32 = rustix::io::Errno::NOEXEC.raw_os_error();
/// How long the master may take to lead once it listens. Before, it reads the headers of the data set, which takes as
/// long as there are many; each of its waits has a bound.
const MASTER_START: Duration = Duration::from_secs(60);

impl Supervisor {
    /// Starts the master, then pservers and trainers, as many as it wants.
    pub async fn start(mut plan: JobPlan) -> anyhow::Result<Supervisor> {
        plan.folder.begin(&plan.name)?;
        let security = credentials::prepare(&plan)?;
        let shoal = std::env::current_exe().context("cannot find this program's own file")?.into_os_string();
        let reaper = Reaper::start(&shoal)?;
        let disk = plan.has_disk.then(|| Disk::mount(&plan.folder.state())).transpose()?;
        let mut network = plan.has_network.then(|| Network::new(&plan.folder.hosts())).transpose()?;
        let (address, host) = place(&mut network, "master")?;
        let command = [host, plan.master_command(&shoal, &format!("{address}:0"))].concat();
        let mut master = Process::start(Role::Master, "master", &command, &[], &plan.folder.logs())?;
        let (master_address, mut client, status) = first_words(&mut master, &plan, &security).await?;
        if let Some(Resumed { trainers, pservers }) = plan.resumed {
            client.scale(trainers.map(|bounds| bounds.min), pservers.map(|bounds| bounds.min)).await?;
            plan.trainers = trainers.unwrap_or(Bounds::exactly(status.trainers_wanted));
            plan.pservers = pservers.unwrap_or(Bounds::exactly(status.pservers_wanted));
        }
        let begun = Begun::planned(&plan, &status, wall_seconds());
        let board = plan.tensorboard.as_deref().map(|folder| Board::open(folder, &begun));
        let mut record = Record::new(Journal::open(&plan.folder.journal()), begun).with_board(board);
        record.joined(Role::Master, "master", master.pid);
        let mut supervisor = Supervisor {
            record,
            client,
            status,
            is_disturbed: false,
            counts: Counts::default(),
            trainers: Vec::new(),
            pservers: Vec::new(),
            notes: Vec::new(),
            shoal,
            master_address,
            master,
            is_master_gone: false,
            answers: Answers::default(),
            trainer_names: Names::from(Role::Trainer, plan.folder.first_free("trainer")),
            pserver_names: Names::from(Role::Pserver, plan.folder.first_free("pserver")),
            budgets: Budgets::default(),
            reaper,
            outage: Outage::default(),
            counting: plan.tensorboard.is_some().then(Counting::new),
            started: Instant::now(),
            network,
            disk,
            plan,
        };
        supervisor.tick().await?;
        Ok(supervisor)
    }

    /// Starts the master again: at the address that everybody knows.
    pub(super) fn start_master(&mut self) -> anyhow::Result<()> {
        let (_, host) = place(&mut self.network, "master")?;
        let command = [host, self.plan.master_command(&self.shoal, &self.master_address)].concat();
        self.master = Process::start(Role::Master, "master", &command, &[], &self.plan.folder.logs())?;
        self.is_master_gone = false;
        self.answers = Answers::default();
        self.record.joined(Role::Master, "master", self.master.pid);
        Ok(())
    }

    pub(super) fn start_pserver(&mut self) -> anyhow::Result<()> {
        let (name, number) = self.pserver_names.take();
        let (address, host) = place(&mut self.network, &name)?;
        let listen = format!("{address}:0");
        let pserver =
            self.plan.pserver_command(&self.shoal, &listen, &self.master_address, &name, number as usize);
        let command = [host, pserver].concat();
        let pserver = Process::start(Role::Pserver, &name, &command, &[], &self.plan.folder.logs())?;
        self.record.joined(Role::Pserver, &name, pserver.pid);
        self.pservers.push(pserver);
        Ok(())
    }

    pub(super) fn start_trainer(&mut self) -> anyhow::Result<()> {
        let (name, _) = self.trainer_names.take();
        let environment = self.plan.trainer_environment(&self.master_address, &name);
        let (_, host) = place(&mut self.network, &name)?;
        let command = [host, self.plan.program.clone()].concat();
        let trainer = Process::start(Role::Trainer, &name, &command, &environment, &self.plan.folder.logs())
            .map_err(unstarted)?;
        self.record.joined(Role::Trainer, &name, trainer.pid);
        self.trainers.push(trainer);
        Ok(())
    }
}

/// A program that cannot be started is none; unless the machine lacks something at the moment.
pub(super) fn unstarted(error: anyhow::Error) -> anyhow::Error {
    use std::io::ErrorKind::{InvalidInput, NotADirectory, NotFound, PermissionDenied};
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    let is_none = matches!(kind, Some(NotFound | PermissionDenied | NotADirectory | InvalidInput))
        || error.downcast_ref::<std::io::Error>().and_then(|error| error.raw_os_error()) == Some(ENOEXEC);
    match is_none {
        true => Exit::Usage(format!("{error:#}: is the program built, and its path right?")).into(),
        false => error,
    }
}

/// Where a process of that name is to listen, and what its command line begins with.
fn place(network: &mut Option<Network>, name: &str) -> anyhow::Result<(String, Vec<OsString>)> {
    match network {
        Some(network) => network.host(name),
        None => Ok(("127.0.0.1".to_owned(), Vec::new())),
    }
}

/// Waits until a master that was just started leads. Returns its address and its first status.
async fn first_words(
    master: &mut Process,
    plan: &JobPlan,
    security: &Security,
) -> anyhow::Result<(String, Client, StatusReply)> {
    let mut deadline = None;
    let mut missing = String::new();
    while deadline.is_none_or(|deadline| Instant::now() < deadline) {
        if let Some(end) = master.ended()? {
            return Err(not_begun(master, end));
        }
        if let Ok(address) = std::fs::read_to_string(plan.folder.address()) {
            deadline.get_or_insert_with(|| Instant::now() + MASTER_START);
            match first_status(&address, &plan.name, security).await {
                Ok((client, status)) => return Ok((address, client, status)),
                Err(error) if Exit::is_unreachable(&error) => missing = format!("{error:#}"),
                Err(error) => return Err(error),
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (seconds, log) = (MASTER_START.as_secs(), master.log.display());
    bail!("the master does not lead after {seconds} s: {missing}; see {log}")
}

/// Why a master ended before it led: the whole error that it ended with.
fn not_begun(master: &Process, end: End) -> anyhow::Error {
    let mut said = telemetry::last_error(&master.words()).unwrap_or_else(|| master.last_words());
    if said.is_empty() {
        said = format!("the master ended at its start and said nothing; see {}", master.log.display());
    }
    // It was given what this command was given.
    if end == End::Exited(2) {
        return Exit::Usage(said).into();
    }
    anyhow::anyhow!("the master ended at its start ({end}):\n{said}")
}

async fn first_status(
    address: &str,
    job: &str,
    security: &Security,
) -> anyhow::Result<(Client, StatusReply)> {
    let mut client = Client::of_job(address, job.to_owned(), security)?;
    let status = client.status().await?;
    Ok((client, status))
}
