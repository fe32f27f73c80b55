//! Plans for all jobs again and again, and tells which of them have another plan than before. The plan itself is `shoal_planner`.

use super::index::Index;
use super::others::Others;
use crate::api::{Phase, TrainingJob, TrainingJobStatus, faults};
use crate::decide::{PodView, Role, avoided, has_failed_to_start, pservers_wanted};
use crate::inventory::{Asks, Inventory, JobFacts, Site, Tenant, asks, cluster_view};
use crate::manifest::Defaults;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};
use shoal_planner::{Blocker, Broken, JobPlan, Settings, SpeedSample, plan};
use shoal_runtime::host::clock::wall_seconds;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// After something has changed, the next plan is made so much later, with whatever else has changed by then.
const GATHERED: Duration = Duration::from_millis(200);
/// Planning takes at most one part in so many of a processor.
const IDLE_PARTS: u32 = 4;
/// A plan is made at least so often, for time itself changes it.
const PLANNED_EVERY: Duration = Duration::from_secs(5);
/// A job whose pods a quota has refused is asked to have no more for so long.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// How many plans there were, and how long they took.
#[derive(Debug, Default)]
pub struct Plans {
    /// Plans for all jobs.
    pub count: AtomicU64,
    /// Those that would have broken what must hold of every plan, and were not used.
    pub broken: AtomicU64,
    /// How long all took.
    pub micros: AtomicU64,
    /// Jobs that waited to be let in when the newest was made.
    pub waiting: AtomicU64,
}

/// Plans for all jobs of a cluster.
pub(super) struct Planner {
    pub(super) nodes: Index<Site>,
    pub(super) pods: Index<Tenant>,
    /// Priority classes: their value, and whether it is that of pods without a class.
    pub(super) classes: Index<(i32, bool)>,
    settings: Settings,
    defaults: Defaults,
    jobs: Store<TrainingJob>,
    /// Whose jobs are planned by others, or by nobody: here they are pods like any.
    others: Arc<Others>,
    plans: Arc<Plans>,
    /// Something has changed.
    pub(super) changed: Notify,
    book: Mutex<Book>,
}

/// The plan for a job, and the uids of its trainers that go.
pub(super) type Planned = (JobPlan, Vec<String>);

/// What is known of jobs, by their uid, beyond what the API server has. Lost with the process, which costs nobody a pod.
#[derive(Debug, Default)]
struct Book {
    entries: BTreeMap<String, Entry>,
    refused: BTreeMap<String, (Instant, u32, String)>,
}

#[derive(Debug)]
struct Entry {
    /// None before it was planned for.
    planned: Option<Arc<Planned>>,
    /// What its pods ask for, of that generation and with that much memory.
    asks: Arc<Asks>,
    asked_for: AskedFor,
}

/// What asks follow from: a job's generation, and memory that was granted.
type AskedFor = (Option<i64>, Vec<u64>);

impl Planner {
    pub(super) fn new(
        settings: Settings,
        defaults: Defaults,
        jobs: Store<TrainingJob>,
        others: Arc<Others>,
        plans: Arc<Plans>,
    ) -> Planner {
        Planner {
            nodes: Index::new(),
            pods: Index::new(),
            classes: Index::new(),
            settings,
            defaults,
            jobs,
            others,
            plans,
            changed: Notify::new(),
            book: Mutex::default(),
        }
    }

    /// What was planned for a job; none before it was planned for.
    pub(super) fn of(&self, uid: &str) -> Option<Arc<Planned>> {
        self.book().entries.get(uid)?.planned.clone()
    }

    /// Of the nodes of pods that have been told to end, those that do not answer or are gone. Before nodes have been listed all
    /// of them answer.
    pub(super) fn silent_nodes(&self, pods: &[PodView]) -> Vec<String> {
        let going = pods.iter().filter(|pod| pod.deleted.is_some()).filter_map(|pod| pod.node.as_ref());
        let nodes = self.nodes.seen();
        let site = |node: &String| nodes.all().get(&(String::new(), node.clone()));
        let silent = |node: &&String| self.nodes.is_ready() && site(node).is_none_or(|site| site.is_silent);
        going.filter(silent).cloned().collect()
    }

    /// Roles of which a pod may also be put on a node that has not failed to start one. Nodes are looked at only where one has.
    pub(super) fn elsewhere(&self, job: &TrainingJob, pods: &[PodView]) -> Vec<Role> {
        let failed = |role: Role| {
            let known = job.status.iter().flat_map(move |status| avoided(status, role)).map(|one| &one.node);
            let now = pods.iter().filter(move |pod| pod.role == role && has_failed_to_start(pod));
            known.chain(now.filter_map(|pod| pod.node.as_ref())).cloned().collect()
        };
        let uid = job.uid().unwrap_or_default();
        let asks = self.book().entries.get(&uid).map(|entry| Arc::clone(&entry.asks));
        let is_elsewhere =
            |role: &Role| asks.as_ref().is_none_or(|asks| self.is_elsewhere(asks, *role, failed(*role)));
        Role::ALL.into_iter().filter(is_elsewhere).collect()
    }

    /// Whether a node takes pods and suits a role beside these.
    fn is_elsewhere(&self, asks: &Asks, role: Role, failed: Vec<String>) -> bool {
        if failed.is_empty() {
            return true;
        }
        let wish = asks.of(role).wish.avoiding(failed);
        self.nodes.seen().all().values().any(|site| site.is_open && wish.suits(site))
    }

    /// Notes that a quota has no room for more pods of a job than so many trainers.
    pub(super) fn refused(&self, uid: &str, trainers: u32, why: &str) {
        self.book().refused.insert(uid.to_owned(), (Instant::now(), trainers, why.to_owned()));
        self.changed.notify_one();
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans whenever something has changed; jobs with another plan are sent to be reconciled.
    pub(super) async fn keep(
        self: &Arc<Planner>,
        to_look_at: mpsc::Sender<ObjectRef<TrainingJob>>,
    ) -> Infallible {
        self.nodes.wait_until_ready().await;
        self.pods.wait_until_ready().await;
        self.classes.wait_until_ready().await;
        loop {
            let began = Instant::now();
            let planner = Arc::clone(self);
            // Some hundred milliseconds of computing, in a large cluster.
            let changed = tokio::task::spawn_blocking(move || planner.plan_once()).await;
            let took = began.elapsed();
            self.plans.count.fetch_add(1, Ordering::Relaxed);
            self.plans.micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
            match changed {
                Ok(changed) => {
                    for job in changed {
                        // Nobody reconciles jobs any more: the operator ends.
                        let _ = to_look_at.send(job).await;
                    }
                }
                Err(error) => tracing::error!(%error, "planning failed: jobs stay as they are"),
            }
            tokio::time::sleep(took * IDLE_PARTS).await;
            let _ = tokio::time::timeout(PLANNED_EVERY, self.changed.notified()).await;
            tokio::time::sleep(GATHERED).await;
        }
    }

    /// Plans for all jobs. Returns those whose plan is another than before.
    fn plan_once(&self) -> Vec<ObjectRef<TrainingJob>> {
        let now = wall_seconds();
        let jobs: Vec<Arc<TrainingJob>> = self.jobs.state();
        let (jobs, facts): (Vec<_>, Vec<_>) = jobs
            .into_iter()
            .filter_map(|job| Some((self.facts(&job)?, job)))
            .map(|(facts, job)| (job, facts))
            .unzip();
        let sites: Vec<Site> = self.nodes.seen().all().values().cloned().collect();
        let inventory = {
            let pods = self.pods.seen();
            let named =
                pods.all().iter().map(|((namespace, name), pod)| (format!("{namespace}/{name}"), pod));
            let is_kept_by_others =
                |name: &str| name.split_once('/').is_some_and(|(namespace, _)| self.others.keep(namespace));
            cluster_view(&sites, named, &facts, is_kept_by_others, now)
        };
        let plans = plan(&inventory.view, &self.settings, now);
        let of_jobs = jobs.iter().map(|job| ObjectRef::from_obj(&**job)).zip(&facts).collect();
        self.adopt(of_jobs, inventory, plans)
    }

    /// Takes a plan for these jobs to be the one that holds. Returns the jobs whose plan is another than before.
    ///
    /// A plan that is broken is none: the last one stays, for every job.
    fn adopt(
        &self,
        jobs: Vec<(ObjectRef<TrainingJob>, &JobFacts)>,
        inventory: Inventory,
        plans: Result<Vec<JobPlan>, Broken>,
    ) -> Vec<ObjectRef<TrainingJob>> {
        let plans = match plans {
            Ok(plans) => plans,
            Err(error) => {
                self.plans.broken.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "a plan is not used: jobs stay as they were planned last");
                return Vec::new();
            }
        };
        let waiting = plans.iter().filter(|plan| !plan.is_admitted).count() as u64;
        self.plans.waiting.store(waiting, Ordering::Relaxed);
        let mut book = self.book();
        let mut changed = Vec::new();
        let known: BTreeSet<&str> = jobs.iter().map(|(_, facts)| facts.uid.as_str()).collect();
        book.entries.retain(|uid, _| known.contains(uid.as_str()));
        book.refused.retain(|_, (at, ..)| at.elapsed() < REFUSED_FOR);
        let pods = inventory.trainers.into_iter().zip(inventory.going);
        for (((job, facts), mut plan), (trainers, mut scaled_down)) in jobs.into_iter().zip(plans).zip(pods) {
            let refused = book.refused.get(&facts.uid).filter(|_| plan.is_admitted);
            if let Some((.., why)) = refused {
                plan.blocker = Some(Blocker::Quota(why.clone()));
            }
            // Who was to go before goes, whatever there is room for by now.
            scaled_down.extend(plan.scaled_down.iter().filter_map(|place| trainers.get(*place).cloned()));
            let planned = (plan, scaled_down);
            let Some(entry) = book.entries.get_mut(&facts.uid) else { continue };
            if entry.planned.as_ref().is_none_or(|before| !is_alike(before, &planned)) {
                changed.push(job);
            }
            entry.planned = Some(Arc::new(planned));
        }
        changed
    }

    /// What the planner needs to know of a job; none for one that is not to run.
    fn facts(&self, job: &TrainingJob) -> Option<JobFacts> {
        let status = job.status.clone().unwrap_or_default();
        let is_to_run =
            job.metadata.deletion_timestamp.is_none() && !status.phase.is_over() && !job.spec.suspend;
        let is_stopping = matches!(status.phase, Phase::Suspending);
        let is_kept_here = !self.others.keep(&job.namespace().unwrap_or_default());
        if !is_to_run || is_stopping || !is_kept_here {
            return None;
        }
        let uid = job.uid()?;
        let asks = self.kept_from_failed_nodes(job, &*self.asks(&uid, job)?);
        let book = self.book();
        let entry = book.entries.get(&uid)?;
        let (spec, known) = (&job.spec.trainer, entry.planned.as_deref());
        let least = spec.min_replicas;
        let most = spec.max_replicas.unwrap_or(least).max(least);
        let stated = job.asked_trainers().map(|replicas| replicas.clamp(least, most));
        let refused = book.refused.get(&uid).map(|(_, trainers, _)| *trainers);
        let admitted = known.map(|(plan, _)| plan).filter(|plan| plan.is_admitted);
        let is_admitted = admitted.is_some() || was_admitted(&status);
        let wanted = admitted.map_or(status.trainer.wanted, |plan| plan.trainers);
        let made = job.metadata.creation_timestamp.as_ref().map_or(0, |made| made.0.as_second());
        Some(JobFacts {
            name: format!("{}/{}", job.namespace().unwrap_or_default(), job.name_any()),
            priority: self.priority(job.spec.priority_class_name.as_deref()),
            since: u64::try_from(made).unwrap_or(0),
            is_admitted,
            asks,
            pservers: pservers_wanted(&job.spec, Some(&status)),
            least,
            most: stated.unwrap_or(most).min(refused.unwrap_or(u32::MAX)).max(least),
            wanted: if is_admitted { wanted.max(least) } else { 0 },
            scaled_down: known.map(|(_, scaled_down)| scaled_down.clone()).unwrap_or_default(),
            // Who says how many has thought of what they ask for, and of how many are worth it.
            is_stated: stated.is_some() || says_what_it_asks_for(job),
            speeds: if stated.is_some() { Vec::new() } else { speeds(&status) },
            yielded: known.and_then(|(plan, _)| plan.yielded),
            allows_new_nodes: spec.allow_node_scale_up,
            uid,
        })
    }

    /// What a job's pods ask for, on nodes that have not failed to start one, as long as there are such.
    fn kept_from_failed_nodes(&self, job: &TrainingJob, asks: &Asks) -> Asks {
        let mut asks = asks.clone();
        for role in Role::ALL {
            let failed =
                job.status.iter().flat_map(|status| avoided(status, role)).map(|one| one.node.clone());
            let failed: Vec<String> = failed.collect();
            if !failed.is_empty() && self.is_elsewhere(&asks, role, failed.clone()) {
                asks.avoid(role, failed);
            }
        }
        asks
    }

    /// What a job's pods ask for, made anew when the job has changed; none for a job with faults.
    fn asks(&self, uid: &str, job: &TrainingJob) -> Option<Arc<Asks>> {
        let granted =
            job.status.as_ref().map(|status| status.memory.values().map(|grant| grant.now).collect());
        let asked_for = (job.metadata.generation, granted.unwrap_or_default());
        if let Some(entry) = self.book().entries.get(uid).filter(|entry| entry.asked_for == asked_for) {
            return Some(Arc::clone(&entry.asks));
        }
        if !faults(job, self.defaults.store.is_some()).is_empty() {
            return None;
        }
        let made = Arc::new(asks(job, &self.defaults).ok()?);
        let mut book = self.book();
        match book.entries.get_mut(uid) {
            Some(entry) => (entry.asks, entry.asked_for) = (Arc::clone(&made), asked_for),
            None => {
                let entry = Entry { planned: None, asks: Arc::clone(&made), asked_for };
                book.entries.insert(uid.to_owned(), entry);
            }
        }
        Some(made)
    }

    fn priority(&self, class: Option<&str>) -> i32 {
        let classes = self.classes.seen();
        let value = match class.filter(|class| !class.is_empty()) {
            Some(class) => classes.all().get(&(String::new(), class.to_owned())),
            None => classes.all().values().find(|(_, is_default)| *is_default),
        };
        value.map_or(0, |(value, _)| *value)
    }
}

/// A priority class: its value, and whether it is that of pods without a class.
pub(super) fn class(class: &PriorityClass) -> (i32, bool) {
    (class.value.unwrap_or(0), class.global_default.unwrap_or(false))
}

/// Jobs of operators that knew no plans have pods and are let in by that.
fn was_admitted(status: &TrainingJobStatus) -> bool {
    status.admitted.is_some() || status.trainer.replicas + status.pserver.replicas > 0
}

fn says_what_it_asks_for(job: &TrainingJob) -> bool {
    let template = &job.spec.trainer.template;
    let containers = template.pointer("/spec/containers").and_then(serde_json::Value::as_array);
    let says = |one: &serde_json::Value| one.get("resources").is_some();
    job.spec.trainer.resources.is_some() || containers.is_some_and(|all| all.iter().any(says))
}

fn speeds(status: &TrainingJobStatus) -> Vec<SpeedSample> {
    let sample =
        |one: &crate::api::Speed| SpeedSample { trainers: one.trainers, per_second: one.steps_per_second };
    status.trainer.speeds.iter().map(sample).collect()
}

/// Whether two plans ask for the same, whatever their figures.
fn is_alike((before, went): &Planned, (now, go): &Planned) -> bool {
    let word = |plan: &JobPlan| plan.blocker.as_ref().map(Blocker::word);
    (before.is_admitted, before.trainers, went, word(before), before.lacks.is_some())
        == (now.is_admitted, now.trainers, go, word(now), now.lacks.is_some())
}

#[cfg(test)]
mod tests;
