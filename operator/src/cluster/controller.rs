//! The loop: what has changed is reconciled, by what watches say, plans for all jobs and time. Decides nothing.

use super::creations::CREATED_BY_ALL;
use super::fleet::{Fleet, again, reconcile};
use super::master::masters;
use super::others::Others;
use super::planner::{Planner, Plans};
use super::plans::PlanIndex;
use super::surroundings::{Surrounded, budget_api};
use super::{Leader, Reconciles, index::named, orphans, pod_index::PodIndex, watches};
use crate::api::{ScalePlan, TrainingJob};
use crate::inventory::Tenant;
use crate::manifest::{Defaults, FIELD_MANAGER, JOB_LABEL};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::controller::Config;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::Security;
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
    security: Security,
    Watched { leader, reconciles, plans: made }: Watched,
) -> kube::Result<()> {
    let budgets = budget_api(&client).await?;
    let surrounded = Surrounded::list(&client, namespace, budgets).await?;
    let (job_store, job_writer) = reflector::store::<TrainingJob>();
    let pod_index = Arc::new(PodIndex::new());
    let plan_index = Arc::new(PlanIndex::new());
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
    let (masters, calls) = masters();
    let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: None };
    let fleet = Arc::new(Fleet {
        recorder: Recorder::new(client.clone(), reporter),
        client,
        defaults,
        budgets,
        masters,
        leader,
        pods: Arc::clone(&pod_index),
        plans: Arc::clone(&plan_index),
        planner: planner.clone(),
        others,
        reconciles,
        surrounded: Mutex::new(surrounded),
        jobs: Mutex::default(),
        pauses: Mutex::default(),
        random: Mutex::new(Random::from_os()),
        creations: Semaphore::new(CREATED_BY_ALL),
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
    let plans = plans.inspect_ok(move |event| plan_index.note_plan(event));
    let of_jobs = planner.clone();
    // Who wrote which field is most of an object's bytes, and of no use here.
    let lean = |job: &mut TrainingJob| job.metadata.managed_fields = None;
    let jobs = jobs.default_backoff().modify(lean).reflect(job_writer).inspect_ok(move |_| {
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
        .watches_stream(plans.touched_objects(), of_plan)
        .reconcile_on(Box::pin(replanned))
        .with_config(Config::default().concurrency(CONCURRENCY));
    let reconciling = controller.run(reconcile, |job, _, fleet| again(&job, &fleet), ready);
    let reconciling = reconciling.for_each(|done| async move {
        if let Err(error) = done {
            tracing::trace!(%error, "a job is reconciled again");
        }
    });
    tokio::select! {
        () = reconciling => Ok(()),
        never = calls.make(security) => match never {},
        never = orphans::tell(&fleet, &all_jobs) => match never {},
        never = planning_watches => match never {},
        never = watching_others => match never {},
        never = watches::plan_again(planner, to_look_at) => match never {},
    }
}
