//! What must hold of any bytes that reach a decoder: the bodies of the fuzz targets, which an ordinary test runs too. They must
//! never look at why something is refused, only that nothing panics and that what is taken is what was meant.

#[path = "../../tests/recorded/messages.rs"]
pub(crate) mod messages;
mod stored;
mod wire;

pub(crate) use stored::{etcd, manifest, pieces, store, tensors};
pub(crate) use wire::wire;

/// One target.
pub(crate) type Body = fn(&[u8]);

/// All targets by name, each with its folder in the corpus.
pub(crate) const ALL: [(&str, Body); 6] = [
    ("wire", wire),
    ("manifest", manifest),
    ("pieces", pieces),
    ("tensors", tensors),
    ("store", store),
    ("etcd", etcd),
];
