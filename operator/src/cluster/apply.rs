//! What was decided, done: statuses first, then acts, each harmless when repeated. Decides nothing.

use super::controller::Fleet;
use super::surroundings::{self, unless_gone};
use super::{master::Which, pods, unseen::Unseen};
use crate::api::{GROUP, ScalePlan, ScalePlanStatus, TrainingJob, TrainingJobStatus, VERSION};
use crate::decide::{Act, Command, FINALIZER, Grace, PodPlan, QUOTA};
use crate::manifest::{self, FIELD_MANAGER};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

/// Events say at most so much.
const NOTE_BYTES_MAX: usize = 1000;

/// Writes a job's status over exactly the version that was looked at, so that an operator that looked at another writes
/// nothing.
pub(super) async fn write_status(
    fleet: &Fleet,
    job: &TrainingJob,
    status: &TrainingJobStatus,
) -> kube::Result<TrainingJob> {
    let jobs: Api<TrainingJob> = Api::namespaced(fleet.client.clone(), &job.namespace().unwrap_or_default());
    let patch = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "TrainingJob",
        "metadata": { "name": job.name_any(), "uid": job.uid(), "resourceVersion": job.resource_version() },
        "status": without_empty(json!(status)),
    });
    jobs.patch_status(&job.name_any(), &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(patch)).await
}

/// A status without what says nothing: servers of the age of 1.20 make null of an empty text that is applied in a list, and
/// then refuse it.
fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let stated = map.into_iter().filter(|(_, value)| *value != json!("") && !value.is_null());
            Value::Object(stated.map(|(key, value)| (key, without_empty(value))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(without_empty).collect()),
        other => other,
    }
}

/// Writes a plan's status.
pub(super) async fn write_plan(
    fleet: &Fleet,
    namespace: &str,
    name: &str,
    status: &ScalePlanStatus,
) -> kube::Result<()> {
    let plans: Api<ScalePlan> = Api::namespaced(fleet.client.clone(), namespace);
    let patch = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "ScalePlan",
        "metadata": { "name": name },
        "status": without_empty(json!(status)),
    });
    let how = PatchParams::apply(FIELD_MANAGER).force();
    unless_gone(plans.patch_status(name, &how, &Patch::Apply(patch)).await)
}

/// What one act came to.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is done, or had been.
    Done,
    /// The API server will not have it; somebody has to change something. In one word, and for people.
    Refused(&'static str, String),
}

/// Does one act.
pub(super) async fn act(
    fleet: &Fleet,
    job: &TrainingJob,
    act: &Act,
    unseen: &mut Unseen,
    master: Option<&Which>,
) -> kube::Result<Outcome> {
    match act {
        Act::AddFinalizer => finalizers(fleet, job, true, unseen).await?,
        Act::RemoveFinalizer => finalizers(fleet, job, false, unseen).await?,
        Act::DeleteJob => {
            let jobs: Api<TrainingJob> =
                Api::namespaced(fleet.client.clone(), &job.namespace().unwrap_or_default());
            let how = DeleteParams::default()
                .preconditions(Preconditions { uid: job.uid(), resource_version: None });
            unless_gone(jobs.delete(&job.name_any(), &how).await)?;
        }
        Act::MakeSurroundings => {
            surroundings::make(&fleet.client, job, &fleet.defaults, fleet.budget_version).await?;
        }
        Act::DeleteSurroundings => surroundings::delete(&fleet.client, job, fleet.budget_version).await?,
        Act::CreatePod(plan) => return create(fleet, job, plan, unseen).await,
        Act::DeletePod { name, uid, grace } => delete(fleet, job, name, uid, *grace).await?,
        Act::SetReplicas { trainers, pservers } => set_replicas(fleet, job, *trainers, *pservers).await?,
        Act::Tell(command) => {
            if let Some(master) = master {
                tell(fleet, job, master, command).await;
            }
        }
        Act::Event { is_warning, reason, note } => event(fleet, job, *is_warning, reason, note).await,
    }
    Ok(Outcome::Done)
}

async fn finalizers(
    fleet: &Fleet,
    job: &TrainingJob,
    has_ours: bool,
    unseen: &mut Unseen,
) -> kube::Result<()> {
    let jobs: Api<TrainingJob> = Api::namespaced(fleet.client.clone(), &job.namespace().unwrap_or_default());
    let mut all = job.metadata.finalizers.clone().unwrap_or_default();
    all.retain(|one| one != FINALIZER);
    all.extend(has_ours.then(|| FINALIZER.to_owned()));
    // Others' finalizers are in the list too: the version says that none has come or gone meanwhile.
    let patch = json!({ "metadata": { "resourceVersion": job.resource_version(), "finalizers": all } });
    match jobs.patch(&job.name_any(), &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(patch)).await {
        Ok(written) => {
            unseen.wrote(written);
            Ok(())
        }
        // The next look sees the newer version and tries again.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn create(
    fleet: &Fleet,
    job: &TrainingJob,
    plan: &PodPlan,
    unseen: &mut Unseen,
) -> kube::Result<Outcome> {
    let pod = match manifest::pod(job, &fleet.defaults, plan) {
        Ok(pod) => pod,
        Err(why) => return Ok(Outcome::Refused("InvalidSpec", why)),
    };
    let all: Api<Pod> = Api::namespaced(fleet.client.clone(), &job.namespace().unwrap_or_default());
    let how = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match all.create(&how, &pod).await {
        Ok(made) => {
            if let Some(made) = pods::seen(&made) {
                unseen.made(made);
            }
            Ok(Outcome::Done)
        }
        // It is there already, or one of that name is on its way out.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Outcome::Done),
        Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("exceeded quota") => {
            Ok(Outcome::Refused(QUOTA, status.message.clone()))
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            Ok(Outcome::Refused("PodRefused", status.message.clone()))
        }
        Err(error) => Err(error),
    }
}

async fn delete(fleet: &Fleet, job: &TrainingJob, name: &str, uid: &str, grace: Grace) -> kube::Result<()> {
    let all: Api<Pod> = Api::namespaced(fleet.client.clone(), &job.namespace().unwrap_or_default());
    let how = DeleteParams::default()
        .preconditions(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    let how = match grace {
        Grace::Own => how,
        Grace::Seconds(seconds) => how.grace_period(seconds),
        Grace::Force => how.grace_period(0),
    };
    match all.delete(name, &how).await {
        // Another has its name by now.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => unless_gone(other),
    }
}

async fn set_replicas(
    fleet: &Fleet,
    job: &TrainingJob,
    trainers: Option<u32>,
    pservers: Option<u32>,
) -> kube::Result<()> {
    let jobs: Api<TrainingJob> = Api::namespaced(fleet.client.clone(), &job.namespace().unwrap_or_default());
    let mut spec = json!({});
    for (role, replicas) in [("trainer", trainers), ("pserver", pservers)] {
        if let Some(replicas) = replicas {
            spec[role] = json!({ "replicas": replicas });
        }
    }
    let how = PatchParams::apply(FIELD_MANAGER);
    unless_gone(jobs.patch(&job.name_any(), &how, &Patch::Merge(json!({ "spec": spec }))).await)
}

/// A master that does not listen is told again at the next look.
async fn tell(fleet: &Fleet, job: &TrainingJob, master: &Which, command: &Command) {
    if let Err(why) = fleet.masters.tell(master, command).await {
        tracing::warn!(job = job.name_any(), ?command, why, "the master was not told");
    }
}

/// Events are for people: one that is lost changes nothing.
async fn event(fleet: &Fleet, job: &TrainingJob, is_warning: bool, reason: &str, note: &str) {
    let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: None };
    let recorder = Recorder::new(fleet.client.clone(), reporter);
    let cut =
        note.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= NOTE_BYTES_MAX).last();
    let event = Event {
        type_: if is_warning { EventType::Warning } else { EventType::Normal },
        reason: reason.to_owned(),
        note: Some(note[..cut.unwrap_or(0)].to_owned()),
        action: reason.to_owned(),
        secondary: None,
    };
    if let Err(error) = recorder.publish(&event, &job.object_ref(&())).await {
        tracing::warn!(job = job.name_any(), reason, note, %error, "an event was not recorded");
    }
}
