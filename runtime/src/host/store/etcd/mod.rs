//! The store in etcd, for masters on several machines. It must never decide from an answer that did not come.
//!
//! `PREFIX/state` is the document, its revision etcd's mod revision; `PREFIX/leader` is the leader's name under a
//! lease. Calls are plain gRPC from a small part of etcd's own API (`proto/etcd`), without TLS or passwords.

mod api;
mod election;
mod endpoints;

use super::{Leadership, Revision, Store, StoreError};
use crate::host::rpc::Dial;
use api::{KeyValue, KvClient, RangeRequest, TxnRequest, TxnResponse, is_at, is_under, put_if};
use bytes::Bytes;
use endpoints::Endpoints;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// How long leadership outlives a silent leader, unless told otherwise.
pub const LEASE_TTL: Duration = Duration::from_secs(5);
/// The largest document: etcd's default `--max-request-bytes` (1.5 MiB), less what stands around it in a request.
const DOCUMENT_BYTES_MAX: usize = (3 << 19) - (16 << 10);
/// The largest answer that is taken: a document, and more where etcd's limit was raised.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// A document in etcd. Every contender has a handle of its own.
#[derive(Debug)]
pub struct EtcdStore {
    etcd: Arc<Etcd>,
}

/// What a handle and the task that keeps its lease share.
#[derive(Debug)]
struct Etcd {
    endpoints: Endpoints,
    state: Bytes,
    leader: Bytes,
    /// Of the leader's lease, as asked for.
    ttl: Duration,
    /// The lease under which this handle leads, or led until it was lost; 0 for none, as in etcd.
    lease: AtomicI64,
}

impl EtcdStore {
    /// The document under `prefix` in the etcd of these members (`host:port`), each tried in turn.
    ///
    /// A leader that is silent for `ttl`, at least a second, loses its leadership; etcd may make it more. One call takes
    /// a third of it at most, and never less than a second.
    ///
    /// # Errors
    /// `Broken` where an address is none. Nobody is called yet.
    pub fn new(
        dial: &dyn Dial,
        addresses: &[String],
        prefix: &str,
        ttl: Duration,
    ) -> Result<EtcdStore, StoreError> {
        let deadline = (ttl / 3).max(Duration::from_secs(1));
        let etcd = Etcd {
            endpoints: Endpoints::new(dial, addresses, deadline)?,
            state: format!("{prefix}/state").into(),
            leader: format!("{prefix}/leader").into(),
            ttl: ttl.max(Duration::from_secs(1)),
            lease: AtomicI64::new(0),
        };
        Ok(EtcdStore { etcd: Arc::new(etcd) })
    }
}

impl Etcd {
    async fn get(&self, key: &Bytes) -> Result<Option<KeyValue>, StoreError> {
        let found = self.endpoints.any(|member| {
            let request = RangeRequest { key: key.clone() };
            let mut client = KvClient::new(member).max_decoding_message_size(ANSWER_BYTES_MAX);
            async move { client.range(request).await }
        });
        Ok(found.await?.kvs.into_iter().next())
    }
    /// Once: a repeated transaction would meet its own first attempt and take it for somebody else's.
    async fn txn_once(&self, request: TxnRequest) -> Result<TxnResponse, StoreError> {
        self.endpoints.once(|member| async move { KvClient::new(member).txn(request).await }).await
    }
}

#[tonic::async_trait]
impl Store for EtcdStore {
    async fn load(&self) -> Result<Option<(Revision, Bytes)>, StoreError> {
        let found = self.etcd.get(&self.etcd.state).await?;
        Ok(found.map(|found| (Revision(found.mod_revision as u64), found.value)))
    }

    async fn swap(&self, expected: Option<Revision>, document: Bytes) -> Result<Revision, StoreError> {
        let etcd = &self.etcd;
        if document.len() > DOCUMENT_BYTES_MAX {
            return Err(StoreError::Broken(format!(
                "a document of {} bytes: etcd takes {DOCUMENT_BYTES_MAX}; keep this job in a folder",
                document.len()
            )));
        }
        let mut compare = vec![is_at(&etcd.state, expected.map_or(0, |revision| revision.0 as i64))];
        let lease = etcd.lease.load(Ordering::Acquire);
        if lease != 0 {
            compare.push(is_under(&etcd.leader, lease));
        }
        let request = put_if(compare, &etcd.state, document, 0);
        let answer = etcd.txn_once(request).await?;
        match answer.header {
            Some(header) if answer.succeeded => Ok(Revision(header.revision as u64)),
            None if answer.succeeded => {
                Err(StoreError::Unavailable("etcd: an answer without its header".to_owned()))
            }
            _ => Err(StoreError::Conflict(format!(
                "{}: it is no longer at the expected revision, or another leads",
                String::from_utf8_lossy(&etcd.state)
            ))),
        }
    }

    async fn lead(&self, identity: &str) -> Result<Leadership, StoreError> {
        election::lead(&self.etcd, identity).await
    }
}
