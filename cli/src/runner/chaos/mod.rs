//! Breaking a job on purpose: the [`deck`] decides what and when, signals and calls do it.

pub(crate) mod deck;
pub(crate) mod sight;

use super::Supervisor;
use super::roles::Role;
use deck::{Deck, Strike, Weather};
use rustix::process::Signal;
use std::collections::BTreeSet;
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

    /// Does what is due.
    pub(crate) async fn tick(&mut self, job: &mut Supervisor) {
        let strikes = match job.status.phase.as_str() {
            "training" => {
                let trainers = job.members().into_iter().map(|(name, _, _)| name).collect();
                let running: BTreeSet<&str> = job.pservers.iter().map(|one| one.name.as_str()).collect();
                let sight = sight::sight(&job.status, job.is_master_here(), trainers, &running);
                self.deck.due(self.started.elapsed(), &sight)
            }
            _ => self.deck.calm(),
        };
        for strike in strikes {
            do_it(job, strike).await;
        }
    }

    /// Thaws whatever is frozen.
    pub(crate) async fn end(&mut self, job: &mut Supervisor) {
        for strike in self.deck.calm() {
            do_it(job, strike).await;
        }
    }
}

async fn do_it(job: &mut Supervisor, strike: Strike) {
    match strike {
        Strike::Kill(role, name) => signal(job, Signal::KILL, "kill", role, &name, "kill -9"),
        Strike::Freeze(role, name, tenths) => {
            let what = format!("SIGSTOP for {:.1} lease TTLs", f64::from(tenths) / 10.0);
            signal(job, Signal::STOP, "freeze", role, &name, &what);
        }
        Strike::Thaw(role, name) => signal(job, Signal::CONT, "thaw", role, &name, "SIGCONT"),
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

fn signal(job: &mut Supervisor, signal: Signal, kind: &str, role: Role, name: &str, what: &str) {
    let Some(pid) = job.pid_of(name) else { return };
    job.signal(pid, signal);
    note(job, kind, role, name, what);
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
