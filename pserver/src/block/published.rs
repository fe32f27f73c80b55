//! A published version: an immutable buffer, shared by everyone who sends it. It must never be written again.

use bytes::Bytes;
use std::sync::Arc;

#[cfg(target_endian = "big")]
compile_error!("published buffers are sent as they lie in memory, which must be little-endian");

/// The parameters of a block at one version.
#[derive(Clone, Debug)]
pub struct Published {
    values: Arc<Vec<f32>>,
    bytes: Bytes,
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
        let values = Arc::new(values);
        Published { bytes: bytes_of(Arc::clone(&values)), values }
    }
    /// The values.
    pub fn values(&self) -> &[f32] {
        &self.values
    }
    /// The same as little-endian bytes; clones share the buffer.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}
