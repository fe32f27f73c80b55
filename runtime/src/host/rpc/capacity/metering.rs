//! Every call through its connection's [`Seat`]: requests take capacity as they come, answers before they go.

use super::{AnswerBytes, Answering, Capacity, Seat, lock};
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
use tower::Service;

/// A service whose calls take their connection's capacity.
#[derive(Clone, Debug)]
pub(in crate::host::rpc) struct Metered<S>(pub(in crate::host::rpc) S);

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
        // The service has what came until it has answered, long after the body is at its end.
        let charge = Arc::new(Charge { capacity: Arc::clone(&seat.capacity), taken: Mutex::new(None) });
        let ours = Arc::clone(&charge);
        let answered = self.0.call(request.map(|body| Body::new(Coming { body, charge })));
        Box::pin(async move {
            let answer = answered.await?;
            drop(ours);
            let bytes = answer.extensions().get().map(|AnswerBytes(bytes)| *bytes);
            Ok(answer.map(|body| Body::new(Going { body, seat, bytes, next: None, capacity: Wait::None })))
        })
    }
}

/// The capacity that one request has taken.
struct Charge {
    capacity: Arc<Capacity>,
    taken: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Charge {
    fn take(&self, bytes: usize) -> Result<(), Status> {
        let Some(more) = self.capacity.take(bytes) else {
            return Err(Status::unavailable(
                "this process has no capacity for more requests at present: ask again",
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

/// An answer's body. Where its size is known it takes capacity as a whole, for all of it is kept until it is sent. Otherwise
/// each frame does: a message of tonic's is one, and is made when it is asked for.
struct Going {
    body: Body,
    seat: Arc<Seat>,
    /// Bytes of the whole, where they are known.
    bytes: Option<usize>,
    /// A frame that waits for capacity of its own.
    next: Option<Frame<Bytes>>,
    capacity: Wait,
}

enum Wait {
    None,
    Waiting(Pin<Box<dyn Future<Output = Option<Answering>> + Send>>),
    Had(Option<Arc<Answering>>),
}

/// Bytes that have left the body, and wait until the other end has a window for them. Their capacity is theirs until then.
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
    fn poll_capacity(&mut self, bytes: usize, context: &mut Context<'_>) -> Poll<Option<Arc<Answering>>> {
        loop {
            match &mut self.capacity {
                Wait::None => self.capacity = Wait::Waiting(Box::pin(Arc::clone(&self.seat).answer(bytes))),
                Wait::Waiting(waiting) => {
                    let capacity = ready!(waiting.as_mut().poll(context));
                    self.capacity = Wait::Had(capacity.map(Arc::new));
                }
                Wait::Had(capacity) => return Poll::Ready(capacity.clone()),
            }
        }
    }

    /// The next frame of a body whose size is not known, once there is capacity for it.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.next.is_none() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) if frame.is_data() => self.next = Some(frame),
                other => return Poll::Ready(other),
            }
        }
        let bytes = self.next.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len);
        let capacity = ready!(self.poll_capacity(bytes, context));
        self.capacity = Wait::None;
        Poll::Ready(self.next.take().map(|frame| Ok(with(capacity, frame))))
    }
}

/// A frame whose bytes have this capacity until they are sent.
fn with(capacity: Option<Arc<Answering>>, frame: Frame<Bytes>) -> Frame<Bytes> {
    frame.map_data(|bytes| Bytes::from_owner(Kept { bytes, _room: capacity }))
}

impl HttpBody for Going {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(bytes) = self.bytes else { return self.poll_next(context) };
        let capacity = ready!(self.poll_capacity(bytes, context));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map(|frame| with(capacity, frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none() && self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
