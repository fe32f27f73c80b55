//! Calls to one of several etcd members, with a deadline each. It must never repeat a call on its own unless told that
//! repeating is harmless.

use crate::host::rpc::Dial;
use crate::host::store::StoreError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic::body::Body;
use tonic::{Code, Response, Status};
use tower::{ServiceExt, util::BoxCloneSyncService};

/// A channel whose error is a plain type: with the boxed one of `Channel` the compiler cannot see that the future of a
/// generated client is `Send` (rust-lang/rust#102211).
pub(super) type Member = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Status>;

/// The members of one etcd.
#[derive(Debug)]
pub(super) struct Endpoints {
    members: Vec<(String, Member)>,
    /// The member that is asked next, counted on at every failure.
    turn: AtomicUsize,
    deadline: Duration,
}

impl Endpoints {
    /// Members by address (`host:port`). Connects only at the first call.
    pub(super) fn new(
        dial: &dyn Dial,
        addresses: &[String],
        deadline: Duration,
    ) -> Result<Endpoints, StoreError> {
        if addresses.is_empty() {
            return Err(StoreError::Broken("etcd: no endpoint is named; name host:port".to_owned()));
        }
        let dialed = addresses.iter().map(|address| {
            let channel = ServiceExt::map_err(dial.dial(address, None)?, Status::from_error);
            Ok((address.clone(), Member::new(channel)))
        });
        let members = dialed.collect::<Result<Vec<_>, String>>().map_err(StoreError::Broken)?;
        Ok(Endpoints { members, turn: AtomicUsize::new(0), deadline })
    }

    /// One attempt. After `Unavailable` its outcome is unknown, and another member is next.
    pub(super) async fn once<T, A>(&self, call: impl FnOnce(Member) -> A) -> Result<T, StoreError>
    where
        A: Future<Output = Result<Response<T>, Status>>,
    {
        let turn = self.turn.load(Ordering::Relaxed);
        let (address, channel) = &self.members[turn % self.members.len()];
        let error = match tokio::time::timeout(self.deadline, call(channel.clone())).await {
            Ok(Ok(response)) => return Ok(response.into_inner()),
            Ok(Err(status)) => typed(address, &status),
            Err(_) => {
                StoreError::Unavailable(format!("etcd at {address}: no answer within {:?}", self.deadline))
            }
        };
        // Whoever failed at the same member meanwhile has counted on already.
        let _ = self.turn.compare_exchange(turn, turn + 1, Ordering::Relaxed, Ordering::Relaxed);
        Err(error)
    }

    /// Attempts at each member in turn until one answers: for calls that may be repeated.
    pub(super) async fn any<T, A>(&self, call: impl Fn(Member) -> A) -> Result<T, StoreError>
    where
        A: Future<Output = Result<Response<T>, Status>>,
    {
        let mut result = self.once(&call).await;
        for _ in 1..self.members.len() {
            if !matches!(result, Err(StoreError::Unavailable(_))) {
                break;
            }
            result = self.once(&call).await;
        }
        result
    }
}

/// The error by the next move. Codes and messages are those of etcd's `rpctypes`.
fn typed(address: &str, status: &Status) -> StoreError {
    let what = format!("etcd at {address}: {:?}: {}", status.code(), status.message());
    let way_out = match status.code() {
        Code::InvalidArgument if status.message().contains("too large") => {
            "raise etcd's --max-request-bytes, or keep this job in a folder"
        }
        Code::ResourceExhausted if status.message().contains("space exceeded") => {
            "compact and defragment etcd, then disarm its alarm"
        }
        Code::PermissionDenied | Code::Unauthenticated => "let the master read and write its prefix",
        Code::Unimplemented => "is it an etcd of version 3.4 or later?",
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange | Code::DataLoss => {
            "see etcd's own log"
        }
        _ => return StoreError::Unavailable(what),
    };
    StoreError::Broken(format!("{what}; {way_out}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::rpc::TcpDial;
    use std::sync::Mutex;

    const SECOND: Duration = Duration::from_secs(1);

    fn endpoints(count: usize) -> Endpoints {
        let addresses: Vec<String> = (0..count).map(|number| format!("member-{number}:2379")).collect();
        Endpoints::new(&TcpDial::default(), &addresses, SECOND).unwrap()
    }

    async fn answer(status: Option<Status>) -> Result<Response<()>, Status> {
        status.map_or(Ok(Response::new(())), Err)
    }

    #[tokio::test]
    async fn a_call_that_may_be_repeated_meets_each_member_once() {
        let members = endpoints(3);
        let calls = Mutex::new(0);
        let failed = members
            .any(|_| {
                *calls.lock().unwrap() += 1;
                answer(Some(Status::unavailable("down")))
            })
            .await;
        assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
        assert_eq!(*calls.lock().unwrap(), 3);
        assert_eq!(members.turn.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_call_that_may_not_be_repeated_is_made_once_and_the_next_goes_elsewhere() {
        let members = endpoints(2);
        let failed = members.once(|_| answer(Some(Status::unavailable("down")))).await;
        assert!(failed.unwrap_err().to_string().contains("member-0:2379"));
        let failed = members.once(|_| answer(Some(Status::unavailable("down")))).await;
        assert!(failed.unwrap_err().to_string().contains("member-1:2379"));
    }

    #[tokio::test]
    async fn a_member_that_answers_is_kept() {
        let members = endpoints(2);
        assert!(members.once(|_| answer(None)).await.is_ok());
        assert_eq!(members.turn.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_at_the_deadline() {
        let began = tokio::time::Instant::now();
        let failed = endpoints(1).once(|_| std::future::pending::<Result<Response<()>, Status>>()).await;
        assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
        assert_eq!(began.elapsed(), SECOND);
    }

    #[test]
    fn errors_are_told_apart_by_the_next_move() {
        let is_broken = |status: Status| matches!(typed("e:1", &status), StoreError::Broken(_));
        for status in [
            Status::invalid_argument("etcdserver: request is too large"),
            Status::resource_exhausted("etcdserver: mvcc: database space exceeded"),
            Status::permission_denied("etcdserver: permission denied"),
            Status::unauthenticated("etcdserver: invalid auth token"),
            Status::unimplemented("unknown service etcdserverpb.KV"),
        ] {
            assert!(is_broken(status.clone()), "{status}");
        }
        for status in [
            Status::unavailable("etcdserver: no leader"),
            Status::resource_exhausted("etcdserver: too many requests"),
            Status::deadline_exceeded("etcdserver: request timed out"),
            Status::cancelled("h2"),
            Status::unknown("h2 protocol error"),
            Status::not_found("etcdserver: requested lease not found"),
        ] {
            assert!(!is_broken(status.clone()), "{status}");
        }
    }
}
