//! The authority that signs the certificates of jobs: a secret in the operator's own namespace, made once where there is none, and
//! looked at again now and then, for people may change it. Its key is shown to nobody and written nowhere else.

use crate::manifest::{FIELD_MANAGER, SECRET_TYPE, credentials_of, secret_data};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use shoal_runtime::host::authority::Authority;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::rpc::tls::{PemSet, Validity};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long an authority is good for that an operator makes: nobody changes it unasked. Ten years.
const LIFE_SECONDS: u64 = 3650 * 86_400;
/// The secret is read again so often, if anybody asks.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// After a failure it is tried again so soon.
const RETRY: Duration = Duration::from_secs(2);

/// The authority, as far as it is known.
pub(super) struct Authorities {
    secrets: Api<Secret>,
    namespace: String,
    name: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    looked: Option<Instant>,
    version: Option<String>,
    present: Option<Arc<Authority>>,
    /// The secret's texts, to put it back if somebody deletes it: another authority would be believed by no process that runs.
    pem: Option<PemSet>,
    /// Why it could not be read, or not be used, when it was last looked at.
    fault: Option<String>,
}

impl Authorities {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Authorities {
        Authorities {
            secrets: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            state: Mutex::default(),
        }
    }

    /// The authority. One that was usable stays in use while what came after it is not.
    ///
    /// # Errors
    /// Why there is none, and the way out.
    pub(super) async fn current(&self) -> Result<Arc<Authority>, String> {
        let mut state = self.state.lock().await;
        let pause = if state.fault.is_some() { RETRY } else { LOOK_EVERY };
        if state.looked.is_none_or(|looked| looked.elapsed() >= pause) {
            let found = self.look(&mut state).await;
            state.looked = Some(Instant::now());
            let fault = found.err();
            if let Some(why) = fault.as_ref().filter(|_| fault != state.fault) {
                let is_kept = state.present.is_some();
                tracing::error!(why, is_kept, "the authority for certificates of jobs cannot be used");
            }
            state.fault = fault;
        }
        let missing = || state.fault.clone().unwrap_or_else(|| "it was not read".to_owned());
        state.present.clone().ok_or_else(missing)
    }

    async fn look(&self, state: &mut State) -> Result<(), String> {
        let secret = match self.secrets.get_opt(&self.name).await {
            Ok(Some(secret)) => secret,
            Ok(None) => self.make(state.pem.clone()).await?,
            Err(error) => return Err(self.at("it cannot be read", &error)),
        };
        if state.present.is_some() && state.version == secret.metadata.resource_version {
            return Ok(());
        }
        let read = credentials_of(&secret).and_then(|pem| Ok((Authority::of(&pem)?, pem)));
        let (authority, pem) =
            read.map_err(|why| format!("secret {} in {}: {why}", self.name, self.namespace))?;
        if authority.validity().until < wall_seconds() {
            return Err(format!(
                "secret {} in {}: its certificate has expired: put another in its place",
                self.name, self.namespace
            ));
        }
        let fingerprint = authority.fingerprint();
        if state.present.as_ref().is_none_or(|before| before.fingerprint() != fingerprint) {
            tracing::info!(
                secret = self.name,
                fingerprint,
                valid_until = authority.validity().until,
                "the authority for certificates of jobs"
            );
        }
        (state.present, state.pem) = (Some(Arc::new(authority)), Some(pem));
        state.version = secret.metadata.resource_version;
        Ok(())
    }

    /// Makes one, or puts back the one that there was. Where another operator was first, or an administrator, theirs is the authority.
    async fn make(&self, before: Option<PemSet>) -> Result<Secret, String> {
        let pem = match before {
            Some(pem) => pem,
            None => Authority::generate(Validity::lasting(wall_seconds(), LIFE_SECONDS))?,
        };
        let labels =
            [("app.kubernetes.io/name", "shoal-operator"), ("app.kubernetes.io/managed-by", FIELD_MANAGER)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let metadata =
            ObjectMeta { name: Some(self.name.clone()), labels: Some(labels), ..ObjectMeta::default() };
        let secret = Secret {
            metadata,
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(secret_data(&pem)),
            ..Secret::default()
        };
        let how = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match self.secrets.create(&how, &secret).await {
            Ok(made) => {
                tracing::info!(
                    secret = self.name,
                    namespace = self.namespace,
                    "made an authority for certificates of jobs"
                );
                Ok(made)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.secrets.get(&self.name).await.map_err(|error| self.at("it cannot be read", &error))
            }
            Err(error) => Err(self.at("there is none and it cannot be made", &error)),
        }
    }

    fn at(&self, what: &str, error: &kube::Error) -> String {
        let (why, way_out) = match error {
            kube::Error::Api(status) if status.code == 403 => (
                status.message.clone(),
                ": give the operator the rights of this version (deploy/rbac.yaml), or set --tls-default off",
            ),
            kube::Error::Api(status) => (status.message.clone(), ""),
            other => (other.to_string(), ""),
        };
        format!("secret {} in {}: {what}: {why}{way_out}", self.name, self.namespace)
    }
}
