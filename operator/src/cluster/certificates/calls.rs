//! The calls for a job's secrets. A secret is never read: its metadata says what it holds, and what is not owned by the job is never touched.

use super::super::apply::{Outcome, refusal};
use super::super::owned;
use super::held::Seen;
use super::secret_object;
use crate::api::TrainingJob;
use crate::decide::CertificateView;
use crate::manifest::{FIELD_MANAGER, certificate_name, certificate_of};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use shoal_runtime::host::rpc::tls::Role;

/// What came of a look, or of a change.
pub(super) enum Found {
    /// It is there, and the job's own.
    There(Seen),
    /// It is not there, or another than was looked at.
    Not,
    Refused(Outcome),
}

/// Looks at a secret's metadata by a change that changes nothing: whoever may do that to the job's own secrets need not be allowed to read
/// all of a namespace.
pub(super) async fn look(secrets: &Api<Secret>, job: &TrainingJob, role: Role) -> kube::Result<Found> {
    patched(secrets, job, role, &json!({})).await
}

pub(super) async fn create(
    secrets: &Api<Secret>,
    job: &TrainingJob,
    role: Role,
    secret: &Secret,
    view: &CertificateView,
) -> kube::Result<Found> {
    let how = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match secrets.create(&how, secret).await {
        Ok(made) => Ok(Found::There(Seen {
            view: Some(view.clone()),
            uid: made.uid(),
            version: made.resource_version(),
        })),
        // Of an operator before, or somebody has its name.
        Err(kube::Error::Api(status)) if status.code == 409 => look(secrets, job, role).await,
        Err(error) => Ok(Found::Refused(refusal(&secret_object(job, role), error)?)),
    }
}

/// Puts another set in the place of one, over exactly the secret that was looked at: of two operators that do so one is refused.
pub(super) async fn replace(
    secrets: &Api<Secret>,
    job: &TrainingJob,
    role: Role,
    secret: &Secret,
    seen: &Seen,
) -> kube::Result<Found> {
    let mut patch =
        json!({ "metadata": { "annotations": secret.metadata.annotations }, "data": secret.data });
    (patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]) = (json!(seen.uid), json!(seen.version));
    patched(secrets, job, role, &patch).await
}

async fn patched(secrets: &Api<Secret>, job: &TrainingJob, role: Role, patch: &Value) -> kube::Result<Found> {
    let (name, what) = (certificate_name(job, role.word()), secret_object(job, role));
    match secrets.patch_metadata(&name, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(patch)).await {
        Ok(there) => Ok(match owned::refused(&what, &there.metadata, job) {
            Some(refused) => Found::Refused(refused),
            None => Found::There(Seen {
                view: certificate_of(&there.metadata),
                uid: there.metadata.uid,
                version: there.metadata.resource_version,
            }),
        }),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Found::Not),
        Err(error) => Ok(Found::Refused(refusal(&what, error)?)),
    }
}
