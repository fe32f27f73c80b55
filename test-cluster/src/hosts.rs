//! The names of services, as a hosts file that every process of a kubelet has in place of the machine's: cluster DNS for
//! processes. Pure but for the file.

use k8s_openapi::api::core::v1::Service;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// A pod that services may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) ip: String,
    pub(super) is_ready: bool,
}

/// The file.
#[derive(Debug)]
pub(super) struct Hosts {
    path: PathBuf,
    written: String,
}

impl Hosts {
    pub(super) fn new(folder: &Path) -> std::io::Result<Hosts> {
        let mut hosts = Hosts { path: folder.join("hosts"), written: String::from("?") };
        hosts.write(&[], &[])?;
        Ok(hosts)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it anew where it stands, so that those who have it mounted see it.
    pub(super) fn write(&mut self, services: &[Service], pods: &[Named]) -> std::io::Result<()> {
        let text = text(services, pods);
        if text != self.written {
            std::fs::write(&self.path, &text)?;
            self.written = text;
        }
        Ok(())
    }
}

fn text(services: &[Service], pods: &[Named]) -> String {
    let mut text = String::from("127.0.0.1 localhost\n");
    for service in services {
        let (Some(name), Some(namespace)) = (&service.metadata.name, &service.metadata.namespace) else {
            continue;
        };
        let Some(spec) = &service.spec else { continue };
        let Some(selector) = &spec.selector else { continue };
        let is_meant = |pod: &&Named| {
            pod.namespace == *namespace
                && selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
                && (pod.is_ready || spec.publish_not_ready_addresses == Some(true))
        };
        for pod in pods.iter().filter(is_meant) {
            let ip = &pod.ip;
            let _ = writeln!(
                text,
                "{ip} {name}.{namespace}.svc.cluster.local {name}.{namespace}.svc {name}.{namespace} {name}"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_service_names_the_ready_pods_that_it_selects() {
        let service = |publish: bool| {
            let spec = json!({ "selector": { "a": "1" }, "publishNotReadyAddresses": publish });
            serde_json::from_value::<Service>(
                json!({ "metadata": { "name": "s", "namespace": "n" }, "spec": spec }),
            )
            .unwrap()
        };
        let pod = |ip: &str, label: &str, is_ready: bool| Named {
            name: label.to_owned(),
            namespace: "n".to_owned(),
            labels: BTreeMap::from([("a".to_owned(), label.to_owned())]),
            ip: ip.to_owned(),
            is_ready,
        };
        let pods =
            [pod("127.64.0.1", "1", true), pod("127.64.0.2", "1", false), pod("127.64.0.3", "2", true)];
        let ready = text(&[service(false)], &pods);
        assert!(
            ready.contains("127.64.0.1 s.n.svc.cluster.local s.n.svc s.n s\n")
                && !ready.contains("127.64.0.2")
        );
        let all = text(&[service(true)], &pods);
        assert!(all.contains("127.64.0.2 ") && !all.contains("127.64.0.3"));
    }
}
