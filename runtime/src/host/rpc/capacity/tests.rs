//! Who takes more than there is, and who keeps what it does not use. The clock is the test's; connections are in memory.

use super::*;
use crate::host::rpc::{Security, serve_on};
use crate::host::shutdown::{Shutdown, ShutdownSender};
use crate::wire::WireVersion;
use bytes::Bytes;
use h2::client::SendRequest;
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc::UnboundedSender;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const MIB: usize = 1 << 20;
const ANSWER: usize = 3 * MIB;

fn limits() -> Limits {
    Limits { connections: 3, connections_per_host: 2, ..Limits::default() }
}

#[test]
fn seats_are_bounded_in_all_and_by_host_and_come_back() {
    let capacity = Capacity::new(limits());
    let other = |last| IpAddr::from([127, 0, 0, last]);
    let (first, second) = (capacity.seat(HERE).unwrap(), capacity.seat(HERE).unwrap());
    assert!(capacity.seat(HERE).unwrap_err().contains("from 127.0.0.1"));
    let third = capacity.seat(other(2)).unwrap();
    assert!(capacity.seat(other(3)).unwrap_err().starts_with("3 connections are open"));
    drop(first);
    let fourth = capacity.seat(other(3)).unwrap();
    drop((second, third, fourth));
    let taken = lock(&capacity.taken);
    assert_eq!((taken.connections, taken.by_host.len()), (0, 0));
}

/// Reads what it is sent, then answers: with what it has read, or with `ANSWER` bytes at `/calls/Pull`, and at `/calls/Known`
/// so that their number is known before.
#[derive(Clone)]
struct Calls;

impl NamedService for Calls {
    const NAME: &'static str = "calls";
}

impl tower::Service<http::Request<Body>> for Calls {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let path = request.uri().path();
            let (is_known, is_large) = (path.ends_with("Known"), !path.ends_with("Echo"));
            let bytes = match request.into_body().collect().await {
                Ok(_) if is_large => Bytes::from(vec![7; ANSWER]),
                Ok(came) => came.to_bytes(),
                Err(status) => return Ok(status.into_http()),
            };
            let length = bytes.len();
            let mut answer = http::Response::new(Body::new(Full::new(bytes).map_err(|never| match never {})));
            if is_known {
                answer.extensions_mut().insert(AnswerBytes(length));
            }
            Ok(answer)
        })
    }
}

/// A server in memory, and what connects to it.
struct Server {
    connect: UnboundedSender<io::Result<(DuplexStream, SocketAddr)>>,
    _stop: ShutdownSender,
}

impl Server {
    fn start(limits: Limits) -> Server {
        let (connect, incoming) = tokio::sync::mpsc::unbounded_channel();
        let incoming = tokio_stream::wrappers::UnboundedReceiverStream::new(incoming);
        let (_stop, shutdown) = Shutdown::pair();
        tokio::spawn(serve_on(incoming, Routes::new(Calls), limits, Security::Loopback, shutdown));
        Server { connect, _stop }
    }

    fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        self.connect.send(Ok((theirs, (HERE, 1).into()))).unwrap();
        ours
    }

    /// A connection over which calls are made, each with a window of so many bytes for its answer.
    async fn caller(&self, window: u32) -> SendRequest<Bytes> {
        let mut builder = h2::client::Builder::new();
        let shaken = builder.initial_window_size(window).handshake(self.connect()).await;
        let (caller, connection) = shaken.unwrap();
        tokio::spawn(connection);
        caller
    }
}

/// Sends `body`, and returns the head of the answer and its body.
async fn call(
    caller: &SendRequest<Bytes>,
    path: &str,
    body: Bytes,
) -> Result<http::Response<h2::RecvStream>, h2::Error> {
    let request = http::Request::post(format!("http://here/calls/{path}"))
        .header(WireVersion::ENTRY, WireVersion::PRESENT.0)
        .body(())
        .unwrap();
    let mut caller = caller.clone().ready().await?;
    let (answer, mut sending) = caller.send_request(request, false)?;
    sending.send_data(body, true)?;
    answer.await
}

async fn read(mut body: h2::RecvStream) -> Result<usize, h2::Error> {
    let mut bytes = 0;
    while let Some(data) = body.data().await {
        let length = data?.len();
        bytes += length;
        body.flow_control().release_capacity(length)?;
    }
    Ok(bytes)
}

fn status(head: &http::HeaderMap) -> Option<&str> {
    head.get("grpc-status").map(|status| status.to_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_nobody_calls_over_is_ended_and_one_that_is_called_over_is_not() {
    let server = Server::start(limits());
    let mut silent = server.connect();
    let caller = server.caller(65_535).await;
    call(&caller, "Echo", Bytes::from_static(b"1")).await.unwrap();
    let began = Instant::now();
    let mut settings = Vec::new();
    silent.read_to_end(&mut settings).await.unwrap();
    assert_eq!(began.elapsed(), limits().first_call);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(call(&caller, "Echo", Bytes::from_static(b"2")).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_third_connection_of_a_host_is_closed_and_taken_once_another_has_ended() {
    let server = Server::start(limits());
    let (first, _second) = (server.caller(1).await, server.caller(1).await);
    let mut third = server.connect();
    assert_eq!(third.read_to_end(&mut Vec::new()).await.unwrap(), 0, "closed without a word");
    drop(first);
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.caller(1).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_read_ends_its_connection_and_its_room_is_free() {
    let server = Server::start(Limits { bytes_in_flight: 2 * ANSWER, ..limits() });
    let (slow, other) = (server.caller(1000).await, server.caller(1 << 20).await);
    let mut unread = call(&slow, "Pull", Bytes::new()).await.unwrap().into_body();
    // It has capacity, and gets no window for the rest.
    unread.data().await.unwrap().unwrap();
    let began = Instant::now();
    // There is capacity for one.
    let other = call(&other, "Pull", Bytes::new()).await.unwrap();
    assert_eq!(read(other.into_body()).await.unwrap(), ANSWER);
    assert_eq!(began.elapsed(), limits().call);
    assert!(read(unread).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn answers_over_one_connection_take_their_share_and_leave_the_rest() {
    let shares = Limits { bytes_per_connection: 2 * ANSWER, bytes_in_flight: 6 * ANSWER, ..limits() };
    let server = Server::start(shares);
    let (slow, other) = (server.caller(1000).await, server.caller(1 << 20).await);
    let mut unread = Vec::new();
    for _ in 0..5 {
        unread.push(call(&slow, "Pull", Bytes::new()).await.unwrap().into_body());
    }
    for body in &mut unread[..2] {
        body.data().await.unwrap().unwrap();
    }
    let began = Instant::now();
    let other = call(&other, "Pull", Bytes::new()).await.unwrap();
    assert_eq!((read(other.into_body()).await.unwrap(), began.elapsed()), (ANSWER, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn an_answer_takes_room_for_all_that_it_has_and_no_more() {
    for path in ["Pull", "Known"] {
        // Capacity for one and a third.
        let server = Server::start(Limits { bytes_in_flight: 8 * MIB, ..limits() });
        let (slow, other) = (server.caller(1000).await, server.caller(1 << 20).await);
        let mut unread = call(&slow, path, Bytes::new()).await.unwrap().into_body();
        unread.data().await.unwrap().unwrap();
        let began = Instant::now();
        let fits = call(&other, "Echo", Bytes::from(vec![1; MIB])).await.unwrap();
        assert_eq!((read(fits.into_body()).await.unwrap(), began.elapsed()), (MIB, Duration::ZERO), "{path}");
        let waits = call(&other, path, Bytes::new()).await.unwrap();
        assert_eq!(read(waits.into_body()).await.unwrap(), ANSWER);
        assert_eq!(began.elapsed(), limits().call, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_larger_than_all_the_room_goes_alone() {
    for path in ["Pull", "Known"] {
        let server = Server::start(Limits { bytes_in_flight: 2 * MIB, ..limits() });
        let caller = server.caller(1 << 20).await;
        for _ in 0..3 {
            let answer = call(&caller, path, Bytes::new()).await.unwrap();
            assert_eq!(read(answer.into_body()).await.unwrap(), ANSWER);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_for_which_there_is_no_room_is_refused_and_may_be_sent_again() {
    let server = Server::start(Limits { bytes_in_flight: 4 * MIB, ..limits() });
    let caller = server.caller(1 << 20).await;
    let large = call(&caller, "Echo", Bytes::from(vec![1; 2 * MIB + 1])).await.unwrap();
    assert_eq!(status(large.headers()), Some("14"), "unavailable: asked again");
    let fits = call(&caller, "Echo", Bytes::from(vec![1; MIB])).await.unwrap();
    assert_eq!(read(fits.into_body()).await.unwrap(), MIB);
}

#[tokio::test(start_paused = true)]
async fn who_pings_without_end_waits_for_its_answers_and_others_do_not() {
    let server = Server::start(limits());
    let other = server.caller(65_535).await;
    let (caller, mut connection) = h2::client::handshake(server.connect()).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    tokio::spawn(connection);
    call(&caller, "Echo", Bytes::new()).await.unwrap();
    let began = Instant::now();
    for _ in 0..360 {
        pings.ping(h2::Ping::opaque()).await.unwrap();
    }
    // Two hundred at once, then twenty per second.
    let took = began.elapsed().as_secs_f64();
    assert!((7.9..=8.1).contains(&took), "{took} s");
    let began = Instant::now();
    call(&other, "Echo", Bytes::new()).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
}

fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = (content.len() as u32).to_be_bytes();
    [&[high, middle, low, kind, 0, 0, 0, 0, 0][..], content].concat()
}

/// Why frames are counted here: h2 (0.4.20) takes these as fast as they come, for ever. What it ends by itself is a flood of
/// empty data, of resets of calls that nobody has heard of yet, and of continuations.
#[tokio::test]
async fn without_a_pace_nothing_holds_back_pings_settings_windows_and_resets() {
    let unpaced = Limits { idle_frames_per_second: std::num::NonZeroU32::MAX, ..limits() };
    let last = frame(6, &[9; 8]);
    for flood in [frame(6, &[1; 8]), frame(4, &[]), frame(8, &[0, 0, 0, 1])] {
        let server = Server::start(unpaced);
        let (mut reading, mut writing) = tokio::io::split(server.connect());
        let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, &[])].concat();
        let sent = [preface, flood.repeat(10_000), last.clone()].concat();
        tokio::spawn(async move { writing.write_all(&sent).await });
        let mut came = Vec::new();
        while !came.ends_with(&[9; 8]) {
            assert_ne!(reading.read_buf(&mut came).await.unwrap(), 0, "h2 has ended it");
        }
    }
    let server = Server::start(unpaced);
    let caller = server.caller(65_535).await;
    for _ in 0..2000 {
        let request = http::Request::post("http://here/calls/Echo").body(()).unwrap();
        let (_, mut sending) = caller.clone().ready().await.unwrap().send_request(request, false).unwrap();
        tokio::task::yield_now().await;
        sending.send_reset(h2::Reason::CANCEL);
    }
    assert_eq!(call(&caller, "Echo", Bytes::new()).await.unwrap().status(), 200);
}
