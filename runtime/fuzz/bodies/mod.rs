//! What must hold of any bytes that reach a decoder: the bodies of the fuzz targets, which an ordinary test runs too. They must
//! never look at why something is refused, only that nothing panics and that what is taken is what was meant.

pub(crate) mod messages;
mod stored;
mod wire;

pub(crate) use stored::{etcd, manifest, pieces, store, tensors};
pub(crate) use wire::wire;

use std::fmt::Debug;

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

/// What is taken, written and taken again is the same. A zero is one without its sign: proto3 leaves a zero out, sign and all.
fn assert_same(again: &impl Debug, taken: &impl Debug) {
    assert_eq!(without_sign(again), without_sign(taken));
}

fn without_sign(value: &impl Debug) -> String {
    let said = format!("{value:?}");
    let ends = [",", " ", ")", "]", "}"];
    ends.iter().fold(said, |said, end| said.replace(&format!("-0.0{end}"), &format!("0.0{end}")))
}
