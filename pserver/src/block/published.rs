//! A published version: an immutable buffer, shared by everyone who sends it. It must never be written again.

use crate::device::Outcome;
use bytes::Bytes;
use std::sync::Arc;

#[cfg(target_endian = "big")]
compile_error!("published buffers are sent as they lie in memory, which must be little-endian");

/// The parameters of a block at one version: here, or where a device makes them and perhaps leaves them.
#[derive(Clone, Debug)]
pub struct Published(Content);

#[derive(Clone, Debug)]
enum Content {
    Here(Bytes),
    There(Outcome),
}

struct Owner(Arc<Vec<f32>>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// A shared buffer as little-endian bytes, without a copy.
pub fn bytes_of(values: Arc<Vec<f32>>) -> Bytes {
    Bytes::from_owner(Owner(values))
}

impl Published {
    /// Publishes a buffer without copying it.
    pub fn new(values: Vec<f32>) -> Published {
        Published(Content::Here(bytes_of(Arc::new(values))))
    }
    /// What a device makes.
    pub(super) fn there(outcome: Outcome) -> Published {
        Published(Content::There(outcome))
    }
    fn content(&self) -> Option<&Bytes> {
        match &self.0 {
            Content::Here(bytes) => Some(bytes),
            Content::There(outcome) => outcome.bytes(),
        }
    }
    /// Whether it is made: here, or on a device.
    pub fn is_made(&self) -> bool {
        match &self.0 {
            Content::Here(_) => true,
            Content::There(outcome) => outcome.is_made(),
        }
    }
    /// The update on a device that makes it, if one does.
    pub(super) fn outcome(&self) -> Option<&Outcome> {
        match &self.0 {
            Content::Here(_) => None,
            Content::There(outcome) => Some(outcome),
        }
    }
    /// The values; of one that is not here none.
    pub fn values(&self) -> &[f32] {
        self.content().map_or(&[], |bytes| bytemuck::cast_slice(bytes))
    }
    /// The same as little-endian bytes, if it is here; clones share the buffer.
    pub fn bytes(&self) -> Option<Bytes> {
        self.content().cloned()
    }
}
