//! Ports of a cluster's pods on this machine's loopback address, through the API server: by the rights of who asks, and nobody else's.

use super::explained;
use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// Listens for as many pods as are asked for. With it their ports are closed.
pub(crate) struct Relays {
    pods: Api<Pod>,
    runtime: Handle,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    addresses: BTreeMap<(String, u16), SocketAddr>,
    // Dropped, it ends all of them.
    tasks: JoinSet<()>,
}

impl Relays {
    /// None yet. They work as long as the runtime on which this is called.
    pub(crate) fn new(pods: Api<Pod>) -> Relays {
        Relays { pods, runtime: Handle::current(), open: Mutex::default() }
    }

    /// Where the port of a pod is found on this machine, for as long as this lives. Whoever has the pod's name later has its port, too.
    ///
    /// # Errors
    /// No port is free here.
    pub(crate) fn address(&self, pod: &str, port: u16) -> anyhow::Result<SocketAddr> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Open { addresses, tasks } = &mut *open;
        let key = (pod.to_owned(), port);
        if let Some(address) = addresses.get(&key) {
            return Ok(*address);
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("no port of 127.0.0.1 can be had")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let _on = self.runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tasks.spawn_on(serve(listener, self.pods.clone(), pod.to_owned(), port), &self.runtime);
        addresses.insert(key, address);
        Ok(address)
    }

    /// Tries whether a pod's port can be reached so, and says why not.
    ///
    /// # Errors
    /// The right to forward ports is missing, or there is no such pod, or its node does not answer.
    pub(crate) async fn check(&self, pod: &str, port: u16) -> anyhow::Result<()> {
        self.pods.portforward(pod, &[port]).await.map(|forwarder| forwarder.abort()).map_err(explained)
    }
}

async fn serve(listener: tokio::net::TcpListener, pods: Api<Pod>, pod: String, port: u16) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (pods, pod) = (pods.clone(), pod.clone());
        connections.spawn(async move {
            // Whoever has called sees the connection end, and says what it was for.
            if let Err(why) = relay(stream, &pods, &pod, port).await {
                tracing::debug!(pod, port, "forwarding ended: {why:#}");
            }
        });
    }
}

async fn relay(mut here: TcpStream, pods: &Api<Pod>, pod: &str, port: u16) -> anyhow::Result<()> {
    let mut forwarder = pods.portforward(pod, &[port]).await?;
    let mut there = forwarder.take_stream(port).context("no stream")?;
    tokio::io::copy_bidirectional(&mut here, &mut there).await?;
    drop(there);
    Ok(forwarder.join().await?)
}
