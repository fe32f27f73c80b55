//! etcd's own words: code generated from `proto/etcd`, and the requests that the store makes of them. No decisions.

#[allow(missing_docs, unreachable_pub, unused_qualifications, dead_code, clippy::all, clippy::pedantic)]
mod generated {
    pub mod mvccpb {
        tonic::include_proto!("mvccpb");
    }
    pub mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }
}

pub(super) use generated::etcdserverpb::kv_client::KvClient;
pub(super) use generated::etcdserverpb::lease_client::LeaseClient;
pub(super) use generated::etcdserverpb::{
    Compare, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, RangeRequest, TxnRequest,
    TxnResponse,
};
pub(super) use generated::mvccpb::KeyValue;

use bytes::Bytes;
use generated::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use generated::etcdserverpb::{PutRequest, RequestOp, request_op::Request};

/// True if the key was last changed at `revision`; 0 means that there is no such key.
pub(super) fn is_at(key: &Bytes, revision: i64) -> Compare {
    compare(key, CompareTarget::Mod, TargetUnion::ModRevision(revision))
}

/// True if the key is there and falls with `lease`.
pub(super) fn is_under(key: &Bytes, lease: i64) -> Compare {
    compare(key, CompareTarget::Lease, TargetUnion::Lease(lease))
}

/// Puts `value` if all of `compare` are true; with lease 0 it stays for ever.
pub(super) fn put_if(compare: Vec<Compare>, key: &Bytes, value: Bytes, lease: i64) -> TxnRequest {
    let put = PutRequest { key: key.clone(), value, lease };
    TxnRequest { compare, success: vec![RequestOp { request: Some(Request::RequestPut(put)) }] }
}

fn compare(key: &Bytes, target: CompareTarget, value: TargetUnion) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key: key.clone(),
        target_union: Some(value),
    }
}
