//! The trainers' side of the master: join, lease, leave.

use super::suspicions::unit;
use super::{Machine, Phase};
use crate::dispatch;
use crate::lease::Progress;
use crate::members::State;
use crate::trouble::Complaint;
use shoal_job::counters::TrainerCounters;
use shoal_runtime::cluster::waits::Wait;
use shoal_runtime::cluster::{
    Declaration, Environment, EnvironmentRule, Incarnation, LeaseId, Mode, Refusal, RefusalKind, Routing,
    Table, Task,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The newest word of one trainer.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrainerWord {
    /// Number of its newest call.
    pub call: u64,
    /// What it has counted.
    pub counters: TrainerCounters,
}

/// What is known of one trainer.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeardTrainer {
    pub(crate) word: TrainerWord,
    /// What it could not do, by that word: it says so until it knows that it was heard, and it counts once.
    refused: Vec<LeaseId>,
    /// When it last asked for tasks, had computed more than before, or announced what it computes next.
    pub(super) active: Duration,
    /// When it had last computed more than before.
    pub(crate) computed: Duration,
    /// Waits in progress, by its newest call.
    pub(crate) waits: Vec<Wait>,
}

impl HeardTrainer {
    /// Whether it asks for tasks or gets on with its own: one that hangs in its program still speaks, and nobody may wait for
    /// what it would say of a record.
    pub(super) fn is_able(&self, now: Duration, patience: Duration) -> bool {
        now < self.active + patience
    }
}

/// What a trainer says of itself when it joins.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// Its parameters.
    pub declaration: Declaration,
    /// What its bits depend on beside them.
    pub environment: Environment,
}

impl From<Declaration> for Declared {
    fn from(declaration: Declaration) -> Declared {
        Declared { declaration, environment: Environment::default() }
    }
}

/// What a trainer cannot do of what it was leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The lease.
    pub lease: LeaseId,
    /// Which of its microbatches.
    pub place: dispatch::Refused,
    /// Records that cannot be used, each alone; empty if no single one was found.
    pub records: Vec<Range<u64>>,
    /// Why.
    pub why: String,
}

/// The answer to a call for tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// Tasks to do.
    Tasks(Vec<Task>),
    /// Nothing at present; the call may be kept open.
    Wait,
    /// Every step is applied: the job is over.
    Done,
    /// The job has failed.
    Failed(String),
    /// This call was overtaken by a later one of the same trainer, or its trainer has left; it changed nothing.
    Overtaken,
}

impl Machine {
    /// Refuses what the job's mode cannot do.
    fn check_mode(&self, declaration: &Declaration) -> Result<(), Refusal> {
        let Mode::Async { staleness_window, .. } = self.settings().mode else { return Ok(()) };
        if declaration.decisions().is_some() {
            let detail = "decisions over all blocks need synchronous steps: run the job with --mode sync";
            return Err(Refusal::new(RefusalKind::DeclarationMismatch, "decisions", detail));
        }
        // So many updates may lie between a pull and its push: a row in use must not go between them.
        let is_young = |table: &Table| table.age_max.is_some_and(|age_max| age_max <= staleness_window);
        match declaration.parameters.iter().find(|parameter| parameter.table.as_ref().is_some_and(is_young)) {
            None => Ok(()),
            Some(parameter) => {
                let detail = format!(
                    "rows are evicted before gradients that were taken at them may have come: give it an age_max above the \
                     staleness window ({staleness_window}), or run the job with a smaller --staleness-window"
                );
                let subject = format!("table {:?}", parameter.name);
                Err(Refusal::new(RefusalKind::DeclarationMismatch, subject, detail))
            }
        }
    }

    /// Refuses a trainer whose bits depend on something else than the job's do, if that is not to be.
    fn check_environment(&self, environment: &Environment) -> Result<(), Refusal> {
        let is_refused = self.document.checks.environment == EnvironmentRule::Same;
        let Some(what) = self.difference(environment).filter(|_| is_refused) else { return Ok(()) };
        let detail = format!(
            "{what}; the first trainer's environment is the job's, since others may give other bits: run this trainer as those \
             of the job (image, processor, threads, flags; the same data, and a seed for what its script draws), or start the \
             master again with --environment warn, which lets it in"
        );
        Err(Refusal::new(RefusalKind::EnvironmentMismatch, "this trainer", detail))
    }

    /// In what an environment is another than the job's; none if it is the same, or nobody wants to know.
    pub fn difference(&self, environment: &Environment) -> Option<String> {
        let is_asked = self.document.checks.environment != EnvironmentRule::Any;
        self.environment().filter(|_| is_asked)?.difference(environment)
    }

    /// A trainer joins and declares its parameters and its environment. The first declaration is the job's, any other is refused;
    /// so is another environment than the first, unless it is let in.
    /// The routing is absent until the wanted pservers are there: join again.
    pub fn join(
        &mut self,
        name: &str,
        nonce: u64,
        process: u32,
        declared: impl Into<Declared>,
        previous: Option<Incarnation>,
        now: Duration,
    ) -> Result<(Incarnation, Option<Arc<Routing>>), Refusal> {
        let declared = declared.into();
        self.check_declaration(&declared.declaration)?;
        self.check_environment(&declared.environment)?;
        let (incarnation, superseded) = self.trainers.join(name, nonce, process, previous, now)?;
        if let (Some(old), Some(job)) = (superseded, &mut self.job) {
            job.suspects.supersede(old, now + Duration::from_millis(self.document.job.lease_ttl_millis));
            job.dispatch.lose(old, &job.reports);
            job.verification.iter_mut().for_each(|verification| verification.lose(old));
        }
        for forgotten in self.trainers.take_forgotten() {
            self.heard_trainers.remove(&forgotten);
            self.tally.forget(forgotten);
        }
        let is_new = !self.heard_trainers.contains_key(&incarnation);
        self.heard_trainers.entry(incarnation).or_default();
        if let Some(difference) = self.difference(&declared.environment).filter(|_| is_new) {
            tracing::warn!(trainer = name, difference, "its environment is not the job's: bits may differ");
        }
        if previous.is_none() {
            self.tally.begin(incarnation);
        }
        self.take(declared);
        Ok((incarnation, self.job.as_ref().map(|job| Arc::clone(&job.routing))))
    }

    /// What the first trainer says of itself is the job's.
    fn take(&mut self, declared: Declared) {
        if self.declaration().is_none() {
            (self.wishes.declaration, self.is_changed) = (Some(declared.declaration), true);
        }
        if self.environment().is_none() {
            (self.wishes.environment, self.is_changed) = (Some(declared.environment), true);
        }
    }

    /// Refuses a declaration that this job cannot have, or that is another than its own.
    fn check_declaration(&self, declaration: &Declaration) -> Result<(), Refusal> {
        self.check_mode(declaration)?;
        if let Some(aimed) = declaration.metrics().find(|metric| metric.target.is_some())
            && self.settings().evaluated.is_none()
        {
            let detail = "nothing is evaluated, so nothing can be aimed at: run the job with --eval-data";
            return Err(Refusal::new(
                RefusalKind::DeclarationMismatch,
                format!("metric {:?}", aimed.name),
                detail,
            ));
        }
        if let Some(ours) = self.declaration()
            && let Some(fault) = ours.difference(declaration)
        {
            let subject = format!("parameter {:?}", fault.parameter);
            let way_out = "every trainer of a job must run the same program with the same arguments";
            return Err(Refusal::new(
                RefusalKind::DeclarationMismatch,
                subject,
                format!("{}; {way_out}", fault.what),
            ));
        }
        Ok(())
    }

    /// Takes the word of a trainer that calls for tasks: its progress and counters. An overtaken call changes nothing
    /// and returns false.
    pub fn hear_trainer(
        &mut self,
        trainer: Incarnation,
        word: TrainerWord,
        progress: &[Progress],
        refusals: &[Refused],
        now: Duration,
    ) -> Result<bool, Refusal> {
        // Nor is an overtaken call a sign of life: it was sent before one that was heard.
        let before = self.heard_trainers.get(&trainer);
        let is_overtaken = before.is_some_and(|newest| word.call <= newest.word.call);
        if is_overtaken && self.trainers.is_current(trainer) {
            return Ok(false);
        }
        if let Err(refusal) = self.trainers.hear(trainer, now) {
            self.hear_refused(trainer);
            return Err(refusal);
        }
        let microbatches = word.counters.microbatches;
        let before = self.heard_trainers.remove(&trainer);
        let idle = before.as_ref().filter(|before| microbatches <= before.word.counters.microbatches);
        let (active, computed) = idle.map_or((now, now), |before| (before.active, before.computed));
        let (refused, waits) = before.map_or_else(Default::default, |before| (before.refused, before.waits));
        self.heard_trainers.insert(trainer, HeardTrainer { word, refused, active, computed, waits });
        self.hear_refusals(trainer, refusals, now);
        self.tally.hear(trainer, word.counters);
        if let Some(job) = &mut self.job {
            if job.suspects.hear(trainer, progress, now) {
                job.dispatch.mind(&job.suspects);
            }
            job.dispatch.progress(trainer, progress, now);
            job.dispatch.forget_unknown(trainer, progress, &job.reports);
        }
        Ok(true)
    }

    /// Takes the waits of a trainer's call that was not overtaken.
    pub fn hear_waits(&mut self, trainer: Incarnation, waits: Vec<Wait>) {
        if let Some(heard) = self.heard_trainers.get_mut(&trainer) {
            heard.waits = waits;
        }
    }

    /// A trainer cannot do some of what it was leased. Counted once for each lease, whether or not that has ended since:
    /// who takes longer to find out than a lease lives would be asked again for ever. Says whether any counts.
    fn hear_refusals(&mut self, trainer: Incarnation, refusals: &[Refused], now: Duration) -> bool {
        let name = self.trainers.get(trainer).map_or_else(String::new, |member| member.name.clone());
        let (is_sync, shape) = (self.document.job.is_sync(), self.document.job.shape());
        let newest = refusals.iter().map(|refused| refused.lease).collect();
        let heard = self.heard_trainers.get_mut(&trainer);
        let counted = heard.map(|heard| std::mem::replace(&mut heard.refused, newest)).unwrap_or_default();
        let mut has_counted = false;
        for Refused { lease, place, records, why } in refusals {
            let Some(job) = &mut self.job else { break };
            if counted.contains(lease) {
                has_counted = true;
                continue;
            }
            if !job.dispatch.refuse(trainer, *lease, place, now, &job.reports) {
                continue;
            }
            let (unit, what) = unit(is_sync, &shape, place);
            tracing::warn!(trainer = name, %what, ?records, why, "a trainer cannot do this: others try");
            let complaint = |records: Option<Range<u64>>| Complaint {
                trainer: name.clone(),
                unit,
                what: records.as_ref().map_or(what.clone(), |records| self.plan.manifest().describe(records)),
                records,
                why: why.clone(),
            };
            match records.as_slice() {
                [] => self.complaints.push(complaint(None)),
                records => self.complaints.extend(records.iter().cloned().map(Some).map(complaint)),
            }
            (has_counted, self.is_changed) = (true, true);
        }
        has_counted
    }

    /// Trainers that live and ask for tasks, or get on with theirs.
    pub(super) fn able_trainers(&self, now: Duration) -> usize {
        let patience = self.patience();
        let is_able = |trainer: &Incarnation| {
            self.heard_trainers.get(trainer).is_some_and(|heard| heard.is_able(now, patience))
        };
        self.trainers.live().filter(|(trainer, _)| is_able(trainer)).count()
    }

    /// For how long one that does not get on is waited for.
    pub(super) fn patience(&self) -> Duration {
        2 * Duration::from_millis(self.settings().lease_ttl_millis)
    }

    /// Leases up to `want` tasks. `call` is the number of the call that asks.
    pub fn lease(&mut self, trainer: Incarnation, call: u64, want: u32, now: Duration) -> LeaseOutcome {
        match self.phase() {
            Phase::Failed(why) => return LeaseOutcome::Failed(why),
            Phase::Done => return LeaseOutcome::Done,
            Phase::Waiting => return LeaseOutcome::Wait,
            Phase::Training => {}
        }
        if self.heard_trainers.get(&trainer).is_some_and(|heard| heard.word.call > call) {
            return LeaseOutcome::Overtaken;
        }
        // A call is kept open while its trainer may leave, or fall silent: nothing would release what it is given.
        match self.trainers.get(trainer).map(|member| member.state) {
            Some(State::Live) => {}
            Some(State::Lost) => return LeaseOutcome::Wait,
            Some(State::Left | State::Superseded) | None => return LeaseOutcome::Overtaken,
        }
        if let Some(heard) = self.heard_trainers.get_mut(&trainer).filter(|_| want > 0) {
            heard.active = now;
        }
        match self.tasks(trainer, want, now) {
            none if none.is_empty() => LeaseOutcome::Wait,
            tasks => LeaseOutcome::Tasks(tasks),
        }
    }

    /// When there may be a task for a trainer that was given none, by time alone, after `now`.
    pub fn next_late(&self, now: Duration) -> Option<Duration> {
        self.job.as_ref()?.dispatch.next_late(now)
    }

    /// A trainer leaves: what it has not pushed is leased to others. With a failure it is counted against the budget.
    pub fn leave(
        &mut self,
        trainer: Incarnation,
        progress: &[Progress],
        counters: TrainerCounters,
        failure: &str,
        refusals: &[Refused],
        now: Duration,
    ) -> Result<(), Refusal> {
        let is_first = self.trainers.get(trainer).is_some_and(|member| member.state != State::Left);
        if let Err(refusal) = self.trainers.leave(trainer) {
            self.hear_refused(trainer);
            return Err(refusal);
        }
        let has_complained = self.hear_refusals(trainer, refusals, now);
        if let Some(heard) = self.heard_trainers.get_mut(&trainer) {
            heard.word.counters = counters;
            self.tally.hear(trainer, counters);
        }
        if let Some(job) = &mut self.job {
            if job.suspects.leaves(trainer) {
                job.dispatch.mind(&job.suspects);
            }
            job.dispatch.progress(trainer, progress, now);
            job.dispatch.hand_back(trainer, &job.reports);
            job.verification.iter_mut().for_each(|verification| verification.lose(trainer));
        }
        // What it complained of is counted by what it was.
        if !failure.is_empty() && is_first && !has_complained {
            self.count_failure(failure);
        }
        Ok(())
    }
}
