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
use tokio::io::DuplexStream;

/// Dials pods of one job by their names or their addresses, as its routing has them.
pub(crate) struct PodDial {
    pods: Api<Pod>,
    job: String,
    security: Security,
}

impl PodDial {
    pub(crate) fn new(cluster: &Cluster, job: &str, security: Security) -> PodDial {
        PodDial { pods: cluster.pods(), job: job.to_owned(), security }
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
        let (pods, job) = (self.pods.clone(), self.job.clone());
        let open = move |address: String| {
            let (pods, job) = (pods.clone(), job.clone());
            async move { Ok(opened(&pods, &job, &address).await?) }
        };
        dial_on(address, role, Limits::default(), &self.security, open)
    }
}

/// A stream to `HOST:PORT`, where the host is a pod's name or its address.
async fn opened(pods: &Api<Pod>, job: &str, address: &str) -> anyhow::Result<DuplexStream> {
    let (host, port) = address.rsplit_once(':').context("no port")?;
    let port: u16 = port.parse().with_context(|| format!("{address}: no port"))?;
    // An address is of a pod; the pod may have another by the next time.
    let of_job = ListParams::default().labels(&format!("{JOB_LABEL}={job}"));
    let of_job = pods.list(&of_job).await.map_err(explained)?;
    let ip = |pod: &Pod| pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    let found = of_job.iter().find(|pod| pod.name_any() == host || ip(pod).as_deref() == Some(host));
    let pod = found.map(ResourceExt::name_any).with_context(|| format!("job {job} has no pod {host}"))?;
    let mut forwarder = pods.portforward(&pod, &[port]).await.map_err(explained)?;
    forwarder.take_stream(port).context("the API server forwards another port")
}
