//! What keeps pods from starting that kubelets say in events alone: a sandbox, a volume, a secret that is not there. The API server is asked for
//! it, of few pods that have been long in coming, now and then. Decides nothing.

use crate::api::Moment;
use crate::decide::{PodState, PodView, Unusable};
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A pod is asked after once it has been starting for so many seconds: images come meanwhile.
const LONG_SECONDS: u64 = 20;
/// One pod's events are asked for so often at most.
const EVERY: Duration = Duration::from_secs(20);
/// So many pods of a job are asked after in one reconcile: what holds up one holds up its like.
const ASKED_AT_A_TIME: usize = 4;
/// Events that are not answered for by then are not waited for: nothing of a job depends on them.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
/// So many events of a pod are read; kubelets repeat themselves in one.
const EVENTS_MAX: u32 = 100;

/// What is known of the pods of one job.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    /// By uid, when it was asked, and what it said.
    by_pod: BTreeMap<String, (Instant, Option<Unusable>)>,
}

impl Troubles {
    /// Says of pods that are long in coming what their newest event says, if that is a warning.
    pub(super) async fn see(&mut self, client: &Client, namespace: &str, pods: &mut [PodView], now: Moment) {
        self.by_pod.retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
        let is_long = |pod: &&mut PodView| {
            let is_starting = pod.state == PodState::Starting(None) && pod.deleted.is_none();
            is_starting && now.since(pod.created) >= LONG_SECONDS
        };
        let mut due = Vec::new();
        for pod in pods.iter_mut().filter(is_long) {
            let is_due = self.by_pod.get(&pod.uid).is_none_or(|(at, _)| at.elapsed() >= EVERY);
            if is_due && due.len() < ASKED_AT_A_TIME {
                // It was asked after, whatever becomes of the answer: events may be kept where nobody answers.
                let (at, _) = self.by_pod.entry(pod.uid.clone()).or_insert((Instant::now(), None));
                *at = Instant::now();
                due.push(pod.uid.clone());
            }
        }
        let asked = due.iter().map(|uid| said_of(client, namespace, uid));
        if let Ok(said) = timeout(ANSWERED_WITHIN, join_all(asked)).await {
            for (uid, said) in due.into_iter().zip(said) {
                self.by_pod.insert(uid, (Instant::now(), said));
            }
        }
        for pod in pods.iter_mut().filter(is_long) {
            if let Some((_, Some(said))) = self.by_pod.get(&pod.uid) {
                pod.state = PodState::Starting(Some(said.clone()));
            }
        }
    }
}

/// The trouble that a pod's newest event tells of; none where it tells of none, or may not be read.
async fn said_of(client: &Client, namespace: &str, uid: &str) -> Option<Unusable> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let which = ListParams::default().fields(&format!("involvedObject.uid={uid}")).limit(EVENTS_MAX);
    match events.list(&which).await {
        Ok(list) => newest_warning(list.items),
        // It is only told less of.
        Err(error) => {
            tracing::debug!(%error, "what holds a pod up is not seen");
            None
        }
    }
}

fn newest_warning(events: Vec<Event>) -> Option<Unusable> {
    let at = |event: &Event| {
        let last = event.last_timestamp.as_ref().map(|time| time.0);
        let begun = event.event_time.as_ref().map(|time| time.0);
        last.or(begun).or(event.metadata.creation_timestamp.as_ref().map(|time| time.0))
    };
    let newest = events.into_iter().max_by_key(at)?;
    let is_trouble = newest.type_.as_deref() == Some("Warning");
    is_trouble.then(|| Unusable {
        reason: newest.reason.unwrap_or_default(),
        message: newest.message.unwrap_or_default(),
        may_pass: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Role;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};
    use tower::{BoxError, service_fn};

    fn event(type_: &str, reason: &str, at: &str) -> Value {
        json!({ "metadata": { "name": reason, "namespace": "n" }, "involvedObject": {}, "type": type_, "reason": reason,
            "message": format!("why {reason}"), "lastTimestamp": at })
    }

    /// A server with these events of every pod; and what it was asked for.
    fn server(events: Value) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let of_server = Arc::clone(&asked);
        let service = service_fn(move |request: Request<Body>| {
            of_server.lock().unwrap().push(request.uri().to_string());
            let list = json!({ "kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": events });
            let body = Body::from(list.to_string().into_bytes());
            async move { Ok::<_, BoxError>(Response::new(body)) }
        });
        (Client::new(service, "n"), asked)
    }

    fn pod(uid: &str, created: i64, state: PodState) -> PodView {
        PodView {
            name: uid.to_owned(),
            uid: uid.to_owned(),
            role: Role::Trainer,
            ordinal: 0,
            state,
            is_ready: false,
            created: Moment(created),
            deleted: None,
            disruption: String::new(),
            node: Some("n".to_owned()),
            ip: None,
            memory: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_long_in_coming_has_its_newest_warning_and_is_asked_after_now_and_then() {
        let mount = event("Warning", "FailedMount", "2026-01-01T00:00:09Z");
        let (client, asked) = server(json!([event("Normal", "Scheduled", "2026-01-01T00:00:01Z"), mount]));
        let pods = || {
            let starting = |uid: &str, created| pod(uid, created, PodState::Starting(None));
            vec![starting("old", 0), starting("new", 95), pod("runs", 0, PodState::Running)]
        };
        let mut troubles = Troubles::default();
        for seconds in 0..41 {
            let mut seen = pods();
            troubles.see(&client, "n", &mut seen, Moment(100)).await;
            let said = PodState::Starting(Some(Unusable {
                reason: "FailedMount".to_owned(),
                message: "why FailedMount".to_owned(),
                may_pass: true,
            }));
            assert_eq!(seen[0].state, said, "{seconds}");
            assert_eq!(seen[1..], pods()[1..]);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let asked = asked.lock().unwrap().clone();
        assert_eq!(asked.len(), 3, "{asked:?}");
        assert!(asked[0].contains("involvedObject.uid%3Dold"), "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_nobody_answers_for_hold_a_job_up_for_seconds_and_seldom() {
        let service =
            service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, BoxError>>());
        let (client, mut troubles, began) = (Client::new(service, "n"), Troubles::default(), Instant::now());
        for _ in 0..2 {
            let mut pods: Vec<PodView> =
                (0..9).map(|pod_of| pod(&pod_of.to_string(), 0, PodState::Starting(None))).collect();
            troubles.see(&client, "n", &mut pods[..4], Moment(100)).await;
        }
        assert_eq!(began.elapsed(), ANSWERED_WITHIN);
    }

    #[test]
    fn a_warning_is_over_once_something_has_happened_since() {
        let events = |all: Value| serde_json::from_value::<Vec<Event>>(all).unwrap();
        let mount = event("Warning", "FailedMount", "2026-01-01T00:00:09Z");
        let pulls = event("Normal", "Pulling", "2026-01-01T00:00:10Z");
        assert_eq!(newest_warning(events(json!([mount.clone(), pulls]))), None);
        assert!(newest_warning(events(json!([mount]))).is_some());
        assert_eq!(newest_warning(Vec::new()), None);
    }
}
