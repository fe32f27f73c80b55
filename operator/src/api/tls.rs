//! How the connections of a job are secured: by certificates that the operator issues, by some that its author gives, or not at all.
//! Decides nothing but what a spec means.

use super::job::{TrainingJob, TrainingJobSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Roles whose pods have a certificate.
pub(super) const ROLES: [&str; 3] = ["master", "pserver", "trainer"];

/// How a job's processes speak with one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TlsMode {
    /// Over TLS, by certificates that the operator issues and changes in time.
    Issued,
    /// Over TLS, by certificates in secrets that are named.
    Given,
    /// In plaintext.
    // Not "Off", which is no text in YAML but a boolean.
    Plaintext,
}

impl std::fmt::Display for TlsMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

/// How the job's connections are secured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsSpec {
    /// Issued: by certificates that the operator makes and changes in time. Given: by those in the secrets that are named here.
    /// Plaintext: without. By default Given where secrets are named, else as the operator is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<TlsMode>,
    /// Given: the job's name in the certificates.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub job: String,
    /// Given: secrets by role: master, pserver, trainer, as `shoal certs issue` or cert-manager make them (ca.crt, tls.crt, tls.key). One
    /// for client lets the operator see and steer the job, if it may get that secret; without it the operator sees of the job what its
    /// pods show.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 4))]
    pub secrets: BTreeMap<String, String>,
}

impl TrainingJobSpec {
    /// How the job is to speak, where it says so.
    pub fn stated_tls(&self) -> Option<TlsMode> {
        let tls = self.tls.as_ref()?;
        let is_given = !tls.job.is_empty() || !tls.secrets.is_empty();
        tls.mode.or(is_given.then_some(TlsMode::Given))
    }
}

impl TrainingJob {
    /// How a job that has begun speaks: as was noted then. One that began under an operator that noted nothing was given certificates or
    /// has none, and stays so. None for a job that has not begun.
    pub fn recorded_tls(&self) -> Option<TlsMode> {
        let status = self.status.as_ref()?;
        let has_begun = !status.pinned.is_empty();
        status.tls.or_else(|| has_begun.then(|| self.spec.stated_tls().unwrap_or(TlsMode::Plaintext)))
    }

    /// How the job speaks: as it began, else as it says. Where neither says anything it has no pods.
    pub fn tls(&self) -> TlsMode {
        self.recorded_tls().or_else(|| self.spec.stated_tls()).unwrap_or(TlsMode::Plaintext)
    }
}

/// What is wrong with it.
pub(super) fn faults(spec: &TrainingJobSpec, faults: &mut Vec<String>) {
    let Some(tls) = &spec.tls else { return };
    match spec.stated_tls() {
        None => {}
        Some(TlsMode::Given) => {
            if tls.job.is_empty() {
                faults.push("spec.tls.job: say which job the certificates are for".to_owned());
            }
            for role in ROLES.into_iter().filter(|role| !tls.secrets.contains_key(*role)) {
                faults.push(format!(
                    "spec.tls.secrets.{role}: name the secret with the certificate of its role"
                ));
            }
        }
        Some(mode) if !tls.job.is_empty() || !tls.secrets.is_empty() => {
            faults.push(format!(
                "spec.tls.mode: {mode}, and job and secrets are for Given alone: leave them out"
            ));
        }
        Some(_) => {}
    }
    let is_none = |role: &&String| role.as_str() != "client" && !ROLES.contains(&role.as_str());
    if let Some(other) = tls.secrets.keys().find(is_none) {
        faults.push(format!(
            "spec.tls.secrets.{other}: there is no such role; give master, pserver and trainer, and client for the operator"
        ));
    }
}

/// The same as rules of a job that a server with CEL checks, each with its message.
pub(super) fn rules() -> [(String, &'static str); 3] {
    let rule = |rule: &str, message| {
        (format!("!has(self.spec.tls) || {}", rule.replace("self.tls", "self.spec.tls")), message)
    };
    [
        rule(
            "(has(self.tls.mode) ? self.tls.mode != 'Given' : (!has(self.tls.job) && !has(self.tls.secrets))) || \
             (has(self.tls.job) && size(self.tls.job) > 0 && has(self.tls.secrets) && \
             ['master', 'pserver', 'trainer'].all(role, role in self.tls.secrets))",
            "spec.tls: certificates of your own: name the job in spec.tls.job, and a secret for each of master, pserver and trainer in spec.tls.secrets",
        ),
        rule(
            "!has(self.tls.mode) || self.tls.mode == 'Given' || (!has(self.tls.job) && !has(self.tls.secrets))",
            "spec.tls: job and secrets are for mode Given alone: leave them out, or give that mode",
        ),
        rule(
            "!has(self.tls.secrets) || self.tls.secrets.all(role, role in ['master', 'pserver', 'trainer', 'client'])",
            "spec.tls.secrets: roles are master, pserver, trainer, and client for the operator",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(tls: Value, status: Value) -> TrainingJob {
        let mut job = TrainingJob::new("j", serde_json::from_value(json!({ "tls": tls })).unwrap());
        job.status = serde_json::from_value(status).unwrap();
        job
    }

    #[test]
    fn a_job_that_has_begun_stays_as_it_began_whatever_the_default_is_now() {
        let given = json!({ "job": "x", "secrets": { "master": "m", "pserver": "p", "trainer": "t" } });
        let began = json!({ "pinned": "{}" });
        for (tls, status, wanted) in [
            (Value::Null, json!({}), None),
            (Value::Null, began.clone(), Some(TlsMode::Plaintext)),
            (given.clone(), began.clone(), Some(TlsMode::Given)),
            (Value::Null, json!({ "pinned": "{}", "tls": "Issued" }), Some(TlsMode::Issued)),
            (
                json!({ "mode": "Issued" }),
                json!({ "pinned": "{}", "tls": "Plaintext" }),
                Some(TlsMode::Plaintext),
            ),
        ] {
            assert_eq!(job(tls.clone(), status.clone()).recorded_tls(), wanted, "{tls} {status}");
        }
        assert_eq!(job(given, json!({})).tls(), TlsMode::Given);
        assert_eq!(job(json!({ "mode": "Issued" }), Value::Null).tls(), TlsMode::Issued);
        assert_eq!(job(json!({}), Value::Null).spec.stated_tls(), None, "nothing is said");
    }

    #[test]
    fn secrets_are_for_certificates_that_are_given_and_all_three_are_needed() {
        let all = json!({ "master": "m", "pserver": "p", "trainer": "t" });
        let faults = |tls: Value| {
            let mut said = Vec::new();
            faults(&job(tls, Value::Null).spec, &mut said);
            said.into_iter().map(|one| one.split(':').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let none = Vec::<String>::new();
        assert_eq!(faults(json!({ "job": "j", "secrets": all })), none);
        assert_eq!(
            faults(
                json!({ "mode": "Given", "job": "j", "secrets": { "master": "m", "pserver": "p", "trainer": "t", "client": "c" } })
            ),
            none
        );
        assert_eq!(faults(json!({ "mode": "Plaintext" })), none);
        assert_eq!(faults(json!({})), none);
        assert_eq!(faults(json!({ "secrets": all })), ["spec.tls.job"]);
        assert_eq!(
            faults(json!({ "job": "j", "secrets": { "master": "m", "trainer": "t" } })),
            ["spec.tls.secrets.pserver"]
        );
        assert_eq!(faults(json!({ "mode": "Issued", "job": "j" })), ["spec.tls.mode"]);
        assert_eq!(faults(json!({ "mode": "Plaintext", "secrets": all })), ["spec.tls.mode"]);
        let five =
            json!({ "job": "j", "secrets": { "master": "m", "pserver": "p", "trainer": "t", "king": "k" } });
        assert_eq!(faults(five), ["spec.tls.secrets.king"]);
        assert_eq!(faults(json!({ "mode": "Given" })).len(), 4);
    }

    /// What the schema says and what the operator says of the same spec are one.
    #[test]
    fn the_rules_of_the_schema_refuse_what_the_operator_refuses() {
        let all = json!({ "master": "m", "pserver": "p", "trainer": "t" });
        for tls in [
            json!({}),
            json!({ "mode": "Issued" }),
            json!({ "mode": "Plaintext" }),
            json!({ "mode": "Given" }),
            json!({ "job": "j" }),
            json!({ "secrets": all }),
            json!({ "job": "j", "secrets": all }),
            json!({ "mode": "Given", "job": "j", "secrets": all }),
            json!({ "mode": "Issued", "job": "j", "secrets": all }),
            json!({ "mode": "Plaintext", "secrets": { "king": "k" } }),
            json!({ "job": "j", "secrets": { "master": "m", "pserver": "p" } }),
            json!({ "job": "j", "secrets": { "master": "m", "pserver": "p", "trainer": "t", "client": "c" } }),
        ] {
            let mut said = Vec::new();
            faults(&job(tls.clone(), Value::Null).spec, &mut said);
            let breaks = |(rule, _): &(String, &str)| {
                let program = cel::Program::compile(rule).unwrap();
                let mut context = cel::Context::default();
                let job = json!({ "spec": { "tls": tls } });
                context.add_variable_from_value("self", cel::to_value(job).unwrap());
                program.execute(&context).unwrap() != cel::Value::Bool(true)
            };
            assert_eq!(rules().iter().any(breaks), !said.is_empty(), "{tls}: {said:?}");
        }
    }
}
