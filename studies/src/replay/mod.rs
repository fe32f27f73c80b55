//! An API server that replays what a real one has said: one job, recorded with its pods and node, copied as often as is asked for.
//!
//! It stands where a real one has not the machine to: lists in pages, watches, writes and the lives of pods are answered from
//! memory, as they were recorded, by whoever asks. It must never decide what an operator ought to do.

mod record;
mod serve;
mod store;

pub use record::{Recording, record};

use anyhow::Context;
use serde_json::{Value, json};
use shoal_test_cluster::plain_kubeconfig;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{ResourcePath, Store};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The collection of pods.
pub const PODS: &str = "api/v1/pods";
/// The collection of nodes.
pub const NODES: &str = "api/v1/nodes";

/// A server with copies of a recorded job. It ends when dropped.
pub struct Replay {
    shared: Arc<Shared>,
    folder: TempDir,
    task: JoinHandle<()>,
}

/// What the server's connections share.
pub(super) struct Shared {
    store: Store,
    recording: Recording,
    /// By name, pods that were taken away: their nodes, and since when they are gone.
    gone: Mutex<BTreeMap<String, (String, Instant)>>,
    /// How long each of them was gone until it was made again, in milliseconds.
    made_again: Mutex<Vec<u32>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Replay {
    /// Serves so many copies of a job on so many copies of its node.
    ///
    /// # Errors
    /// No free port, a recording without pods.
    pub async fn start(recording: Recording, jobs: u32, nodes: u32) -> anyhow::Result<Replay> {
        let store = Store::default();
        recording.once().iter().for_each(|(resource, object)| drop(store.put(resource, object.clone())));
        for number in 0..nodes {
            store.put(&ResourcePath::of(NODES, None, &recording.node_name(number)), recording.node(number));
        }
        for number in 0..jobs {
            for (resource, object) in recording.copy(number, nodes)? {
                store.put(&resource, object);
            }
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port")?;
        let port = listener.local_addr()?.port();
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("kubeconfig"), plain_kubeconfig(port))?;
        let (gone, made_again) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { store, recording, gone, made_again });
        let task = tokio::spawn(serve::serve(listener, Arc::clone(&shared)));
        Ok(Replay { shared, folder, task })
    }

    /// A kubeconfig that leads here.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Takes a trainer of a job from its node, as an eviction does: it is told to end, and is gone as long after as in the recording.
    ///
    /// # Errors
    /// There is no such pod, or it goes already.
    pub fn evict(&self, job: u32, trainer: u32) -> anyhow::Result<()> {
        let resource = self.shared.recording.trainer(job, trainer);
        let mut pod = self.shared.store.get(&resource).context("no such pod")?;
        anyhow::ensure!(pod["metadata"]["deletionTimestamp"].is_null(), "it goes already");
        let conditions = pod["status"]["conditions"].as_array_mut().context("a pod without conditions")?;
        conditions
            .push(json!({ "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastTransitionTime": "2026-01-01T00:00:00Z" }));
        self.shared.end(&resource, pod);
        Ok(())
    }

    /// Has a kubelet say that its node lives.
    pub fn heartbeat(&self, node: u32) {
        let resource = ResourcePath::of(NODES, None, &self.shared.recording.node_name(node));
        if let Some(node) = self.shared.store.get(&resource) {
            self.shared.store.put(&resource, node);
        }
    }

    /// How long trainers that were evicted were gone until the operator made their successors, in milliseconds; from now on anew.
    pub fn take_made_again(&self) -> Vec<u32> {
        std::mem::take(&mut locked(&self.shared.made_again))
    }

    /// How many that were evicted have no successor yet.
    pub fn missing(&self) -> usize {
        locked(&self.shared.gone).len()
    }

    /// How many bytes the pods take as JSON.
    pub fn pod_bytes(&self) -> usize {
        self.shared.store.bytes(PODS)
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// A pod is told to end, and is gone after as long as it took in the recording.
    fn end(self: &Arc<Shared>, resource: &ResourcePath, mut pod: Value) {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(2);
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        self.store.put(resource, pod);
        let (shared, resource) = (Arc::clone(self), resource.clone());
        tokio::spawn(async move {
            sleep(shared.recording.ends_within()).await;
            let name = resource.name().to_owned();
            locked(&shared.gone).insert(name, (node, Instant::now()));
            shared.store.remove(&resource);
        });
    }

    /// A pod was made: it has the life of the recorded one, on the node of the one before it.
    fn begin(self: &Arc<Shared>, resource: &ResourcePath) {
        let node = match locked(&self.gone).remove(resource.name()) {
            Some((node, since)) => {
                locked(&self.made_again).push(since.elapsed().as_millis() as u32);
                node
            }
            None => self.recording.node_name(0),
        };
        let (shared, resource) = (Arc::clone(self), resource.clone());
        tokio::spawn(async move {
            let mut before = Duration::ZERO;
            for (after, is_placed, status) in shared.recording.life() {
                sleep(after.saturating_sub(before)).await;
                before = *after;
                let Some(mut pod) = shared.store.get(&resource) else { return };
                if *is_placed {
                    pod["spec"]["nodeName"] = json!(node);
                }
                pod["status"] = status.clone();
                shared.store.put(&resource, pod);
            }
        });
    }
}
