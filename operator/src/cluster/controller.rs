//! The loop: what has changed is reconciled, by what watches say, plans for all jobs and time. Decides nothing.

use super::certificates::{CertificateSettings, Certificates};
use super::clients::Clients;
use super::creations::CREATED_BY_ALL;
use super::failure::ReconcileError;
use super::fleet::{Fleet, again, reconcile};
use super::index::{Key, named};
use super::master::masters;
use super::others::Others;
use super::planner::{Planner, Plans};
use super::plans::PlanIndex;
use super::surroundings::{Surrounded, budget_api};
use super::{Jobs, Leader, Reconciles, orphans, pod_index::PodIndex, queue, watches};
use crate::api::{ScalePlan, TrainingJob};
use crate::inventory::Tenant;
use crate::manifest::{Defaults, FIELD_MANAGER, JOB_LABEL};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::controller::{self, Action, Config};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use shoal_runtime::host::random::Random;
use std::sync::{Arc, Mutex};
use tokio::sync::{Semaphore, mpsc};

/// Jobs that are reconciled side by side. Each waits for nothing but calls to the API server, which have deadlines: jobs whose
/// calls hang take a place for seconds and come back ever more seldom.
const CONCURRENCY: u16 = 64;

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
    /// The name of the leases of operators, in whatever namespace.
    pub lease_name: &'a str,
    /// How the cluster is planned for.
    pub planning: shoal_planner::Settings,
}

/// What others may look at while jobs are looked after.
#[derive(Clone)]
pub struct Watched {
    /// Who leads.
    pub leader: Arc<Leader>,
    /// What is counted of reconciling.
    pub reconciles: Arc<Reconciles>,
    /// What there is to look after.
    pub jobs: Arc<Jobs>,
    /// What is counted of planning.
    pub plans: Arc<Plans>,
}

/// Looks after all jobs of a namespace, or of the cluster, for as long as it is polled.
///
/// # Errors
/// A server that cannot be asked which APIs it has.
pub async fn run(
    client: Client,
    Scope { namespace, lease_name, planning }: Scope<'_>,
    defaults: Defaults,
    certificates: CertificateSettings,
    Watched { leader, reconciles, jobs: seen, plans: made }: Watched,
) -> kube::Result<()> {
    let budgets = budget_api(&client).await?;
    let surrounded = Surrounded::list(&client, namespace, budgets).await?;
    let (job_store, job_writer) = reflector::store::<TrainingJob>();
    seen.are_in(job_store.clone());
    // One that keeps a namespace alone is the one that others leave it to.
    let others = namespace.is_none().then(|| Arc::new(Others::of(&defaults.namespace)));
    let watching_others = watches::of_others(others.clone(), client.clone(), lease_name.to_owned());
    let planner = others
        .clone()
        .map(|others| Planner::new(planning, defaults.clone(), job_store.clone(), others, made));
    let planner = planner.map(Arc::new);
    // Without a planner nobody asks for pods of others.
    let which = watcher::Config::default();
    let which = if planner.is_some() { which } else { which.labels(JOB_LABEL) };
    let jobs = watcher(api::<TrainingJob>(&client, namespace), watcher::Config::default());
    let pods = watcher(api::<Pod>(&client, namespace), which).default_backoff();
    let plans = watcher(api::<ScalePlan>(&client, namespace), watcher::Config::default()).default_backoff();
    let planning_watches = watches::of_planner(planner.clone(), client.clone());
    let clients = Arc::new(Clients::default());
    let (masters, calls) = masters(Arc::clone(&clients));
    let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: None };
    let fleet = Arc::new(Fleet {
        recorder: Recorder::new(client.clone(), reporter),
        certificates: Certificates::new(client.clone(), certificates, clients),
        client,
        defaults,
        budgets,
        masters,
        leader,
        pods: Arc::new(PodIndex::new()),
        plans: Arc::new(PlanIndex::new()),
        planner: planner.clone(),
        others,
        reconciles,
        surrounded: Mutex::new(surrounded),
        jobs: Mutex::default(),
        pauses: Mutex::default(),
        random: Mutex::new(Random::from_os()),
        creations: Semaphore::new(CREATED_BY_ALL),
    });
    let (of_pods, of_plans, of_jobs) = (news(&fleet), news(&fleet), news(&fleet));
    let pods = pods.inspect_ok(move |event| of_pods.of_pod(event));
    let plans = plans.inspect_ok(move |event| of_plans.of_plan(event));
    // Who wrote which field is most of an object's bytes, and of no use here.
    let lean = |job: &mut TrainingJob| job.metadata.managed_fields = None;
    let jobs = jobs.default_backoff().modify(lean).reflect(job_writer);
    let jobs = jobs.inspect_ok(move |event| of_jobs.of_job(event));
    let (to_look_at, replanned) = mpsc::channel(64);
    let replanned =
        stream::unfold(replanned, async |mut replanned| Some((replanned.recv().await?, replanned)));
    let of_all = news(&fleet);
    let replanned = replanned.inspect(move |job| of_all.0.reconciles.queue.add(key(job)));
    let (ready, all_jobs) = (Arc::clone(&fleet), job_store.clone());
    let controller = Controller::for_stream(jobs.touched_objects(), job_store)
        .owns_stream(pods.touched_objects())
        .watches_stream(plans.touched_objects(), |plan| {
            job_of(&plan).map(|(namespace, job)| ObjectRef::new(&job).within(&namespace))
        })
        .reconcile_on(Box::pin(replanned))
        .with_config(Config::default().concurrency(CONCURRENCY));
    let reconciling = controller.run(in_turn, |job, _, fleet| again(&job, &fleet), ready);
    let reconciling = reconciling.for_each(|done| {
        if let Err(error) = done {
            if let controller::Error::ObjectNotFound(job) = &error {
                fleet.reconciles.queue.forget(&key(job));
            }
            tracing::trace!(%error, "a job is reconciled again");
        }
        std::future::ready(())
    });
    tokio::select! {
        () = reconciling => Ok(()),
        never = calls.make() => match never {},
        never = orphans::tell(&fleet, &all_jobs) => match never {},
        never = planning_watches => match never {},
        never = watching_others => match never {},
        never = watches::plan_again(planner, to_look_at) => match never {},
    }
}

/// What watches say, taken in by whoever has a use for it, before jobs are reconciled because of it.
struct News(Arc<Fleet>);

fn news(fleet: &Arc<Fleet>) -> News {
    News(Arc::clone(fleet))
}

impl News {
    fn of_pod(&self, event: &watcher::Event<Pod>) {
        self.0.reconciles.queue.add_all_of(event, queue::owners);
        self.0.pods.note_pod(event);
        if let Some(planner) = &self.0.planner {
            planner.pods.note(event, named, Tenant::of);
            planner.changed.notify_one();
        }
    }

    fn of_plan(&self, event: &watcher::Event<ScalePlan>) {
        self.0.reconciles.queue.add_all_of(event, |plan| job_of(plan).into_iter().collect());
        self.0.plans.note_plan(event);
    }

    fn of_job(&self, event: &watcher::Event<TrainingJob>) {
        self.0.reconciles.queue.add_all_of(event, |job| vec![named(job)]);
        if let Some(planner) = &self.0.planner {
            planner.changed.notify_one();
        }
    }
}

/// The job that a plan is for.
fn job_of(plan: &ScalePlan) -> Option<Key> {
    Some((plan.namespace()?, plan.spec.owner_job.clone()))
}

/// Reconciles a job whose turn has come.
async fn in_turn(job: Arc<TrainingJob>, fleet: Arc<Fleet>) -> Result<Action, ReconcileError> {
    // Until all is seen, every job waits.
    fleet.pods.wait_until_ready().await;
    fleet.plans.wait_until_ready().await;
    fleet.reconciles.queue.begin(&named(&*job));
    reconcile(job, fleet).await
}

fn key<K: reflector::Lookup>(job: &ObjectRef<K>) -> Key {
    (job.namespace.clone().unwrap_or_default(), job.name.clone())
}
