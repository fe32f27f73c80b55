//! Leader election by a Lease: of several operators one acts. Who cannot renew stops acting before another may begin.
//!
//! No safety rests on it: names, uids and versions keep two that act at once from doing harm (`decide`).
//!
//! The library `kubert`, which has leases as well, is not used: its newest version (0.25) is for kube 1.1.

use super::others::{CLUSTER, NAMESPACE, SCOPE};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// How long a lease holds without being renewed.
const LEASE: Duration = Duration::from_secs(15);
/// A leader that has not renewed for so long stops acting: earlier than others may take over.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long one try may take: one that hangs leaves time for another before the deadline.
const TRY: Duration = Duration::from_secs(4);
/// How often it is renewed, or looked at.
const PERIOD: Duration = Duration::from_secs(2);

/// One contender.
pub struct Leader {
    leases: Api<Lease>,
    name: String,
    identity: String,
    /// Whose jobs it keeps, in the word of [`SCOPE`].
    scope: &'static str,
    /// Until when this one may act.
    until: Mutex<Option<Instant>>,
}

/// What others hold: who, how often renewed, and since when that was seen by this one's own clock.
type Held = Option<((String, Option<MicroTime>), Instant)>;

impl Leader {
    /// A contender named `identity` for the lease `name`, by whose holder the jobs of the whole cluster are kept, or of the lease's namespace.
    pub fn new(client: Client, namespace: &str, name: &str, identity: String, keeps_all: bool) -> Leader {
        Leader {
            scope: if keeps_all { CLUSTER } else { NAMESPACE },
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity,
            until: Mutex::new(None),
        }
    }

    /// Whether it may act now.
    pub fn is_leading(&self) -> bool {
        let until = self.until.lock().map(|until| *until).unwrap_or(None);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Waits until it leads.
    pub async fn elected(&self) {
        let mut held: Held = None;
        loop {
            match tokio::time::timeout(TRY, self.try_once(&mut held)).await {
                Ok(Ok(true)) => return,
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the lease cannot be read or taken"),
                Err(_) => tracing::warn!("the lease cannot be read or taken in time"),
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Renews the lease for as long as that goes. Returns once it is another's, or could not be renewed in time.
    pub async fn keep(&self) {
        let mut held: Held = None;
        loop {
            tokio::time::sleep(PERIOD).await;
            match tokio::time::timeout(TRY, self.try_once(&mut held)).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::warn!(%error, "the lease cannot be renewed"),
                Err(_) => tracing::warn!("the lease cannot be renewed in time"),
            }
            if !self.is_leading() {
                return;
            }
        }
    }

    /// Gives the lease back, so that the next need not wait for its end.
    pub async fn resign(&self) {
        if !self.is_leading() {
            return;
        }
        self.act_until(None);
        // A server that does not answer keeps nobody from ending: the lease ends by itself.
        let _ = tokio::time::timeout(PERIOD, self.give_back()).await;
    }

    async fn give_back(&self) {
        let Ok(mut lease) = self.leases.get(&self.name).await else { return };
        if let Some(spec) =
            lease.spec.as_mut().filter(|spec| spec.holder_identity.as_ref() == Some(&self.identity))
        {
            spec.holder_identity = None;
            let _ = self.leases.replace(&self.name, &PostParams::default(), &lease).await;
        }
    }

    fn act_until(&self, until: Option<Instant>) {
        if let Ok(mut ours) = self.until.lock() {
            *ours = until;
        }
    }

    /// Takes or renews the lease, if nobody else has it. Compare-and-swap by the lease's version decides between two.
    async fn try_once(&self, held: &mut Held) -> kube::Result<bool> {
        let asked = Instant::now();
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else {
            let metadata = self.metadata();
            let lease = Lease { metadata, spec: Some(self.spec(None)) };
            return self.swapped(self.leases.create(&PostParams::default(), &lease).await, asked);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        if holder != self.identity && !holder.is_empty() {
            let now = (holder, spec.renew_time.clone());
            let since = held.as_ref().filter(|(before, _)| *before == now).map_or(asked, |(_, since)| *since);
            *held = Some((now, since));
            // By this one's own clock: those of others may be wrong.
            if since.elapsed() < LEASE {
                self.act_until(None);
                return Ok(false);
            }
        }
        lease.metadata = ObjectMeta {
            namespace: lease.namespace(),
            resource_version: lease.resource_version(),
            ..self.metadata()
        };
        lease.spec = Some(self.spec(Some(&spec)));
        self.swapped(self.leases.replace(&self.name, &PostParams::default(), &lease).await, asked)
    }

    fn swapped(&self, answer: kube::Result<Lease>, asked: Instant) -> kube::Result<bool> {
        match answer {
            Ok(_) => {
                self.act_until(Some(asked + DEADLINE));
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn metadata(&self) -> ObjectMeta {
        let scope = [(SCOPE.to_owned(), self.scope.to_owned())];
        ObjectMeta { name: Some(self.name.clone()), annotations: Some(scope.into()), ..ObjectMeta::default() }
    }

    /// The lease as it is once this one has it.
    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let is_ours = before.is_some_and(|before| before.holder_identity.as_ref() == Some(&self.identity));
        let turns = before.and_then(|before| before.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(LEASE.as_secs() as i32),
            acquire_time: before
                .filter(|_| is_ours)
                .and_then(|before| before.acquire_time.clone())
                .or(Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(turns + i32::from(!is_ours)),
            ..LeaseSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tower::{BoxError, service_fn};

    /// A server without a lease, which takes one; to the first so many calls it never answers.
    fn hung_at_first(calls: u32) -> Client {
        let count = Arc::new(AtomicU32::new(0));
        let server = service_fn(move |request: Request<Body>| {
            let number = count.fetch_add(1, Ordering::Relaxed);
            async move {
                if number < calls {
                    std::future::pending::<()>().await;
                }
                let (code, body) = match *request.method() {
                    Method::POST => (201, request.into_body()),
                    _ => {
                        let status = json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404 });
                        (404, Body::from(status.to_string().into_bytes()))
                    }
                };
                Ok::<_, BoxError>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(server, "n")
    }

    #[tokio::test(start_paused = true)]
    async fn who_stands_by_on_a_connection_that_has_died_asks_again_and_leads() {
        let leader = Leader::new(hung_at_first(1), "n", "l", "second".to_owned(), true);
        let elected = tokio::time::timeout(LEASE + PERIOD, leader.elected()).await;
        assert!(elected.is_ok() && leader.is_leading());
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_whose_calls_hang_stops_acting_before_another_may_begin_and_ends_at_once_when_told() {
        let leader = Leader::new(hung_at_first(0), "n", "l", "first".to_owned(), true);
        leader.elected().await;
        let leader = Leader { leases: Api::namespaced(hung_at_first(u32::MAX), "n"), ..leader };
        let began = Instant::now();
        leader.keep().await;
        assert!(!leader.is_leading() && began.elapsed() < LEASE);
        leader.act_until(Some(Instant::now() + DEADLINE));
        let began = Instant::now();
        leader.resign().await;
        assert!(began.elapsed() <= PERIOD + Duration::from_millis(1), "{:?}", began.elapsed());
    }
}
