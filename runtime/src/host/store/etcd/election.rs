//! Leading through a key under a lease: winning it, renewing it, giving it back. It must never believe in a lease
//! longer than etcd does: it counts from the moment of asking.

use super::Etcd;
use super::api::{LeaseClient, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, is_at, put_if};
use crate::host::store::{Leadership, StoreError};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tonic::{Response, Status};

/// A lease, and until when it can be believed in.
#[derive(Debug)]
struct Lease {
    id: i64,
    ttl: Duration,
    expires: Instant,
}

/// Waits until nobody leads, then leads. A leader that dies leaves its key for a TTL at most.
///
/// Dropped in the middle, it may leave the leader's key behind for a TTL.
pub(super) async fn lead(etcd: &Arc<Etcd>, identity: &str) -> Result<Leadership, StoreError> {
    let mut is_told = false;
    loop {
        if let Some(key) = etcd.get(&etcd.leader).await? {
            if !is_told {
                let leader = String::from_utf8_lossy(&key.value).into_owned();
                tracing::info!(leader, key = %String::from_utf8_lossy(&key.key), "standing by");
                is_told = true;
            }
            sleep(etcd.ttl / 5).await;
            continue;
        }
        let lease = grant(etcd).await?;
        match claim(etcd, lease.id, identity).await {
            Ok(true) => return Ok(keep(etcd, lease)),
            Ok(false) => revoke(etcd, lease.id).await,
            Err(error) => {
                // The key may be ours without our knowing it.
                revoke(etcd, lease.id).await;
                return Err(error);
            }
        }
    }
}

/// Keeps the lease until it is lost or the leadership dropped.
fn keep(etcd: &Arc<Etcd>, lease: Lease) -> Leadership {
    etcd.lease.store(lease.id, Ordering::Release);
    let (stop, stopped) = oneshot::channel();
    let (tell, lost) = watch::channel(None);
    let hold = Hold { etcd: Arc::clone(etcd), lease: lease.id, _stop: stop };
    let etcd = Arc::clone(etcd);
    tokio::spawn(async move {
        let id = lease.id;
        tokio::select! {
            reason = renew_until_lost(&etcd, lease) => {
                tracing::warn!(reason, "leadership lost");
                tell.send_replace(Some(reason));
            }
            // Never a message: the other end was dropped.
            _ = stopped => {}
        }
        // So that a standby need not wait for the lease to run out.
        revoke(&etcd, id).await;
    });
    Leadership::new(lost, hold)
}

/// What a leadership in etcd holds.
#[derive(Debug)]
struct Hold {
    etcd: Arc<Etcd>,
    lease: i64,
    _stop: oneshot::Sender<()>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Unless this handle leads again already.
        let _ = self.etcd.lease.compare_exchange(self.lease, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Ends with the reason.
async fn renew_until_lost(etcd: &Etcd, mut lease: Lease) -> String {
    let mut pause = lease.ttl / 3;
    loop {
        sleep_until((Instant::now() + pause).min(lease.expires)).await;
        match timeout_at(lease.expires, renewed(etcd, &lease)).await {
            Ok(Ok(Some(expires))) => (lease.expires, pause) = (expires, lease.ttl / 3),
            Ok(Ok(None)) => return "etcd knows the lease or the leader's key no more".to_owned(),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the leader's lease was not renewed");
                pause = lease.ttl / 20;
            }
            Err(_) => return format!("the lease was not renewed for {:?}", lease.ttl),
        }
    }
}

/// Renews the lease and looks whether the leader's key is still under it: until when then, or none if it is over.
async fn renewed(etcd: &Etcd, lease: &Lease) -> Result<Option<Instant>, StoreError> {
    let (asked, id) = (Instant::now(), lease.id);
    let answer = etcd.endpoints.any(|member| {
        let request = tokio_stream::once(LeaseKeepAliveRequest { id });
        async move {
            let mut answers = LeaseClient::new(member).lease_keep_alive(request).await?.into_inner();
            let answer = answers.message().await?;
            answer.map(Response::new).ok_or_else(|| Status::unavailable("no answer"))
        }
    });
    answer.await?;
    // The key falls with the lease, so it tells of both.
    let key = etcd.get(&etcd.leader).await?;
    Ok(key.filter(|key| key.lease == id).map(|_| asked + lease.ttl))
}

async fn grant(etcd: &Etcd) -> Result<Lease, StoreError> {
    let asked = Instant::now();
    // etcd counts in whole seconds.
    let request = LeaseGrantRequest { ttl: etcd.ttl.as_millis().div_ceil(1000) as i64, id: 0 };
    let granted = etcd
        .endpoints
        .any(|member| async move { LeaseClient::new(member).lease_grant(request).await })
        .await?;
    let ttl = Duration::from_secs(granted.ttl.max(0) as u64);
    Ok(Lease { id: granted.id, ttl, expires: asked + ttl })
}

/// Takes the leader's key if there is none.
async fn claim(etcd: &Etcd, lease: i64, identity: &str) -> Result<bool, StoreError> {
    let name = Bytes::copy_from_slice(identity.as_bytes());
    let request = put_if(vec![is_at(&etcd.leader, 0)], &etcd.leader, name, lease);
    Ok(etcd.txn_once(request).await?.succeeded)
}

/// Gives the lease back, and the key with it; if nobody hears it, both end with the TTL.
async fn revoke(etcd: &Etcd, lease: i64) {
    let request = LeaseRevokeRequest { id: lease };
    let revoked = etcd
        .endpoints
        .any(|member| async move { LeaseClient::new(member).lease_revoke(request).await })
        .await;
    if let Err(error) = revoked {
        tracing::debug!(%error, lease, "the lease was not given back and runs out by itself");
    }
}
