//! Breaking a job on purpose: the [`deck`] decides what and when; signals, limits, calls, and [hosts](shoal_runner::hosts) of
//! the run's own do it.

pub(crate) mod deck;
pub(crate) mod kind;
mod memory;
pub(crate) mod privileges;
pub(crate) mod sight;
mod spell;

use anyhow::Context;
use deck::{Deck, Strike, Weather};
use rustix::process::Signal;
use shoal_job::Role;
use shoal_runner::Supervisor;
use shoal_runner::hosts::{disk, network};
use shoal_runner::life::Interference;
use spell::{Ill, Spell};
use std::time::Duration;
use tokio::time::Instant;

/// A run of chaos.
#[derive(Debug)]
pub(crate) struct Chaos {
    started: Instant,
    deck: Deck,
}

impl Chaos {
    /// Chaos that begins now.
    pub(crate) fn new(weather: Weather) -> Chaos {
        Chaos { started: Instant::now(), deck: Deck::new(weather, Duration::ZERO) }
    }
}

impl Interference for Chaos {
    async fn tick(&mut self, job: &mut Supervisor) {
        let strikes = match job.status.phase.as_str() {
            "training" => {
                let trainers = job.members().into_iter().map(|(name, _, _)| name).collect();
                let running = job.running(Role::Pserver);
                let sight = sight::sight(&job.status, job.is_master_here(), trainers, &running);
                self.deck.due(self.started.elapsed(), &sight)
            }
            _ => self.deck.calm(),
        };
        for strike in strikes {
            do_it(job, strike).await;
        }
    }

    async fn end(&mut self, job: &mut Supervisor) {
        for strike in self.deck.calm() {
            do_it(job, strike).await;
        }
    }
}

async fn do_it(job: &mut Supervisor, strike: Strike) {
    match strike {
        Strike::Kill(role, name) => {
            let Some(pid) = job.pid_of(&name) else { return };
            job.signal(pid, Signal::KILL);
            note(job, "kill", role, &name, "kill -9");
        }
        Strike::Begin(spell) => match begin(job, &spell) {
            Ok(Some(what)) => note(job, word(&spell.ill), spell.role, &spell.name, &what),
            Ok(None) => {}
            Err(error) => job.notes.push(format!("chaos: {} is not struck: {error:#}", spell.name)),
        },
        Strike::End(spell) => {
            let kind = if spell.ill == Ill::Frozen { "thaw" } else { "heal" };
            match end(job, &spell) {
                Ok(_) if job.pid_of(&spell.name).is_none() && spell.ill != Ill::Full => {}
                Ok(what) => note(job, kind, spell.role, &spell.name, what),
                Err(error) => {
                    job.notes.push(format!("warning: chaos: {} is not healed: {error:#}", spell.name));
                }
            }
        }
        Strike::Leave(name) => {
            let Some(pid) = job.pid_of(&name) else { return };
            note(job, "leave", Role::Trainer, &name, "SIGTERM: hands back its tasks");
            job.ask_to_leave(pid);
        }
        Strike::Scale(role, to) => scale(job, role, to).await,
        Strike::Migrate(name) => match job.client.drain(&name, true).await {
            Ok(_) => note(job, "migrate", Role::Pserver, &name, "its blocks go to another in its place"),
            Err(error) => job.notes.push(format!("chaos: {name} is not migrated: {error:#}")),
        },
    }
}

/// The kind of fault, as a run's record calls it.
fn word(ill: &Ill) -> &'static str {
    match ill {
        Ill::Frozen => "freeze",
        Ill::Starved => "memory",
        Ill::Cut(_) => "partition",
        Ill::Slow(_) => "slow",
        Ill::Full => "disk",
    }
}

/// Returns what was done; none if there is nobody to do it to any more.
fn begin(job: &mut Supervisor, spell: &Spell) -> anyhow::Result<Option<String>> {
    let Some(pid) = job.pid_of(&spell.name) else { return Ok(None) };
    let what = spell.what();
    match &spell.ill {
        Ill::Frozen => job.signal(pid, Signal::STOP),
        Ill::Starved => memory::starve(pid)?,
        Ill::Cut(cut) => network(job)?.cut(&cut.pairs(&spell.name))?,
        Ill::Slow(link) => {
            let means = network(job)?.slow(&spell.name, *link)?;
            return Ok(means.map(|means| format!("{what} ({means})")));
        }
        Ill::Full => disk(job)?.fill()?,
    }
    Ok(Some(what))
}

/// Returns what was done. A process that is gone has taken most of what was wrong with it along.
fn end(job: &mut Supervisor, spell: &Spell) -> anyhow::Result<&'static str> {
    let pid = job.pid_of(&spell.name);
    match &spell.ill {
        Ill::Frozen => {
            pid.into_iter().for_each(|pid| job.signal(pid, Signal::CONT));
            Ok("SIGCONT")
        }
        Ill::Starved => {
            let fed = pid.map_or(Ok(()), memory::feed);
            // It may have ended in this moment.
            let is_gone =
                || pid.is_none_or(|pid| !std::path::Path::new(&format!("/proc/{pid}/status")).exists());
            fed.or_else(|error| if is_gone() { Ok(()) } else { Err(error) })?;
            Ok("may have more memory")
        }
        Ill::Cut(cut) => network(job)?.mend(&cut.pairs(&spell.name)).map(|()| "can be reached, and reach"),
        Ill::Slow(_) => network(job)?.quicken(&spell.name).map(|()| "its link is fast again"),
        Ill::Full => disk(job)?.free().map(|()| "its disk has room"),
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
