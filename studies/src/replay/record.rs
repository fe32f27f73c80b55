//! Records one job on a real control plane: its objects as the API server keeps them, how a trainer's pod comes up, how long one
//! takes to go.

use super::store::ResourcePath;
use super::{NODES, PODS};
use anyhow::{Context, ensure};
use futures_util::{StreamExt, TryStreamExt};
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// What a job consists of on a server of 1.20, its pods among them.
const OF_A_JOB: [&str; 6] = [
    "apis/shoal.dev/v1alpha1/trainingjobs",
    PODS,
    "api/v1/services",
    "api/v1/secrets",
    "apis/policy/v1beta1/poddisruptionbudgets",
    "apis/networking.k8s.io/v1/networkpolicies",
];
/// What is there once, whatever jobs there are.
const ONCE: [&str; 2] = ["api/v1/secrets", "apis/scheduling.k8s.io/v1/priorityclasses"];
/// What an operator asks of the server itself.
const FIXED: [&str; 2] = ["/apis", "/version"];
const JOB_LABEL: &str = "shoal.dev/job";
const NAMESPACE: &str = "default";
/// Images that a node's status names: as many as a kubelet does by default.
const IMAGES: usize = 50;
/// How long the job may take to be ready, and a pod to go.
const PATIENCE: Duration = Duration::from_secs(120);
/// A job that nothing happens to for so long is recorded.
const QUIET: Duration = Duration::from_secs(15);

/// What was recorded of a job.
#[derive(Clone, Debug)]
pub struct Recording {
    job: String,
    /// All of the job's objects, as text.
    objects: Vec<(ResourcePath, String)>,
    once: Vec<(ResourcePath, Value)>,
    node: String,
    fixed: BTreeMap<String, String>,
    life: Vec<(Duration, bool, Value)>,
    ends_within: Duration,
}

/// Makes a job, and records it until it rests.
///
/// # Errors
/// The job is not ready in time, or the server does not answer.
pub async fn record(client: &Client, job: &Value) -> anyhow::Result<Recording> {
    let name = job["metadata"]["name"].as_str().context("a job without a name")?.to_owned();
    let watch =
        Request::get(format!("/{}?watch=true&resourceVersion=0", namespaced(PODS))).body(Vec::new())?;
    let mut events = pin!(client.request_events::<Value>(watch).await?);
    let jobs = namespaced(OF_A_JOB[0]);
    let made = Request::post(format!("/{jobs}")).header("content-type", "application/json");
    client.request::<Value>(made.body(job.to_string().into_bytes())?).await?;

    let first = format!("{name}-trainer-0");
    let (began, mut made, mut life) = (Instant::now(), None, Vec::new());
    while let Ok(event) = timeout(QUIET, events.next()).await {
        ensure!(began.elapsed() < PATIENCE, "the job does not come to rest");
        let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event.context("the watch ended")?? else {
            continue;
        };
        if pod["metadata"]["name"] == first.as_str() {
            let made = *made.get_or_insert_with(Instant::now);
            life.push((made.elapsed(), pod["spec"]["nodeName"].is_string(), pod["status"].clone()));
        }
    }
    let seen: Value = client.request(Request::get(format!("/{jobs}/{name}")).body(Vec::new())?).await?;
    let conditions = seen["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let is_ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
    ensure!(conditions.iter().any(is_ready), "the job is not ready: {}", seen["status"]);

    let (mut objects, mut once, mut fixed) = (Vec::new(), Vec::new(), BTreeMap::new());
    for collection in OF_A_JOB {
        for object in list(client, collection).await? {
            let is_its = object["metadata"]["labels"][JOB_LABEL] == name.as_str()
                || object["metadata"]["name"] == name.as_str();
            if is_its {
                objects.push((resource(collection, &object)?, object.to_string()));
            }
        }
    }
    for collection in ONCE {
        for object in list(client, collection).await? {
            if object["metadata"]["labels"][JOB_LABEL].is_null() {
                once.push((resource(collection, &object)?, object));
            }
        }
    }
    for path in FIXED {
        fixed.insert(path.to_owned(), client.request_text(Request::get(path).body(Vec::new())?).await?);
    }
    let mut node = list(client, NODES).await?.swap_remove(0);
    let image = |at: usize| {
        let names = [format!("registry.example/team/image-{at}@sha256:{}", "0123456789abcdef".repeat(4))];
        json!({ "names": names, "sizeBytes": 123_456_789 })
    };
    node["status"]["images"] = (0..IMAGES).map(image).collect();

    let gone = Request::delete(format!("/{}/{first}", namespaced(PODS))).body(Vec::new())?;
    client.request::<Value>(gone).await?;
    let began = Instant::now();
    let is_gone = async {
        while let Some(event) = events.try_next().await? {
            if matches!(event, WatchEvent::Deleted(pod) if pod["metadata"]["name"] == first.as_str()) {
                return Ok(began.elapsed());
            }
        }
        anyhow::bail!("the watch ended")
    };
    let ends_within = timeout(PATIENCE, is_gone).await.context("the pod does not go")??;
    Ok(Recording { job: name, objects, once, node: node.to_string(), fixed, life, ends_within })
}

fn namespaced(collection: &str) -> String {
    let (group, kind) = collection.rsplit_once('/').unwrap_or_default();
    format!("{group}/namespaces/{NAMESPACE}/{kind}")
}

/// All of a collection, each as it is when it is asked for by itself.
async fn list(client: &Client, collection: &str) -> anyhow::Result<Vec<Value>> {
    let mut all: Value = client.request(Request::get(format!("/{collection}")).body(Vec::new())?).await?;
    let kind = all["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_owned();
    let version = all["apiVersion"].take();
    let Value::Array(mut items) = all["items"].take() else { return Ok(Vec::new()) };
    for item in &mut items {
        (item["kind"], item["apiVersion"]) = (json!(kind), version.clone());
    }
    Ok(items)
}

fn resource(collection: &str, object: &Value) -> anyhow::Result<ResourcePath> {
    let name = object["metadata"]["name"].as_str().context("an object without a name")?;
    Ok(ResourcePath::of(collection, object["metadata"]["namespace"].as_str(), name))
}

impl Recording {
    /// How many pods the job has.
    pub fn pods(&self) -> u32 {
        self.objects.iter().filter(|(resource, _)| resource.collection == PODS).count() as u32
    }

    /// The name of a copy of the node.
    pub(super) fn node_name(&self, number: u32) -> String {
        format!("replayed-{number}")
    }

    /// A copy of the node.
    pub(super) fn node(&self, number: u32) -> Value {
        let mut node: Value = serde_json::from_str(&self.node).unwrap_or_default();
        let name = self.node_name(number);
        node["metadata"]["labels"]["kubernetes.io/hostname"] = json!(name);
        node["metadata"]["name"] = json!(name);
        node["metadata"]["uid"] = json!(format!("eeeeeeee-0000-4000-8000-{number:012x}"));
        node
    }

    /// What is there once.
    pub(super) fn once(&self) -> &[(ResourcePath, Value)] {
        &self.once
    }

    /// The name of a copy of the job.
    fn job_name(&self, number: u32) -> String {
        format!("copy-{number}")
    }

    /// Where a trainer of a copy is.
    pub(super) fn trainer(&self, number: u32, ordinal: u32) -> ResourcePath {
        let name = format!("{}-trainer-{ordinal}", self.job_name(number));
        ResourcePath::of(PODS, Some(NAMESPACE), &name)
    }

    /// A copy of the job and its objects, its pods spread over so many nodes.
    pub(super) fn copy(&self, number: u32, nodes: u32) -> anyhow::Result<Vec<(ResourcePath, Value)>> {
        let name = self.job_name(number);
        let uids: Vec<String> = self
            .objects
            .iter()
            .filter_map(|(_, text)| {
                let object: Value = serde_json::from_str(text).ok()?;
                object["metadata"]["uid"].as_str().map(str::to_owned)
            })
            .collect();
        let mut next = number * self.pods();
        let mut copies = Vec::new();
        for (resource, text) in &self.objects {
            let mut text = text.replace(&self.job, &name);
            for uid in &uids {
                // All but the last part tells the objects of a job apart, and that the jobs.
                text = text.replace(uid, &format!("{}{number:012x}", &uid[..uid.len() - 12]));
            }
            let mut object: Value = serde_json::from_str(&text)?;
            if resource.collection == PODS {
                object["spec"]["nodeName"] = json!(self.node_name(next % nodes.max(1)));
                next += 1;
            }
            let own = resource.name().replace(&self.job, &name);
            copies.push((ResourcePath { name: Some(own), ..resource.clone() }, object));
        }
        Ok(copies)
    }

    /// What the server answers for a path that is no resource.
    pub(super) fn fixed(&self, path: &str) -> Option<String> {
        self.fixed.get(path).cloned()
    }

    /// How a trainer's pod comes up: after so long it has a node or none, and this status.
    pub(super) fn life(&self) -> &[(Duration, bool, Value)] {
        &self.life
    }

    /// How long a pod takes to go.
    pub(super) fn ends_within(&self) -> Duration {
        self.ends_within
    }
}
