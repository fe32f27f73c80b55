//! What the machine is asked for: numbers of members, and the settings that may change while the job lives.

use super::{CheckpointPolicy, Machine};
use crate::decide::Wishes;
use crate::document::{Checks, Told, Wanted};
use shoal_job::spec::Spec;
use shoal_runtime::cluster::{Incarnation, Refusal, RefusalKind};

impl Machine {
    /// Asks for other numbers of members; supervisors and the next decisions make it so. Returns those before.
    pub fn scale(&mut self, wanted: Wanted) -> Wanted {
        self.is_changed = true;
        std::mem::replace(&mut self.wishes.wanted, wanted)
    }

    /// The settings that this master goes by.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Goes by these settings from now on, which differ in live ones alone from those before. Copies, what may be left out and how
    /// closely trainers are looked at follow with the next decision, and are in the document from then on.
    pub fn go_by(&mut self, spec: Spec) {
        self.is_changed = true;
        let Wishes { wanted, checks, told, keep_last, .. } = &mut self.wishes;
        *told = Some(Told { started: self.started.clone(), live: spec.live() });
        (wanted.replicas, wanted.exclude_max) = (spec.copies(), spec.exclude_max());
        *checks = Checks::of(&spec, &self.document.job);
        self.policy = CheckpointPolicy::of(&spec.checkpoint);
        *keep_last = self.policy.keep_last;
        self.spec = spec;
    }

    /// A pserver, by name, is to be left: once another has come in its place, or with one fewer wanted.
    ///
    /// # Errors
    /// No such pserver; it would be the last.
    pub fn drain(&mut self, name: &str, is_replaced: bool) -> Result<Incarnation, Refusal> {
        let found = self.pservers.live().find(|(_, member)| member.name == name).map(|(who, _)| who);
        let Some(pserver) = found else {
            let detail = "no live pserver has this name: `shoal status` lists them";
            return Err(Refusal::new(RefusalKind::OutOfRange, format!("pserver {name:?}"), detail));
        };
        let is_leaving = self.document.leaving.contains(&pserver) || self.wishes.leaving.contains(&pserver);
        if is_replaced && !is_leaving {
            self.wishes.replacing.insert(pserver);
        } else if !is_leaving {
            if self.wishes.wanted.pservers <= 1 {
                let detail = "it is the only one wanted: migrate it, or scale up first";
                return Err(Refusal::new(RefusalKind::OutOfRange, format!("pserver {name:?}"), detail));
            }
            self.wishes.wanted.pservers -= 1;
            self.wishes.leaving.insert(pserver);
        }
        self.is_changed = true;
        Ok(pserver)
    }

    /// Pservers that a supervisor should run: those wanted, and those that are to come in the place of others.
    pub fn pservers_to_run(&self) -> u32 {
        let replaced = self.document.replacing.union(&self.wishes.replacing);
        let pending = replaced.filter(|pserver| !self.document.leaving.contains(pserver));
        let pending = pending.filter(|pserver| self.pservers.live().any(|(live, _)| live == **pserver));
        self.wishes.wanted.pservers + pending.count() as u32
    }

    /// What is asked for.
    pub fn wanted(&self) -> Wanted {
        self.wishes.wanted
    }
}
