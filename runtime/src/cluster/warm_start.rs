//! Where parameters begin instead of at their initial values: a file of tensors, pinned when the job began. Values only.

use serde::{Deserialize, Serialize};

/// A safetensors file and what it was when the job began.
///
/// Parameters of the names of its tensors begin at its values, metrics excepted. Pinned are length and header, which any
/// range read can be checked against; the tensors' bytes have no checksum in this format. So names, kinds, shapes,
/// places and the metadata (in exports of Shoal a hash of the model) cannot change unseen, and nobody may write to the
/// file while the job lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmStart {
    /// The folder or bucket, as master and pservers reach it.
    pub place: String,
    /// The file's name there.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of everything before the first tensor's bytes.
    pub header_sha256: [u8; 32],
}
