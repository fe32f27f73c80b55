//! The server's connections: what HTTP asks for, said to the store.

use super::store::{ResourcePath, Which};
use super::{PODS, Shared};
use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Serves until it is dropped, connections with it.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(answer(request, &shared).await) }
            });
            // A broken connection is the client's affair.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// What stands after the question mark.
fn parameters(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect()
}

/// A value without its escapes, of which a selector has those of `/` and `=`.
fn decoded(value: &str) -> String {
    value.replace("%2F", "/").replace("%3D", "=").replace("%2C", ",").replace('+', " ")
}

fn which(resource: &ResourcePath, parameters: &BTreeMap<String, String>) -> Which {
    let name = parameters.get("fieldSelector").and_then(|field| field.strip_prefix("metadata.name="));
    let label = parameters.get("labelSelector").map(|label| match label.split_once('=') {
        Some((label, value)) => (label.to_owned(), Some(value.trim_start_matches('=').to_owned())),
        None => (label.clone(), None),
    });
    Which { namespace: resource.namespace.clone(), name: name.map(str::to_owned), label }
}

async fn answer(request: Request<Incoming>, shared: &Arc<Shared>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let Some(resource) = ResourcePath::parse(path) else {
        return match shared.recording.fixed(path) {
            Some(text) => response(StatusCode::OK, text),
            None => failure(StatusCode::NOT_FOUND, "NotFound"),
        };
    };
    let parameters = parameters(parts.uri.query().unwrap_or_default());
    let asked = which(&resource, &parameters);
    if parts.method == Method::GET {
        return match (&resource.name, parameters.get("watch")) {
            (Some(_), _) => match shared.store.get(&resource) {
                Some(object) => response(StatusCode::OK, object.to_string()),
                None => failure(StatusCode::NOT_FOUND, "NotFound"),
            },
            (None, Some(_)) => watched(Arc::clone(shared), resource.collection, asked, &parameters),
            (None, None) => list(shared, &resource.collection, &asked, &parameters),
        };
    }
    let Ok(body) = body.collect().await else { return failure(StatusCode::BAD_REQUEST, "BadRequest") };
    let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    let kind =
        parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    match parts.method {
        Method::POST => create(shared, resource, body),
        Method::PATCH => patch(shared, &resource, body, kind.contains("apply-patch")),
        Method::PUT => response(StatusCode::OK, shared.store.put(&resource, body).to_string()),
        Method::DELETE => delete(shared, &resource),
        _ => failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
    }
}

fn list(
    shared: &Shared,
    collection: &str,
    asked: &Which,
    parameters: &BTreeMap<String, String>,
) -> Response<Body> {
    let limit = parameters.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
    let after = parameters.get("continue").and_then(|after| {
        let (namespace, name) = after.split_once('.')?;
        Some((namespace.to_owned(), name.to_owned()))
    });
    let page = shared.store.page(collection, asked, after, limit);
    let next = page.next.map(|(namespace, name)| format!("{namespace}.{name}")).unwrap_or_default();
    let metadata = json!({ "resourceVersion": page.version.to_string(), "continue": next });
    let version = collection.rsplit_once('/').map_or(collection, |(group, _)| group);
    let version = version.trim_start_matches("apis/").trim_start_matches("api/");
    let mut text =
        format!("{{\"kind\":\"List\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[")
            .into_bytes();
    for (index, item) in page.items.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        text.extend_from_slice(item);
    }
    text.extend_from_slice(b"]}");
    response(StatusCode::OK, text)
}

/// A watch: what has happened since a version, then what happens, until its time is over.
fn watched(
    shared: Arc<Shared>,
    collection: String,
    asked: Which,
    parameters: &BTreeMap<String, String>,
) -> Response<Body> {
    let number = |name: &str| parameters.get(name).and_then(|value| value.parse::<u64>().ok());
    let version = number("resourceVersion").unwrap_or_default();
    let until = Instant::now() + Duration::from_secs(number("timeoutSeconds").unwrap_or(290));
    let changes = shared.store.changes(&collection);
    let frames = stream::unfold((version, changes), move |(version, mut changes)| {
        let (shared, collection, asked) = (Arc::clone(&shared), collection.clone(), asked.clone());
        async move {
            loop {
                changes.mark_unchanged();
                let (lines, version) = shared.store.after(&collection, &asked, version);
                if !lines.is_empty() {
                    return Some((Ok(Frame::data(Bytes::from(lines.concat()))), (version, changes)));
                }
                match timeout_at(until, changes.changed()).await {
                    Ok(Ok(())) => {}
                    _ => return None,
                }
            }
        }
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn create(shared: &Arc<Shared>, mut resource: ResourcePath, mut object: Value) -> Response<Body> {
    static MADE: AtomicU64 = AtomicU64::new(1);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let metadata = &mut object["metadata"];
    if metadata["name"].is_null() {
        let prefix = metadata["generateName"].as_str().unwrap_or_default();
        metadata["name"] = json!(format!("{prefix}{number:x}"));
    }
    resource.name = metadata["name"].as_str().map(str::to_owned);
    metadata["namespace"] = resource.namespace.clone().map_or(Value::Null, Value::String);
    metadata["uid"] = json!(format!("ffffffff-0000-4000-8000-{number:012x}"));
    metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    if shared.store.get(&resource).is_some() {
        return failure(StatusCode::CONFLICT, "AlreadyExists");
    }
    let is_pod = resource.collection == PODS;
    if is_pod {
        object["status"] = json!({ "phase": "Pending" });
    }
    let object = shared.store.put(&resource, object);
    if is_pod {
        shared.begin(&resource);
    }
    response(StatusCode::CREATED, object.to_string())
}

fn patch(shared: &Shared, resource: &ResourcePath, body: Value, is_apply: bool) -> Response<Body> {
    let whole = ResourcePath { part: None, ..resource.clone() };
    let before = shared.store.get(&whole);
    let mut object = match before {
        Some(object) => object,
        None if is_apply => json!({ "metadata": { "uid": "applied" } }),
        None => return failure(StatusCode::NOT_FOUND, "NotFound"),
    };
    let spec = object["spec"].clone();
    match (&resource.part, is_apply) {
        // All of a status is one applier's.
        (Some(part), true) => object[part] = body[part].clone(),
        _ => merge(&mut object, body),
    }
    if object["spec"] != spec && object["metadata"]["generation"].is_u64() {
        object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_u64().unwrap_or(0) + 1);
    }
    response(StatusCode::OK, shared.store.put(&whole, object).to_string())
}

/// A merge patch (RFC 7396).
fn merge(into: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else { return *into = patch };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            into.as_object_mut().map(|fields| fields.remove(&name));
        } else {
            merge(&mut into[name], value);
        }
    }
}

fn delete(shared: &Arc<Shared>, resource: &ResourcePath) -> Response<Body> {
    let Some(object) = shared.store.get(resource) else { return failure(StatusCode::NOT_FOUND, "NotFound") };
    if resource.collection == PODS {
        shared.end(resource, object.clone());
    } else {
        shared.store.remove(resource);
    }
    response(StatusCode::OK, object.to_string())
}

fn failure(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code.as_u16() });
    response(code, status.to_string())
}

fn response(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(text.into()).boxed_unsync());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_merged_and_what_is_null_is_removed() {
        let mut object = json!({ "a": { "b": 1, "c": 2 }, "d": [1] });
        merge(&mut object, json!({ "a": { "b": null, "e": { "f": 3 } }, "d": [2] }));
        assert_eq!(object, json!({ "a": { "c": 2, "e": { "f": 3 } }, "d": [2] }));
    }

    #[test]
    fn selectors_are_read() {
        let resource = ResourcePath::parse("/apis/coordination.k8s.io/v1/leases").unwrap();
        let asked =
            which(&resource, &parameters("fieldSelector=metadata.name%3Dx&labelSelector=shoal.dev%2Fjob"));
        assert_eq!(
            (asked.name.as_deref(), asked.label),
            (Some("x"), Some(("shoal.dev/job".to_owned(), None)))
        );
    }
}
