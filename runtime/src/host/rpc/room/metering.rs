//! Every call through its connection's [`Seat`]: requests take room as they come, answers before they are encoded.

use super::{Answering, Room, Seat, expected, lock};
use crate::host::rpc::tls::Peer;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

/// Puts a [`Metered`] before a service.
#[derive(Clone, Copy, Debug)]
pub(in crate::host::rpc) struct Meter;

/// A service whose calls take their connection's room.
#[derive(Clone, Debug)]
pub(in crate::host::rpc) struct Metered<S>(S);

impl<S> Layer<S> for Meter {
    type Service = Metered<S>;
    fn layer(&self, service: S) -> Metered<S> {
        Metered(service)
    }
}

impl<S> Service<Request<Body>> for Metered<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some(seat) = request.extensions().get::<Peer>().and_then(|peer| peer.seat.clone()) else {
            return Box::pin(self.0.call(request));
        };
        seat.called();
        let bytes = expected(request.uri().path());
        // The service has what came until it has answered, long after the body is at its end.
        let charge = Arc::new(Charge { room: Arc::clone(&seat.room), taken: Mutex::new(None) });
        let ours = Arc::clone(&charge);
        let answered = self.0.call(request.map(|body| Body::new(Coming { body, charge })));
        Box::pin(async move {
            let answer = answered.await?;
            drop(ours);
            Ok(answer.map(|body| Body::new(Going { body, room: Wait::None(seat, bytes) })))
        })
    }
}

/// The room that one request has taken.
struct Charge {
    room: Arc<Room>,
    taken: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Charge {
    fn take(&self, bytes: usize) -> Result<(), Status> {
        let Some(more) = self.room.take(bytes) else {
            return Err(Status::unavailable(
                "this process has no room for more requests at present: ask again",
            ));
        };
        let mut taken = lock(&self.taken);
        match &mut *taken {
            Some(taken) => taken.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

/// A request's body.
struct Coming {
    body: Body,
    charge: Arc<Charge>,
}

impl HttpBody for Coming {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.charge.take(data.len())?;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body.
struct Going {
    body: Body,
    room: Wait,
}

enum Wait {
    /// With the bytes that are expected.
    None(Arc<Seat>, usize),
    Waiting(Pin<Box<dyn Future<Output = Option<Answering>> + Send>>),
    Had(Option<Arc<Answering>>),
}

/// Bytes that have left the body, and wait until the other end has a window for them. Their room is theirs until then.
struct Kept {
    bytes: Bytes,
    _room: Option<Arc<Answering>>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Going {
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Option<Arc<Answering>>> {
        loop {
            match &mut self.room {
                Wait::None(seat, bytes) => {
                    self.room = Wait::Waiting(Box::pin(Arc::clone(seat).answer(*bytes)));
                }
                Wait::Waiting(waiting) => {
                    let room = ready!(waiting.as_mut().poll(context));
                    self.room = Wait::Had(room.map(Arc::new));
                }
                Wait::Had(room) => return Poll::Ready(room.clone()),
            }
        }
    }
}

impl HttpBody for Going {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let room = ready!(self.poll_room(context));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let keep = |bytes: Bytes| Bytes::from_owner(Kept { bytes, _room: room });
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(keep))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
