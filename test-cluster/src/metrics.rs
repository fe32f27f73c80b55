//! The metrics API (`metrics.k8s.io`) of a control plane, which says of pods what it was told: enough for a
//! HorizontalPodAutoscaler. It must never measure anything itself.

use super::control_plane::ControlPlane;
use super::kubelet::locked;
use super::logs;
use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// What a pod uses.
#[derive(Clone, Debug)]
pub struct PodUse {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its only container.
    pub container: String,
    /// Thousandths of a processor.
    pub cpu_millis: u64,
}

/// A metrics API. It ends with it.
pub struct Metrics {
    uses: Arc<Mutex<Vec<PodUse>>>,
    _tasks: JoinSet<()>,
}

const GROUP: &str = "/apis/metrics.k8s.io/v1beta1";

impl Metrics {
    /// Serves it, and tells the API server where.
    ///
    /// # Errors
    /// No free port, or the API server does not want it.
    pub async fn start(plane: &ControlPlane) -> anyhow::Result<Metrics> {
        let (listener, tls) = logs::listen().await?;
        let port = listener.local_addr().context("no address")?.port();
        let uses: Arc<Mutex<Vec<PodUse>>> = Arc::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, tls, Arc::clone(&uses)));
        // A name outside the cluster: an API server without a network of pods reaches no other kind of service.
        let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "metrics" },
            "spec": { "type": "ExternalName", "externalName": "localhost" } });
        let api = json!({ "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": { "name": "v1beta1.metrics.k8s.io" },
            "spec": { "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true, "service": { "name": "metrics", "namespace": "default", "port": port } } });
        plane.apply(&service.to_string())?;
        plane.apply(&api.to_string())?;
        Ok(Metrics { uses, _tasks: tasks })
    }

    /// From now on pods use so much.
    pub fn set(&self, uses: Vec<PodUse>) {
        *locked(&self.uses) = uses;
    }
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, uses: Arc<Mutex<Vec<PodUse>>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (tls, uses) = (tls.clone(), Arc::clone(&uses));
        connections.spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(move |request: Request<Incoming>| {
                let answered = answer(request.uri(), &locked(&uses));
                async move { Ok::<_, Infallible>(answered) }
            });
            // A broken connection is the API server's affair.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn answer(uri: &http::Uri, uses: &[PodUse]) -> Response<Full<Bytes>> {
    let found = found(uri.path(), uri.query().unwrap_or_default(), uses);
    let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let mut response = Response::new(Full::new(Bytes::from(found.unwrap_or(Value::Null).to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// The kinds that there are, or the pods of a namespace by their labels.
fn found(path: &str, query: &str, uses: &[PodUse]) -> Option<Value> {
    let rest = path.strip_prefix(GROUP)?;
    if rest.is_empty() {
        let pods = json!({ "name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": ["get", "list"] });
        return Some(
            json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [pods] }),
        );
    }
    let namespace = rest.strip_prefix("/namespaces/")?.strip_suffix("/pods")?;
    let selector = query.split('&').find_map(|pair| pair.strip_prefix("labelSelector="));
    let selector = selector.unwrap_or_default().replace("%3D", "=").replace("%2C", ",").replace("%2F", "/");
    let labels: Vec<(&str, &str)> = selector.split(',').filter_map(|label| label.split_once('=')).collect();
    let is_meant = |one: &&PodUse| {
        let has = |(name, value): &(&str, &str)| one.labels.get(*name).is_some_and(|other| other == value);
        one.namespace == namespace && labels.iter().all(has)
    };
    let at = super::kubelet::now();
    let item = |one: &PodUse| {
        let usage = json!({ "cpu": format!("{}m", one.cpu_millis), "memory": "1Mi" });
        json!({ "metadata": { "name": one.name, "namespace": one.namespace, "labels": one.labels },
            "timestamp": at, "window": "1s", "containers": [{ "name": one.container, "usage": usage }] })
    };
    let items: Vec<Value> = uses.iter().filter(is_meant).map(item).collect();
    Some(
        json!({ "kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_found_by_their_namespace_and_labels() {
        let pod = |name: &str, app: &str| PodUse {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            labels: BTreeMap::from([("x.dev/app".to_owned(), app.to_owned())]),
            container: "c".to_owned(),
            cpu_millis: 250,
        };
        let uses = [pod("a", "nginx"), pod("b", "mysql")];
        let items = |namespace: &str, query: &str| {
            let all = found(&format!("{GROUP}/namespaces/{namespace}/pods"), query, &uses).unwrap();
            all["items"].as_array().unwrap().clone()
        };
        let nginx = items("default", "limit=1&labelSelector=x.dev%2Fapp%3Dnginx");
        assert_eq!((nginx.len(), &nginx[0]["metadata"]["name"]), (1, &json!("a")));
        assert_eq!(nginx[0]["containers"][0]["usage"]["cpu"], "250m");
        assert_eq!((items("default", "").len(), items("other", "").len()), (2, 0));
        assert_eq!(found(GROUP, "", &[]).unwrap()["resources"][0]["name"], "pods");
        assert!(found("/openapi/v2", "", &uses).is_none());
    }
}
