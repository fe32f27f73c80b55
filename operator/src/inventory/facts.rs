//! A job that is to run, as the planner needs to know it. Pure.

use super::{Amounts, Wish};
use crate::api::TrainingJob;
use crate::decide::{Avoids, PodPlan, Role};
use crate::manifest::{Defaults, pod};
use shoal_planner::{Seconds, SpeedSample};

/// What a pod asks for, and where it may be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodAsk {
    /// What it asks for.
    pub amounts: Amounts,
    /// Where it may be.
    pub wish: Wish,
}

/// What a job's pods ask for, each as it would be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asks {
    /// The master.
    pub master: PodAsk,
    /// A pserver.
    pub pserver: PodAsk,
    /// A trainer.
    pub trainer: PodAsk,
}

impl Asks {
    /// Of a role.
    pub fn of(&self, role: Role) -> &PodAsk {
        match role {
            Role::Master => &self.master,
            Role::Pserver => &self.pserver,
            Role::Trainer => &self.trainer,
        }
    }

    /// The same, with a role kept from these nodes.
    pub fn avoid(&mut self, role: Role, nodes: Vec<String>) {
        let ask = match role {
            Role::Master => &mut self.master,
            Role::Pserver => &mut self.pserver,
            Role::Trainer => &mut self.trainer,
        };
        ask.wish = ask.wish.avoiding(nodes);
    }
}

/// What the pods of a job would ask for.
///
/// # Errors
/// Templates or resources that are none.
pub fn asks(job: &TrainingJob, defaults: &Defaults) -> Result<Asks, String> {
    let memory = |role: Role| job.status.as_ref()?.memory.get(role.name()).map(|grant| grant.now);
    let asked = |role: Role| {
        let plan = PodPlan {
            role,
            ordinal: 0,
            is_elastic: false,
            resources: None,
            memory: memory(role),
            pservers: 1,
            trainers: 1,
            avoids: Avoids::default(),
        };
        let spec = pod(job, defaults, &plan)?.spec.unwrap_or_default();
        Ok::<_, String>(PodAsk { amounts: Amounts::of_pod(&spec), wish: Wish::of(&spec) })
    };
    Ok(Asks { master: asked(Role::Master)?, pserver: asked(Role::Pserver)?, trainer: asked(Role::Trainer)? })
}

/// A job that is to run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFacts {
    /// Its uid.
    pub uid: String,
    /// `NAMESPACE/NAME`.
    pub name: String,
    /// Its priority.
    pub priority: i32,
    /// When it was made.
    pub since: Seconds,
    /// Whether it was let in.
    pub is_admitted: bool,
    /// What its pods ask for.
    pub asks: Asks,
    /// How many pservers it is to have.
    pub pservers: u32,
    /// The least trainers that it may have.
    pub least: u32,
    /// The most.
    pub most: u32,
    /// How many were wanted last.
    pub wanted: u32,
    /// Uids of trainers that go already.
    pub scaled_down: Vec<String>,
    /// Whether its author said what a trainer asks for.
    pub is_stated: bool,
    /// Speeds that were measured.
    pub speeds: Vec<SpeedSample>,
    /// When it last gave trainers up to something that is no training job.
    pub yielded: Option<Seconds>,
    /// Whether something brings nodes.
    pub allows_new_nodes: bool,
}
