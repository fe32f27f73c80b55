//! The loop: what changes is looked at, its job is decided on, what was decided is done. One look at a job at a time.

use super::apply::{self, Outcome};
use super::master::{Masters, Which, masters};
use super::planner::{Planner, Plans};
use super::{Leader, index::named, orphans, pod_index::PodIndex, surroundings, unseen::Unseen, watches};
use crate::api::{ScalePlan, TrainingJob, TrainingJobStatus};
use crate::decide::{
    Act, Choice, Decision, MasterView, Memory, PodState, PodView, QUOTA, Role, View, decide, target,
};
use crate::inventory::Tenant;
use crate::manifest::{Defaults, JOB_LABEL, identity};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::rpc::Security;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Jobs that are looked at side by side.
const CONCURRENCY: u16 = 16;
/// A master is asked at most so often.
const ASKED_EVERY: Duration = Duration::from_millis(900);
/// Progress alone is written at most so often, in seconds.
const PROGRESS_SECONDS: u64 = 10;
/// Services and the like are applied again after so long: somebody may have changed them.
const SURROUNDINGS_EVERY: Duration = Duration::from_secs(600);
/// After an error of the API server.
const RETRY: Duration = Duration::from_secs(2);

/// What all looks have in common.
pub struct Fleet {
    pub(super) client: Client,
    pub(super) defaults: Defaults,
    pub(super) budget_version: &'static str,
    pub(super) masters: Masters,
    leader: Arc<Leader>,
    pods: Arc<PodIndex>,
    plans: Store<ScalePlan>,
    /// None for an operator of one namespace: it sees no nodes.
    planner: Option<Arc<Planner>>,
    /// By uid, what is known of a job besides what the API server has.
    known: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<Known>>>>,
    looks: Arc<Looks>,
}

/// How many looks there were, and how long they took.
#[derive(Debug, Default)]
pub struct Looks {
    /// Looks at jobs.
    pub count: AtomicU64,
    /// Of those, the ones that failed.
    pub failed: AtomicU64,
    /// How long all took.
    pub micros: AtomicU64,
}

/// What is known of one job.
#[derive(Default)]
struct Known {
    memory: Memory,
    unseen: Unseen,
    master: Option<Which>,
    said: Option<(Instant, Option<MasterView>)>,
    /// For which generation, and when, its surroundings were made; none once they are deleted.
    surroundings: Option<(Option<i64>, Instant)>,
    are_surroundings_deleted: bool,
}

/// Why a look failed: it is repeated.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error("{}", said(.0))]
    Api(#[from] kube::Error),
    #[error("this operator does not lead any more")]
    NotLeading,
}

/// What an error of the API server says, without what programs read in it.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Where jobs are looked for.
fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// What an operator looks after.
pub struct Scope<'a> {
    /// The jobs of this namespace only; by default of the whole cluster, for which it plans.
    pub namespace: Option<&'a str>,
    /// How the cluster is planned for.
    pub planning: shoal_planner::Settings,
}

/// Looks after all jobs of a namespace, or of the cluster, for as long as it is polled.
///
/// # Errors
/// A server that cannot be asked which APIs it has.
pub async fn run(
    client: Client,
    Scope { namespace, planning }: Scope<'_>,
    defaults: Defaults,
    security: Security,
    leader: Arc<Leader>,
    (looks, made): (Arc<Looks>, Arc<Plans>),
) -> kube::Result<()> {
    let budget_version = surroundings::budget_version(&client).await?;
    let (job_store, job_writer) = reflector::store::<TrainingJob>();
    let pod_index = Arc::new(PodIndex::new());
    let (plan_store, plan_writer) = reflector::store::<ScalePlan>();
    let planner =
        namespace.is_none().then(|| Planner::new(planning, defaults.clone(), job_store.clone(), made));
    let planner = planner.map(Arc::new);
    // Without a planner nobody asks for pods of others.
    let which = watcher::Config::default();
    let which = if planner.is_some() { which } else { which.labels(JOB_LABEL) };
    let jobs = watcher(api::<TrainingJob>(&client, namespace), watcher::Config::default());
    let pods = watcher(api::<Pod>(&client, namespace), which).default_backoff();
    let plans = watcher(api::<ScalePlan>(&client, namespace), watcher::Config::default());
    let planning_watches = watches::of_planner(planner.clone(), client.clone());
    let (masters, calls) = masters();
    let fleet = Arc::new(Fleet {
        client,
        defaults,
        budget_version,
        masters,
        leader,
        pods: Arc::clone(&pod_index),
        plans: plan_store,
        planner: planner.clone(),
        known: Mutex::default(),
        looks,
    });
    let of_plan = |plan: ScalePlan| {
        let job = ObjectRef::new(&plan.spec.owner_job);
        plan.namespace().map(|namespace| job.within(&namespace))
    };
    let of_pods = planner.clone();
    let pods = pods.inspect_ok(move |event| {
        pod_index.note_pod(event);
        if let Some(planner) = &of_pods {
            planner.pods.note(event, named, Tenant::of);
            planner.changed.notify_one();
        }
    });
    let of_jobs = planner.clone();
    let jobs = jobs.default_backoff().reflect(job_writer).inspect_ok(move |_| {
        if let Some(planner) = &of_jobs {
            planner.changed.notify_one();
        }
    });
    let (to_look_at, replanned) = mpsc::channel(64);
    let replanned =
        stream::unfold(replanned, async |mut replanned| Some((replanned.recv().await?, replanned)));
    let (ready, all_jobs) = (Arc::clone(&fleet), job_store.clone());
    let controller = Controller::for_stream(jobs.touched_objects(), job_store)
        .owns_stream(pods.touched_objects())
        .watches_stream(plans.default_backoff().reflect(plan_writer).touched_objects(), of_plan)
        .reconcile_on(Box::pin(replanned))
        .with_config(Config::default().concurrency(CONCURRENCY));
    let looking =
        controller.run(look, |_, _, _| Action::requeue(RETRY), ready).for_each(|looked| async move {
            if let Err(error) = looked {
                tracing::trace!(%error, "a look is repeated");
            }
        });
    tokio::select! {
        () = looking => Ok(()),
        never = calls.make(security) => match never {},
        never = orphans::tell(&fleet, &all_jobs) => match never {},
        never = planning_watches => match never {},
        never = watches::plan_again(planner, to_look_at) => match never {},
    }
}

/// One look at one job.
async fn look(job: Arc<TrainingJob>, fleet: Arc<Fleet>) -> Result<Action, LookError> {
    let began = Instant::now();
    let looked = fleet.look_at(&job).await;
    fleet.looks.count.fetch_add(1, Ordering::Relaxed);
    fleet.looks.micros.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
    if let Err(error) = &looked {
        fleet.looks.failed.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(job = job.name_any(), %error, "a look at a job failed: it is repeated");
    }
    looked
}

impl Fleet {
    async fn look_at(&self, cached: &TrainingJob) -> Result<Action, LookError> {
        if !self.is_leading() {
            return Err(LookError::NotLeading);
        }
        // A job without its pods looks like one that has lost them all.
        self.pods.wait_until_ready().await;
        if self.plans.wait_until_ready().await.is_err() {
            return Err(LookError::NotLeading);
        }
        let uid = cached.uid().unwrap_or_default();
        let known = self.known_of(&uid);
        let mut known = known.lock().await;
        let job = known.unseen.newest(cached);
        let pods = known.unseen.with_made(self.pods.of(&job));
        let plans = self.plans_of(&job);
        self.ask(&job, &pods, &mut known).await;
        let said = known.said.as_ref().and_then(|(_, said)| said.clone());
        let planned = self.planner.as_ref().map(|planner| planner.of(&uid));
        let choice = match &planned {
            None => Choice::Spec,
            Some(None) => Choice::NotYet,
            Some(Some(planned)) => Choice::Plan(planned),
        };
        let target = target(&job.spec, job.status.as_ref(), choice);
        let view = View {
            job: &job,
            pods: &pods,
            master: said.as_ref(),
            plans: &plans,
            target: &target,
            has_store: self.defaults.store.is_some(),
            now: crate::api::Moment(i64::try_from(wall_seconds()).unwrap_or(i64::MAX)),
        };
        let decision = decide(&view, &mut known.memory);
        let again = Duration::from_secs(decision.again_after);
        let is_going = decision.acts.contains(&Act::RemoveFinalizer);
        self.apply(job, decision, &mut known).await?;
        if let (Some(planner), Some((QUOTA, why))) = (&self.planner, &known.memory.blocked) {
            let trainers = pods.iter().filter(|pod| pod.role == Role::Trainer).count() as u32;
            planner.refused(&uid, trainers, why);
        }
        if is_going {
            self.forget(&uid);
        }
        Ok(Action::requeue(again))
    }

    fn known_of(&self, uid: &str) -> Arc<tokio::sync::Mutex<Known>> {
        let mut all = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(all.entry(uid.to_owned()).or_default())
    }

    fn forget(&self, uid: &str) {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(uid);
    }

    /// The job's plans that are not over, the oldest first.
    fn plans_of(&self, job: &TrainingJob) -> Vec<ScalePlan> {
        let is_its = |plan: &Arc<ScalePlan>| {
            plan.namespace() == job.namespace() && plan.spec.owner_job == job.name_any()
        };
        let mut plans: Vec<ScalePlan> =
            self.due_plans().iter().filter(|plan| is_its(plan)).map(|plan| (**plan).clone()).collect();
        plans.sort_by_key(|plan| {
            (plan.metadata.creation_timestamp.clone().map(|time| time.0), plan.name_any())
        });
        plans
    }

    /// All plans that are not over.
    pub(super) fn due_plans(&self) -> Vec<Arc<ScalePlan>> {
        let is_due = |plan: &Arc<ScalePlan>| {
            plan.metadata.deletion_timestamp.is_none()
                && !plan.status.as_ref().is_some_and(|status| status.phase.is_over())
        };
        self.plans.state().into_iter().filter(is_due).collect()
    }

    pub(super) fn is_leading(&self) -> bool {
        self.leader.is_leading()
    }

    /// Asks the job's master how it is, unless that was just asked.
    async fn ask(&self, job: &TrainingJob, pods: &[PodView], known: &mut Known) {
        let running = pods.iter().find(|pod| pod.role == Role::Master && pod.state == PodState::Running);
        let Some(ip) = running.and_then(|pod| pod.ip.as_deref()) else {
            (known.master, known.said) = (None, None);
            return;
        };
        if known.said.as_ref().is_some_and(|(at, _)| at.elapsed() < ASKED_EVERY) {
            return;
        }
        let master = Which { ip: ip.to_owned(), job: identity(job) };
        let said = self.masters.status(&master).await;
        known.master = Some(master);
        if let Err(why) = &said {
            tracing::debug!(job = job.name_any(), why, "the master does not answer");
        }
        known.said = Some((Instant::now(), said.ok()));
    }

    /// Writes what must not be forgotten, then acts.
    async fn apply(
        &self,
        mut job: TrainingJob,
        decision: Decision,
        known: &mut Known,
    ) -> Result<(), LookError> {
        let before = job.status.clone().unwrap_or_default();
        if is_worth_writing(&before, &decision.status) {
            job = apply::write_status(self, &job, &decision.status).await?;
            known.unseen.wrote(job.clone());
        }
        let job = &job;
        let namespace = job.namespace().unwrap_or_default();
        for (name, status) in &decision.plans {
            apply::write_plan(self, &namespace, name, status).await?;
        }
        let mut blocked = None;
        for act in &decision.acts {
            if !self.is_leading() {
                return Err(LookError::NotLeading);
            }
            if !is_due(act, job, known) {
                continue;
            }
            match apply::act(self, job, act, &mut known.unseen, known.master.as_ref()).await? {
                Outcome::Done => note_done(act, job, known),
                Outcome::Refused(reason, why) => {
                    blocked.get_or_insert((reason, why));
                }
            }
        }
        known.memory.blocked = blocked;
        Ok(())
    }
}

/// Whether an act has still to be done: surroundings are not looked at each time.
fn is_due(act: &Act, job: &TrainingJob, known: &Known) -> bool {
    match act {
        Act::MakeSurroundings => known.surroundings.is_none_or(|(generation, at)| {
            generation != job.metadata.generation || at.elapsed() >= SURROUNDINGS_EVERY
        }),
        Act::DeleteSurroundings => !known.are_surroundings_deleted,
        _ => true,
    }
}

fn note_done(act: &Act, job: &TrainingJob, known: &mut Known) {
    match act {
        Act::MakeSurroundings => {
            known.surroundings = Some((job.metadata.generation, Instant::now()));
            known.are_surroundings_deleted = false;
        }
        Act::DeleteSurroundings => {
            known.surroundings = None;
            known.are_surroundings_deleted = true;
        }
        _ => {}
    }
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
