//! Reaching members of a job by ports that the API server forwards: by the rights of who asks. No port of this machine is opened, so nobody
//! else on it has them.

use super::{Cluster, explained};
use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use shoal_operator::manifest::JOB_LABEL;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{Channel, Dial, Limits, Security, dial_on};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use tokio::io::DuplexStream;

/// Channels that are kept at most; beyond them all are made anew.
const KEPT_MAX: usize = 256;

/// Dials pods of one job by their names or their addresses, as its routing has them. Whoever is dialled again is reached over the same
/// channel: to open one takes the API server several requests.
pub(crate) struct PodDial {
    pods: Api<Pod>,
    job: String,
    security: Security,
    channels: Mutex<BTreeMap<(String, Option<Role>), Channel>>,
}

impl PodDial {
    pub(crate) fn new(cluster: &Cluster, job: &str, security: Security) -> PodDial {
        PodDial { pods: cluster.pods(), job: job.to_owned(), security, channels: Mutex::default() }
    }

    /// Tries whether a pod can be reached so, and says why not.
    ///
    /// # Errors
    /// The right to forward ports is missing, there is no such pod, or its node does not answer.
    pub(crate) async fn check(&self, pod: &str, port: u16) -> anyhow::Result<()> {
        self.pods.portforward(pod, &[port]).await.map(|forwarder| forwarder.abort()).map_err(explained)
    }
}

impl Dial for PodDial {
    fn dial(&self, address: &str, role: Option<Role>) -> Result<Channel, String> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if channels.len() >= KEPT_MAX {
            channels.clear();
        }
        let kept = match channels.entry((address.to_owned(), role)) {
            Entry::Occupied(kept) => return Ok(kept.get().clone()),
            Entry::Vacant(kept) => kept,
        };
        let (pods, job) = (self.pods.clone(), self.job.clone());
        let open = move |address: String| {
            let (pods, job) = (pods.clone(), job.clone());
            async move { Ok(opened(&pods, &job, &address).await?) }
        };
        let channel = dial_on(address, role, Limits::default(), &self.security, open)?;
        Ok(kept.insert(channel).clone())
    }
}

/// A stream to `HOST:PORT`, where the host is a pod's name or its address.
async fn opened(pods: &Api<Pod>, job: &str, address: &str) -> anyhow::Result<DuplexStream> {
    let (host, port) = address.rsplit_once(':').context("no port")?;
    let port: u16 = port.parse().with_context(|| format!("{address}: no port"))?;
    let host = host.trim_matches(['[', ']']);
    let pod = match host.parse::<IpAddr>() {
        Err(_) => host.to_owned(),
        // A pod that has ended keeps its address, which another may have by now.
        Ok(ip) => {
            let runs = format!("status.podIP={ip},status.phase=Running");
            let there = ListParams::default().labels(&format!("{JOB_LABEL}={job}")).fields(&runs);
            let there = pods.list(&there).await.map_err(explained)?;
            there
                .iter()
                .next()
                .map(ResourceExt::name_any)
                .with_context(|| format!("job {job} has no pod at {ip}"))?
        }
    };
    let mut forwarder = pods.portforward(&pod, &[port]).await.map_err(explained)?;
    forwarder.take_stream(port).context("the API server forwards another port")
}
