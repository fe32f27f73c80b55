//! Looking at this machine, and at nothing twice. What is found is judged elsewhere; nothing is changed, and nothing is left behind.

#[cfg(feature = "cluster")]
pub(super) mod cluster;
pub(super) mod disk;
pub(super) mod group;
pub(super) mod machine;
pub(super) mod python;
pub(super) mod trust;
