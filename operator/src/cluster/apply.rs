//! What was decided, done: statuses first, then acts, each harmless when repeated. Decides nothing.

use super::fleet::Fleet;
use super::surroundings::unless_gone;
use super::{master::Which, owned, pods, unseen::Unseen};
use crate::api::{
    GROUP, PLANNED_TRAINERS, ScalePlan, ScalePlanStatus, TrainingJob, TrainingJobStatus, VERSION,
};
use crate::decide::{Act, FINALIZER, GOING, Grace, NAME_TAKEN, POD_REFUSED, PodPlan, PodView, QUOTA};
use crate::manifest::{self, FIELD_MANAGER};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};

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

/// Writes a plan's status, over exactly the version that was looked at as well. Returns the plan as it is then; none if it is gone or was
/// changed meanwhile.
pub(super) async fn write_plan(
    fleet: &Fleet,
    plan: &ScalePlan,
    status: &ScalePlanStatus,
) -> kube::Result<Option<ScalePlan>> {
    let namespace = plan.namespace().unwrap_or_default();
    let (plans, name): (Api<ScalePlan>, _) =
        (Api::namespaced(fleet.client.clone(), &namespace), plan.name_any());
    let how = PatchParams::apply(FIELD_MANAGER).force();
    match plans.patch_status(&name, &how, &Patch::Apply(plan_patch(plan, status))).await {
        Ok(plan) => Ok(Some(plan)),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a plan its job's, so that it goes with it. One that waits for a job that is not there yet is nobody's.
pub(super) async fn own_plan(fleet: &Fleet, job: &TrainingJob, plan: &ScalePlan) -> kube::Result<()> {
    let owners = plan.metadata.owner_references.clone().unwrap_or_default();
    let Some(uid) = job.uid().filter(|uid| !owners.iter().any(|one| one.uid == *uid)) else { return Ok(()) };
    let mut owners: Vec<Value> = owners.iter().map(|owner| json!(owner)).collect();
    // Not the one that controls it, nor one whose deletion waits for it.
    owners.push(json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "TrainingJob", "name": job.name_any(), "uid": uid,
    }));
    let plans: Api<ScalePlan> = Api::namespaced(fleet.client.clone(), &plan.namespace().unwrap_or_default());
    // Over that version alone: owners are written as a whole.
    let patch = json!({ "metadata": {
        "uid": plan.uid(), "resourceVersion": plan.resource_version(), "ownerReferences": owners,
    } });
    match plans.patch(&plan.name_any(), &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            tracing::debug!(plan = plan.name_any(), why = status.message, "the plan stays when its job goes");
            Ok(())
        }
        other => other.map(drop),
    }
}

fn plan_patch(plan: &ScalePlan, status: &ScalePlanStatus) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "ScalePlan",
        "metadata": { "name": plan.name_any(), "uid": plan.uid(), "resourceVersion": plan.resource_version() },
        "status": without_empty(json!(status)),
    })
}

/// What one act came to.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is done, or had been.
    Done,
    /// The API server will not have it; somebody has to change something. In one word, and for people.
    Refused(&'static str, String),
}

/// A refusal of the API server's, as an outcome; what another try may not meet stays an error.
pub(super) fn refusal(what: &str, error: kube::Error) -> kube::Result<Outcome> {
    match error {
        error if is_of_a_namespace_that_goes(&error) => {
            Ok(Outcome::Refused(GOING, format!("{what}: its namespace is being deleted")))
        }
        kube::Error::Api(status) if status.code == 403 && status.message.contains("exceeded quota") => {
            Ok(Outcome::Refused(QUOTA, format!("{what}: {}", status.message)))
        }
        // A webhook may say no by any code; these are of other meanings.
        kube::Error::Api(status)
            if (400..500).contains(&status.code) && !matches!(status.code, 401 | 404 | 408 | 409 | 429) =>
        {
            let (kind, _) = what.split_once(' ').unwrap_or((what, ""));
            let word = match kind {
                "Pod" => POD_REFUSED,
                "Service" => "ServiceRefused",
                "PodDisruptionBudget" => "DisruptionBudgetRefused",
                "Secret" | "Certificate" => "CertificateRefused",
                _ => "NetworkPolicyRefused",
            };
            Ok(Outcome::Refused(word, format!("{what}: {}", status.message)))
        }
        error => Err(error),
    }
}

/// Whether nothing new is taken into a namespace any more, by the words of the API server's own plug-in.
fn is_of_a_namespace_that_goes(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403 && status.message.contains("because it is being terminated"))
}

/// Does one act: any but those that make something, which [`Fleet`] does side by side.
pub(super) async fn act(
    fleet: &Fleet,
    job: &TrainingJob,
    act: &Act,
    unseen: &mut Unseen,
    master: Option<&Which>,
) -> kube::Result<()> {
    match act {
        Act::AddFinalizer => finalizers(fleet, job, true, unseen).await?,
        Act::RemoveFinalizer => finalizers(fleet, job, false, unseen).await?,
        Act::DeleteJob => {
            let jobs: Api<TrainingJob> =
                Api::namespaced(fleet.client.clone(), &job.namespace().unwrap_or_default());
            // As it was looked at: somebody may just have said that it is to stay.
            let how = DeleteParams::default()
                .preconditions(Preconditions { uid: job.uid(), resource_version: job.resource_version() });
            unless_gone(jobs.delete(&job.name_any(), &how).await)?;
        }
        Act::MakeSurroundings | Act::IssueCertificates | Act::CreatePod(_) => {}
        Act::DeleteSurroundings => fleet.release(job).await?,
        Act::DeletePod { name, uid, grace } => delete(fleet, job, name, uid, *grace).await?,
        Act::SetReplicas { trainers, pservers } => {
            set_replicas(fleet, job, *trainers, *pservers, unseen).await?;
        }
        Act::WritePlanned(planned) => write_planned(fleet, job, *planned, unseen).await?,
        // A master that does not hear it is told again at the next reconcile.
        Act::Tell(command) => {
            if let Some(master) = master {
                fleet.masters.tell(master, command);
            }
        }
        Act::Event { is_warning, reason, note } => event(fleet, job, *is_warning, reason, note).await,
    }
    Ok(())
}

/// Adds or removes the operator's finalizer. kube's own helper (`kube::runtime::finalizer`) is not used, for it keeps to itself
/// what it has written: the next reconcile, of a cache that does not show it yet, would decide on the past.
async fn finalizers(
    fleet: &Fleet,
    job: &TrainingJob,
    has_ours: bool,
    unseen: &mut Unseen,
) -> kube::Result<()> {
    let mut all = job.metadata.finalizers.clone().unwrap_or_default();
    all.retain(|one| one != FINALIZER);
    all.extend(has_ours.then(|| FINALIZER.to_owned()));
    // Others' finalizers are in the list too: the version says that none has come or gone meanwhile.
    let patch = json!({ "metadata": { "resourceVersion": job.resource_version(), "finalizers": all } });
    change(fleet, job, patch, unseen).await
}

/// Changes a job over the version that was looked at.
async fn change(fleet: &Fleet, job: &TrainingJob, patch: Value, unseen: &mut Unseen) -> kube::Result<()> {
    let jobs: Api<TrainingJob> = Api::namespaced(fleet.client.clone(), &job.namespace().unwrap_or_default());
    match jobs.patch(&job.name_any(), &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(patch)).await {
        Ok(written) => {
            unseen.wrote(written);
            Ok(())
        }
        // The next reconcile sees the newer version and tries again.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes a pod. Also returns it, if it was made just now.
pub(super) async fn create(
    fleet: &Fleet,
    job: &TrainingJob,
    plan: &PodPlan,
) -> kube::Result<(Outcome, Option<PodView>)> {
    let pod = match manifest::pod(job, &fleet.defaults, plan) {
        Ok(pod) => pod,
        Err(why) => return Ok((Outcome::Refused("InvalidSpec", why), None)),
    };
    let all: Api<Pod> = Api::namespaced(fleet.client.clone(), &job.namespace().unwrap_or_default());
    let how = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let what = format!("Pod {}", pod.name_any());
    match all.create(&how, &pod).await {
        Ok(made) => Ok((Outcome::Done, pods::seen(&made))),
        // It is there already, made by a call whose answer was not heard, or somebody has its name.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let Some(there) = all.get_opt(&pod.name_any()).await? else { return Ok((Outcome::Done, None)) };
            if let Some(refused) = owned::refused(&what, &there.metadata, job) {
                return Ok((refused, None));
            }
            let seen = pods::seen(&there).map(|seen| (Outcome::Done, Some(seen)));
            Ok(seen.unwrap_or_else(|| {
                let why =
                    format!("{what} has lost the labels that say what it is: delete it, it is made again");
                (Outcome::Refused(NAME_TAKEN, why), None)
            }))
        }
        Err(error) => Ok((refusal(&what, error)?, None)),
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
    unseen: &mut Unseen,
) -> kube::Result<()> {
    change(fleet, job, replicas_patch(job, trainers, pservers), unseen).await
}

/// Over the version that was looked at: a number that somebody has written since is a wish.
async fn write_planned(
    fleet: &Fleet,
    job: &TrainingJob,
    planned: Option<u32>,
    unseen: &mut Unseen,
) -> kube::Result<()> {
    let annotation = planned.map(|planned| planned.to_string());
    let mut patch = json!({ "metadata": {
        "uid": job.uid(), "resourceVersion": job.resource_version(),
        "annotations": { PLANNED_TRAINERS: annotation },
    } });
    if let Some(planned) = planned {
        patch["spec"] = json!({ "trainer": { "replicas": planned } });
    }
    change(fleet, job, patch, unseen).await
}

/// Over the version that was looked at: numbers that somebody has written since are newer than this wish.
fn replicas_patch(job: &TrainingJob, trainers: Option<u32>, pservers: Option<u32>) -> Value {
    let mut spec = json!({});
    for (role, replicas) in [("trainer", trainers), ("pserver", pservers)] {
        if let Some(replicas) = replicas {
            spec[role] = json!({ "replicas": replicas });
        }
    }
    let mut patch =
        json!({ "metadata": { "uid": job.uid(), "resourceVersion": job.resource_version() }, "spec": spec });
    if trainers.is_some() && job.planned_trainers().is_some() {
        // Also where it is the number that the operator had itself: now somebody asks for it.
        patch["metadata"]["annotations"] = json!({ PLANNED_TRAINERS: null });
    }
    patch
}

/// Tells people. One event that is lost changes nothing.
pub(super) async fn event(fleet: &Fleet, job: &TrainingJob, is_warning: bool, reason: &str, note: &str) {
    let cut =
        note.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= NOTE_BYTES_MAX).last();
    let mut hasher = DefaultHasher::new();
    note.hash(&mut hasher);
    let event = Event {
        type_: if is_warning { EventType::Warning } else { EventType::Normal },
        reason: reason.to_owned(),
        note: Some(note[..cut.unwrap_or(0)].to_owned()),
        // The recorder counts events of one action as one, with the first one's note: those that say something else are others.
        action: format!("{reason}-{:08x}", hasher.finish() as u32),
        secondary: None,
    };
    if let Err(error) = fleet.recorder.publish(&event, &job.object_ref(&())).await {
        if is_of_a_namespace_that_goes(&error) {
            return;
        }
        tracing::warn!(job = job.name_any(), reason, note, %error, "an event was not recorded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_writes_of_plans_and_numbers_counts_for_the_version_alone_that_it_looked_at() {
        let fence = json!({ "uid": "u", "resourceVersion": "7" });
        let mut job = TrainingJob::new("j", Default::default());
        (job.metadata.uid, job.metadata.resource_version) = (Some("u".to_owned()), Some("7".to_owned()));
        let patch = replicas_patch(&job, Some(3), None);
        assert_eq!(patch, json!({ "metadata": fence, "spec": { "trainer": { "replicas": 3 } } }));
        let mut plan = ScalePlan::new("p", Default::default());
        plan.metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            name: Some("p".to_owned()),
            ..job.metadata.clone()
        };
        let metadata = plan_patch(&plan, &ScalePlanStatus::default())["metadata"].clone();
        assert_eq!(metadata, json!({ "name": "p", "uid": "u", "resourceVersion": "7" }));
    }

    #[test]
    fn what_a_server_will_not_have_is_named_and_what_another_try_may_not_meet_is_an_error() {
        let status = |code: u16, message: &str| {
            let status: kube::core::Status =
                serde_json::from_value(json!({ "code": code, "message": message })).unwrap();
            kube::Error::Api(Box::new(status))
        };
        let refused = |code: u16, message: &str| match refusal("Service j-master", status(code, message)) {
            Ok(Outcome::Refused(word, why)) => Some((word, why)),
            other => other.map(|_| None).unwrap_or_default(),
        };
        let named = |word| Some((word, "Service j-master: no".to_owned()));
        assert_eq!(
            [400, 403, 422, 418].map(|code| refused(code, "no")),
            [(); 4].map(|()| named("ServiceRefused"))
        );
        assert_eq!(refused(403, "exceeded quota: none").map(|(word, _)| word), Some(QUOTA));
        assert_eq!([401, 404, 409, 429, 500, 503].map(|code| refused(code, "no")), [(); 6].map(|()| None));
    }
}
