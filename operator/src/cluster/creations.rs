//! How pods are made: in the order in which a job needs them, ever more at a time, and none that takes another's room.

use super::apply::{self, Outcome};
use super::fleet::{Fleet, Known, locked};
use crate::api::{TlsMode, TrainingJob};
use crate::decide::{Act, PodPlan, PodView, QUOTA, Role, pod_name};
use futures_util::{StreamExt, stream};
use kube::ResourceExt;
use std::time::Duration;
use tokio::time::Instant;

/// Pods of one job that are made side by side, and of all jobs: what an API server with its defaults takes from one client.
pub(super) const CREATED_AT_A_TIME: usize = 16;
pub(super) const CREATED_BY_ALL: usize = 64;
/// After so long the next pods are left to the next reconcile: whoever else waits for this one is not to wait for all of them.
const CREATING_MAX: Duration = Duration::from_secs(15);

/// What a server that is asked for pods makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Welcome {
    /// All are there.
    All,
    /// It will not have one of them.
    NotThese,
    /// It has no room for pods, or did not answer.
    Nobody,
}

impl Fleet {
    /// Makes pods: role by role, those of the least that a job runs with before those beyond. None is tried after one for which a
    /// quota has no room: it would only take what that one waits for. Another refusal is its own pod's, or all of its kind's: the
    /// next of the kind is tried another time.
    pub(super) async fn create(
        &self,
        job: &TrainingJob,
        acts: &[Act],
        known: &mut Known,
        failed: &mut Option<kube::Error>,
    ) {
        let has_service = known.has_service();
        // One whose secret is not there would wait on its node, and hold its room meanwhile.
        let has_secret = |role: Role| job.tls() != TlsMode::Issued || known.certified.has(role.name());
        let plan = |act: &Act| match act {
            Act::CreatePod(plan) if !has_secret(plan.role) => None,
            Act::CreatePod(plan) if has_service || plan.role == Role::Master => Some(plan.clone()),
            _ => None,
        };
        let began = Instant::now();
        if known.refusals.waits_for_quota(began) {
            return;
        }
        let is_due = |plan: &PodPlan| known.refusals.is_due(&pod_object(job, plan), began);
        let plans: Vec<PodPlan> = acts.iter().filter_map(plan).filter(is_due).collect();
        let kind = |plan: &PodPlan| (plan.role, plan.is_elastic);
        for alike in plans.chunk_by(|one, next| kind(one) == kind(next)) {
            // The first goes alone, and after each that was made twice as many, as Kubernetes' own controllers do it
            // (`slowStartBatch` of the ReplicaSet's).
            let (mut left, mut count) = (alike, 1);
            while !left.is_empty() {
                let (now, later) = left.split_at(count.min(left.len()));
                match self.create_alike(job, now, known, failed).await {
                    Welcome::All if began.elapsed() < CREATING_MAX => (left, count) = (later, 2 * count),
                    Welcome::NotThese => break,
                    // What is left is made by the next reconcile.
                    Welcome::All | Welcome::Nobody => return,
                }
            }
        }
    }

    /// Makes pods of one kind, several at a time.
    async fn create_alike(
        &self,
        job: &TrainingJob,
        plans: &[PodPlan],
        known: &mut Known,
        failed: &mut Option<kube::Error>,
    ) -> Welcome {
        let creations: Vec<_> = plans.iter().map(|plan| self.create_one(job, plan.clone())).collect();
        let mut made = stream::iter(creations).buffer_unordered(CREATED_AT_A_TIME);
        let (now, mut welcome) = (Instant::now(), Welcome::All);
        while let Some((plan, made)) = made.next().await {
            let object = pod_object(job, &plan);
            match made {
                Ok((Outcome::Done, pod)) => {
                    known.refusals.forgive(&object);
                    if let Some(pod) = pod {
                        known.unseen.made(pod);
                    }
                }
                Ok((Outcome::Refused(word, why), _)) => {
                    let how = if word == QUOTA { Welcome::Nobody } else { Welcome::NotThese };
                    welcome = welcome.max(how);
                    known.refusals.note(&object, (word, why), now, &mut locked(&self.random));
                }
                Err(error) => {
                    welcome = Welcome::Nobody;
                    *failed = Some(error);
                }
            }
        }
        welcome
    }

    async fn create_one(
        &self,
        job: &TrainingJob,
        plan: PodPlan,
    ) -> (PodPlan, kube::Result<(Outcome, Option<PodView>)>) {
        // Never closed.
        let _place = self.creations.acquire().await;
        let made = apply::create(self, job, &plan).await;
        (plan, made)
    }
}

/// The kind and the name of a pod, for people.
pub(super) fn pod_object(job: &TrainingJob, plan: &PodPlan) -> String {
    format!("Pod {}", pod_name(plan.role, &job.name_any(), plan.ordinal))
}
