//! A server that keeps objects by path and counts what it is asked for, and operators before it. Tests only.

use super::super::fleet::{Fleet, fixture};
use super::*;
use crate::manifest::FIELD_MANAGER;
use http::{Method, Request, Response};
use kube::client::Body;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tower::{BoxError, service_fn};

/// The path of the authority.
pub(in super::super) const AUTHORITY: &str = "/api/v1/namespaces/operators/secrets/shoal-authority";
/// Since when what is made here is there.
pub(in super::super) const MADE: &str = "2026-01-01T00:00:00Z";

#[derive(Default)]
pub(in super::super) struct Server {
    pub(in super::super) objects: Mutex<BTreeMap<String, Value>>,
    asked: Mutex<Vec<(Method, String)>>,
    version: std::sync::atomic::AtomicU64,
    /// What is asked of paths with this in them is never answered.
    pub(in super::super) hanging: Mutex<Option<&'static str>>,
    /// What is to be made under paths with this in them is refused.
    pub(in super::super) refusing: Mutex<Option<&'static str>>,
    /// The status that a request for a certificate has from the beginning.
    pub(in super::super) answer: Mutex<Value>,
}

fn refusal_of(code: u16, reason: &str) -> (u16, Value) {
    let message = format!("the server says {reason}");
    (
        code,
        json!({ "kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code }),
    )
}

impl Server {
    pub(in super::super) fn client(self: &Arc<Server>) -> Client {
        let server = Arc::clone(self);
        Client::new(
            service_fn(move |request: Request<Body>| {
                let server = Arc::clone(&server);
                async move {
                    let (parts, body) = request.into_parts();
                    let sent = body.collect_bytes().await?;
                    let sent: Value = serde_json::from_slice(&sent).unwrap_or_default();
                    let path = parts.uri.path();
                    let is_hanging = locked(&server.hanging).is_some_and(|part| path.contains(part));
                    if is_hanging {
                        std::future::pending::<()>().await;
                    }
                    let (code, answer) = server.answer(&parts.method, path, sent);
                    let answer = Body::from(answer.to_string().into_bytes());
                    Ok::<_, BoxError>(Response::builder().status(code).body(answer)?)
                }
            }),
            "n",
        )
    }

    pub(in super::super) fn written(&self, path: &str, mut object: Value) -> Value {
        let version = 1 + self.version.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        locked(&self.objects).insert(path.to_owned(), object.clone());
        object
    }

    fn answer(&self, method: &Method, path: &str, sent: Value) -> (u16, Value) {
        locked(&self.asked).push((method.clone(), path.to_owned()));
        if *method == Method::POST {
            return self.made(path, sent);
        }
        let there = locked(&self.objects).get(path).cloned();
        let Some(mut there) = there else { return refusal_of(404, "NotFound") };
        if *method == Method::DELETE {
            locked(&self.objects).remove(path);
        }
        if *method == Method::PATCH && sent != json!({}) {
            for fence in ["uid", "resourceVersion"] {
                if sent["metadata"][fence] != there["metadata"][fence] {
                    return refusal_of(409, "Conflict");
                }
            }
            for part in ["data", "spec"] {
                there[part] = sent[part].clone();
            }
            there["metadata"]["annotations"] = sent["metadata"]["annotations"].clone();
            there = self.written(path, there);
        }
        (200, there)
    }

    fn made(&self, path: &str, mut made: Value) -> (u16, Value) {
        if locked(&self.refusing).is_some_and(|part| path.contains(part)) {
            return refusal_of(403, "Forbidden");
        }
        let metadata = &mut made["metadata"];
        if metadata["name"].is_null() {
            let number = self.version.load(std::sync::atomic::Ordering::Relaxed);
            metadata["name"] =
                json!(format!("{}{number}", metadata["generateName"].as_str().unwrap_or_default()));
        }
        let path = format!("{path}/{}", metadata["name"].as_str().unwrap());
        if locked(&self.objects).contains_key(&path) {
            return refusal_of(409, "AlreadyExists");
        }
        metadata["uid"] = json!(format!("uid of {path}"));
        metadata["creationTimestamp"] = json!(MADE);
        metadata["managedFields"] = json!([{ "manager": FIELD_MANAGER, "time": MADE }]);
        if path.contains("certificaterequests") {
            made["status"] = locked(&self.answer).clone();
        }
        (201, self.written(&path, made))
    }

    /// Calls of a method whose path has this in it.
    pub(in super::super) fn count(&self, method: Method, part: &str) -> usize {
        let all = locked(&self.asked);
        all.iter().filter(|(one, path)| *one == method && path.contains(part)).count()
    }

    /// Forgets what was asked.
    pub(in super::super) fn forget(&self) {
        locked(&self.asked).clear();
    }

    /// What was asked of secrets of jobs, by method.
    pub(in super::super) fn asked_of_jobs(&self) -> [usize; 3] {
        [Method::GET, Method::POST, Method::PATCH].map(|method| self.count(method, "namespaces/team/secrets"))
    }

    pub(in super::super) fn writes(&self) -> usize {
        let is_write = |(method, _): &&(Method, String)| *method != Method::GET;
        locked(&self.asked).iter().filter(is_write).count()
    }

    pub(in super::super) fn reads(&self) -> Vec<String> {
        let all = locked(&self.asked);
        all.iter().filter(|(method, _)| *method == Method::GET).map(|(_, path)| path.clone()).collect()
    }
}

/// One that was made just now.
pub(in super::super) fn job() -> TrainingJob {
    let mut job = TrainingJob::new("j", Default::default());
    job.metadata.uid = Some("0a1b2c3d-0".to_owned());
    job.metadata.namespace = Some("team".to_owned());
    job.metadata.creation_timestamp = Some(serde_json::from_value(json!(present())).unwrap());
    job.status = Some(serde_json::from_value(json!({ "pinned": "{}", "tls": "Issued" })).unwrap());
    job
}

/// One that was made long ago, and that an operator wrote something of so many seconds ago.
pub(in super::super) fn served_job(ago: i64) -> TrainingJob {
    let mut job = job();
    job.metadata.creation_timestamp = Some(serde_json::from_value(json!(MADE)).unwrap());
    let at = Moment(present().0 - ago);
    let condition = json!({ "type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": at });
    job.status.as_mut().unwrap().conditions = vec![serde_json::from_value(condition).unwrap()];
    job
}

pub(in super::super) fn operator(server: &Arc<Server>, lifetime: u64) -> Certificates {
    let settings = CertificateSettings {
        default: TlsMode::Issued,
        lifetime: Duration::from_secs(lifetime),
        authority: ("operators".to_owned(), "shoal-authority".to_owned()),
        issuer: None,
    };
    Certificates::new(server.client(), settings, Arc::default())
}

/// An operator that has just begun, and sees pods of these roles run; more are pending.
pub(in super::super) fn fleet(certificates: Certificates, running: &[Role]) -> Fleet {
    let client = certificates.client.clone();
    let pods = super::super::pod_index::PodIndex::new();
    for role in [Role::Master, Role::Pserver, Role::Trainer] {
        let state = if running.contains(&role) { json!({ "running": {} }) } else { json!({ "waiting": {} }) };
        let container = json!({ "name": role.word(), "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state });
        let owner = json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "name": "j", "uid": "0a1b2c3d-0" });
        let labels = json!({ "shoal.dev/role": role.word(), "shoal.dev/ordinal": "0" });
        let pod = json!({
            "metadata": { "name": format!("j-{role}"), "namespace": "team", "uid": role.word(), "labels": labels, "ownerReferences": [owner] },
            "spec": { "nodeName": "a", "containers": [{ "name": role.word() }] },
            "status": { "phase": "Pending", "containerStatuses": [container] },
        });
        pods.note_pod(&Event::Apply(serde_json::from_value(pod).unwrap()));
    }
    let leader = super::super::Leader::new(client, "n", "l", "me".to_owned(), true);
    fixture::fleet(certificates, leader, pods)
}
