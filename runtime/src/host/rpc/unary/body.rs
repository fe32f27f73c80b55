//! One message as an HTTP body: a prefix of five bytes, whether it is compressed and how long it is, then the message, then
//! trailers where it is an answer.

use crate::wire::rope::{Rope, Writer};
use bytes::{Buf, BufMut, Bytes};
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame};
use prost::Message;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;

const PREFIX: usize = 5;

/// Why a body is no message. What that means depends on which end made it: see the client and the server.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoMessage {
    /// The connection broke, or something in between ended the body early.
    #[error("the message ended before its end")]
    CutOff,
    /// The body ended with an error, which says why.
    #[error("{}", .0.message())]
    Broken(Status),
    #[error("a message of {bytes} bytes is too large: at most {limit} are sent or taken")]
    TooLong { bytes: usize, limit: usize },
    /// Whole, and not what was to come.
    #[error("{0}")]
    Malformed(String),
}

/// A message on its way out: its buffers as they are.
pub(super) struct Going {
    rope: Rope,
    trailers: Option<HeaderMap>,
}

impl Going {
    /// Refuses one of more than `limit` bytes.
    pub(super) fn new(message: &impl Message, limit: usize) -> Result<Going, NoMessage> {
        let bytes = message.encoded_len();
        let length = u32::try_from(bytes).ok().filter(|_| bytes <= limit);
        let Some(length) = length else { return Err(NoMessage::TooLong { bytes, limit }) };
        let mut writer = Writer::new(PREFIX + bytes);
        writer.put_u8(0);
        writer.put_u32(length);
        message.encode(&mut writer).map_err(|error| NoMessage::Malformed(error.to_string()))?;
        Ok(Going { rope: writer.finish(), trailers: None })
    }

    /// How long it is, its prefix included.
    pub(super) fn bytes(&self) -> usize {
        self.rope.remaining()
    }

    /// The same, with these after it.
    pub(super) fn with_trailers(self, trailers: HeaderMap) -> Going {
        Going { trailers: Some(trailers), ..self }
    }
}

impl HttpBody for Going {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match self.rope.pop() {
            Some(part) => Some(Frame::data(part)),
            None => self.trailers.take().map(Frame::trailers),
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        !self.rope.has_remaining() && self.trailers.is_none()
    }
}

/// The message in a body of at most one, and what came after it; none where the body is empty. What comes in small parts is
/// gathered: a stranger's single bytes must not take a buffer each.
pub(super) async fn received<M: Message + Default>(
    mut body: Body,
    limit: usize,
) -> Result<(Option<M>, Option<HeaderMap>), NoMessage> {
    let (mut head, mut coming, mut trailers) = (Rope::default(), None, None);
    while let Some(frame) = body.frame().await {
        let mut part = match frame.map_err(NoMessage::Broken)?.into_data() {
            Ok(part) => part,
            Err(frame) => {
                trailers = frame.into_trailers().ok();
                continue;
            }
        };
        if coming.is_none() {
            head.push(part);
            if head.remaining() >= PREFIX {
                let bytes = prefix(&mut head, limit)?;
                coming = Some((bytes, Writer::new(bytes)));
            }
            part = if coming.is_some() { head.pop().unwrap_or_default() } else { Bytes::new() };
        }
        let Some((bytes, writer)) = &mut coming else { continue };
        writer.put(part);
        if writer.written() > *bytes {
            return Err(malformed("more came than the one message that was announced"));
        }
    }
    let message = match coming {
        None if head.has_remaining() => return Err(NoMessage::CutOff),
        None => None,
        Some((bytes, writer)) if writer.written() < bytes => return Err(NoMessage::CutOff),
        Some((_, writer)) => Some(M::decode(writer.finish()).map_err(malformed)?),
    };
    Ok((message, trailers))
}

/// Takes the prefix off: how long the message is.
fn prefix(rope: &mut Rope, limit: usize) -> Result<usize, NoMessage> {
    if rope.get_u8() != 0 {
        return Err(malformed("a compressed message came, and nobody here compresses"));
    }
    let bytes = rope.get_u32() as usize;
    if bytes > limit { Err(NoMessage::TooLong { bytes, limit }) } else { Ok(bytes) }
}

fn malformed(what: impl ToString) -> NoMessage {
    NoMessage::Malformed(what.to_string())
}
