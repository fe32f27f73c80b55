//! Handshakes of those who call us, many at a time, each with a deadline: who never finishes one holds up nobody.

use super::connection::Connection;
use super::security::{Security, Unsecured};
use crate::host::rpc::capacity::{Capacity, OnceASecond};
use futures_util::future::{AbortHandle, Abortable, BoxFuture, FutureExt};
use futures_util::stream::{self, FuturesUnordered, Stream, StreamExt};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Handshakes under way at a time. When one more comes the oldest is dropped: it has had its chance, and whoever
/// opens connections by the thousand pushes out its own.
const HANDSHAKES_MAX: usize = 256;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// A handshake's number, what came of it, and whose it was.
type Shaken<S> = (u64, Result<Connection<S>, Unsecured>, SocketAddr);

struct Handshakes<I, S> {
    incoming: I,
    is_over: bool,
    security: Security,
    capacity: Arc<Capacity>,
    under_way: FuturesUnordered<Abortable<BoxFuture<'static, Shaken<S>>>>,
    /// By number, so that the first is the oldest.
    handles: BTreeMap<u64, AbortHandle>,
    next: u64,
    refusals: Refusals,
}

/// The connections of `incoming` for which there is capacity and whose handshake has succeeded, in the order in which they did.
pub(in crate::host::rpc) fn secured<S>(
    incoming: impl Stream<Item = io::Result<(S, SocketAddr)>> + Unpin,
    security: Security,
    capacity: Arc<Capacity>,
) -> impl Stream<Item = io::Result<Connection<S>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshakes = Handshakes {
        incoming,
        is_over: false,
        security,
        capacity,
        under_way: FuturesUnordered::new(),
        handles: BTreeMap::new(),
        next: 0,
        refusals: Refusals::default(),
    };
    stream::unfold(handshakes, |mut handshakes| async move { Some((handshakes.next().await?, handshakes)) })
}

impl<I, S> Handshakes<I, S>
where
    I: Stream<Item = io::Result<(S, SocketAddr)>> + Unpin,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    async fn next(&mut self) -> Option<io::Result<Connection<S>>> {
        loop {
            tokio::select! {
                biased;
                Some(shaken) = self.under_way.next(), if !self.under_way.is_empty() => {
                    let Ok((number, shaken, from)) = shaken else { continue };
                    self.handles.remove(&number);
                    match shaken {
                        Ok(connection) => return Some(Ok(connection)),
                        Err(why) => self.refusals.tell(&why, from),
                    }
                }
                came = self.incoming.next(), if !self.is_over => match came {
                    Some(Ok((stream, from))) => self.begin(stream, from),
                    Some(Err(error)) => return Some(Err(error)),
                    None => self.is_over = true,
                },
                else => return None,
            }
        }
    }

    fn begin(&mut self, stream: S, from: SocketAddr) {
        let seat = match self.capacity.seat(from.ip()) {
            Ok(seat) => seat,
            Err(why) => return self.refusals.count(&why, from),
        };
        if self.handles.len() >= HANDSHAKES_MAX
            && let Some((_, oldest)) = self.handles.pop_first()
        {
            oldest.abort();
        }
        let number = self.next;
        self.next += 1;
        let security = self.security.clone();
        let shaking = async move {
            let shaken = tokio::time::timeout(HANDSHAKE, security.accept(stream)).await;
            let shaken = shaken.unwrap_or_else(|_| Err(Unsecured::Io(io::ErrorKind::TimedOut.into())));
            (number, shaken.map(|connection| connection.seated(seat)), from)
        };
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(number, handle);
        self.under_way.push(Abortable::new(shaking.boxed(), registration));
    }
}

/// What is logged of those who were refused.
#[derive(Default)]
struct Refusals(OnceASecond);

impl Refusals {
    fn tell(&mut self, why: &Unsecured, from: SocketAddr) {
        match why {
            Unsecured::Untrusted(reason) => self.count(reason, from),
            // Probes, and those who were killed.
            Unsecured::Io(error) => tracing::debug!(%from, %error, "a handshake was not finished"),
        }
    }

    fn count(&mut self, reason: &dyn std::fmt::Display, from: SocketAddr) {
        if let Some(others) = self.0.tell() {
            tracing::warn!(peer = %from, why = %reason, others, "a connection is refused");
        }
    }
}
