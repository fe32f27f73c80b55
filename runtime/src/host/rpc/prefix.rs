//! A message's prefix as a frame of its own. Tonic asks for the message's memory once it has read the prefix, and moves what
//! came with it: of a message in one frame that is everything.

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::body::Body;

/// Bytes of the prefix: whether the message is compressed, and its length.
const PREFIX: usize = 5;

/// The same bytes, the first five by themselves.
pub(super) fn apart(body: Body) -> Body {
    Body::new(Apart { body, start: Start::Ahead })
}

struct Apart {
    body: Body,
    start: Start,
}

/// What has become of the first frame.
enum Start {
    Ahead,
    /// All but the prefix is still here.
    Rest(Bytes),
    Past,
}

impl HttpBody for Apart {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match std::mem::replace(&mut self.start, Start::Past) {
            Start::Rest(rest) => return Poll::Ready(Some(Ok(Frame::data(rest)))),
            Start::Past => return Pin::new(&mut self.body).poll_frame(context),
            Start::Ahead => {
                self.start = Start::Ahead;
                ready!(Pin::new(&mut self.body).poll_frame(context))
            }
        };
        self.start = Start::Past;
        let split = |mut data: Bytes| {
            if data.len() > PREFIX {
                self.start = Start::Rest(data.split_off(PREFIX));
            }
            data
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(split))))
    }

    fn is_end_stream(&self) -> bool {
        !matches!(self.start, Start::Rest(_)) && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, StreamBody};

    #[tokio::test]
    async fn the_first_bytes_come_alone_and_nothing_is_lost() {
        for lengths in [vec![], vec![3, 9], vec![5], vec![5, 7], vec![6], vec![4000, 2, 4000]] {
            let all: Vec<u8> = (0..lengths.iter().sum()).map(|at: usize| at as u8).collect();
            let mut rest = Bytes::from(all.clone());
            let frames: Vec<Bytes> = lengths.iter().map(|length| rest.split_to(*length)).collect();
            let frames = frames.into_iter().map(|frame| Ok::<_, Status>(Frame::data(frame)));
            let mut body = apart(Body::new(StreamBody::new(futures_util::stream::iter(frames))));
            let mut came: Vec<Bytes> = Vec::new();
            while let Some(frame) = body.frame().await {
                came.push(frame.unwrap().into_data().unwrap());
            }
            assert_eq!(came.concat(), all);
            assert!(came.first().is_none_or(|first| first.len() <= PREFIX));
            assert!(came.len() <= lengths.len() + 1);
        }
    }
}
