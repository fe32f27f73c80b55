//! How fast a connection may send frames that carry nothing: pings, settings, windows, empty data, and above all resets.
//! Each takes an answer or some bookkeeping and costs its sender next to nothing (RFC 9113, section 10.5). Whoever has
//! spent what they are given is read from no further until time has given them more: they wait, nobody else does, and
//! nothing is kept for them but what their socket holds. h2 bounds the memory that such frames take, and no rate but that of
//! empty data: see `without_a_pace_nothing_holds_back_pings_settings_windows_and_resets`.

use std::num::NonZeroU32;
use std::time::Duration;
use tokio::time::Instant;

/// What a client says first, before any frame.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// Length (3 bytes), type, flags, stream (4 bytes).
const HEADER: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
/// What a call gives for the windows and pings that go with it. A reset takes more than its call has given.
const CALL_GIVES: f64 = 2.0;
const RESET_TAKES: f64 = 3.0;
/// Of an answer so many bytes give one, for the windows that are opened for it.
const BYTES_GIVE: f64 = 8192.0;
/// What has not been spent is kept for so long.
const KEPT: Duration = Duration::from_secs(10);

/// What one connection may send, counted in frames.
#[derive(Debug)]
pub(in crate::host::rpc) struct FrameRate {
    frames: Frames,
    per_second: f64,
    /// Below nothing while it has to wait.
    left: f64,
    at: Instant,
}

impl FrameRate {
    pub(in crate::host::rpc) fn new(per_second: NonZeroU32) -> FrameRate {
        let per_second = f64::from(per_second.get());
        let left = per_second * KEPT.as_secs_f64();
        FrameRate { frames: Frames::default(), per_second, left, at: Instant::now() }
    }

    /// These bytes came.
    pub(in crate::host::rpc) fn came(&mut self, bytes: &[u8]) {
        let cost = self.frames.cost(bytes);
        if cost == 0.0 {
            return;
        }
        let now = Instant::now();
        self.give(self.per_second * (now - self.at).as_secs_f64());
        self.give(-cost);
        self.at = now;
    }

    /// So many bytes were sent.
    pub(in crate::host::rpc) fn sent(&mut self, bytes: usize) {
        self.give(bytes as f64 / BYTES_GIVE);
    }

    fn give(&mut self, frames: f64) {
        self.left = (self.left + frames).min(self.per_second * KEPT.as_secs_f64());
    }

    /// Until when nothing more is to be read.
    pub(in crate::host::rpc) fn waits_until(&self) -> Option<Instant> {
        (self.left < 0.0).then(|| self.at + Duration::from_secs_f64(-self.left / self.per_second))
    }
}

/// The frames of a connection, as far as it has been read.
#[derive(Debug, Default)]
struct Frames {
    /// Of the preface or a header, how much came.
    begun: usize,
    is_past_preface: bool,
    header: [u8; HEADER],
    /// Of a frame's content, how much is to come.
    content: usize,
}

impl Frames {
    /// What the frames whose headers end in `bytes` take; less than nothing for calls.
    fn cost(&mut self, mut bytes: &[u8]) -> f64 {
        let mut cost = 0.0;
        while !bytes.is_empty() {
            if !self.is_past_preface {
                let part = bytes.len().min(PREFACE - self.begun);
                self.begun = (self.begun + part) % PREFACE;
                self.is_past_preface = self.begun == 0;
                bytes = &bytes[part..];
            } else if self.content > 0 {
                let part = bytes.len().min(self.content);
                self.content -= part;
                bytes = &bytes[part..];
            } else {
                let part = bytes.len().min(HEADER - self.begun);
                self.header[self.begun..self.begun + part].copy_from_slice(&bytes[..part]);
                self.begun += part;
                bytes = &bytes[part..];
                if self.begun == HEADER {
                    self.begun = 0;
                    cost += self.begin_frame();
                }
            }
        }
        cost
    }

    fn begin_frame(&mut self) -> f64 {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.content = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        match kind {
            HEADERS => -CALL_GIVES,
            DATA if self.content > 0 || flags & END_STREAM != 0 => 0.0,
            RST_STREAM => RESET_TAKES,
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_SECOND: NonZeroU32 = NonZeroU32::new(20).unwrap();

    fn frame(kind: u8, flags: u8, content: usize) -> Vec<u8> {
        let [_, high, middle, low] = (content as u32).to_be_bytes();
        let mut frame = vec![high, middle, low, kind, flags, 0, 0, 0, 1];
        frame.resize(HEADER + content, 0xff);
        frame
    }

    /// A connection's first bytes: a call of three frames, two of a body's, one that ends it, then pings and a reset.
    fn stream(pings: usize) -> Vec<u8> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        for (kind, flags, content) in
            [(4, 0, 18), (HEADERS, 4, 70), (DATA, 0, 300), (DATA, 1, 0), (DATA, 0, 0)]
        {
            bytes.extend(frame(kind, flags, content));
        }
        (0..pings).for_each(|_| bytes.extend(frame(6, 0, 8)));
        bytes.extend(frame(RST_STREAM, 0, 4));
        bytes
    }

    #[test]
    fn frames_are_the_same_however_they_are_cut() {
        // Settings and empty data, less what the call gives, the pings, and the reset.
        let expected = 1.0 + 1.0 - 2.0 + 40.0 + 3.0;
        let bytes = stream(40);
        for length in 1..bytes.len() {
            let mut frames = Frames::default();
            let cost: f64 = bytes.chunks(length).map(|part| frames.cost(part)).sum();
            assert_eq!((cost, frames.begun, frames.content), (expected, 0, 0), "{length} bytes at a time");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_spent_its_frames_waits_until_time_has_given_more() {
        let mut pace = FrameRate::new(PER_SECOND);
        pace.came(&stream(197));
        assert_eq!(pace.waits_until(), None, "as much as is kept");
        pace.came(&frame(6, 0, 8));
        assert_eq!(pace.waits_until(), Some(Instant::now() + Duration::from_millis(50)));
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..19 {
            pace.came(&frame(6, 0, 8));
        }
        assert_eq!(pace.waits_until(), None);
        // No more than ten seconds' are kept.
        tokio::time::advance(Duration::from_secs(100)).await;
        pace.came(&frame(6, 0, 8).repeat(240));
        assert_eq!(pace.waits_until(), Some(Instant::now() + Duration::from_secs(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_and_their_windows_never_wait_and_calls_that_are_taken_back_do() {
        let (call, window) = (frame(HEADERS, 5, 70), frame(8, 0, 4));
        let mut pace = FrameRate::new(PER_SECOND);
        pace.came(&[0; PREFACE]);
        for _ in 0..10_000 {
            pace.came(&[&call[..], &window, &window].concat());
            pace.sent(1 << 20);
            pace.came(&window.repeat(128));
            assert_eq!(pace.waits_until(), None);
        }
        for _ in 0..201 {
            pace.came(&[&call[..], &frame(RST_STREAM, 0, 4)].concat());
        }
        assert!(pace.waits_until().is_some());
    }
}
