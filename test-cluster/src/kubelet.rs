//! Kubelets of some nodes: they register them, keep them alive, and give every pod that is bound to them a life
//! ([`super::pod`]). One task watches pods, one renews leases, one keeps the names of services.

use super::addresses::{Addresses, Range};
use super::annotations::DEAD;
use super::hosts::{Hosts, Named};
use super::images::{self, Image};
use super::leftovers;
use super::logs::{self, Log};
use super::machine::Machine;
use super::pod;
use anyhow::Context;
use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How often a node says that it lives.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How often names of services are looked at.
const NAMES_EVERY: Duration = Duration::from_millis(500);

/// What becomes of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Nothing runs; annotations say how long it seems so.
    Pretended,
    /// Commands run as processes.
    Processes,
    /// Images run as containers, each pod with a network of its own. It takes root, `runc`, and images.
    Containers,
}

/// What the nodes are.
#[derive(Clone, Debug)]
pub struct KubeletSettings {
    /// How many.
    pub nodes: usize,
    /// What they are called, before their number.
    pub prefix: String,
    /// What each has: `cpu`, `memory`, `pods` and others.
    pub capacity: BTreeMap<String, String>,
    /// What becomes of pods.
    pub run: Run,
    /// Images that there are; others cannot be pulled. Containers have those of `layout` instead.
    pub images: Vec<String>,
    /// The images of containers, as an OCI layout.
    pub layout: Option<PathBuf>,
    /// Folders in which programs are looked for first.
    pub path: Vec<PathBuf>,
}

impl KubeletSettings {
    /// So many nodes of 16 cores and 64 GiB.
    pub fn of(nodes: usize, run: Run, images: &[&str]) -> KubeletSettings {
        let capacity = [("cpu", "16"), ("memory", "64Gi"), ("pods", "110"), ("ephemeral-storage", "100Gi")];
        KubeletSettings {
            nodes,
            prefix: "node-".to_owned(),
            capacity: capacity.map(|(name, amount)| (name.to_owned(), amount.to_owned())).into(),
            run,
            images: images.iter().map(|image| (*image).to_owned()).collect(),
            layout: None,
            path: Vec::new(),
        }
    }
}

/// What all pods of a kubelet share.
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) settings: KubeletSettings,
    pub(super) folder: TempDir,
    pub(super) hosts: Mutex<Hosts>,
    pub(super) named: Mutex<BTreeMap<String, Named>>,
    /// Nodes that are lost.
    pub(super) dead: watch::Sender<Vec<String>>,
    /// Nodes whose runtime starts nothing.
    broken: Mutex<Vec<String>>,
    /// By namespace, pod and container.
    pub(super) logs: Mutex<BTreeMap<String, Log>>,
    /// Where containers live; none where there are none.
    pub(super) machine: Option<Arc<Machine>>,
    pub(super) images: BTreeMap<String, Image>,
    log_port: u16,
    addresses: Mutex<Addresses>,
}

impl Shared {
    /// An address for a pod.
    pub(super) fn address(&self) -> String {
        locked(&self.addresses).next()
    }

    pub(super) fn is_broken(&self, node: &str) -> bool {
        locked(&self.broken).iter().any(|broken| broken == node)
    }

    pub(super) fn is_dead(&self, node: &str) -> bool {
        self.dead.borrow().iter().any(|dead| dead == node)
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Running kubelets. Their processes end with it.
pub struct Kubelet {
    shared: Arc<Shared>,
    // Dropped, it ends all tasks, and they their processes.
    _tasks: JoinSet<()>,
}

impl Kubelet {
    /// Registers the nodes and looks after their pods from now on.
    pub async fn start(client: Client, mut settings: KubeletSettings) -> anyhow::Result<Kubelet> {
        let folder = leftovers::folder()?;
        let range = if settings.run == Run::Containers { Range::Bridge } else { Range::Loopback };
        let addresses = Addresses::claim(range)?;
        let (mut machine, mut images) = (None, BTreeMap::new());
        if settings.run == Run::Containers {
            let layout = settings
                .layout
                .clone()
                .context("containers need images: say in which OCI layout they are")?;
            images = images::unpack(&layout, &folder.path().join("images"))?;
            settings.images = images.keys().cloned().collect();
            machine = Some(Arc::new(Machine::start(folder.path(), &addresses)?));
        }
        let hosts = Mutex::new(Hosts::new(folder.path())?);
        let (dead, _) = watch::channel(Vec::new());
        let (listener, tls) = logs::listen().await?;
        let shared = Shared {
            client,
            settings,
            folder,
            hosts,
            named: Mutex::default(),
            dead,
            broken: Mutex::default(),
            logs: Mutex::default(),
            machine,
            images,
            log_port: listener.local_addr()?.port(),
            addresses: Mutex::new(addresses),
        };
        let shared = Arc::new(shared);
        for node in names(&shared.settings) {
            register(&shared, &node).await?;
        }
        let mut tasks = JoinSet::new();
        tasks.spawn(logs::serve(listener, tls, Arc::clone(&shared)));
        tasks.spawn(beat(Arc::clone(&shared)));
        tasks.spawn(watch_pods(Arc::clone(&shared)));
        if shared.settings.run != Run::Pretended {
            tasks.spawn(keep_names(Arc::clone(&shared)));
        }
        Ok(Kubelet { shared, _tasks: tasks })
    }

    /// A node's runtime starts no container any more, and says so of each.
    pub fn break_runtime(&self, node: &str) {
        locked(&self.shared.broken).push(node.to_owned());
    }

    /// A node's machine is lost, with all that runs on it.
    pub async fn lose(&self, node: &str) -> anyhow::Result<()> {
        self.annotate(node, json!("true")).await?;
        self.shared.dead.send_modify(|dead| dead.push(node.to_owned()));
        Ok(())
    }

    /// It is there again, empty.
    pub async fn bring_back(&self, node: &str) -> anyhow::Result<()> {
        self.shared.dead.send_modify(|dead| dead.retain(|one| one != node));
        self.annotate(node, Value::Null).await
    }

    async fn annotate(&self, node: &str, value: Value) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.shared.client.clone());
        let patch = json!({ "metadata": { "annotations": { DEAD: value } } });
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }
}

impl Drop for Kubelet {
    /// Containers have ended when this returns.
    fn drop(&mut self) {
        if let Some(machine) = &self.shared.machine {
            machine.end();
        }
    }
}

fn names(settings: &KubeletSettings) -> Vec<String> {
    (0..settings.nodes).map(|number| format!("{}{number}", settings.prefix)).collect()
}

async fn register(shared: &Shared, name: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(shared.client.clone());
    let labels = json!({ "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" });
    let node = serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } }))?;
    match nodes.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => drop(other?),
    }
    let status = json!({
        "capacity": shared.settings.capacity,
        "allocatable": shared.settings.capacity,
        "conditions": conditions(),
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": shared.log_port } },
    });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(json!({ "status": status }))).await?;
    Ok(renew(shared, name).await?)
}

pub(super) fn now() -> String {
    k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn conditions() -> Value {
    let condition = |(type_, status)| {
        let at = now();
        json!({ "type": type_, "status": status, "reason": "Test", "message": "", "lastHeartbeatTime": at, "lastTransitionTime": at })
    };
    let all =
        [("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False")];
    Value::Array(all.map(condition).into())
}

async fn renew(shared: &Shared, node: &str) -> kube::Result<()> {
    use k8s_openapi::api::coordination::v1::Lease;
    let leases: Api<Lease> = Api::namespaced(shared.client.clone(), "kube-node-lease");
    let at = k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": node },
        "spec": { "holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": at },
    });
    leases.patch(node, &PatchParams::apply("kubelet").force(), &Patch::Apply(lease)).await.map(drop)
}

/// Nodes that are not lost say that they live.
async fn beat(shared: Arc<Shared>) {
    let nodes: Api<Node> = Api::all(shared.client.clone());
    let mut beats = 0u32;
    loop {
        for node in names(&shared.settings).into_iter().filter(|node| !shared.is_dead(node)) {
            // What fails now is repeated soon enough.
            let _ = renew(&shared, &node).await;
            if beats.is_multiple_of(3) {
                let patch = json!({ "status": { "conditions": conditions() } });
                let _ = nodes.patch_status(&node, &PatchParams::default(), &Patch::Strategic(patch)).await;
            }
        }
        beats += 1;
        tokio::time::sleep(HEARTBEAT).await;
    }
}

/// The names of services follow services and pods.
async fn keep_names(shared: Arc<Shared>) {
    let services: Api<Service> = Api::all(shared.client.clone());
    loop {
        if let Ok(list) = services.list(&ListParams::default()).await {
            let pods: Vec<Named> = locked(&shared.named).values().cloned().collect();
            if let Err(error) = locked(&shared.hosts).write(&list.items, &pods) {
                tracing::warn!(%error, "the hosts file cannot be written");
            }
        }
        tokio::time::sleep(NAMES_EVERY).await;
    }
}

/// Every pod that is bound to one of the nodes is given a task, which is told what becomes of the pod.
async fn watch_pods(shared: Arc<Shared>) {
    let ours = names(&shared.settings);
    let mut lives: BTreeMap<String, watch::Sender<Pod>> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let mut events = Box::pin(
        watcher(Api::<Pod>::all(shared.client.clone()), watcher::Config::default()).default_backoff(),
    );
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            // The stream begins anew by itself.
            Ok(None) | Err(_) => continue,
        };
        match event {
            watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => {
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
                let uid = pod.uid().unwrap_or_default();
                if !ours.contains(&node) {
                    continue;
                }
                match lives.get(&uid) {
                    Some(life) => drop(life.send_replace(pod)),
                    None => {
                        let (sender, told) = watch::channel(pod);
                        lives.insert(uid, sender);
                        tasks.spawn(pod::live(Arc::clone(&shared), node, told));
                    }
                }
            }
            watcher::Event::Delete(pod) => drop(lives.remove(&pod.uid().unwrap_or_default())),
            watcher::Event::Init | watcher::Event::InitDone => {}
        }
        while tasks.try_join_next().is_some() {}
    }
}
