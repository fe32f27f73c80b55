//! Other operators, by their leases: jobs of a namespace that has an operator of its own are left to that one. Two that keep one job undo
//! each other's work for ever. Is told the time and asks nobody.
//!
//! Who may write a lease in a namespace takes that namespace's jobs from the cluster's operator, and no others: a lease that says that its
//! holder keeps the whole cluster ([`SCOPE`]) is told of in the log, and nothing is left to it. Clocks of others may be wrong, so a lease is
//! alive for as long as it is seen to change.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The annotation of a lease that says whose jobs its holder keeps: those of its own namespace, or of the whole cluster.
pub(super) const SCOPE: &str = "shoal.dev/scope";
/// The word for the whole cluster.
pub(super) const CLUSTER: &str = "cluster";
/// The word for the lease's own namespace, and what a lease without a word is: one of an operator that knew no words.
pub(super) const NAMESPACE: &str = "namespace";
/// An operator whose lease has not changed for so long keeps nothing: twice what a lease holds without being renewed, so that a restart
/// is no change of keepers.
const ALIVE: Duration = Duration::from_secs(30);

/// What is known of one operator.
#[derive(Debug)]
struct Operator {
    keeps_all: bool,
    renewed: (Option<String>, Option<MicroTime>),
    /// When that was seen to change last.
    seen: Instant,
}

/// The operators of a cluster, by the namespaces of their leases.
#[derive(Debug)]
pub(super) struct Others {
    /// The namespace of this operator's own lease.
    own: String,
    all: Mutex<BTreeMap<String, Operator>>,
    is_ready: watch::Sender<bool>,
}

impl Others {
    pub(super) fn of(own: &str) -> Others {
        Others { own: own.to_owned(), all: Mutex::default(), is_ready: watch::channel(false).0 }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Operator>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what the watch says of leases of the operators' name.
    pub(super) fn note(&self, event: &Event<Lease>) {
        match event {
            Event::Apply(lease) | Event::InitApply(lease) => self.see(lease),
            Event::Delete(lease) => drop(self.all().remove(&lease.namespace().unwrap_or_default())),
            Event::Init => {}
            Event::InitDone => self.need_not_be_waited_for(),
        }
    }

    fn see(&self, lease: &Lease) {
        let (namespace, now) = (lease.namespace().unwrap_or_default(), Instant::now());
        let spec = lease.spec.clone().unwrap_or_default();
        let renewed = (spec.holder_identity, spec.renew_time);
        let keeps_all = lease.annotations().get(SCOPE).is_some_and(|scope| scope == CLUSTER);
        let mut all = self.all();
        let before = all.get(&namespace).filter(|before| before.renewed == renewed);
        let seen = before.map_or(now, |before| before.seen);
        let is_news = all.get(&namespace).is_none_or(|before| !before.is_alive(now));
        if namespace != self.own && is_news && keeps_all {
            tracing::error!(
                namespace,
                "a lease says that another operator keeps the whole cluster: if there is one, the two undo each other's work: remove one"
            );
        } else if namespace != self.own && is_news {
            tracing::info!(namespace, "an operator of its own keeps the jobs of this namespace");
        }
        all.insert(namespace, Operator { keeps_all, renewed, seen });
    }

    /// Nobody has to wait for other operators any more: they are known, or may not be looked at.
    pub(super) fn need_not_be_waited_for(&self) {
        self.is_ready.send_replace(true);
    }

    /// Waits until others are known.
    pub(super) async fn wait_until_ready(&self) {
        // Its sender is this one's own.
        let _ = self.is_ready.subscribe().wait_for(|is_ready| *is_ready).await;
    }

    /// Whether the jobs of a namespace are another operator's to keep.
    pub(super) fn keep(&self, namespace: &str) -> bool {
        let is_other = namespace != self.own;
        is_other
            && self
                .all()
                .get(namespace)
                .is_some_and(|other| !other.keeps_all && other.is_alive(Instant::now()))
    }
}

impl Operator {
    fn is_alive(&self, now: Instant) -> bool {
        now < self.seen + ALIVE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lease(namespace: &str, scope: Option<&str>, renewed: u32) -> Event<Lease> {
        let at = |second: u32| format!("2026-01-01T00:00:{second:02}.000000Z");
        let annotations = scope.map(|scope| json!({ SCOPE: scope }));
        let spec = json!({ "holderIdentity": "h", "renewTime": at(renewed) });
        let metadata =
            json!({ "name": "shoal-operator", "namespace": namespace, "annotations": annotations });
        Event::Apply(serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_with_an_operator_of_its_own_is_left_to_it_for_as_long_as_that_lives() {
        let others = Others::of("system");
        others.note(&lease("system", Some(CLUSTER), 0));
        assert!(!others.keep("team") && !others.keep("system"));
        for (renewed, scope) in [(1, None), (20, Some(NAMESPACE))] {
            others.note(&lease("team", scope, renewed));
            assert!(others.keep("team") && !others.keep("system") && !others.keep("other"));
            tokio::time::advance(ALIVE - Duration::from_secs(1)).await;
            assert!(others.keep("team"));
        }
        // A list that brings the same once more is no sign of life.
        others.note(&lease("team", Some(NAMESPACE), 20));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!others.keep("team"), "it has died");
        others.note(&lease("team", Some(NAMESPACE), 50));
        assert!(others.keep("team"), "it is back");
        let Event::Apply(gone) = lease("team", None, 50) else { unreachable!() };
        others.note(&Event::Delete(gone));
        assert!(!others.keep("team"));
    }

    /// Whoever may write leases in one namespace is not to stop the jobs of all.
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_claims_the_whole_cluster_takes_nothing() {
        let others = Others::of("system");
        others.note(&lease("system", Some(CLUSTER), 5));
        others.note(&lease("team", Some(CLUSTER), 6));
        assert!(!others.keep("team") && !others.keep("other") && !others.keep("system"));
    }
}
