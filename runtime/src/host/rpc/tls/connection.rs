//! One connection, secured or not: bytes, who is at the other end, and when it is over. It outlives neither of the two
//! certificates that it was made with.

use super::identity::Identity;
use crate::host::rpc::capacity::{FrameRate, Seat};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsStream;
use tonic::transport::server::Connected;

/// The first byte of a TLS alert. No HTTP/2 server begins with it: its first byte is that of a length below 2^20.
const ALERT: u8 = 0x15;
/// A timer that is set further than this is none: certificates may be good for longer than timers run.
const FAR: Duration = Duration::from_secs(3600 * 24 * 365);

/// A connection over any stream of bytes.
pub struct Connection<S> {
    stream: Stream<S>,
    peer: Peer,
    end: Option<Pin<Box<Sleep>>>,
    /// Until its seat is overdue.
    overdue: Timer,
    /// Of a connection with a seat.
    pace: Option<FrameRate>,
    /// Until more may be read at this pace.
    held_back: Timer,
    /// Set when the first byte heard is that of a TLS alert; none once a byte was heard.
    speaks_tls: Option<Arc<AtomicBool>>,
}

/// Set anew whenever it is asked about another time.
#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Whether it is `time`, and if not wakes whoever asks once it is.
    fn is(&mut self, time: Instant, context: &mut Context<'_>) -> bool {
        let timer = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(time)));
        if timer.deadline() != time {
            timer.as_mut().reset(time);
        }
        timer.as_mut().poll(context).is_ready()
    }
}

enum Stream<S> {
    Plain(S),
    Tls(Box<TlsStream<S>>),
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// By its certificate; nobody in particular without TLS.
    pub identity: Option<Identity>,
    /// The capacity that it has here; none where we have called.
    pub(in crate::host::rpc) seat: Option<Arc<Seat>>,
}

impl<S> Connection<S> {
    /// Without TLS. `speaks_tls` is set if the other end answers with TLS.
    pub(super) fn plain(stream: S, speaks_tls: Option<Arc<AtomicBool>>) -> Connection<S> {
        Connection::of(Stream::Plain(stream), None, None, speaks_tls)
    }

    /// Over TLS, with `peer`, for `lasts` at most.
    pub(super) fn tls(stream: TlsStream<S>, peer: Identity, lasts: Duration) -> Connection<S> {
        let end = (lasts < FAR).then(|| Box::pin(tokio::time::sleep(lasts)));
        Connection::of(Stream::Tls(Box::new(stream)), Some(peer), end, None)
    }

    fn of(
        stream: Stream<S>,
        identity: Option<Identity>,
        end: Option<Pin<Box<Sleep>>>,
        speaks_tls: Option<Arc<AtomicBool>>,
    ) -> Connection<S> {
        let peer = Peer { identity, seat: None };
        let (overdue, held_back) = Default::default();
        Connection { stream, peer, end, overdue, pace: None, held_back, speaks_tls }
    }

    /// In this seat.
    pub(super) fn seated(mut self, seat: Arc<Seat>) -> Connection<S> {
        self.pace = Some(seat.pace());
        self.peer.seat = Some(seat);
        self
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    fn check_end(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().map(|end| end.as_mut().poll(context)) {
            Some(Poll::Ready(())) => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "a certificate has expired"))
            }
            _ => self.check_seat(context),
        }
    }

    fn check_seat(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Some(seat) = &self.peer.seat else { return Ok(()) };
        let Some(end) = seat.overdue() else { return Ok(()) };
        if self.overdue.is(end, context) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, seat.end()));
        }
        Ok(())
    }

    /// Whether nothing more is to be read at present.
    fn is_held_back(&mut self, context: &mut Context<'_>) -> bool {
        let Some(until) = self.pace.as_ref().and_then(FrameRate::waits_until) else { return false };
        !self.held_back.is(until, context)
    }

    /// These bytes came.
    fn heard(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first()
            && let Some(speaks_tls) = self.speaks_tls.take()
        {
            speaks_tls.store(*first == ALERT, Relaxed);
        }
        let Some(pace) = &mut self.pace else { return };
        pace.came(bytes);
        if pace.waits_until().is_some()
            && let Some(seat) = &self.peer.seat
        {
            seat.hold_back();
        }
    }

    /// What came of an attempt to write.
    fn wrote(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Some(pace), Poll::Ready(Ok(bytes))) = (&mut self.pace, &written) {
            pace.sent(*bytes);
        }
        written
    }
}

impl<S> Connected for Connection<S> {
    type ConnectInfo = Peer;
    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_end(context)?;
        if self.is_held_back(context) {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        self.heard(&buffer.filled()[before..]);
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_end(context)?;
        let written = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_end(context)?;
        let written = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        };
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
