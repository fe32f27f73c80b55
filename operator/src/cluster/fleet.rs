//! One job reconciled: what is seen of it becomes a view, what was decided on that becomes calls. Each job one at a time, with a
//! deadline, and with nobody else waiting for its calls. Decides nothing.

use super::apply::{self, Outcome};
use super::cert_manager::certificate_object;
use super::certificates::{AUTHORITY, Certificates, Certified, secret_object};
use super::creations::pod_object;
use super::failure::ReconcileError;
use super::leader::Leader;
use super::master::{Dialogue, Masters, Which};
use super::metrics::Reconciles;
use super::others::Others;
use super::planner::Planner;
use super::plans::PlanIndex;
use super::pod_index::PodIndex;
use super::refusals::Refusals;
use super::surroundings::{self, KINDS, Kind, Surrounded};
use super::troubles::Troubles;
use super::unseen::Unseen;
use crate::api::{Moment, ScalePlan, TrainingJob, TrainingJobStatus};
use crate::decide::{
    Act, Choice, Decision, GOING, Memory, NAME_TAKEN, PodState, PodView, QUOTA, Role, View, decide,
};
use crate::manifest::{BudgetApi, Defaults, identity};
use futures_util::future::join_all;
use kube::runtime::controller::Action;
use kube::runtime::events::Recorder;
use kube::{Client, ResourceExt};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::tls;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Progress alone is written at most so often, in seconds.
const PROGRESS_SECONDS: u64 = 10;
/// Services and the like are applied again after so long: somebody may have changed them.
const SURROUNDINGS_EVERY: Duration = Duration::from_secs(600);
/// Made for no number that a job has: as it is it serves, and it is to be tried again.
const TO_BE_TRIED: u32 = u32::MAX;
/// One job is given so long at a time: several calls that each take their whole deadline, then others have the place.
pub(super) const RECONCILE_MAX: Duration = Duration::from_secs(30);
/// Whether another operator still keeps a job is looked at so often.
const STANDS_BY: Duration = Duration::from_secs(10);
/// After an error, and after many of them in a row.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// When this operator began, or had anything to do first.
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What the reconciling of all jobs has in common.
pub(super) struct Fleet {
    pub(super) client: Client,
    pub(super) defaults: Defaults,
    pub(super) budgets: BudgetApi,
    pub(super) masters: Masters,
    pub(super) certificates: Certificates,
    pub(super) leader: Arc<Leader>,
    pub(super) pods: Arc<PodIndex>,
    pub(super) plans: Arc<PlanIndex>,
    /// None for an operator of one namespace: it sees no nodes.
    pub(super) planner: Option<Arc<Planner>>,
    /// None for an operator of one namespace: others leave it to that one.
    pub(super) others: Option<Arc<Others>>,
    pub(super) recorder: Recorder,
    pub(super) reconciles: Arc<Reconciles>,
    /// Which jobs have a service and the like, as far as this operator knows.
    pub(super) surrounded: Mutex<Surrounded>,
    /// By uid, what is known of a job besides what the API server has.
    pub(super) jobs: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<Known>>>>,
    /// By uid, the pauses of jobs whose reconciling fails.
    pub(super) pauses: Mutex<BTreeMap<String, Backoff>>,
    pub(super) random: Mutex<Random>,
    pub(super) creations: Semaphore,
}

/// What is known of one job.
#[derive(Default)]
pub(super) struct Known {
    memory: Memory,
    pub(super) unseen: Unseen,
    dialogue: Dialogue,
    pub(super) refusals: Refusals,
    pub(super) certified: Certified,
    troubles: Troubles,
    /// For each of its surroundings, for which number and when they were made; none once they are deleted or taken.
    made: [Option<(u32, Instant)>; KINDS.len()],
}

impl Known {
    /// Whether the job has its service: without one nobody finds the master.
    pub(super) fn has_service(&self) -> bool {
        let at = KINDS.iter().position(|kind| *kind == Kind::Service);
        at.is_some_and(|at| self.made[at].is_some())
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reconciles one job.
pub(super) async fn reconcile(job: Arc<TrainingJob>, fleet: Arc<Fleet>) -> Result<Action, ReconcileError> {
    // A job without its pods looks like one that has lost them all.
    fleet.pods.wait_until_ready().await;
    fleet.plans.wait_until_ready().await;
    if let Some(others) = &fleet.others {
        others.wait_until_ready().await;
    }
    let under_way = fleet.reconciles.begin();
    let began = Instant::now();
    let done = timeout(RECONCILE_MAX, fleet.reconcile(&job)).await;
    let done = done.unwrap_or(Err(ReconcileError::Deadline));
    fleet.reconciles.note(began.elapsed(), done.as_ref().err().map(ReconcileError::kind));
    drop(under_way);
    match &done {
        Ok(_) => drop(locked(&fleet.pauses).remove(&job.uid().unwrap_or_default())),
        Err(error) => {
            tracing::warn!(job = job.name_any(), %error, "a job was not reconciled: it is tried again");
        }
    }
    done
}

/// When a job is tried again after an error: later each time, until it goes well.
pub(super) fn again(job: &TrainingJob, fleet: &Fleet) -> Action {
    let mut pauses = locked(&fleet.pauses);
    let (first, longest) = PAUSES;
    let pause = pauses.entry(job.uid().unwrap_or_default()).or_insert_with(|| Backoff::new(first, longest));
    Action::requeue(pause.pause(&mut locked(&fleet.random)))
}

impl Fleet {
    async fn reconcile(&self, cached: &TrainingJob) -> Result<Action, ReconcileError> {
        if !self.is_leading() {
            return Err(ReconcileError::NotLeading);
        }
        let namespace = cached.namespace().unwrap_or_default();
        if self.others.as_ref().is_some_and(|others| others.keep(&namespace)) {
            return Ok(Action::requeue(STANDS_BY));
        }
        let uid = cached.uid().unwrap_or_default();
        let known = Arc::clone(locked(&self.jobs).entry(uid.clone()).or_default());
        let mut known = known.lock().await;
        let job = known.unseen.newest(cached);
        let mut pods = known.unseen.with_made(self.pods.of(&job));
        known.troubles.see(&self.client, &namespace, &mut pods, present()).await;
        let plans = self.plans.of(&job);
        let master = master_of(&job, &pods);
        known.certified.see_served(&job);
        if master.is_some()
            && let Some(why) = self.certificates.speak(&job, &mut known.certified).await
        {
            tracing::warn!(job = job.name_any(), why, "the master cannot be asked");
            apply::event(self, &job, true, "MasterUnseen", &why).await;
        }
        known.dialogue.ask(&self.masters, master).await;
        let said = known.dialogue.said().cloned();
        let planned = self.planner.as_ref().map(|planner| planner.of(&uid));
        let choice = match &planned {
            None => Choice::Spec,
            Some(None) => Choice::NotYet,
            Some(Some(planned)) => Choice::Plan(&planned.0, &planned.1),
        };
        let elsewhere = self.planner.as_ref().map(|planner| planner.elsewhere(&job, &pods));
        let silent_nodes = self.planner.as_ref().map(|planner| planner.silent_nodes(&pods));
        let view = View {
            job: &job,
            pods: &pods,
            silent_nodes: silent_nodes.as_deref(),
            elsewhere: elsewhere.as_deref(),
            master: said.as_ref(),
            plans: &plans,
            choice,
            has_store: self.defaults.store.is_some(),
            tls: self.certificates.default,
            now: present(),
            uptime: STARTED.elapsed().as_secs(),
        };
        let decision = decide(&view, &mut known.memory)?;
        let after = Duration::from_secs(decision.again_after);
        let is_going = decision.acts.contains(&Act::RemoveFinalizer);
        self.apply(job, &plans, decision, &mut known).await?;
        if let (Some(planner), Some(why)) = (&self.planner, known.refusals.quota_of_pods()) {
            let trainers = pods.iter().filter(|pod| pod.role == Role::Trainer).count() as u32;
            planner.refused(&uid, trainers, why);
        }
        if is_going {
            locked(&self.jobs).remove(&uid);
        }
        Ok(Action::requeue(after))
    }

    /// Forgets jobs that are not there: somebody else has removed their finalizer. Who is being reconciled is kept.
    pub(super) fn forget_all_but(&self, there: &BTreeSet<String>) {
        locked(&self.jobs).retain(|uid, known| there.contains(uid) || Arc::strong_count(known) > 1);
        locked(&self.pauses).retain(|uid, _| there.contains(uid));
        locked(&self.surrounded).forget_all_but(there);
    }

    pub(super) fn is_leading(&self) -> bool {
        self.leader.is_leading()
    }

    /// Writes what must not be forgotten, then acts.
    async fn apply(
        &self,
        mut job: TrainingJob,
        plans: &[ScalePlan],
        decision: Decision,
        known: &mut Known,
    ) -> Result<(), ReconcileError> {
        let before = job.status.clone().unwrap_or_default();
        if is_worth_writing(&before, &decision.status) {
            job = apply::write_status(self, &job, &decision.status).await?;
            known.unseen.wrote(job.clone());
        }
        let job = &job;
        for (name, status) in &decision.plans {
            let plan = plans.iter().find(|plan| plan.name_any() == *name);
            if let Some(plan) = plan
                && let Some(plan) = apply::write_plan(self, plan, status).await?
            {
                apply::own_plan(self, job, &plan).await?;
            }
        }
        let wanted = objects(&decision.acts, job);
        known.refusals.keep(job.metadata.generation, Instant::now(), |object| wanted.contains(object));
        let mut failed = None;
        let is_creation = |act: &Act| matches!(act, Act::CreatePod(_));
        for acts in decision.acts.chunk_by(|one, next| is_creation(one) && is_creation(next)) {
            if !self.is_leading() {
                return Err(ReconcileError::NotLeading);
            }
            match &acts[0] {
                // What cannot be made keeps nothing else from being done, least of all from being deleted.
                Act::MakeSurroundings => self.surround(job, known, &mut failed).await,
                Act::IssueCertificates => self.certify(job, known, &mut failed).await,
                Act::CreatePod(_) => self.create(job, acts, known, &mut failed).await,
                act => {
                    let master = known.dialogue.master().cloned();
                    match apply::act(self, job, act, &mut known.unseen, master.as_ref()).await {
                        Ok(()) if *act == Act::DeleteSurroundings => known.made = Default::default(),
                        Ok(()) => {}
                        // Without it nothing may be made.
                        Err(error) if *act == Act::AddFinalizer => return Err(ReconcileError::Api(error)),
                        Err(error) => failed = Some(error),
                    }
                }
            }
        }
        self.tell_of_refusals(job, known).await;
        failed.map_or(Ok(()), |error| Err(ReconcileError::Api(error)))
    }

    /// Makes the service and the like that have to be made.
    async fn surround(&self, job: &TrainingJob, known: &mut Known, failed: &mut Option<kube::Error>) {
        let now = Instant::now();
        let is_due = |(at, kind): &(usize, Kind)| {
            known.made[*at]
                .is_none_or(|(number, made)| number != kind.made_for(job) || made + SURROUNDINGS_EVERY <= now)
                && known.refusals.is_due(&kind.of(job), now)
        };
        let due: Vec<(usize, Kind)> = KINDS.into_iter().enumerate().filter(is_due).collect();
        if due.is_empty() {
            return;
        }
        let uid = job.uid().unwrap_or_default();
        let has_former = locked(&self.surrounded).add(&uid);
        let made = due.iter().map(|(_, kind)| self.make(job, *kind, has_former));
        for ((at, kind), made) in due.iter().zip(join_all(made).await) {
            let object = kind.of(job);
            match made {
                Ok((Outcome::Done, _)) => {
                    known.made[*at] = Some((kind.made_for(job), now));
                    known.refusals.forgive(&object);
                }
                Ok((Outcome::Refused(word, mut why), is_there)) => {
                    if is_there {
                        known.made[*at] = Some((TO_BE_TRIED, now));
                        why += "; it stays as it is";
                    }
                    if matches!(word, NAME_TAKEN | GOING) {
                        known.made[*at] = None;
                    }
                    if *kind == Kind::Service && known.made[*at].is_none() {
                        why += "; without it nobody finds the master: pservers and trainers are not made";
                    }
                    known.refusals.note(&object, (word, why), now, &mut locked(&self.random));
                }
                Err(error) => *failed = Some(error),
            }
        }
    }

    /// Makes one. Also returns whether it is there, the job's own.
    async fn make(&self, job: &TrainingJob, kind: Kind, has_former: bool) -> kube::Result<(Outcome, bool)> {
        let budgets = self.budgets;
        let made = surroundings::make(&self.client, job, &self.defaults, budgets, kind).await?;
        if kind == Kind::Policy && has_former && matches!(made, (Outcome::Done, _)) {
            // Not before its successor is there: in between the pods would be open to all.
            surroundings::delete_former_policy(&self.client, job).await?;
            locked(&self.surrounded).has_no_former(&job.uid().unwrap_or_default());
        }
        Ok(made)
    }

    /// Deletes a job's service and the like, if it has any.
    pub(super) async fn release(&self, job: &TrainingJob) -> kube::Result<()> {
        let uid = job.uid().unwrap_or_default();
        let Some(has_former) = locked(&self.surrounded).of(&uid) else { return Ok(()) };
        surroundings::delete(&self.client, job, self.budgets).await?;
        if has_former {
            surroundings::delete_former_policy(&self.client, job).await?;
        }
        locked(&self.surrounded).remove(&uid);
        Ok(())
    }

    /// Has the job's next status say what is refused, and tells people once.
    async fn tell_of_refusals(&self, job: &TrainingJob, known: &mut Known) {
        let first = known.refusals.told(|word| matches!(word, QUOTA | GOING));
        if let Some((word, why)) = &first {
            let before = known.memory.blocked.as_ref();
            // What a quota says changes with each pod in the namespace.
            let was_told = before.is_some_and(|(last, said)| last == word && (*word == QUOTA || said == why));
            let is_in_status =
                job.status.as_ref().is_some_and(|status| status.message.contains(why.as_str()));
            if !was_told && !is_in_status && *word != GOING {
                apply::event(self, job, true, word, why).await;
            }
        }
        known.memory.blocked = first;
    }
}

/// The time of day.
pub(super) fn present() -> Moment {
    Moment(i64::try_from(wall_seconds()).unwrap_or(i64::MAX))
}

/// The job's master, if it runs.
fn master_of(job: &TrainingJob, pods: &[PodView]) -> Option<Which> {
    let running = pods.iter().find(|pod| pod.role == Role::Master && pod.state == PodState::Running);
    let ip = running.and_then(|pod| pod.ip.clone())?;
    Some(Which { ip, job: identity(job), uid: job.uid().unwrap_or_default() })
}

/// What acts ask to be made.
fn objects(acts: &[Act], job: &TrainingJob) -> BTreeSet<String> {
    let of = |act: &Act| match act {
        Act::MakeSurroundings => KINDS.into_iter().map(|kind| kind.of(job)).collect(),
        Act::IssueCertificates => {
            let certificates = tls::Role::ALL.into_iter();
            let certificates =
                certificates.flat_map(|role| [secret_object(job, role), certificate_object(job, role)]);
            certificates.chain([AUTHORITY.to_owned()]).collect()
        }
        Act::CreatePod(plan) => vec![pod_object(job, plan)],
        _ => Vec::new(),
    };
    acts.iter().flat_map(of).collect()
}

/// Whether a status differs from the one before in more than how far the job is, or by enough time.
fn is_worth_writing(before: &TrainingJobStatus, now: &TrainingJobStatus) -> bool {
    let at = |status: &TrainingJobStatus| status.progress.as_ref().and_then(|progress| progress.at);
    let is_late = match (at(before), at(now)) {
        (Some(before), Some(now)) => now.since(before) >= PROGRESS_SECONDS,
        (before, now) => before != now,
    };
    let rest =
        |status: &TrainingJobStatus| TrainingJobStatus { progress: None, checkpoint: None, ..status.clone() };
    (is_late && before != now) || rest(before) != rest(now)
}

#[cfg(test)]
pub(super) mod fixture;
#[cfg(test)]
mod tests;
