//! Nodes, pods and jobs of a cluster, kept here by watches. An API server that is away for a while is waited for.

use super::Cluster;
use super::follow::{PATIENCE, of_watch};
use crate::silence::Silence;
use futures_util::stream::{BoxStream, select_all};
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::reflector::{self, Lookup, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use shoal_operator::api::TrainingJob;
use std::fmt::Debug;

type Events = BoxStream<'static, Result<(), watcher::Error>>;

/// What there is.
pub(crate) struct Mirror {
    /// All nodes.
    pub(crate) nodes: Store<Node>,
    /// The pods of all namespaces.
    pub(crate) pods: Store<Pod>,
    /// The jobs of one namespace, or of all.
    pub(crate) jobs: Store<TrainingJob>,
}

/// Keeps a mirror up to date.
pub(crate) struct Keeper {
    events: futures_util::stream::SelectAll<Events>,
    silence: Silence,
}

/// A mirror, which is empty until its keeper has been at work.
pub(crate) fn mirror(cluster: &Cluster, of_all_namespaces: bool) -> (Mirror, Keeper) {
    let (nodes, of_nodes) = watched(Api::all(cluster.client.clone()));
    let (pods, of_pods) = watched(Api::all(cluster.client.clone()));
    let jobs = if of_all_namespaces { Api::all(cluster.client.clone()) } else { cluster.jobs() };
    let (jobs, of_jobs) = watched(jobs);
    let events = select_all([of_nodes, of_pods, of_jobs]);
    (Mirror { nodes, pods, jobs }, Keeper { events, silence: Silence::of_at_most(PATIENCE) })
}

fn watched<K>(api: Api<K>) -> (Store<K>, Events)
where
    K: Resource<DynamicType = ()>
        + Lookup<DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(api, watcher::Config::default()).default_backoff();
    (store, events.reflect(writer).map_ok(drop).boxed())
}

impl Mirror {
    /// Waits until all that there is is here.
    ///
    /// # Errors
    /// The keeper has gone.
    pub(crate) async fn wait_until_whole(&self) -> anyhow::Result<()> {
        self.nodes.wait_until_ready().await?;
        self.pods.wait_until_ready().await?;
        Ok(self.jobs.wait_until_ready().await?)
    }
}

impl Keeper {
    /// Works until it cannot any more. Returns why: the cluster refuses, or has not answered for a minute.
    pub(crate) async fn keep(&mut self) -> anyhow::Error {
        loop {
            match self.events.next().await {
                Some(Ok(())) => self.silence.end(),
                Some(Err(error)) => {
                    if let Err(error) = self.silence.bear(of_watch(error), true) {
                        return error;
                    }
                }
                None => return anyhow::anyhow!("the cluster has ended all watches"),
            }
        }
    }
}
