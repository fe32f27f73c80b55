//! Whose an object is that has a name of a job's. A name is no identity: what does not carry the job's uid among its owners
//! is neither changed nor deleted. Decides by metadata alone, asks nobody.

use super::apply::Outcome;
use crate::api::TrainingJob;
use crate::decide::{GOING, NAME_TAKEN};
use crate::manifest::JOB_LABEL;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};

/// The kinds of all objects that a job has, and that its label finds.
const LABELLED: &str = "pods,services,secrets,poddisruptionbudgets,networkpolicies";

/// Whose an object is, from where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The job's: its uid is among the owners.
    Job,
    /// Going by itself: it is being deleted, or its owner was an earlier job of this name, for which the garbage collector goes.
    Going,
    /// Somebody else's, who is not to be disturbed.
    Foreign,
}

/// Whose it is.
pub(super) fn owner(object: &ObjectMeta, job: &TrainingJob) -> Owner {
    let owners = || object.owner_references.iter().flatten();
    if job.uid().is_some_and(|uid| owners().any(|one| one.uid == uid)) {
        return Owner::Job;
    }
    // There is one job of a name: another uid under it is that of one that is no more.
    let was_a_jobs = |kind: &str, name: &str| kind == TrainingJob::kind(&()) && name == job.name_any();
    let is_left_over = owners().any(|one| was_a_jobs(&one.kind, &one.name));
    if object.deletion_timestamp.is_some() || is_left_over { Owner::Going } else { Owner::Foreign }
}

/// Whether it may be what a job of this name has left. Anybody may give a label, so it is for a person to say.
fn is_orphan(object: &ObjectMeta, job: &TrainingJob) -> bool {
    let has_owner = object.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
    let label = object.labels.as_ref().and_then(|labels| labels.get(JOB_LABEL));
    !has_owner && label.is_some_and(|name| *name == job.name_any())
}

/// What is to be said where a name is not the job's to use; none where the object is its own.
pub(super) fn refused(what: &str, object: &ObjectMeta, job: &TrainingJob) -> Option<Outcome> {
    match owner(object, job) {
        Owner::Job => None,
        Owner::Going => Some(Outcome::Refused(
            GOING,
            format!("{what} of before this job is on its way out: it is waited for"),
        )),
        Owner::Foreign => {
            let owners = object.owner_references.iter().flatten();
            let whose = owners.map(|one| format!("{} {}", one.kind, one.name)).next();
            let whose =
                whose.map_or_else(|| "has no owner".to_owned(), |whose| format!("belongs to {whose}"));
            let way_out = if is_orphan(object, job) {
                let (name, namespace) = (job.name_any(), job.namespace().unwrap_or_default());
                format!(
                    "rename the job; or, if an earlier job {name} was deleted without its objects (--cascade=orphan), \
                     delete this one, too, and then what is left: `kubectl delete {LABELLED} -n {namespace} -l {JOB_LABEL}={name}`"
                )
            } else {
                "rename the job or remove that object".to_owned()
            };
            let why = format!("{what} is not this job's, it {whose}: {way_out}");
            Some(Outcome::Refused(NAME_TAKEN, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job() -> TrainingJob {
        let mut job = TrainingJob::new("j", Default::default());
        (job.metadata.uid, job.metadata.namespace) = (Some("now".to_owned()), Some("here".to_owned()));
        job
    }

    fn object(more: Value) -> ObjectMeta {
        serde_json::from_value(more).unwrap()
    }

    fn owned_by(kind: &str, name: &str, uid: &str) -> Value {
        json!({ "ownerReferences": [{ "apiVersion": "v", "kind": kind, "name": name, "uid": uid }] })
    }

    #[test]
    fn only_what_carries_the_jobs_uid_is_its_own() {
        let whose = |more: Value| owner(&object(more), &job());
        assert_eq!(whose(owned_by("TrainingJob", "j", "now")), Owner::Job);
        assert_eq!(whose(json!({})), Owner::Foreign);
        let labels =
            json!({ "labels": { "shoal.dev/job": "j", "app.kubernetes.io/managed-by": "shoal-operator" } });
        assert_eq!(whose(labels), Owner::Foreign, "anybody may give a label");
        assert_eq!(whose(owned_by("Deployment", "j", "x")), Owner::Foreign);
        assert_eq!(whose(owned_by("TrainingJob", "other", "x")), Owner::Foreign, "of a job that lives");
        let nameless = TrainingJob::new("j", Default::default());
        assert_eq!(owner(&object(json!({})), &nameless), Owner::Foreign, "a job without a uid owns nothing");
    }

    #[test]
    fn what_an_earlier_job_of_the_name_has_left_is_waited_for_and_what_is_anothers_is_named() {
        let said = |more: Value| match refused("Pod j-master", &object(more), &job()) {
            Some(Outcome::Refused(reason, why)) => (reason, why),
            other => panic!("{other:?}"),
        };
        assert_eq!(said(owned_by("TrainingJob", "j", "before")).0, GOING);
        assert_eq!(said(json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" })).0, GOING);
        let (reason, why) = said(owned_by("ReplicaSet", "web", "x"));
        assert_eq!(reason, NAME_TAKEN);
        assert_eq!(
            why,
            "Pod j-master is not this job's, it belongs to ReplicaSet web: rename the job or remove that object"
        );
        assert!(refused("Pod j-master", &object(owned_by("TrainingJob", "j", "now")), &job()).is_none());
        let (reason, why) = said(json!({ "labels": { "shoal.dev/job": "j" } }));
        assert_eq!(reason, NAME_TAKEN);
        assert!(why.starts_with(
            "Pod j-master is not this job's, it has no owner: rename the job; or, if an earlier"
        ));
        assert!(why.ends_with(&format!("`kubectl delete {LABELLED} -n here -l shoal.dev/job=j`")), "{why}");
        let (_, why) = said(json!({ "labels": { "shoal.dev/job": "other" } }));
        assert!(why.ends_with("it has no owner: rename the job or remove that object"), "{why}");
    }
}
