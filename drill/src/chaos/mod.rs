//! Breaking a job on purpose: the `schedule` decides what and when; signals, limits, calls, and [hosts](shoal_runner::hosts) of
//! the run's own do it.

pub mod kind;
mod memory;
pub mod privileges;
pub(crate) mod schedule;
pub(crate) mod target;
pub(crate) mod timed_fault;

use crate::flags::ChaosPlan;
use anyhow::Context;
use rustix::process::Signal;
use schedule::{Injection, Schedule};
use shoal_job::Role;
use shoal_runner::hosts::{disk, network};
use shoal_runner::life::Interference;
use shoal_runner::{JobPlan, Supervisor};
use std::time::Duration;
use timed_fault::{Impairment, TimedFault};
use tokio::time::Instant;

/// A run of chaos.
#[derive(Debug)]
pub struct Chaos {
    started: Instant,
    schedule: Schedule,
}

impl Chaos {
    /// Chaos that begins now, on a job of that plan.
    pub fn new(plan: ChaosPlan, job: &JobPlan) -> Chaos {
        Chaos { started: Instant::now(), schedule: Schedule::new(plan.settings(job), Duration::ZERO) }
    }
}

impl Interference for Chaos {
    async fn tick(&mut self, job: &mut Supervisor) {
        // From the next look on the master tells where blocks are.
        job.is_disturbed = true;
        let due = match job.status.phase.as_str() {
            "training" => {
                let trainers = job.members().into_iter().map(|(name, _, _)| name).collect();
                let running = job.running(Role::Pserver);
                let state = target::observe(&job.status, job.is_master_here(), trainers, &running);
                self.schedule.due(self.started.elapsed(), &state)
            }
            _ => self.schedule.recover_all(),
        };
        for injection in due {
            apply(job, injection).await;
        }
    }

    async fn end(&mut self, job: &mut Supervisor) {
        for injection in self.schedule.recover_all() {
            apply(job, injection).await;
        }
    }
}

async fn apply(job: &mut Supervisor, injection: Injection) {
    match injection {
        Injection::Kill(role, name) => {
            let Some(pid) = job.pid_of(&name) else { return };
            job.signal(pid, Signal::KILL);
            note(job, "kill", role, &name, "kill -9");
        }
        Injection::Inject(fault) => match inject(job, &fault) {
            Ok(Some(what)) => note(job, word(&fault.impairment), fault.role, &fault.name, &what),
            Ok(None) => {}
            Err(error) => job.notes.push(format!("chaos: {} is not struck: {error:#}", fault.name)),
        },
        Injection::Recover(fault) => {
            let kind = if fault.impairment == Impairment::Paused { "thaw" } else { "heal" };
            match recover(job, &fault) {
                Ok(_) if job.pid_of(&fault.name).is_none() && fault.impairment != Impairment::DiskFull => {}
                Ok(what) => note(job, kind, fault.role, &fault.name, what),
                Err(error) => {
                    job.notes.push(format!("warning: chaos: {} is not healed: {error:#}", fault.name));
                }
            }
        }
        Injection::Leave(name) => {
            let Some(pid) = job.pid_of(&name) else { return };
            note(job, "leave", Role::Trainer, &name, "SIGTERM: hands back its tasks");
            job.ask_to_leave(pid);
        }
        Injection::Scale(role, to) => scale(job, role, to).await,
        Injection::Migrate(name) => match job.client.drain(&name, true).await {
            Ok(_) => note(job, "migrate", Role::Pserver, &name, "its blocks go to another in its place"),
            Err(error) => job.notes.push(format!("chaos: {name} is not migrated: {error:#}")),
        },
    }
}

/// The kind of fault, as a run's record calls it.
fn word(impairment: &Impairment) -> &'static str {
    match impairment {
        Impairment::Paused => "freeze",
        Impairment::MemoryLimited => "memory",
        Impairment::Partitioned(_) => "partition",
        Impairment::Throttled(_) => "slow",
        Impairment::DiskFull => "disk",
    }
}

/// Returns what was done; none if there is nobody to do it to any more.
fn inject(job: &mut Supervisor, fault: &TimedFault) -> anyhow::Result<Option<String>> {
    let Some(pid) = job.pid_of(&fault.name) else { return Ok(None) };
    let what = fault.what();
    match &fault.impairment {
        Impairment::Paused => job.signal(pid, Signal::STOP),
        Impairment::MemoryLimited => memory::limit_memory(pid)?,
        Impairment::Partitioned(partition) => network(job)?.partition(&partition.pairs(&fault.name))?,
        Impairment::Throttled(link) => {
            let means = network(job)?.throttle(&fault.name, *link)?;
            return Ok(means.map(|means| format!("{what} ({means})")));
        }
        Impairment::DiskFull => disk(job)?.fill()?,
    }
    Ok(Some(what))
}

/// Returns what was done. A process that is gone has taken most of what was wrong with it along.
fn recover(job: &mut Supervisor, fault: &TimedFault) -> anyhow::Result<&'static str> {
    let pid = job.pid_of(&fault.name);
    match &fault.impairment {
        Impairment::Paused => {
            pid.into_iter().for_each(|pid| job.signal(pid, Signal::CONT));
            Ok("SIGCONT")
        }
        Impairment::MemoryLimited => {
            let fed = pid.map_or(Ok(()), memory::unlimit_memory);
            // It may have ended in this moment.
            let is_gone =
                || pid.is_none_or(|pid| !std::path::Path::new(&format!("/proc/{pid}/status")).exists());
            fed.or_else(|error| if is_gone() { Ok(()) } else { Err(error) })?;
            Ok("may have more memory")
        }
        Impairment::Partitioned(partition) => {
            network(job)?.heal(&partition.pairs(&fault.name)).map(|()| "can be reached, and reach")
        }
        Impairment::Throttled(_) => network(job)?.unthrottle(&fault.name).map(|()| "its link is fast again"),
        Impairment::DiskFull => disk(job)?.free().map(|()| "its disk has room"),
    }
}

fn network(job: &mut Supervisor) -> anyhow::Result<&mut network::Network> {
    job.network.as_mut().context("the run has no network of its own")
}

fn disk(job: &Supervisor) -> anyhow::Result<&disk::Disk> {
    job.disk.as_ref().context("the run has no disk of its own")
}

async fn scale(job: &mut Supervisor, role: Role, to: u32) {
    let (trainers, pservers) = match role {
        Role::Pserver => (None, Some(to)),
        Role::Trainer | Role::Master => (Some(to), None),
    };
    match job.client.scale(trainers, pservers).await {
        Ok(reply) => {
            let before = if role == Role::Pserver { reply.pservers_before } else { reply.trainers_before };
            let kind = if to >= before { "join" } else { "leave" };
            note(job, kind, role, "", &format!("scaled from {before} to {to} {role}s"));
        }
        Err(error) => job.notes.push(format!("chaos: {role}s are not scaled to {to}: {error:#}")),
    }
}

fn note(job: &mut Supervisor, kind: &str, role: Role, name: &str, what: &str) {
    job.record.fault(kind, role, name, what);
    let whom = if name.is_empty() { String::new() } else { format!(" {name}") };
    job.notes.push(format!("chaos: {kind}{whom}: {what}"));
}
