//! Messages as ropes: the large fields of one are buffers that it shares with whoever has them, on the way out and on the way
//! in. Nothing large is copied here, unless it came in pieces.

#![allow(unsafe_code, reason = "bytes' trait of what is written to is an unsafe one")]

use bytes::buf::UninitSlice;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::VecDeque;

/// A field of fewer bytes is copied beside others: a buffer of its own, and so a frame of its own, costs more.
const SHARED_MIN: usize = 64 << 10;
/// Bytes of the buffers in which such fields are gathered.
const GATHERED: usize = 256 << 10;
/// Bytes of the first buffer: of a message that has one large field nothing else is gathered.
const HEAD: usize = 512;

/// Bytes in several buffers, one after another.
#[derive(Debug, Default)]
pub struct Rope {
    /// None of them empty.
    parts: VecDeque<Bytes>,
    bytes: usize,
}

impl Rope {
    /// Adds bytes to its end.
    pub fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.bytes += part.len();
            self.parts.push_back(part);
        }
    }

    /// Takes its first buffer off.
    pub fn pop(&mut self) -> Option<Bytes> {
        let part = self.parts.pop_front()?;
        self.bytes -= part.len();
        Some(part)
    }
}

impl Buf for Rope {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&[], |part| part)
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.bytes, "{count} of {} bytes", self.bytes);
        while let Some(part) = self.parts.front_mut().filter(|_| count > 0) {
            let taken = count.min(part.len());
            if taken < part.len() {
                part.advance(taken);
            } else {
                self.parts.pop_front();
            }
            (count, self.bytes) = (count - taken, self.bytes - taken);
        }
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        assert!(count <= self.bytes, "{count} of {} bytes", self.bytes);
        match self.parts.front_mut() {
            Some(part) if part.len() > count => {
                self.bytes -= count;
                part.split_to(count)
            }
            Some(part) if part.len() == count => self.pop().unwrap_or_default(),
            _ => {
                let mut bytes = BytesMut::with_capacity(count);
                bytes.put(self.take(count));
                bytes.freeze()
            }
        }
    }
}

/// A rope that is being written, front to back.
#[derive(Debug)]
pub struct Writer {
    rope: Rope,
    /// What follows it. It never grows, for that would copy it.
    end: BytesMut,
    /// Of the whole message.
    bytes: usize,
}

impl Writer {
    /// For a message of so many bytes.
    pub fn new(bytes: usize) -> Writer {
        Writer { rope: Rope::default(), end: BytesMut::with_capacity(bytes.min(HEAD)), bytes }
    }

    /// Bytes written so far.
    pub fn written(&self) -> usize {
        self.rope.bytes + self.end.len()
    }

    /// All that was written.
    pub fn finish(mut self) -> Rope {
        self.seal();
        self.rope
    }

    fn seal(&mut self) {
        self.rope.push(self.end.split().freeze());
    }

    fn make_room(&mut self, bytes: usize) {
        if self.end.capacity() - self.end.len() < bytes {
            self.seal();
            let left = self.bytes.saturating_sub(self.rope.remaining());
            self.end = BytesMut::with_capacity(left.min(GATHERED).max(bytes));
        }
    }
}

// SAFETY: room and writing are those of `end`, whose own implementation is sound; nothing is taken off it but what was written.
unsafe impl BufMut for Writer {
    fn remaining_mut(&self) -> usize {
        self.end.remaining_mut()
    }

    unsafe fn advance_mut(&mut self, count: usize) {
        // SAFETY: the caller has written so many bytes to `chunk_mut`, which is the end's.
        unsafe { self.end.advance_mut(count) }
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        self.make_room(1);
        self.end.chunk_mut()
    }

    fn put<T: Buf>(&mut self, mut bytes: T) {
        let count = bytes.remaining();
        if count < SHARED_MIN {
            self.make_room(count);
            return self.end.put(bytes);
        }
        self.seal();
        self.rope.push(bytes.copy_to_bytes(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::proto::{BlockGradient, PushRequest};
    use proptest::prelude::*;
    use prost::Message;

    fn gradient(bytes: usize) -> BlockGradient {
        let gradient: Bytes = (0..bytes).map(|at| at as u8).collect();
        BlockGradient { block: bytes as u32, gradient, rewind: 1 << 40, version: 300, ..Default::default() }
    }
    fn push(sizes: &[usize]) -> PushRequest {
        let blocks = sizes.iter().map(|size| gradient(*size)).collect();
        PushRequest { job: "job".into(), step: 1 << 50, blocks, ..Default::default() }
    }
    fn rope(message: &impl Message) -> Rope {
        let mut writer = Writer::new(message.encoded_len());
        message.encode(&mut writer).unwrap();
        writer.finish()
    }
    fn flat(mut rope: Rope) -> Vec<u8> {
        let parts: Vec<Bytes> = std::iter::from_fn(|| rope.pop()).collect();
        assert_eq!(rope.remaining(), 0);
        parts.concat()
    }
    /// The same bytes, cut elsewhere.
    fn cut(bytes: &[u8], cuts: &[usize]) -> Rope {
        let (mut rope, mut rest) = (Rope::default(), Bytes::copy_from_slice(bytes));
        for cut in cuts {
            rope.push(rest.split_to(*cut % (rest.len() + 1)));
        }
        rope.push(rest);
        rope
    }

    #[test]
    fn what_is_large_is_shared_on_both_ways() {
        let message = push(&[10, 100_000, SHARED_MIN, 700]);
        let whole = rope(&message);
        let shares = |bytes: &Bytes| whole.parts.iter().any(|part| part.as_ptr() == bytes.as_ptr());
        let shared: Vec<bool> = message.blocks.iter().map(|block| shares(&block.gradient)).collect();
        assert_eq!((shared, whole.parts.len()), (vec![false, true, true, false], 6));
        let came = PushRequest::decode(whole).unwrap();
        assert_eq!(came, message);
        assert_eq!(came.blocks[1].gradient.as_ptr(), message.blocks[1].gradient.as_ptr());
    }

    #[test]
    fn what_is_small_is_gathered_and_never_moved() {
        let message = push(&[40_000; 20]);
        let whole = rope(&message);
        let sizes: Vec<usize> = whole.parts.iter().map(Bytes::len).collect();
        assert!(sizes.len() < 7 && sizes.iter().all(|size| *size <= GATHERED), "{sizes:?}");
        assert_eq!(PushRequest::decode(whole).unwrap(), message);
        let many = push(&[100; 5000]);
        assert_eq!(PushRequest::decode(rope(&many)).unwrap(), many);
    }

    #[test]
    fn bytes_that_come_one_by_one_take_no_buffer_each() {
        let bytes = flat(rope(&push(&[300_000, 5])));
        let mut writer = Writer::new(bytes.len());
        let whole = Bytes::from(bytes.clone());
        (0..whole.len()).for_each(|at| writer.put(whole.slice(at..at + 1)));
        assert_eq!(writer.written(), bytes.len());
        let whole = writer.finish();
        assert!(whole.parts.len() < 4, "{} parts", whole.parts.len());
        assert_eq!(flat(whole), bytes);
    }

    #[test]
    fn more_than_there_is_is_not_read() {
        let mut short = flat(rope(&push(&[50_000])));
        short.truncate(40_000);
        assert!(PushRequest::decode(cut(&short, &[7, 20_000])).is_err());
        assert!(std::panic::catch_unwind(|| cut(&[1, 2], &[1]).advance(3)).is_err());
        assert!(std::panic::catch_unwind(|| cut(&[1, 2], &[1]).copy_to_bytes(3)).is_err());
    }

    proptest! {
        #[test]
        fn a_rope_is_the_message_wherever_it_is_cut(
            sizes in prop::collection::vec(prop_oneof![0usize..20, 3000usize..9000, 65_000usize..66_000], 0..6),
            cuts in prop::collection::vec(0usize..50_000, 0..12),
        ) {
            let message = push(&sizes);
            let bytes = flat(rope(&message));
            prop_assert_eq!(&bytes, &message.encode_to_vec());
            prop_assert_eq!(PushRequest::decode(cut(&bytes, &cuts)).unwrap(), message);
        }
    }
}
