//! The limits of every connection, in one place.

use std::num::NonZeroU32;
use std::time::Duration;

/// Limits that both ends of a connection agree on.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest message that is sent or taken, in bytes: a whole block with all the states that the largest delay
    /// keeps, and others beside it.
    pub message_bytes: usize,
    /// HTTP/2 frame size on both ends: large frames halve the cost of megabyte messages.
    pub frame_bytes: u32,
    /// HTTP/2 window of one stream and of one connection, in bytes.
    pub stream_window_bytes: u32,
    /// See `stream_window_bytes`.
    pub connection_window_bytes: u32,
    /// Calls in flight on one connection.
    pub calls_per_connection: u32,
    /// Connections that a process takes, in all. Those beyond are closed at once, and whoever wanted one tries again.
    pub connections: usize,
    /// Of these, from one host.
    pub connections_per_host: usize,
    /// What a process keeps in memory, in bytes, half of it for requests and half for answers: a request for which there
    /// is no capacity is refused, an answer waits.
    pub bytes_in_flight: usize,
    /// Of these, answers over one connection: who does not read takes no more than this.
    pub bytes_per_connection: usize,
    /// Frames that carry nothing (pings, settings, windows, resets) which a connection may send per second beside what
    /// goes with its calls, and ten times as many at once.
    pub idle_frames_per_second: NonZeroU32,
    /// How long a connection may be open before somebody calls over it.
    pub first_call: Duration,
    /// How long a connection may take to come about.
    pub connect: Duration,
    /// How long one call may take, and then its answer. Long polls stay below it.
    pub call: Duration,
    /// How often a silent connection is pinged, and how long the answer may take.
    pub keepalive: Duration,
    /// How old a connection over TLS grows before a server asks for a new one, calls in flight being finished: whom
    /// certificates let in is asked anew at least so often.
    pub connection_age: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message_bytes: 20 << 20,
            frame_bytes: 1 << 20,
            stream_window_bytes: 16 << 20,
            connection_window_bytes: 64 << 20,
            calls_per_connection: 256,
            connections: 16 << 10,
            connections_per_host: 4 << 10,
            bytes_in_flight: 1 << 30,
            bytes_per_connection: 64 << 20,
            idle_frames_per_second: const { NonZeroU32::new(20).unwrap() },
            first_call: Duration::from_secs(10),
            connect: Duration::from_secs(5),
            call: Duration::from_secs(30),
            keepalive: Duration::from_secs(20),
            connection_age: Duration::from_secs(600),
        }
    }
}
